/* Scheduler: the queue seen from other threads. The worker's side is sched_worker.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/scheduler.h"

#include <stdlib.h>
#include <string.h>

#include "engine/sched.h"

#define NW_DEFAULT_QUEUE 64u
#define NW_DEFAULT_CHUNK 128u

const char *nw_finish_name(nw_finish f)
{
    static const char *const names[] = {
#define NW_FINISH_TEXT(name, text) text,
        NW_FINISH_MAP(NW_FINISH_TEXT)
#undef NW_FINISH_TEXT
    };
    return names[f];
}

void nw_sched_job_free(nw_sched_job *j)
{
    if (j != NULL) {
        nw_sampler_close(j->sampler);
        free(j->tokens);
        free(j);
    }
}

static nw_status open_scratch(nw_scheduler *s, nw_error *err)
{
    const unsigned n_threads = s->engine->facts.n_threads;
    size_t bytes = 0;

    s->active = calloc(s->max_active, sizeof *s->active);
    s->items = calloc(s->max_active, sizeof *s->items);
    s->item_jobs = calloc(s->max_active, sizeof *s->item_jobs);
    s->picks = calloc(s->max_active, sizeof *s->picks);
    s->item_row = calloc(s->max_active, sizeof *s->item_row);
    s->scratch = calloc(n_threads, sizeof(nw_sampler_scratch *));
    if (nw_size_mul(s->max_active * sizeof(float), s->engine->config->n_vocab, &bytes)) {
        s->logits = malloc(bytes);
    }
    if (s->active == NULL || s->items == NULL || s->item_jobs == NULL || s->picks == NULL ||
        s->item_row == NULL || s->scratch == NULL || s->logits == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for logits of %u sequences", s->max_active);
    }
    for (unsigned i = 0; i < n_threads; i++) {
        if (nw_sampler_scratch_open(s->engine->config->n_vocab, &s->scratch[i], err) != NW_OK) {
            return err->code;
        }
    }
    return NW_OK;
}

static void release(nw_scheduler *s)
{
    for (unsigned i = 0; s->scratch != NULL && i < s->engine->facts.n_threads; i++) {
        nw_sampler_scratch_close(s->scratch[i]);
    }
    free(s->scratch);
    free(s->picks);
    free(s->item_row);
    free(s->score_rows);
    free(s->score_logits);
    free(s->item_jobs);
    free(s->items);
    free(s->active);
    free(s->logits);
    (void)pthread_cond_destroy(&s->wake);
    (void)pthread_cond_destroy(&s->idle);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

nw_status nw_scheduler_open(nw_engine *e, const nw_scheduler_options *o, nw_scheduler **out,
                            nw_error *err)
{
    nw_scheduler *s = calloc(1, sizeof *s);

    *out = NULL;
    if (s == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for a scheduler");
    }
    s->engine = e;
    s->max_active = e->facts.max_seqs;
    s->max_queue = o->max_queue > 0 ? o->max_queue : NW_DEFAULT_QUEUE;
    s->prefill_chunk = o->prefill_chunk > 0 ? o->prefill_chunk : NW_DEFAULT_CHUNK;
    s->stats.pages_total = nw_engine_pages_total(e);
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->wake, NULL);
    (void)pthread_cond_init(&s->idle, NULL);
    nw_status st = open_scratch(s, err);
    if (st == NW_OK && pthread_create(&s->worker, NULL, nw_sched_worker, s) != 0) {
        st = nw_fail(err, NW_E_NOMEM, "no thread for the scheduler");
    }
    if (st != NW_OK) {
        release(s);
        return st;
    }
    *out = s;
    return NW_OK;
}

void nw_scheduler_close(nw_scheduler *s)
{
    if (s == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&s->lock);
    s->stop = true;
    (void)pthread_cond_signal(&s->wake);
    (void)pthread_mutex_unlock(&s->lock);
    (void)pthread_join(s->worker, NULL);
    release(s);
}

static nw_status check_request(const nw_scheduler *s, const nw_sched_request *r, nw_error *err)
{
    const nw_engine_facts *f = &s->engine->facts;
    const uint32_t n_vocab = s->engine->config->n_vocab;

    if (r->n_prompt == 0 || (r->max_tokens == 0 && !r->score_prompt) ||
        r->n_top_logprobs > NW_TOP_LOGPROBS_MAX) {
        return nw_fail(err, NW_E_RANGE,
                       "request of %zu prompt tokens, max_tokens %u, %u top log-probabilities: at "
                       "least 1, at least 1, at most %d",
                       r->n_prompt, r->max_tokens, r->n_top_logprobs, NW_TOP_LOGPROBS_MAX);
    }
    if (r->n_prompt > f->n_ctx || r->max_tokens > f->n_ctx - r->n_prompt) {
        return nw_fail(err, NW_E_RANGE,
                       "prompt of %zu tokens and max_tokens %u exceed the context of %u tokens",
                       r->n_prompt, r->max_tokens, f->n_ctx);
    }
    if (r->n_prompt + r->max_tokens > f->kv_capacity_tokens) {
        return nw_fail(err, NW_E_RANGE,
                       "prompt of %zu tokens and max_tokens %u exceed the KV pool of %llu tokens",
                       r->n_prompt, r->max_tokens, (unsigned long long)f->kv_capacity_tokens);
    }
    for (size_t i = 0; i < r->n_prompt; i++) {
        if (r->prompt[i] < 0 || (uint32_t)r->prompt[i] >= n_vocab) {
            return nw_fail(err, NW_E_RANGE, "prompt token %zu is %d, not in [0, %u)", i,
                           (int)r->prompt[i], n_vocab);
        }
    }
    return NW_OK;
}

/* NULL, with the error set, on failure. */
static nw_sched_job *make_job(const nw_scheduler *s, const nw_sched_request *r, nw_error *err)
{
    nw_sched_job *j = calloc(1, sizeof *j);

    if (j != NULL) {
        j->tokens = calloc(r->n_prompt + r->max_tokens, sizeof *j->tokens);
    }
    if (j == NULL || j->tokens == NULL) {
        (void)nw_fail(err, NW_E_NOMEM, "no memory for a request of %zu tokens", r->n_prompt);
        nw_sched_job_free(j);
        return NULL;
    }
    if (nw_sampler_open(&r->sampling, s->engine->config->n_vocab, &j->sampler, err) != NW_OK) {
        nw_sched_job_free(j);
        return NULL;
    }
    j->request = *r;
    j->request.prompt = NULL; /* the copy below is what counts */
    memcpy(j->tokens, r->prompt, r->n_prompt * sizeof *j->tokens);
    nw_sampler_saw(j->sampler, r->prompt, r->n_prompt);
    j->n_prompt = j->n_tokens = (uint32_t)r->n_prompt;
    j->n_scored = 1;
    return j;
}

/* With the lock held. */
static bool enqueue(nw_scheduler *s, nw_sched_job *j)
{
    if (s->stop || s->stats.queued >= s->max_queue) {
        s->stats.rejected++;
        return false;
    }
    j->id = ++s->last_id;
    if (s->queue_tail == NULL) {
        s->queue = j;
    } else {
        s->queue_tail->next = j;
    }
    s->queue_tail = j;
    s->stats.queued++;
    s->stats.submitted++;
    s->n_live++;
    return true;
}

nw_status nw_scheduler_submit(nw_scheduler *s, const nw_sched_request *r, uint64_t *id,
                              nw_error *err)
{
    if (check_request(s, r, err) != NW_OK ||
        (r->score_prompt && nw_sched_score_open(s, err) != NW_OK)) {
        return err->code;
    }
    nw_sched_job *j = make_job(s, r, err);
    if (j == NULL) {
        return err->code;
    }
    (void)pthread_mutex_lock(&s->lock);
    const bool ok = enqueue(s, j);
    if (ok) {
        *id = j->id; /* before the worker can finish it */
        (void)pthread_cond_signal(&s->wake);
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (!ok) {
        nw_sched_job_free(j);
        return nw_fail(err, NW_E_BUSY, "queue is full: %u requests wait", s->max_queue);
    }
    return NW_OK;
}

/* What was said first of a job stays. */
static void leave(nw_sched_job *j, uint64_t id, nw_finish why)
{
    if (j->id == id && !j->leaving) {
        j->leaving = true;
        j->leaves = why;
    }
}

static void end_early(nw_scheduler *s, uint64_t id, nw_finish why)
{
    (void)pthread_mutex_lock(&s->lock);
    for (nw_sched_job *j = s->queue; j != NULL; j = j->next) {
        leave(j, id, why);
    }
    for (uint32_t i = 0; i < s->n_active; i++) {
        leave(s->active[i], id, why);
    }
    (void)pthread_cond_signal(&s->wake);
    (void)pthread_mutex_unlock(&s->lock);
}

void nw_scheduler_cancel(nw_scheduler *s, uint64_t id)
{
    end_early(s, id, NW_FINISH_CANCELLED);
}

void nw_scheduler_stop(nw_scheduler *s, uint64_t id)
{
    end_early(s, id, NW_FINISH_STOP);
}

void nw_scheduler_call(nw_scheduler *s, void (*fn)(void *ctx, nw_engine *e), void *ctx)
{
    nw_sched_call call = {.fn = fn, .ctx = ctx};

    (void)pthread_mutex_lock(&s->lock);
    call.next = s->calls;
    s->calls = &call;
    (void)pthread_cond_signal(&s->wake);
    while (!call.done) {
        (void)pthread_cond_wait(&s->idle, &s->lock);
    }
    (void)pthread_mutex_unlock(&s->lock);
}

void nw_scheduler_stats(nw_scheduler *s, nw_sched_stats *out)
{
    (void)pthread_mutex_lock(&s->lock);
    *out = s->stats;
    (void)pthread_mutex_unlock(&s->lock);
}

void nw_scheduler_drain(nw_scheduler *s)
{
    (void)pthread_mutex_lock(&s->lock);
    while (s->n_live > 0) {
        (void)pthread_cond_wait(&s->idle, &s->lock);
    }
    (void)pthread_mutex_unlock(&s->lock);
}
