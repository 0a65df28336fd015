/* A target that is an artifact: our engine in this process, driven by its scheduler. Events come from
 * the scheduler's worker; text and stop strings are made there, since both are cheap and in order.
 *
 * The engine has one user at a time: the scheduler runs while requests are wanted, and is closed
 * (after its requests ended) when a caller scores.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact.h"
#include "base/clock.h"
#include "engine/facts.h"
#include "engine/scheduler.h"
#include "engine/textout.h"
#include "model/config.h"
#include "model/template.h"
#include "target/impl.h"

typedef struct {
    nw_engine *engine;
    const nw_tokenizer *recount; /* of generations; NULL: ids are counted anyway */
    uint32_t max_queue;
    pthread_mutex_t lock; /* guards the scheduler's coming and going */
    nw_scheduler *sched;  /* NULL: nobody generates */
} nw_local;

typedef struct {
    nw_local *local;
    nw_gen gen;
    nw_textout *out;
    nw_buf text;
    bool stopped;
} local_call;

static void call_free(local_call *c)
{
    if (c != NULL) {
        nw_textout_close(c->out);
        nw_buf_release(&c->text);
        nw_gen_release(&c->gen);
        free(c);
    }
}

static void on_token(local_call *c, const nw_sched_event *e)
{
    if (c->stopped) {
        return;
    }
    nw_buf_clear(&c->text);
    nw_gen_token(&c->gen, e->id, e->logprob);
    c->stopped = nw_textout_push(c->out, e->id, &c->text);
    nw_gen_receive(&c->gen, c->text.data, c->text.len, 1, e->t_ns);
    if (c->stopped) {
        nw_scheduler_stop(c->local->sched, e->request);
    }
}

static void on_end(local_call *c, const nw_sched_event *e)
{
    nw_status st = NW_OK;
    nw_gen_finish finish = NW_GEN_STOP;
    const char *why = NULL;

    if (!c->stopped) {
        nw_buf_clear(&c->text);
        nw_textout_flush(c->out, &c->text);
        nw_gen_receive(&c->gen, c->text.data, c->text.len, 0, e->t_ns);
        if (e->finish == NW_FINISH_LENGTH) {
            finish = NW_GEN_LENGTH;
        } else if (e->finish == NW_FINISH_CANCELLED) {
            finish = NW_GEN_CANCELLED;
            st = NW_E_CANCELLED;
            why = "cancelled";
        } else if (e->type == NW_SCHED_ERROR) {
            finish = NW_GEN_ERROR;
            st = e->error->code;
            why = e->error->message;
        }
    }
    c->gen.r.n_prompt = e->n_prompt;
    c->gen.r.n_output = (uint32_t)c->gen.n_ids;
    nw_gen_end(&c->gen, st, finish, why);
    call_free(c);
}

static void on_event(void *ctx, const nw_sched_event *e)
{
    local_call *c = ctx;

    c->gen.id = e->request;
    if (e->type == NW_SCHED_TOKEN) {
        on_token(c, e);
    } else {
        on_end(c, e);
    }
}

static nw_status encode(const nw_local *l, const nw_gen_request *req, nw_ids *ids, nw_error *err)
{
    const nw_tokenizer *tok = nw_engine_tokenizer(l->engine);

    if (req->messages != NULL) {
        return nw_chat_encode(tok, req->messages, true, ids, err);
    }
    if (req->prompt != NULL) {
        return nw_tokenizer_encode(tok, req->prompt, req->n_prompt_bytes, NW_TOK_BOS, ids, err);
    }
    for (size_t i = 0; i < req->n_ids; i++) {
        if (!nw_ids_push(ids, req->ids[i])) {
            return nw_fail(err, NW_E_NOMEM, "no memory for %zu prompt tokens", req->n_ids);
        }
    }
    return NW_OK;
}

static nw_sampling sampling_of(const nw_gen_request *req)
{
    nw_sampling s = nw_sampling_greedy();

    s.temperature = (float)req->temperature;
    s.top_k = req->top_k;
    s.min_p = (float)req->min_p;
    s.seed = req->seed;
    if (req->top_p > 0) {
        s.top_p = (float)req->top_p;
    }
    if (req->repetition_penalty > 0) {
        s.repeat_penalty = (float)req->repetition_penalty;
    }
    return s;
}

static nw_status need_scheduler(nw_local *l, nw_error *err)
{
    const nw_scheduler_options o = {.max_queue = l->max_queue};

    return l->sched != NULL ? NW_OK : nw_scheduler_open(l->engine, &o, &l->sched, err);
}

static nw_status local_start(void *impl, const nw_gen_request *req, const nw_gen_callbacks *cb,
                             uint64_t *id, nw_error *err)
{
    nw_local *l = impl;
    nw_ids ids;
    local_call *c = calloc(1, sizeof *c);
    nw_status st = NW_OK;

    nw_ids_init(&ids);
    if (c == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for a request");
    }
    c->local = l;
    nw_buf_init(&c->text, NW_GEN_TEXT_MAX);
    nw_gen_init(&c->gen, 0, req, cb, l->recount);
    st = encode(l, req, &ids, err);
    if (st == NW_OK) {
        st = nw_textout_open(nw_engine_tokenizer(l->engine), req->stop, req->n_stop, &c->out, err);
    }
    if (st == NW_OK) {
        const nw_sched_request r = {.prompt = ids.ids,
                                    .n_prompt = ids.n,
                                    .max_tokens = req->max_tokens,
                                    .sampling = sampling_of(req),
                                    .ignore_eos = req->ignore_eos,
                                    .n_top_logprobs = req->n_top_logprobs,
                                    .on_event = on_event,
                                    .ctx = c};
        pthread_mutex_lock(&l->lock);
        st = need_scheduler(l, err);
        if (st == NW_OK) {
            nw_gen_dispatched(&c->gen, nw_now_ns());
            st = nw_scheduler_submit(l->sched, &r, id, err);
        }
        pthread_mutex_unlock(&l->lock);
    }
    nw_ids_release(&ids);
    if (st != NW_OK) {
        call_free(c);
    }
    return st;
}

static void local_cancel(void *impl, uint64_t id)
{
    nw_local *l = impl;

    pthread_mutex_lock(&l->lock);
    if (l->sched != NULL) {
        nw_scheduler_cancel(l->sched, id);
    }
    pthread_mutex_unlock(&l->lock);
}

/* What nw_engine_score hands out, position by position. */
typedef struct {
    const int32_t *ids;
    size_t first;
    uint32_t n_vocab;
    float *logprob;
    bool greedy;
} score_ctx;

static bool on_logits(void *ctx, size_t pos, const float *logits)
{
    score_ctx *s = ctx;
    const int32_t want = s->ids[pos + 1];
    const double lse = nw_log_sum_exp(logits, s->n_vocab);

    s->logprob[pos - s->first] = (float)((double)logits[want] - lse);
    for (uint32_t i = 0; s->greedy && i < s->n_vocab; i++) {
        s->greedy = logits[i] <= logits[want];
    }
    return true;
}

static nw_status local_score(void *impl, const int32_t *ids, size_t n, size_t n_context,
                             float *logprob, bool *greedy, nw_error *err)
{
    nw_local *l = impl;
    score_ctx s = {.ids = ids,
                   .first = n_context - 1,
                   .n_vocab = nw_engine_config(l->engine)->n_vocab,
                   .logprob = logprob,
                   .greedy = true};

    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= s.n_vocab) {
            return nw_fail(err, NW_E_RANGE, "score: token %zu is %d, 0 to %u are allowed", i,
                           ids[i], s.n_vocab - 1);
        }
    }
    pthread_mutex_lock(&l->lock);
    if (l->sched != NULL) {
        nw_scheduler_drain(l->sched);
        nw_scheduler_close(l->sched);
        l->sched = NULL;
    }
    /* the last token is scored, not read */
    const nw_status st = nw_engine_score(l->engine, ids, n - 1, s.first, on_logits, &s, err);
    pthread_mutex_unlock(&l->lock);
    if (st == NW_OK && greedy != NULL) {
        *greedy = s.greedy;
    }
    return st;
}

static void take_ledger(void *ctx, nw_engine *e)
{
    json_t **list = ctx;
    *list = nw_engine_ledger_json(e);
}

static json_t *local_facts(void *impl)
{
    nw_local *l = impl;
    json_t *facts = nw_engine_facts_json(l->engine);
    json_t *ledger = NULL;

    pthread_mutex_lock(&l->lock);
    if (l->sched != NULL) {
        nw_scheduler_call(l->sched, take_ledger, &ledger);
    } else {
        take_ledger(&ledger, l->engine);
    }
    pthread_mutex_unlock(&l->lock);
    if (facts == NULL || ledger == NULL || json_object_set_new(facts, "ledger", ledger) != 0) {
        json_decref(facts);
        return NULL;
    }
    return facts;
}

static void local_close(void *impl)
{
    nw_local *l = impl;

    nw_scheduler_close(l->sched);
    nw_engine_close(l->engine);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static nw_status local_can_score(void *impl, nw_error *err)
{
    (void)impl;
    (void)err;
    return NW_OK;
}

static nw_status local_tokenize(void *impl, const char *text, size_t n_bytes, bool add_bos,
                                int32_t **ids, size_t *n, nw_error *err)
{
    (void)text, (void)n_bytes, (void)add_bos, (void)ids, (void)n;
    const nw_local *l = impl;
    return nw_fail(err, NW_E_UNSUPPORTED, "%s: the model has no tokenizer",
                   nw_artifact_path(nw_engine_artifact(l->engine)));
}

static nw_status local_check_tokenizer(void *impl, const nw_tokenizer *tok, nw_error *err)
{
    (void)impl, (void)tok, (void)err;
    return NW_OK; /* options.tokenizer recounts only: what is run is the artifact's own */
}

static nw_status local_probe(void *impl, nw_target *t, json_t **out, nw_error *err)
{
    (void)t, (void)out;
    const nw_local *l = impl;
    return nw_fail(err, NW_E_USAGE, "%s: an artifact on disk; a server's URL is expected",
                   nw_artifact_path(nw_engine_artifact(l->engine)));
}

static const nw_target_ops local_ops = {.start = local_start,
                                        .cancel = local_cancel,
                                        .score = local_score,
                                        .can_score = local_can_score,
                                        .tokenize = local_tokenize,
                                        .probe = local_probe,
                                        .check_tokenizer = local_check_tokenizer,
                                        .facts = local_facts,
                                        .close = local_close};

static nw_status engine_options(const nw_target_options *opt, nw_engine_options *o, nw_error *err)
{
    *o = nw_engine_options_default();
    o->n_threads = opt->n_threads;
    o->tier = opt->tier;
    o->n_ctx = opt->n_ctx;
    o->max_seqs = opt->max_seqs != 0 ? opt->max_seqs : 32;
    if (opt->act != NULL) {
        const nw_status st = nw_engine_act_parse(opt->act, o, err);
        if (st != NW_OK) {
            return st;
        }
    }
    return opt->kv != NULL ? nw_engine_kv_parse(opt->kv, o, err) : NW_OK;
}

nw_status nw_local_open(const char *path, const nw_target_options *opt, nw_target *t, nw_error *err)
{
    nw_engine_options o;
    nw_local *l = NULL;

    if (engine_options(opt, &o, err) != NW_OK) {
        return err->code;
    }
    l = calloc(1, sizeof *l);
    if (l == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a target", path);
    }
    (void)pthread_mutex_init(&l->lock, NULL);
    l->max_queue = opt->max_queue != 0 ? opt->max_queue : 1024;
    l->recount = t->own_tokenizer;
    if (nw_engine_open(path, &o, &l->engine, err) != NW_OK) {
        local_close(l);
        return err->code;
    }
    t->ops = &local_ops;
    t->impl = l;
    t->model = strdup(path);
    if (t->tokenizer == NULL) {
        t->tokenizer = nw_engine_tokenizer(l->engine);
    }
    return NW_OK;
}
