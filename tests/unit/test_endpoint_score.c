/* Log-probabilities of prompts, tokens and replicas of endpoints, against scripted servers: both ways of
 * asking, and servers that take the parameter and ignore it, count otherwise, or answer anything with
 * the same numbers.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "mock_server.h"
#include "table.h"
#include "target/target.h"

#define PIECES(...)       \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }
#define WHOLE(body) PIECES("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" body)
#define REFUSE(text) \
    PIECES("HTTP/1.1 400 Bad\r\nConnection: close\r\n\r\n{\"error\":{\"message\":\"" text "\"}}")
#define FAIL(text) \
    PIECES("HTTP/1.1 500 No\r\nConnection: close\r\n\r\n{\"error\":{\"message\":\"" text "\"}}")
#define TEN "0123456789"
#define ECHO(n, lps, tops)                                                      \
    WHOLE("{\"choices\":[{\"text\":\"\",\"logprobs\":{\"token_logprobs\":[" lps \
          "],\"top_logprobs\":[" tops "]}}],\"usage\":{\"prompt_tokens\":" #n "}}")
#define TRIAL_A      "106,107]" /* end of the trial's two prompts */
#define TRIAL_B      "112,121]"
#define TRIAL_LPS(x) "null,-1,-2,-3,-4,-5,-6," x ",-0.5"
#define TRIAL(x)     ECHO(8, TRIAL_LPS(x), "null,{},{},{},{},{},{},{},{}")

/* The prompt is 5, 6, 7, 8; the first is context. */
#define SCORED "[5,6,7,8]"

static const mock_answer echo[] = {
    {TRIAL_A, TRIAL("-7"), 0, 0},
    {TRIAL_B, TRIAL("-8"), 0, 0},
    {SCORED, ECHO(4, "null,-0.25,-1.5,-2,-9", "null,{\"a\":-0.25},{\"b\":-1},{\"c\":-2},{}"), 0, 1},
};
static const mock_answer greedy_echo[] = {
    {TRIAL_A, TRIAL("-7"), 0, 0},
    {TRIAL_B, TRIAL("-8"), 0, 0},
    {SCORED, ECHO(4, "null,-0.25,-1.5,-2", "null,{\"a\":-0.25},{\"b\":-1.5},{\"c\":-2}"), 0, 0},
};
static const mock_answer by_prompt_logprobs[] = {
    {"\"echo\":true", REFUSE("echo is not supported"), 0, 0},
    {TRIAL_A,
     WHOLE("{\"choices\":[{\"prompt_logprobs\":[null,{\"101\":{\"logprob\":-1}},{\"102\":{"
           "\"logprob\":-1}},"
           "{\"103\":{\"logprob\":-1}},{\"104\":{\"logprob\":-1}},{\"105\":{\"logprob\":-1}},"
           "{\"106\":{\"logprob\":-1}},{\"107\":{\"logprob\":-1}}]}]}"),
     0, 0},
    {TRIAL_B,
     WHOLE("{\"choices\":[{\"prompt_logprobs\":[null,{\"101\":{\"logprob\":-1}},{\"102\":{"
           "\"logprob\":-1}},"
           "{\"103\":{\"logprob\":-1}},{\"104\":{\"logprob\":-1}},{\"105\":{\"logprob\":-1}},"
           "{\"112\":{\"logprob\":-2}},{\"121\":{\"logprob\":-3}}]}]}"),
     0, 0},
    {SCORED,
     WHOLE("{\"choices\":[{\"prompt_logprobs\":[null,{\"6\":{\"logprob\":-0.25}},"
           "{\"9\":{\"logprob\":-1},\"7\":{\"logprob\":-1.5}},{\"8\":{\"logprob\":-2}}]}]}"),
     0, 0},
};
static const mock_answer ignores[] = {
    {"prompt", WHOLE("{\"choices\":[{\"text\":\"x\",\"logprobs\":null}]}"), 0, 0}};
static const mock_answer answer_only[] = {{"prompt", ECHO(8, "-0.5", "{}"), 0, 0}};
static const mock_answer constant[] = {{"prompt", TRIAL("-7"), 0, 0}};
static const mock_answer adds_a_token[] = {
    {"prompt", ECHO(9, TRIAL_LPS("-7"), "null,{},{},{},{},{},{},{},{}"), 0, 0}};
static const mock_answer probabilities[] = {
    {"prompt", ECHO(8, "null,0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5", ""), 0, 0}};
static const mock_answer refuses[] = {{"prompt", REFUSE("Only no echo is supported"), 0, 0}};
static const mock_answer refuses_by_500[] = {
    {"\"echo\":true", FAIL("Only no echo is supported"), 0, 0},
    {"prompt_logprobs", FAIL("unknown"), 0, 0},
    {"prompt", WHOLE("{\"choices\":[{\"text\":\"x\"}]}"), 0, 0}};
static const mock_answer fails[] = {{"prompt", FAIL("out of memory"), 0, 0}};
/* a character of two bytes at 119 of the 120 that are shown */
static const mock_answer cut_character[] = {
    {"prompt",
     REFUSE(TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN "012345678\xC3\xA9\xC3\xA9\xC3\xA9"), 0,
     0}};
static const mock_answer not_told_greedy[] = {
    {TRIAL_A, TRIAL("-7"), 0, 0},
    {TRIAL_B, TRIAL("-8"), 0, 0},
    {SCORED, ECHO(4, "null,-0.25,-1.5,-2", "null,{\"a\":-0.25},{},{\"c\":-2}"), 0, 0},
};
static const mock_answer later_wrong[] = {
    {TRIAL_A, TRIAL("-7"), 0, 0},
    {TRIAL_B, TRIAL("-8"), 0, 0},
    {SCORED, ECHO(4, "null,-0.25", ""), 0, 0},
};

static struct row {
    const char *name;
    const mock_answer *answers;
    size_t n;
    nw_status ready, status;
    bool greedy;
    const char *says; /* part of why not */
} rows[] = {
    {"echo", echo, NW_COUNT(echo), NW_OK, NW_OK, false, NULL}, /* with one 429 before it */
    {"greedy", greedy_echo, NW_COUNT(greedy_echo), NW_OK, NW_OK, true, NULL},
    {"greedy_by_some", not_told_greedy, NW_COUNT(not_told_greedy), NW_OK, NW_OK, false, NULL},
    {"prompt_logprobs", by_prompt_logprobs, NW_COUNT(by_prompt_logprobs), NW_OK, NW_OK, false,
     NULL},
    {"parameter_is_ignored", ignores, 1, NW_E_UNSUPPORTED, NW_E_UNSUPPORTED, false,
     "0 log-probabilities for a prompt of 8 tokens"},
    {"only_the_answer_has_them", answer_only, 1, NW_E_UNSUPPORTED, NW_E_UNSUPPORTED, false,
     "1 log-probabilities for a prompt of 8 tokens"},
    {"same_numbers_for_any_tokens", constant, 1, NW_E_UNSUPPORTED, NW_E_UNSUPPORTED, false,
     "other tokens get the same numbers"},
    {"server_adds_a_token", adds_a_token, 1, NW_E_UNSUPPORTED, NW_E_UNSUPPORTED, false,
     "counts 9 prompt tokens, 8 were sent"},
    {"probabilities_are_no_logs", probabilities, 1, NW_E_UNSUPPORTED, NW_E_UNSUPPORTED, false,
     "no log-probability for prompt token 1"},
    {"refused", refuses, 1, NW_E_UNSUPPORTED, NW_E_UNSUPPORTED, false,
     "HTTP status 400: Only no echo is supported"},
    {"refused_by_500", refuses_by_500, NW_COUNT(refuses_by_500), NW_E_UNSUPPORTED, NW_E_UNSUPPORTED,
     false, "HTTP status 500: Only no echo is supported"},
    {"fails", fails, 1, NW_E_NETWORK, NW_E_NETWORK, false, "HTTP status 500: out of memory"},
    {"cut_inside_a_character", cut_character, 1, NW_E_UNSUPPORTED, NW_E_UNSUPPORTED, false,
     "012345678)"},
    {"fails_later", later_wrong, NW_COUNT(later_wrong), NW_OK, NW_E_NETWORK, false,
     "2 log-probabilities for a prompt of 4 tokens"},
};

static nw_target *open_at(const char *spec, const nw_target_options *more)
{
    nw_target_options o = more != NULL ? *more : (nw_target_options){.max_retries = 3};
    nw_target *t = NULL;
    nw_error err = {0};
    if (nw_target_open(spec, &o, &t, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
    return t;
}

static void scores(void **state)
{
    const struct row *r = *state;
    static const int32_t ids[] = {5, 6, 7, 8};
    mock_server *m = mock_open(r->answers, r->n, "someone");
    nw_target *t = open_at(mock_url(m), NULL);
    nw_error err = {0};
    nw_error ready = {0};
    float lp[3] = {0};
    bool greedy = false;

    assert_int_equal(nw_target_can_score(t, &ready), r->ready);
    assert_int_equal(nw_target_score(t, ids, 4, 1, lp, &greedy, &err), r->status);
    if (r->status == NW_OK) {
        assert_true(lp[0] == -0.25F && lp[1] == -1.5F && lp[2] == -2.0F);
        assert_int_equal(greedy, r->greedy);
    } else if (strstr(err.message, r->says) == NULL) {
        fail_msg("'%s' lacks '%s'", err.message, r->says);
    }
    nw_target_close(t);
    mock_close(m);
}

/* A server without room, twice for each question: nothing is kept of that. */
static const mock_answer late[] = {
    {TRIAL_A, TRIAL("-7"), 0, 2},
    {TRIAL_B, TRIAL("-8"), 0, 0},
    {"\"prompt\":\"tokens\"", WHOLE("{\"tokens\":[9,10]}"), 0, 2},
    {"\"prompt\":\"hi\"", WHOLE("{\"tokens\":[1,2,3]}"), 0, 0},
};

static void no_room_is_no_answer(void **state)
{
    mock_server *m = mock_open(late, NW_COUNT(late), "someone");
    nw_target *t = open_at(mock_url(m), &(nw_target_options){.max_retries = 1});
    nw_error err = {0};
    int32_t *ids = NULL;
    size_t n = 0;

    (void)state;
    assert_int_equal(nw_target_can_score(t, &err), NW_E_BUSY);
    assert_non_null(strstr(err.message, "HTTP status 429: busy, wait"));
    assert_int_equal(nw_target_can_score(t, &err), NW_OK);
    assert_int_equal(nw_target_tokenize(t, "hi", 2, true, &ids, &n, &err), NW_E_BUSY);
    assert_int_equal(nw_target_tokenize(t, "hi", 2, true, &ids, &n, &err), NW_OK);
    assert_int_equal(n, 3);
    free(ids);
    nw_target_close(t);
    mock_close(m);
}

/* The length is that of the model asked for; see send_models of mock_server.c. */
static void length_of_the_model_asked_for(void **state)
{
    static const struct {
        const char *model;
        uint32_t max_len;
    } asked[] = {{NULL, 0}, {"mock", 0}, {"second", 77}, {"not listed", 0}};
    mock_server *m = mock_open(NULL, 0, "someone");

    (void)state;
    for (size_t i = 0; i < NW_COUNT(asked); i++) {
        nw_target *t = open_at(mock_url(m), &(nw_target_options){.model = asked[i].model});
        assert_int_equal(nw_target_max_len(t), asked[i].max_len);
        nw_target_close(t);
    }
    mock_close(m);
}

/* ---- tokens ---- */

static const mock_answer vllm_tokens[] = {
    {"\"prompt\":\"tokens\"", WHOLE("{\"count\":2,\"tokens\":[9,10]}"), 0, 0},
    {"\"prompt\":\"hi\"", WHOLE("{\"count\":3,\"tokens\":[1,2,3]}"), 0, 0}};
static const mock_answer llama_tokens[] = {
    {"\"prompt\":\"tokens\"", WHOLE("{\"tokens\":[]}"), 0, 0}, /* llama.cpp: no "content", no ids */
    {"\"content\":\"tokens\"", WHOLE("{\"tokens\":[9,10]}"), 0, 0},
    {"\"content\":\"hi\"", WHOLE("{\"tokens\":[1,2,3]}"), 0, 0}};
static const mock_answer no_tokens[] = {{"nothing", REFUSE("no"), 0, 0}};

static struct token_row {
    const char *name;
    const mock_answer *answers;
    size_t n;
    nw_status status;
} token_rows[] = {
    {"vllm", vllm_tokens, NW_COUNT(vllm_tokens), NW_OK},
    {"llama_cpp", llama_tokens, NW_COUNT(llama_tokens), NW_OK},
    {"none", no_tokens, 1, NW_E_UNSUPPORTED},
};

static void tokenizes(void **state)
{
    const struct token_row *r = *state;
    mock_server *m = mock_open(r->answers, r->n, "someone");
    nw_target *t = open_at(mock_url(m), NULL);
    nw_error err = {0};
    int32_t *ids = NULL;
    size_t n = 0;

    assert_int_equal(nw_target_tokenize(t, "hi", 2, true, &ids, &n, &err), r->status);
    if (r->status == NW_OK) {
        assert_int_equal(n, 3);
        assert_int_equal(ids[2], 3);
    } else {
        assert_non_null(strstr(err.message, "--tokenizer"));
    }
    free(ids);
    nw_target_close(t);
    mock_close(m);
}

/* ---- replicas, rate ---- */

#define ANSWER                                                                \
    "{\"choices\":[{\"text\":\"ok\",\"finish_reason\":\"stop\"}],\"usage\":{" \
    "\"prompt_tokens\":1,\"completion_tokens\":1}}"

static const mock_answer good[] = {{"go", WHOLE(ANSWER), 0, 0}};
static const mock_answer busy[] = {{"go", WHOLE(ANSWER), 0, 1000000}};

static nw_status ask(nw_target *t, nw_error *err)
{
    nw_gen_result r;
    const nw_gen_request req = {
        .prompt = "go", .n_prompt_bytes = 2, .max_tokens = 1, .no_stream = true};
    const nw_status st = nw_target_generate(t, &req, &r, err);
    if (st == NW_OK) {
        assert_string_equal(r.text, "ok");
        nw_gen_result_release(&r);
    }
    return st;
}

/* Requests go round; a replica that only refuses is passed over by the next try. */
static void replicas_share_the_requests(void **state)
{
    mock_server *a = mock_open(good, 1, "someone");
    mock_server *b = mock_open(good, 1, "someone");
    mock_server *c = mock_open(busy, 1, "someone");
    nw_error err = {0};
    char spec[256];

    (void)state;
    (void)snprintf(spec, sizeof spec, "%s,%s", mock_url(a), mock_url(b));
    nw_target *t = open_at(spec, NULL);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(ask(t, &err), NW_OK);
    }
    nw_target_close(t);
    assert_int_equal(mock_requests(a), 4);
    assert_int_equal(mock_requests(b), 4);
    (void)snprintf(spec, sizeof spec, "%s,%s", mock_url(c), mock_url(a));
    t = open_at(spec, NULL);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ask(t, &err), NW_OK);
    }
    nw_target_close(t);
    assert_int_equal(mock_requests(a), 8);
    assert_true(mock_requests(c) > 0);
    mock_close(a);
    mock_close(b);
    mock_close(c);
}

static void rate_is_limited(void **state)
{
    mock_server *m = mock_open(good, 1, "someone");
    const nw_target_options o = {.max_rate = 20};
    nw_target *t = open_at(mock_url(m), &o);
    nw_error err = {0};
    const int64_t start = nw_now_ns();

    (void)state;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(ask(t, &err), NW_OK);
    }
    /* five gaps of 50 ms between six requests; there is no upper bound on a busy machine */
    assert_true(nw_now_ns() - start >= 250000000);
    nw_target_close(t);
    mock_close(m);
}

/* One model in name, and what else they say of it. */
static struct replica_row {
    const char *name;
    mock_identity a, b;
    const char *says; /* NULL: one model */
} replica_rows[] = {
    {"same",
     {.owner = "someone", .more = ",\"max_model_len\":7"},
     {.owner = "someone", .more = ",\"max_model_len\":7"},
     NULL},
    {"length",
     {.owner = "someone", .more = ",\"max_model_len\":7"},
     {.owner = "someone", .more = ",\"max_model_len\":8"},
     "'max_model_len' is 7 and 8"},
    {"weights",
     {.owner = "llamacpp", .more = ",\"meta\":{\"size\":7}"},
     {.owner = "llamacpp", .more = ",\"meta\":{\"size\":8}"},
     "'meta' is {\"size\":7} and {\"size\":8}"},
    {"same_artifact",
     {.owner = "narrow", .facts = "{\"artifact_hash\":\"aa\",\"pid\":1}"},
     {.owner = "narrow", .facts = "{\"artifact_hash\":\"aa\",\"pid\":2}"},
     NULL},
    {"artifact",
     {.owner = "narrow", .facts = "{\"artifact_hash\":\"aa\"}"},
     {.owner = "narrow", .facts = "{\"artifact_hash\":\"bb\"}"},
     "'artifact_hash' is \"aa\" and \"bb\""},
    {"cache",
     {.owner = "narrow", .facts = "{\"artifact_hash\":\"aa\",\"kv\":\"f32\"}"},
     {.owner = "narrow", .facts = "{\"artifact_hash\":\"aa\",\"kv\":\"int8\"}"},
     "'kv' is \"f32\" and \"int8\""},
    {"of_another_kind",
     {.owner = "narrow", .facts = "{\"artifact_hash\":\"aa\"}"},
     {.owner = "someone"},
     "'artifact_hash' is \"aa\" and not said"},
};

static void replicas_serve_one_model(void **state)
{
    const struct replica_row *r = *state;
    static const char *const wanted[] = {NULL, "mock", "not listed"};

    for (size_t i = 0; i < NW_COUNT(wanted); i++) {
        mock_server *a = mock_open_as(good, 1, r->a);
        mock_server *b = mock_open_as(good, 1, r->b);
        const nw_target_options o = {.model = wanted[i]};
        nw_target *t = NULL;
        nw_error err = {0};
        char spec[256];
        /* of a model that is not listed, only the artifact is known */
        const bool told = r->says != NULL && (i < 2 || r->a.facts != NULL);

        (void)snprintf(spec, sizeof spec, "%s,%s", mock_url(a), mock_url(b));
        assert_int_equal(nw_target_open(spec, &o, &t, &err), told ? NW_E_NETWORK : NW_OK);
        if (told && strstr(err.message, r->says) == NULL) {
            fail_msg("'%s' lacks '%s'", err.message, r->says);
        }
        nw_target_close(t);
        mock_close(a);
        mock_close(b);
    }
}

static const mock_answer late_and_good[] = {{"late", WHOLE(ANSWER), 0, 1},
                                            {"go", WHOLE(ANSWER), 0, 0}};

static void on_late(void *ctx, uint64_t id, const nw_gen_result *r)
{
    (void)id;
    atomic_store((atomic_int *)ctx, r->status == NW_OK ? 1 : 2);
}

/* A request that waits because a server was busy holds up no other, however slow the rate. */
static void a_busy_server_delays_nobody_else(void **state)
{
    mock_server *m =
        mock_open_as(late_and_good, 2, (mock_identity){.owner = "someone", .retry_after = "4"});
    const nw_target_options o = {.max_rate = 20, .max_retries = 1};
    nw_target *t = open_at(mock_url(m), &o);
    atomic_int late_done = 0;
    const nw_gen_callbacks cb = {.on_done = on_late, .ctx = &late_done};
    const nw_gen_request req = {
        .prompt = "late", .n_prompt_bytes = 4, .max_tokens = 1, .no_stream = true};
    nw_error err = {0};
    uint64_t id = 0;

    (void)state;
    assert_int_equal(nw_target_start(t, &req, &cb, &id, &err), NW_OK);
    while (mock_requests(m) == 0) {
        nw_sleep_until_ns(nw_now_ns() + 1000000);
    }
    nw_sleep_until_ns(nw_now_ns() + 200000000); /* its refusal has come */
    assert_int_equal(ask(t, &err), NW_OK);
    assert_int_equal(atomic_load(&late_done), 0);
    while (atomic_load(&late_done) == 0) {
        nw_sleep_until_ns(nw_now_ns() + 10000000);
    }
    assert_int_equal(atomic_load(&late_done), 1);
    nw_target_close(t);
    mock_close(m);
}

/* Finding out what a server can waits as long as it asks for. */
static const mock_answer asks_for_time[] = {
    {TRIAL_A, TRIAL("-7"), 0, 1},
    {TRIAL_B, TRIAL("-8"), 0, 0},
};

static void retry_after_is_kept_by_every_question(void **state)
{
    mock_server *m =
        mock_open_as(asks_for_time, 2, (mock_identity){.owner = "someone", .retry_after = "1"});
    nw_target *t = open_at(mock_url(m), NULL);
    nw_error err = {0};
    const int64_t start = nw_now_ns();

    (void)state;
    assert_int_equal(nw_target_can_score(t, &err), NW_OK);
    assert_true(nw_now_ns() - start >= 1000000000);
    nw_target_close(t);
    mock_close(m);
}

/* A question has the time that a request has, no less: a long prompt takes a slow server minutes. */
static const mock_answer slow[] = {
    {"prompt", PIECES("HTTP/1.1 200 OK\r\n", "Connection: close\r\n\r\n{}"), 2500, 0}};

static void questions_have_the_time_of_a_request(void **state)
{
    mock_server *m = mock_open(slow, 1, "someone");
    const nw_target_options o = {.timeout_s = 1};
    nw_target *t = open_at(mock_url(m), &o);
    nw_error err = {0};

    (void)state;
    assert_int_equal(nw_target_can_score(t, &err), NW_E_NETWORK);
    assert_non_null(strstr(err.message, "/v1/completions: not answered within 1 s (--timeout)"));
    nw_target_close(t);
    mock_close(m);
}

static void bad_replicas_are_named(void **state)
{
    nw_target *t = NULL;
    nw_error err = {0};
    const nw_target_options o = {.max_retries = 0};

    (void)state;
    assert_int_equal(nw_target_open("http://127.0.0.1:1,ftp://x", &o, &t, &err), NW_E_USAGE);
    assert_non_null(strstr(err.message, "'ftp://x': a URL is expected"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_room_is_no_answer),
        cmocka_unit_test(questions_have_the_time_of_a_request),
        cmocka_unit_test(length_of_the_model_asked_for),
        cmocka_unit_test(replicas_share_the_requests),
        cmocka_unit_test(rate_is_limited),
        cmocka_unit_test(a_busy_server_delays_nobody_else),
        cmocka_unit_test(retry_after_is_kept_by_every_question),
        cmocka_unit_test(bad_replicas_are_named),
    };
    return NW_RUN_TABLE("scores", rows, scores) + NW_RUN_TABLE("tokenizes", token_rows, tokenizes) +
           NW_RUN_TABLE("replicas_differ", replica_rows, replicas_serve_one_model) +
           cmocka_run_group_tests_name("replicas", tests, NULL, NULL);
}
