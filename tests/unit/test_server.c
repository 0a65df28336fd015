/* The server's clock: who neither sends nor takes a byte is let go of, and who waits for an answer is
 * not; and what refusals say. More of what it answers: tests/server/server_test.py.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "server_fixture.h"

#define IDLE_S  1    /* of the server */
#define LONG_MS 2500 /* past it, with a second to spare for the poll's own clock */

static int post(const char *path, const char *body, bool small)
{
    char line[128];
    (void)snprintf(line, sizeof line, "POST %s HTTP/1.1", path);
    return ask(line, "", body, small);
}

#define ONE_MESSAGE "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"

static struct refusal {
    const char *name, *method, *path, *body; /* body NULL: one byte longer than allowed */
    int status;
    const char *says; /* parts of the answer, with | between them */
} refusals[] = {
    {"no_such_path", "GET", "/v1/nothing", "", 404, "no such path '/v1/nothing'"},
    {"path_of_bytes", "GET", "/%ff%e2%80", "", 404, "no such path '/?"},
    {"wrong_method", "GET", "/v1/completions", "", 405, "/v1/completions takes POST, not GET"},
    {"long_body", "POST", "/v1/completions", NULL, 413, "4194305 bytes|at most 4194304"},
    {"other_model", "POST", "/v1/completions", "{\"prompt\":\"a\",\"model\":\"b\"}", 404,
     "model 'b' is not served here, 'llama' is|\"param\":\"model\"|model_not_found"},
    {"tokens_of_other_model", "POST", "/tokenize", "{\"prompt\":\"a\",\"model\":\"b\"}", 404,
     "model 'b' is not served here|model_not_found"},
    {"text_of_other_model", "POST", "/detokenize", "{\"tokens\":[1],\"model\":\"b\"}", 404,
     "model 'b' is not served here|model_not_found"},
    {"tokens_of_model_7", "POST", "/tokenize", "{\"prompt\":\"a\",\"model\":7}", 400,
     "model: 7 is given, a string"},
    {"tokens_of_two", "POST", "/tokenize", "{\"prompt\":\"a\"," ONE_MESSAGE "}", 400,
     "prompt: stands beside messages, one of them"},
    {"tokens_of_nothing", "POST", "/tokenize", "{}", 400, "prompt: nothing is given, a string"},
    {"special_tokens_of_a_chat", "POST", "/tokenize",
     "{" ONE_MESSAGE ",\"add_special_tokens\":true}", 400,
     "add_special_tokens: goes with prompt, not with messages"},
    {"markup_of_a_chat", "POST", "/tokenize", "{" ONE_MESSAGE ",\"parse_special\":true}", 400,
     "parse_special: goes with prompt, not with messages"},
    {"turn_of_a_prompt", "POST", "/tokenize", "{\"prompt\":\"a\",\"add_generation_prompt\":true}",
     400, "add_generation_prompt: goes with messages, not with prompt"},
    {"token_out_of_range", "POST", "/v1/completions", "{\"prompt\":[1,999]}", 400,
     "prompt[1]: token id 999, 0 to|\"param\":\"prompt\""},
    {"long_prompt", "POST", "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":999}", 400,
     "999 to generate: the context holds 256|\"param\":\"prompt\"|context_length_exceeded"},
};

static void refused(void **state)
{
    const struct refusal *r = *state;
    const size_t n_big = server->opt.max_body_bytes + 1;
    char answer[8192] = "";
    char says[256];
    char line[128];
    char *save = NULL;
    char *big = r->body == NULL ? calloc(n_big + 1, 1) : NULL;

    if (big != NULL) {
        memset(big, ' ', n_big);
    }
    (void)snprintf(line, sizeof line, "%s %s HTTP/1.1", r->method, r->path);
    const int fd = ask(line, "Connection: close\r\n", big != NULL ? big : r->body, false);
    assert_true(read_to_close(fd, PATIENT, answer, sizeof answer));
    free(big);
    (void)close(fd);
    assert_int_equal(strtol(answer + strlen("HTTP/1.1 "), NULL, 10), r->status);
    (void)snprintf(says, sizeof says, "%s", r->says);
    for (char *part = strtok_r(says, "|", &save); part != NULL; part = strtok_r(NULL, "|", &save)) {
        if (strstr(answer, part) == NULL) {
            fail_msg("'%s' is not in %s", part, answer);
        }
    }
}

/* A client that has its answer keeps a thread of the server no longer than one that never asked. */
static void an_answered_connection_is_closed_when_idle(void **state)
{
    static const char *const bodies[] = {
        "{\"prompt\":\"a\",\"max_tokens\":2}",
        "{\"prompt\":\"a\",\"max_tokens\":2,\"stream\":true}",
    };
    (void)state;
    for (size_t i = 0; i < NW_COUNT(bodies); i++) {
        char answer[8192] = "";
        const int fd = post("/v1/completions", bodies[i], false);
        assert_true(read_to_close(fd, PATIENT, answer, sizeof answer));
        assert_int_equal(strncmp(answer, "HTTP/1.1 200", 12), 0);
        (void)close(fd);
    }
}

typedef struct {
    atomic_bool held;
    int ms;
} hold;

static void hold_worker(void *ctx, nw_engine *e)
{
    hold *h = ctx;
    (void)e;
    atomic_store(&h->held, true);
    nw_sleep_until_ns(nw_now_ns() + (int64_t)h->ms * 1000000);
}

static void *hold_thread(void *ctx)
{
    nw_scheduler_call(server->sched, hold_worker, ctx);
    return NULL;
}

/* The engine is busy with something else for longer than the timeout. */
static void a_client_that_waits_for_its_answer_gets_it(void **state)
{
    hold h = {.ms = LONG_MS};
    pthread_t t;
    char whole[8192] = "";
    char stream[8192] = "";
    char tokens[8192] = "";
    char *facts = calloc(1, 1 << 20);

    (void)state;
    for (unsigned i = 0; i < NW_SERVE_TEXTS; i++) {
        nw_gate_enter(&server->texts);
    }
    const int d =
        ask("POST /tokenize HTTP/1.1", "Connection: close\r\n", "{\"prompt\":\"a\"}", false);
    nw_sleep_until_ns(nw_now_ns() + (int64_t)LONG_MS * 1000000);
    for (unsigned i = 0; i < NW_SERVE_TEXTS; i++) {
        nw_gate_leave(&server->texts);
    }
    assert_true(read_to_close(d, PATIENT, tokens, sizeof tokens));
    (void)close(d);
    assert_non_null(strstr(tokens, "\"count\":"));
    assert_int_equal(pthread_create(&t, NULL, hold_thread, &h), 0);
    while (!atomic_load(&h.held)) {
        nw_sleep_until_ns(nw_now_ns() + 1000000);
    }
    const int a = post("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":2}", false);
    const int b =
        post("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":2,\"stream\":true}", false);
    const int c = ask("GET /narrow/facts HTTP/1.1", "Connection: close\r\n", "", false);
    assert_true(read_to_close(c, PATIENT, facts, 1 << 20));
    assert_true(read_to_close(a, PATIENT, whole, sizeof whole));
    assert_true(read_to_close(b, PATIENT, stream, sizeof stream));
    (void)pthread_join(t, NULL);
    assert_non_null(strstr(whole, "\"finish_reason\":\"length\""));
    assert_non_null(strstr(stream, "[DONE]"));
    assert_non_null(strstr(facts, "\"ledger\":"));
    (void)close(a);
    (void)close(b);
    (void)close(c);
    free(facts);
}

/* One that takes nothing of a stream: its request ends, and its place is free again. */
static void a_reader_that_stands_still_is_let_go(void **state)
{
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_LISTEN_FD);
    const int bytes = 4096; /* of the server's side: what it accepts has as much */
    const int64_t end = nw_now_ns() + (int64_t)PATIENT * 1000000;

    (void)state;
    assert_int_equal(setsockopt(info->listen_fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
    const int fd = post("/v1/chat/completions",
                        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stream\":true,"
                        "\"ignore_eos\":true,\"logprobs\":true,\"top_logprobs\":20}",
                        true);
    while (atomic_load(&server->n_jobs) == 0 && nw_now_ns() < end) {
        nw_sleep_until_ns(nw_now_ns() + 1000000);
    }
    while (atomic_load(&server->n_jobs) > 0 && nw_now_ns() < end) {
        nw_sleep_until_ns(nw_now_ns() + 10000000);
    }
    assert_int_equal(atomic_load(&server->n_jobs), 0);
    (void)close(fd);
}

/* The last: who still waits when the server closes is told so, and not just hung up on. */
static void closing_tells_who_still_waits(void **state)
{
    hold h = {.ms = 300};
    pthread_t t;
    char whole[8192] = "";
    char stream[8192] = "";

    (void)state;
    assert_int_equal(pthread_create(&t, NULL, hold_thread, &h), 0);
    while (!atomic_load(&h.held)) {
        nw_sleep_until_ns(nw_now_ns() + 1000000);
    }
    const int a = post("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":9}", false);
    const int b =
        post("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":9,\"stream\":true}", false);
    while (atomic_load(&server->n_jobs) < 2) {
        nw_sleep_until_ns(nw_now_ns() + 1000000);
    }
    nw_server_close(server);
    server = NULL;
    (void)pthread_join(t, NULL);
    assert_true(read_to_close(a, PATIENT, whole, sizeof whole));
    assert_true(read_to_close(b, PATIENT, stream, sizeof stream));
    assert_int_equal(strncmp(whole, "HTTP/1.1 503", 12), 0);
    assert_non_null(strstr(whole, "the server is shutting down"));
    assert_non_null(strstr(stream, "the server is shutting down"));
    assert_non_null(strstr(stream, "\r\n0\r\n")); /* and the stream has its end */
    (void)close(a);
    (void)close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answered_connection_is_closed_when_idle),
        cmocka_unit_test(a_client_that_waits_for_its_answer_gets_it),
        cmocka_unit_test(a_reader_that_stands_still_is_let_go),
        cmocka_unit_test(closing_tells_who_still_waits),
    };
    if (open_server(IDLE_S) != 0) {
        return 1;
    }
    const int failed =
        NW_RUN_TABLE("refusals", refusals, refused) + cmocka_run_group_tests(tests, NULL, NULL);
    return close_server() + failed;
}
