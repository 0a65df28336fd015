/* The endpoint target against a scripted server: events of several tokens, usage here and there,
 * errors before and inside a stream, a stream that is cut, refusals that are tried again.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "mock_server.h"
#include "table.h"
#include "target/target.h"

#define HEAD    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
#define TEXT(t) "data: {\"choices\":[{\"index\":0,\"text\":\"" t "\"}]}\n\n"
#define TEXT_N(t, n)                                                                        \
    "data: {\"choices\":[{\"index\":0,\"text\":\"" t "\"}],\"usage\":{\"prompt_tokens\":4," \
    "\"completion_tokens\":" #n "}}\n\n"
#define FINISH(why) "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"" why "\"}]}\n\n"
#define USAGE(n) \
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":" #n "}}\n\n"
#define DONE "data: [DONE]\n\n"
#define PIECES(...)       \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }
#define WHOLE(body) "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" body

static const mock_answer answers[] = {
    {"plain", PIECES(HEAD TEXT("one"), TEXT(" two"), TEXT(" three"), FINISH("stop") USAGE(3) DONE),
     20, 0},
    {"packed", PIECES(HEAD TEXT("a b c"), TEXT(" d e"), FINISH("length") USAGE(5) DONE), 20, 0},
    {"counted",
     PIECES(HEAD TEXT_N("a b", 2), TEXT_N("", 3), TEXT_N(" c d", 5), FINISH("stop") USAGE(5) DONE),
     0, 0},
    {"silent", PIECES(HEAD TEXT("x"), TEXT("y"), FINISH("stop") DONE), 0, 0},
    {"shredded",
     PIECES(HEAD "da", "ta: {\"choices\":[{\"text\":\"\xF0\x9F", "\x8C\x8A\"}]}\n", "\nda",
            "ta: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n" DONE),
     5, 0},
    {"cut_short", PIECES(HEAD TEXT("half")), 0, 0},
    {"error_inside",
     PIECES(HEAD TEXT("half"), "data: {\"error\":{\"message\":\"out of pages\"}}\n\n"), 0, 0},
    {"not_json", PIECES(HEAD "data: <html>\n\n"), 0, 0},
    {"wrong_types",
     PIECES(HEAD "data: {\"choices\":{\"a\":1},\"usage\":[]}\n\n"
                 "data: {\"choices\":[{\"text\":5}],\"usage\":{\"prompt_tokens\":\"4\","
                 "\"completion_tokens\":-1}}\n\n" FINISH("stop") DONE),
     0, 0},
    {"negative_count", PIECES(HEAD TEXT_N("a", -7) FINISH("stop") DONE), 0, 0},
    {"refused",
     PIECES(
         "HTTP/1.1 400 Bad\r\nConnection: close\r\n\r\n{\"error\":{\"message\":\"no such key\"}}"),
     0, 0},
    {"broken", PIECES("HTTP/1.1 500 Oops\r\nConnection: close\r\n\r\noops!"), 0, 0},
    {"busy_twice", PIECES(HEAD TEXT("at last"), FINISH("stop") USAGE(2) DONE), 0, 2},
    {"busy_for_ever", PIECES(HEAD), 0, 1000},
    {"whole",
     PIECES(WHOLE("{\"choices\":[{\"text\":\"all of it\",\"finish_reason\":\"length\"}],"
                  "\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}")),
     0, 0},
    {"nul_inside", PIECES(HEAD TEXT("a\\u0000b"), FINISH("stop") DONE), 0, 0},
    {"slow", PIECES(HEAD TEXT("a"), TEXT("b"), TEXT("c"), FINISH("stop") DONE), 700, 0},
};

static mock_server *server;
static nw_target *counting, *plain; /* told to be vLLM, and an unknown server */

static nw_gen_request ask(const char *prompt)
{
    return (nw_gen_request){
        .prompt = prompt, .n_prompt_bytes = strlen(prompt), .max_tokens = 8, .temperature = 0};
}

static struct row {
    const char *name; /* the prompt too */
    bool counts;      /* of the server that counts in every event */
    nw_status status;
    nw_gen_finish finish;
    const char *text;
    uint32_t n_output;
    size_t n_events;
    uint32_t tokens[3]; /* of the events */
    const char *error;  /* part of it */
} rows[] = {
    {"plain", false, NW_OK, NW_GEN_STOP, "one two three", 3, 3, {1, 1, 1}, NULL},
    {"packed", false, NW_OK, NW_GEN_LENGTH, "a b c d e", 5, 2, {0, 0}, NULL},
    {"counted", true, NW_OK, NW_GEN_STOP, "a b c d", 5, 3, {2, 1, 2}, NULL},
    {"silent", false, NW_OK, NW_GEN_STOP, "xy", 0, 2, {0, 0}, NULL},
    {"shredded", false, NW_OK, NW_GEN_STOP, "\xF0\x9F\x8C\x8A", 0, 1, {0}, NULL},
    {"cut_short", false, NW_E_NETWORK, NW_GEN_ERROR, "half", 0, 1, {0}, "ended before"},
    {"error_inside", false, NW_E_NETWORK, NW_GEN_ERROR, "half", 0, 1, {0}, "out of pages"},
    {"not_json", false, NW_E_NETWORK, NW_GEN_ERROR, "", 0, 0, {0}, "not a JSON object"},
    {"wrong_types", true, NW_OK, NW_GEN_STOP, "", 0, 0, {0}, NULL},
    {"negative_count", true, NW_E_NETWORK, NW_GEN_ERROR, "a", 0, 1, {0}, "no token count"},
    {"nul_inside", false, NW_OK, NW_GEN_STOP, "a", 0, 1, {0}, NULL},
    {"refused", false, NW_E_RANGE, NW_GEN_ERROR, "", 0, 0, {0}, "400: no such key"},
    {"broken", false, NW_E_NETWORK, NW_GEN_ERROR, "", 0, 0, {0}, "500"},
    {"busy_for_ever", false, NW_E_BUSY, NW_GEN_ERROR, "", 0, 0, {0}, "429: busy, wait"},
    {"busy_twice", true, NW_OK, NW_GEN_STOP, "at last", 2, 1, {0}, NULL},
};

typedef struct {
    const struct row *row;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;
} waiter;

static void check(const struct row *w, const nw_gen_result *r)
{
    assert_int_equal(r->status, w->status);
    assert_int_equal(r->finish, w->finish);
    assert_string_equal(r->text, w->text);
    assert_int_equal(r->n_output, w->n_output);
    assert_int_equal(r->n_events, w->n_events);
    assert_true(w->error == NULL || strstr(r->error, w->error) != NULL);
    assert_true(r->d_ns > 0 && r->s_ns == r->d_ns);
    for (size_t i = 0; i < r->n_events; i++) {
        assert_int_equal(r->events[i].n_tokens, w->tokens[i]);
        assert_true(r->events[i].t_ns >= (i > 0 ? r->events[i - 1].t_ns : r->d_ns));
    }
    if (w->n_events > 0) {
        assert_true(r->f_ns == r->events[0].t_ns && r->l_ns == r->events[r->n_events - 1].t_ns);
    } else {
        assert_true(r->f_ns == 0 && r->l_ns == 0);
    }
}

/* cmocka's asserts jump, and only the test's own thread may: copy, then look. */
typedef struct {
    nw_gen_result r;
    char text[256];
    nw_gen_mark events[8];
    waiter w;
} kept;

static void on_done(void *ctx, uint64_t id, const nw_gen_result *r)
{
    kept *k = ctx;

    (void)id;
    pthread_mutex_lock(&k->w.lock);
    k->r = *r;
    (void)snprintf(k->text, sizeof k->text, "%s", r->text);
    k->r.text = k->text;
    for (size_t i = 0; i < r->n_events && i < 8; i++) {
        k->events[i] = r->events[i];
    }
    k->r.events = k->events;
    k->w.done = true;
    pthread_cond_signal(&k->w.cond);
    pthread_mutex_unlock(&k->w.lock);
}

static void wait_for(kept *k)
{
    pthread_mutex_lock(&k->w.lock);
    while (!k->w.done) {
        pthread_cond_wait(&k->w.cond, &k->w.lock);
    }
    pthread_mutex_unlock(&k->w.lock);
}

static void answers_arrive(void **state)
{
    const struct row *w = *state;
    static kept k;
    const nw_gen_callbacks cb = {.on_done = on_done, .ctx = &k};
    const nw_gen_request req = ask(w->name);
    nw_error err = {0};
    uint64_t id = 0;

    k = (kept){.w = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER}};
    assert_int_equal(nw_target_start(w->counts ? counting : plain, &req, &cb, &id, &err), NW_OK);
    wait_for(&k);
    check(w, &k.r);
}

static void whole_answer_has_no_first_token(void **state)
{
    nw_gen_request req = ask("whole");
    nw_gen_result r;
    nw_error err = {0};

    (void)state;
    req.no_stream = true;
    assert_int_equal(nw_target_generate(plain, &req, &r, &err), NW_OK);
    assert_string_equal(r.text, "all of it");
    assert_int_equal(r.n_prompt, 7);
    assert_int_equal(r.n_output, 3);
    assert_int_equal(r.finish, NW_GEN_LENGTH);
    assert_true(r.f_ns == 0 && r.l_ns > r.d_ns);
    nw_gen_result_release(&r);
}

static void cancelled_request_ends_at_once(void **state)
{
    static kept k;
    const nw_gen_callbacks cb = {.on_done = on_done, .ctx = &k};
    const nw_gen_request req = ask("slow");
    nw_error err = {0};
    uint64_t id = 0;

    (void)state;
    k = (kept){.w = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER}};
    assert_int_equal(nw_target_start(plain, &req, &cb, &id, &err), NW_OK);
    nw_sleep_until_ns(nw_now_ns() + 100000000);
    nw_target_cancel(plain, id);
    wait_for(&k);
    assert_int_equal(k.r.finish, NW_GEN_CANCELLED);
    assert_int_equal(k.r.status, NW_E_CANCELLED);
    assert_true(k.r.n_events < 3); /* it did not wait for the answer's end */
}

static void closing_ends_what_is_in_flight(void **state)
{
    static kept k;
    const nw_gen_callbacks cb = {.on_done = on_done, .ctx = &k};
    const nw_gen_request req = ask("slow");
    const nw_target_options o = {0};
    nw_target *t = NULL;
    nw_error err = {0};
    uint64_t id = 0;

    (void)state;
    k = (kept){.w = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER}};
    assert_int_equal(nw_target_open(mock_url(server), &o, &t, &err), NW_OK);
    assert_int_equal(nw_target_start(t, &req, &cb, &id, &err), NW_OK);
    nw_target_close(t);
    assert_true(k.w.done);
    assert_int_equal(k.r.finish, NW_GEN_CANCELLED);
}

static void schedule_time_is_kept(void **state)
{
    nw_gen_request req = ask("plain");
    nw_gen_result r;
    nw_error err = {0};

    (void)state;
    req.scheduled_ns = nw_now_ns() - 1000000000;
    assert_int_equal(nw_target_generate(plain, &req, &r, &err), NW_OK);
    assert_true(r.s_ns == req.scheduled_ns && r.d_ns >= r.s_ns + 1000000000);
    nw_gen_result_release(&r);
}

static void what_an_endpoint_cannot_do(void **state)
{
    const int32_t ids[] = {1, 2};
    float lp = 0;
    int32_t *got = NULL;
    size_t n = 0;
    nw_error err = {0};
    const nw_gen_request none = {.max_tokens = 1};
    const nw_gen_callbacks cb = {.on_done = on_done};
    uint64_t id = 0;

    (void)state;
    assert_int_equal(nw_target_score(plain, ids, 2, 1, &lp, NULL, &err), NW_E_UNSUPPORTED);
    assert_int_equal(nw_target_tokenize(plain, "x", 1, false, &got, &n, &err), NW_E_UNSUPPORTED);
    assert_int_equal(nw_target_start(plain, &none, &cb, &id, &err), NW_E_USAGE);
    assert_null(nw_target_facts(plain));
    assert_string_equal(nw_target_model(plain), "mock");
}

static void wrong_urls_are_refused(void **state)
{
    const nw_target_options o = {0};
    nw_target *t = NULL;
    nw_error err = {0};

    (void)state;
    assert_int_equal(nw_target_open("http://127.0.0.1:1", &o, &t, &err), NW_E_NETWORK);
    assert_non_null(strstr(err.message, "http://127.0.0.1:1/v1/models"));
    assert_null(t);
}

static int open_two(mock_server **a)
{
    nw_error err = {0};
    const nw_target_options retrying = {.max_retries = 3};
    const nw_target_options o = {0};

    *a = mock_open(answers, NW_COUNT(answers), "vllm");
    server = mock_open(answers, NW_COUNT(answers), "somebody");
    return nw_target_open(mock_url(*a), &retrying, &counting, &err) == NW_OK &&
                   nw_target_open(mock_url(server), &o, &plain, &err) == NW_OK
               ? 0
               : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_answer_has_no_first_token),
        cmocka_unit_test(cancelled_request_ends_at_once),
        cmocka_unit_test(closing_ends_what_is_in_flight),
        cmocka_unit_test(schedule_time_is_kept),
        cmocka_unit_test(what_an_endpoint_cannot_do),
        cmocka_unit_test(wrong_urls_are_refused),
    };
    mock_server *vllm = NULL;

    if (open_two(&vllm) != 0) {
        return 1;
    }
    const int failed =
        NW_RUN_TABLE("endpoint", rows, answers_arrive) + cmocka_run_group_tests(tests, NULL, NULL);
    nw_target_close(counting);
    nw_target_close(plain);
    mock_close(vllm);
    mock_close(server);
    return failed;
}
