/* Scheduler: every request gets the tokens it would get alone, whatever runs beside it; limits,
 * cancel, preemption, statistics. Runs under TSan too.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <time.h>

#include "engine/scheduler.h"
#include "engine_fixture.h"

#define MAX_OUT    64
#define MAX_PROMPT 200

/* What a request was told. Written by the worker, read after drain or close. */
typedef struct {
    nw_scheduler *sched; /* for events that call back */
    uint64_t id;
    int32_t out[MAX_OUT];
    float logprob[MAX_OUT];
    uint32_t n, n_done;
    nw_finish finish;
    uint32_t n_output;
    int32_t end_id;
    int64_t last_ns;
    int32_t prompt[MAX_PROMPT]; /* what PROMPT events told, from the second token on */
    float prompt_logprob[MAX_PROMPT];
    uint32_t n_prompt;
    uint32_t cancel_at; /* cancels itself after this many tokens; 0: never */
    bool stops;         /* stops itself in place of that */
    char message[256];
} client;

static void on_event(void *ctx, const nw_sched_event *e)
{
    client *c = ctx;
    assert_true(c->n_done == 0 && e->t_ns >= c->last_ns);
    c->last_ns = e->t_ns;
    if (e->type == NW_SCHED_PROMPT) {
        assert_true(c->n == 0 && c->n_prompt < MAX_PROMPT && e->n_output == 0);
        assert_true(e->n_top == 0 || e->top[0].logprob >= e->logprob);
        c->prompt[c->n_prompt] = e->id;
        c->prompt_logprob[c->n_prompt++] = e->logprob;
        return;
    }
    if (e->type == NW_SCHED_TOKEN) {
        assert_true(c->n < MAX_OUT);
        c->out[c->n] = e->id;
        c->logprob[c->n++] = e->logprob;
        assert_int_equal(e->n_output, c->n);
        if (c->n == c->cancel_at) {
            (c->stops ? nw_scheduler_stop : nw_scheduler_cancel)(c->sched, e->request);
        }
        return;
    }
    c->n_done++;
    c->id = e->request;
    c->finish = e->finish;
    c->n_output = e->n_output;
    c->end_id = e->id;
    assert_int_equal(e->error != NULL, e->type == NW_SCHED_ERROR);
    (void)snprintf(c->message, sizeof c->message, "%.200s", e->error ? e->error->message : "");
}

static nw_scheduler *open_scheduler(nw_engine *e, uint32_t max_queue, uint32_t chunk)
{
    const nw_scheduler_options o = {.max_queue = max_queue, .prefill_chunk = chunk};
    nw_error err = {0};
    nw_scheduler *s = NULL;
    assert_int_equal(nw_scheduler_open(e, &o, &s, &err), NW_OK);
    return s;
}

static nw_sched_request request_of(client *c, const int32_t *prompt, size_t n, uint32_t max_tokens)
{
    return (nw_sched_request){
        .prompt = prompt,
        .n_prompt = n,
        .max_tokens = max_tokens,
        .sampling = nw_sampling_greedy(),
        .on_event = on_event,
        .ctx = c,
    };
}

static void submit(nw_scheduler *s, const nw_sched_request *r)
{
    client *c = r->ctx;
    nw_error err = {0};
    c->sched = s;
    if (nw_scheduler_submit(s, r, &c->id, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
}

#define N_REQUESTS 24

/* Prompts of 1..100 tokens, outputs of 30..60; every third is sampled. */
static nw_sched_request make_request(int i, client *c, int32_t prompt[100])
{
    const uint32_t n = 1 + (uint32_t)(i * 37 % 100);
    random_ids(100 + (uint64_t)i, prompt, n);
    nw_sched_request r = request_of(c, prompt, n, 30 + (uint32_t)(i * 11 % 31));
    r.ignore_eos = i % 2 == 0;
    if (i % 3 == 0) {
        r.sampling.temperature = 0.9F;
        r.sampling.top_p = 0.95F;
        r.sampling.repeat_penalty = 1.1F;
        r.sampling.seed = (uint64_t)i;
    }
    r.n_top_logprobs = (uint32_t)i % 4;
    return r;
}

static client *run_alone(int i)
{
    const nw_engine_options o = fixture_options();
    nw_engine *e = fixture_engine(i % N_MODELS, &o);
    nw_scheduler *s = open_scheduler(e, 0, 0);
    client *c = calloc(1, sizeof *c);
    int32_t prompt[100];
    const nw_sched_request r = make_request(i, c, prompt);
    submit(s, &r);
    nw_scheduler_drain(s);
    nw_scheduler_close(s);
    nw_engine_close(e);
    return c;
}

/* Submits the requests of a model at once and holds each to its run alone. */
static nw_sched_stats crowd(int model, const nw_engine_options *o)
{
    nw_engine *e = fixture_engine(model, o);
    nw_scheduler *s = open_scheduler(e, N_REQUESTS, 16);
    client *c = calloc(N_REQUESTS, sizeof *c);
    nw_sched_stats st;

    for (int i = model; i < N_REQUESTS; i += N_MODELS) {
        int32_t prompt[100];
        const nw_sched_request r = make_request(i, &c[i], prompt);
        submit(s, &r); /* the prompt is copied: the array dies here */
    }
    nw_scheduler_drain(s);
    nw_scheduler_stats(s, &st);
    uint64_t n_output = 0;
    for (int i = model; i < N_REQUESTS; i += N_MODELS) {
        client *alone = run_alone(i);
        n_output += c[i].n;
        assert_int_equal(c[i].n_done, 1);
        assert_int_equal(c[i].finish, alone->finish);
        assert_int_equal(c[i].n, alone->n);
        assert_int_equal(c[i].n_output, alone->n);
        assert_memory_equal(c[i].out, alone->out, sizeof alone->out);
        assert_memory_equal(c[i].logprob, alone->logprob, sizeof alone->logprob);
        free(alone);
    }
    assert_int_equal(st.output_tokens, n_output);
    assert_int_equal(st.active, 0); /* nobody is left, and the figures say so */
    assert_int_equal(st.pages_used, 0);
    nw_scheduler_close(s);
    assert_int_equal(nw_engine_pages_free(e), nw_engine_pages_total(e));
    nw_engine_close(e);
    free(c);
    return st;
}

static void a_crowd_gets_what_each_gets_alone(void **state)
{
    (void)state;
    for (int model = 0; model < N_MODELS; model++) {
        nw_engine_options o = fixture_options();
        o.max_seqs = 6;
        const nw_sched_stats st = crowd(model, &o);
        assert_int_equal(st.submitted, N_REQUESTS / N_MODELS);
        assert_int_equal(st.completed, N_REQUESTS / N_MODELS);
        assert_int_equal(st.queued, 0);
        assert_int_equal(st.preempted, 0);
    }
}

/* Four pages for six sequences that grow to two or three pages each. */
static void a_small_pool_changes_no_token(void **state)
{
    (void)state;
    uint64_t preempted = 0;
    for (int model = 0; model < N_MODELS; model++) {
        nw_engine_options o = fixture_options();
        nw_engine *probe = fixture_engine(model, &o);
        o.max_seqs = 6;
        o.kv_bytes = (size_t)nw_engine_get_facts(probe)->kv_bytes_per_token * 64 * 4;
        nw_engine_close(probe);
        preempted += crowd(model, &o).preempted;
    }
    assert_true(preempted > 0);
}

static void impossible_requests_are_refused_with_numbers(void **state)
{
    (void)state;
    nw_engine_options o = fixture_options();
    nw_engine *probe = fixture_engine(0, &o);
    o.kv_bytes = (size_t)nw_engine_get_facts(probe)->kv_bytes_per_token * 64 * 2;
    nw_engine_close(probe);
    nw_engine *e = fixture_engine(0, &o);
    nw_scheduler *s = open_scheduler(e, 0, 0);
    int32_t prompt[256] = {0};
    const int32_t wrong[] = {3, NW_TINY_VOCAB};
    client c = {0};
    struct {
        nw_sched_request r;
        const char *says;
    } bad[] = {
        {request_of(&c, prompt, 0, 1), "0 prompt tokens"},
        {request_of(&c, prompt, 1, 0), "max_tokens 0"},
        {request_of(&c, prompt, 200, 57), "context of 256"},
        {request_of(&c, prompt, 1, UINT32_MAX), "context of 256"},
        {request_of(&c, prompt, 100, 29), "KV pool of 128"},
        {request_of(&c, wrong, 2, 1), "prompt token 1 is 260"},
        {request_of(&c, prompt, 1, 1), "temperature"},
        {request_of(&c, prompt, 1, 1), "21 top"},
    };
    bad[6].r.sampling.temperature = -1;
    bad[7].r.n_top_logprobs = 21;
    for (size_t i = 0; i < NW_COUNT(bad); i++) {
        nw_error err = {0};
        uint64_t id = 0;
        assert_int_equal(nw_scheduler_submit(s, &bad[i].r, &id, &err), NW_E_RANGE);
        if (strstr(err.message, bad[i].says) == NULL) {
            fail_msg("row %zu says: %s", i, err.message);
        }
    }
    assert_int_equal(c.n_done, 0);
    nw_scheduler_close(s);
    nw_engine_close(e);
}

/* A prompt that is scored and not answered needs no page for a token after it. */
static void a_scored_prompt_may_fill_the_pool(void **state)
{
    (void)state;
    nw_engine_options o = fixture_options();
    nw_engine *probe = fixture_engine(0, &o);
    o.kv_bytes = (size_t)nw_engine_get_facts(probe)->kv_bytes_per_token * 64 * 2;
    nw_engine_close(probe);
    nw_engine *e = fixture_engine(0, &o);
    nw_scheduler *s = open_scheduler(e, 0, 0);
    int32_t prompt[128];
    client c = {0};

    random_ids(7, prompt, NW_COUNT(prompt));
    nw_sched_request r = request_of(&c, prompt, NW_COUNT(prompt), 0);
    r.score_prompt = true;
    submit(s, &r);
    nw_scheduler_drain(s);
    nw_scheduler_close(s);
    nw_engine_close(e);
    assert_int_equal(c.n_done, 1);
    assert_string_equal(c.message, "");
    assert_int_equal(c.n_prompt, 127);
}

/* Holds the worker between two steps until released. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool held, release;
    nw_scheduler *sched;
} gate;

static void hold(void *ctx, nw_engine *e)
{
    gate *g = ctx;
    (void)e;
    (void)pthread_mutex_lock(&g->lock);
    g->held = true;
    (void)pthread_cond_broadcast(&g->cond);
    while (!g->release) {
        (void)pthread_cond_wait(&g->cond, &g->lock);
    }
    (void)pthread_mutex_unlock(&g->lock);
}

static void *hold_thread(void *ctx)
{
    gate *g = ctx;
    nw_scheduler_call(g->sched, hold, g);
    return NULL;
}

static void a_full_queue_is_busy_and_cancel_frees_it(void **state)
{
    (void)state;
    const nw_engine_options o = fixture_options();
    nw_engine *e = fixture_engine(0, &o);
    gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    const int32_t prompt[] = {1, 2, 3};
    client c[4] = {0};
    pthread_t t;
    uint64_t id = 0;
    nw_error err = {0};
    nw_sched_stats st;

    g.sched = open_scheduler(e, 3, 0);
    assert_int_equal(pthread_create(&t, NULL, hold_thread, &g), 0);
    (void)pthread_mutex_lock(&g.lock);
    while (!g.held) {
        (void)pthread_cond_wait(&g.cond, &g.lock);
    }
    (void)pthread_mutex_unlock(&g.lock);
    /* the worker is held: what is submitted stays in the queue */
    for (int i = 0; i < 3; i++) {
        const nw_sched_request r = request_of(&c[i], prompt, 3, 5);
        submit(g.sched, &r);
    }
    const nw_sched_request r = request_of(&c[3], prompt, 3, 5);
    assert_int_equal(nw_scheduler_submit(g.sched, &r, &id, &err), NW_E_BUSY);
    nw_scheduler_stats(g.sched, &st);
    assert_int_equal(st.queued, 3);
    assert_int_equal(st.rejected, 1);
    nw_scheduler_cancel(g.sched, c[1].id);
    nw_scheduler_cancel(g.sched, 12345);
    (void)pthread_mutex_lock(&g.lock);
    g.release = true;
    (void)pthread_cond_broadcast(&g.cond);
    (void)pthread_mutex_unlock(&g.lock);
    (void)pthread_join(t, NULL);
    nw_scheduler_drain(g.sched);
    assert_int_equal(c[1].finish, NW_FINISH_CANCELLED);
    assert_int_equal(c[1].n, 0);
    assert_int_not_equal(c[0].finish, NW_FINISH_CANCELLED);
    assert_memory_equal(c[0].out, c[2].out, sizeof c[0].out);
    nw_scheduler_close(g.sched);
    nw_engine_close(e);
}

static void a_client_cancels_from_its_event(void **state)
{
    (void)state;
    const nw_engine_options o = fixture_options();
    nw_engine *e = fixture_engine(0, &o);
    nw_scheduler *s = open_scheduler(e, 0, 0);
    const int32_t prompt[] = {5, 6};
    client c[3] = {{.cancel_at = 3}, {0}, {.cancel_at = 4, .stops = true}};
    nw_sched_stats st = {0};
    for (int i = 0; i < 3; i++) {
        nw_sched_request r = request_of(&c[i], prompt, 2, 40);
        r.ignore_eos = true;
        submit(s, &r);
    }
    nw_scheduler_drain(s);
    nw_scheduler_stats(s, &st);
    assert_int_equal(st.cancelled, 1);
    assert_int_equal(st.completed, 2);
    assert_int_equal(c[2].finish, NW_FINISH_STOP);
    assert_int_equal(c[2].n, 4);
    assert_int_equal(c[2].end_id, -1);
    assert_int_equal(c[0].finish, NW_FINISH_CANCELLED);
    assert_int_equal(c[0].n, 3);
    assert_int_equal(c[0].n_output, 3);
    assert_int_equal(c[1].finish, NW_FINISH_LENGTH);
    assert_int_equal(c[1].n, 40);
    assert_memory_equal(c[0].out, c[1].out, 3 * sizeof(int32_t));
    assert_int_equal(nw_engine_pages_free(e), nw_engine_pages_total(e));
    nw_scheduler_close(s);
    nw_engine_close(e);
}

static void closing_cancels_what_is_left(void **state)
{
    (void)state;
    nw_engine_options o = fixture_options();
    o.max_seqs = 2;
    nw_engine *e = fixture_engine(1, &o);
    nw_scheduler *s = open_scheduler(e, 0, 0);
    client *c = calloc(10, sizeof *c);
    int32_t prompt[150];
    random_ids(1, prompt, 150);
    for (int i = 0; i < 10; i++) {
        nw_sched_request r = request_of(&c[i], prompt, 150, 60);
        r.ignore_eos = true;
        submit(s, &r);
    }
    nw_scheduler_close(s);
    uint32_t cancelled = 0;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(c[i].n_done, 1);
        cancelled += c[i].finish == NW_FINISH_CANCELLED;
    }
    assert_true(cancelled > 0);
    assert_int_equal(nw_engine_pages_free(e), nw_engine_pages_total(e));
    nw_engine_close(e);
    free(c);
}

/* The first end token the model picks ends the text; with ignore_eos it is output. */
static void end_tokens_stop_unless_ignored(void **state)
{
    (void)state;
    const nw_engine_options o = fixture_options();
    nw_engine *e = fixture_engine(0, &o);
    nw_scheduler *s = open_scheduler(e, 0, 0);
    client *c = calloc(2, sizeof *c);
    int32_t prompt[4];
    bool seen = false;
    uint64_t n_output = 0;
    nw_sched_stats st;

    /* about one prompt in seven, sampled at a high temperature, meets id 257 within 40 tokens */
    for (uint64_t seed = 0; seed < 200 && !seen; seed++) {
        memset(c, 0, 2 * sizeof *c);
        random_ids(seed, prompt, 4);
        for (int i = 0; i < 2; i++) {
            nw_sched_request r = request_of(&c[i], prompt, 4, 40);
            r.sampling.temperature = 5;
            r.sampling.seed = seed;
            r.ignore_eos = i == 1;
            submit(s, &r);
        }
        nw_scheduler_drain(s);
        seen = c[0].finish == NW_FINISH_STOP;
        n_output += c[0].n + c[1].n;
    }
    assert_true(seen);
    nw_scheduler_stats(s, &st);
    assert_int_equal(st.output_tokens, n_output); /* end tokens are no output */
    assert_int_equal(c[0].end_id, NW_TINY_EOS);
    assert_int_equal(c[1].finish, NW_FINISH_LENGTH);
    assert_int_equal(c[1].n, 40);
    assert_int_equal(c[1].out[c[0].n], NW_TINY_EOS);
    assert_memory_equal(c[0].out, c[1].out, c[0].n * sizeof(int32_t));
    nw_scheduler_close(s);
    nw_engine_close(e);
    free(c);
}

typedef struct {
    const float *want;
    uint32_t rows;
    nw_status status;
} score_call;

static bool count_row(void *ctx, size_t pos, const float *logits)
{
    score_call *c = ctx;
    c->rows += memcmp(c->want + pos * NW_TINY_VOCAB, logits, NW_TINY_VOCAB * sizeof *logits) == 0;
    return true;
}

static void score_in_call(void *ctx, nw_engine *e)
{
    score_call *c = ctx;
    int32_t ids[90];
    nw_error err = {0};
    random_ids(9, ids, 90);
    c->status = nw_engine_score(e, ids, 90, 0, count_row, c, &err);
}

static void calls_run_between_steps(void **state)
{
    (void)state;
    const nw_engine_options o = fixture_options();
    nw_engine *e = fixture_engine(0, &o);
    float *want = new_logits(90);
    int32_t ids[90];
    random_ids(9, ids, 90);
    nw_session *ses = open_session(e);
    feed(e, ses, ids, 90, want);
    nw_session_close(ses);

    nw_scheduler *s = open_scheduler(e, 0, 0);
    client *c = calloc(4, sizeof *c);
    for (int i = 0; i < 4; i++) {
        nw_sched_request r = request_of(&c[i], ids, 50, 60);
        r.ignore_eos = true;
        submit(s, &r);
    }
    for (int i = 0; i < 3; i++) {
        score_call call = {.want = want};
        nw_scheduler_call(s, score_in_call, &call);
        assert_int_equal(call.status, NW_OK);
        assert_int_equal(call.rows, 90);
    }
    nw_scheduler_drain(s);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(c[i].n, 60);
        assert_memory_equal(c[i].out, c[0].out, sizeof c[0].out);
    }
    nw_scheduler_close(s);
    nw_engine_close(e);
    free(want);
    free(c);
}

/* ln p of ids[1..n) by the engine's own scoring. */
static bool keep_logprob(void *ctx, size_t pos, const float *logits)
{
    client *want = ctx;
    nw_error err = {0};
    nw_pick pick;
    if (pos + 1 < want->n_prompt) {
        assert_int_equal(
            nw_logits_score(logits, NW_TINY_VOCAB, want->prompt[pos + 1], 0, &pick, &err), NW_OK);
        want->prompt_logprob[pos] = pick.logprob;
    }
    return true;
}

static client *score_alone(const int32_t *ids, uint32_t n)
{
    const nw_engine_options o = fixture_options();
    nw_engine *e = fixture_engine(0, &o);
    client *want = calloc(1, sizeof *want);
    nw_error err = {0};
    memcpy(want->prompt, ids, n * sizeof *ids);
    want->n_prompt = n;
    assert_int_equal(nw_engine_score(e, ids, n, 0, keep_logprob, want, &err), NW_OK);
    nw_engine_close(e);
    return want;
}

#define N_SCORED 12

/* Prompts of equal beginnings, scored beside requests that generate: each is told every token of its
 * prompt once, with the bits of the engine's own scoring, then its output. */
static uint64_t prompts_are_scored(const nw_engine_options *o)
{
    static const uint32_t lengths[N_SCORED] = {150, 1, 2, 64, 65, 129, 200, 150, 3, 128, 7, 150};
    nw_engine *e = fixture_engine(0, o);
    nw_scheduler *s = open_scheduler(e, 0, 16);
    client *c = calloc(N_SCORED, sizeof *c);
    client *plain = calloc(N_SCORED, sizeof *plain);
    int32_t ids[MAX_PROMPT];
    nw_sched_stats st;

    random_ids(77, ids, MAX_PROMPT);
    for (int i = 0; i < N_SCORED; i++) {
        nw_sched_request r = request_of(&c[i], ids, lengths[i], (uint32_t)i % 3 * 5);
        r.score_prompt = r.ignore_eos = true;
        r.n_top_logprobs = (uint32_t)i % 3;
        submit(s, &r);
        r = request_of(&plain[i], ids, lengths[i], 10);
        r.ignore_eos = true;
        submit(s, &r);
    }
    nw_scheduler_drain(s);
    client *want = score_alone(ids, MAX_PROMPT);
    for (int i = 0; i < N_SCORED; i++) {
        assert_int_equal(c[i].n_done, 1);
        assert_int_equal(c[i].finish, NW_FINISH_LENGTH);
        assert_int_equal(c[i].n_prompt, lengths[i] - 1);
        assert_memory_equal(c[i].prompt, ids + 1, (lengths[i] - 1) * sizeof *ids);
        assert_memory_equal(c[i].prompt_logprob, want->prompt_logprob,
                            (lengths[i] - 1) * sizeof(float));
        assert_int_equal(c[i].n, i % 3 * 5);
        assert_memory_equal(c[i].out, plain[i].out, c[i].n * sizeof *c[i].out);
    }
    assert_int_equal(nw_engine_pages_free(e), nw_engine_pages_total(e));
    nw_scheduler_stats(s, &st);
    nw_scheduler_close(s);
    nw_engine_close(e);
    free(want);
    free(plain);
    free(c);
    return st.preempted;
}

static void scored_prompts_are_told_once(void **state)
{
    nw_engine_options o = fixture_options();

    (void)state;
    (void)prompts_are_scored(&o);
    o.max_step_tokens = 11; /* chunks that end anywhere */
    (void)prompts_are_scored(&o);
    nw_engine *probe = fixture_engine(0, &o);
    o.max_seqs = 6; /* few pages: requests give them back half-scored */
    o.kv_bytes = (size_t)nw_engine_get_facts(probe)->kv_bytes_per_token * 64 * 4;
    nw_engine_close(probe);
    assert_true(prompts_are_scored(&o) > 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crowd_gets_what_each_gets_alone),
        cmocka_unit_test(a_small_pool_changes_no_token),
        cmocka_unit_test(impossible_requests_are_refused_with_numbers),
        cmocka_unit_test(a_scored_prompt_may_fill_the_pool),
        cmocka_unit_test(a_full_queue_is_busy_and_cancel_frees_it),
        cmocka_unit_test(a_client_cancels_from_its_event),
        cmocka_unit_test(closing_cancels_what_is_left),
        cmocka_unit_test(end_tokens_stop_unless_ignored),
        cmocka_unit_test(calls_run_between_steps),
        cmocka_unit_test(scored_prompts_are_told_once),
    };
    return cmocka_run_group_tests_name("scheduler", tests, fixture_setup, fixture_teardown);
}
