/* The common part of a target: opening by its spec, the blocking call, tokenizing.
 * SPDX-License-Identifier: Apache-2.0 */
#include "target/target.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer.h"
#include "target/impl.h"

bool nw_target_spec_is_url(const char *spec)
{
    return strncmp(spec, "http://", 7) == 0 || strncmp(spec, "https://", 8) == 0;
}

nw_status nw_target_open(const char *spec, const nw_target_options *opt, nw_target **out,
                         nw_error *err)
{
    nw_target *t = calloc(1, sizeof *t);
    nw_status st = NW_OK;

    *out = NULL;
    if (t == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a target", spec);
    }
    if (opt->tokenizer != NULL) {
        st = nw_tokenizer_open(opt->tokenizer, &t->own_tokenizer, err);
        t->tokenizer = t->own_tokenizer;
    }
    if (st == NW_OK && nw_target_spec_is_url(spec)) {
        t->kind = NW_TARGET_ENDPOINT;
        st = nw_endpoint_open(spec, opt, t, err);
    } else if (st == NW_OK) {
        t->kind = NW_TARGET_LOCAL;
        st = nw_local_open(spec, opt, t, err);
    }
    if (st != NW_OK) {
        nw_target_close(t);
        return nw_context(err, "opening target %s", spec);
    }
    *out = t;
    return NW_OK;
}

void nw_target_close(nw_target *t)
{
    if (t != NULL) {
        if (t->ops != NULL) {
            t->ops->close(t->impl);
        }
        nw_tokenizer_close(t->own_tokenizer);
        free(t->model);
        free(t);
    }
}

nw_target_kind nw_target_get_kind(const nw_target *t)
{
    return t->kind;
}

const char *nw_target_model(const nw_target *t)
{
    return t->model != NULL ? t->model : "";
}

nw_status nw_target_start(nw_target *t, const nw_gen_request *req, const nw_gen_callbacks *cb,
                          uint64_t *id, nw_error *err)
{
    if (nw_gen_check(req, err) != NW_OK) {
        return err->code;
    }
    return t->ops->start(t->impl, req, cb, id, err);
}

void nw_target_cancel(nw_target *t, uint64_t id)
{
    t->ops->cancel(t->impl, id);
}

/* A blocking call: the copy of the result, made where it still lives. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t done_cond;
    bool done, no_memory;
    nw_gen_result r;
} waiter;

/* A copy of n * size bytes; NULL for nothing to copy or no memory (then *no_memory). */
static void *copy(const void *p, size_t n, size_t size, bool *no_memory)
{
    size_t n_bytes = 0;
    void *to = NULL;

    if (p == NULL || n == 0 || !nw_size_mul(n, size, &n_bytes)) {
        return NULL;
    }
    to = malloc(n_bytes);
    if (to == NULL) {
        *no_memory = true;
        return NULL;
    }
    return memcpy(to, p, n_bytes);
}

static void on_wait_done(void *ctx, uint64_t id, const nw_gen_result *r)
{
    waiter *w = ctx;

    (void)id;
    pthread_mutex_lock(&w->lock);
    w->r = *r;
    w->r.text = copy(r->text, r->n_text_bytes + 1, 1, &w->no_memory);
    w->r.events = copy(r->events, r->n_events, sizeof *r->events, &w->no_memory);
    w->r.ids = copy(r->ids, r->n_output, sizeof *r->ids, &w->no_memory);
    w->r.logprobs = copy(r->logprobs, r->n_output, sizeof *r->logprobs, &w->no_memory);
    w->done = true;
    pthread_cond_signal(&w->done_cond);
    pthread_mutex_unlock(&w->lock);
}

nw_status nw_target_generate(nw_target *t, const nw_gen_request *req, nw_gen_result *out,
                             nw_error *err)
{
    waiter w = {.done = false};
    const nw_gen_callbacks cb = {.on_done = on_wait_done, .ctx = &w};
    uint64_t id = 0;

    (void)pthread_mutex_init(&w.lock, NULL);
    (void)pthread_cond_init(&w.done_cond, NULL);
    nw_status st = nw_target_start(t, req, &cb, &id, err);
    if (st == NW_OK) {
        pthread_mutex_lock(&w.lock);
        while (!w.done) {
            pthread_cond_wait(&w.done_cond, &w.lock);
        }
        pthread_mutex_unlock(&w.lock);
        if (w.no_memory) {
            st = nw_fail(err, NW_E_NOMEM, "generation: no memory for the answer");
        } else if (w.r.status != NW_OK) {
            st = nw_fail(err, w.r.status, "generation: %s", w.r.error);
        }
    }
    pthread_cond_destroy(&w.done_cond);
    pthread_mutex_destroy(&w.lock);
    if (st != NW_OK) {
        nw_gen_result_release(&w.r);
        return st;
    }
    *out = w.r;
    return NW_OK;
}

void nw_gen_result_release(nw_gen_result *r)
{
    /* the fields are const for readers; a result of nw_target_generate owns them */
    union {
        const void *from;
        void *to;
    } owned[] = {{r->text}, {r->events}, {r->ids}, {r->logprobs}};

    for (size_t i = 0; i < NW_COUNT(owned); i++) {
        free(owned[i].to);
    }
    r->text = NULL;
    r->events = NULL;
    r->ids = NULL;
    r->logprobs = NULL;
}

nw_status nw_target_score(nw_target *t, const int32_t *ids, size_t n, size_t n_context,
                          float *logprob, bool *greedy, nw_error *err)
{
    if (n_context == 0 || n_context >= n) {
        return nw_fail(err, NW_E_RANGE, "score: context of %zu tokens in %zu, 1 to %zu is needed",
                       n_context, n, n > 0 ? n - 1 : 0);
    }
    return t->ops->score(t->impl, ids, n, n_context, logprob, greedy, err);
}

nw_status nw_target_can_score(nw_target *t, nw_error *err)
{
    return t->ops->can_score(t->impl, err);
}

nw_status nw_target_check_tokenizer(nw_target *t, nw_error *err)
{
    return t->own_tokenizer != NULL ? t->ops->check_tokenizer(t->impl, t->own_tokenizer, err)
                                    : NW_OK;
}

nw_status nw_target_probe(nw_target *t, json_t **out, nw_error *err)
{
    return t->ops->probe(t->impl, t, out, err);
}

uint32_t nw_target_max_len(const nw_target *t)
{
    return t->max_len;
}

bool nw_target_has_tokenizer(const nw_target *t)
{
    return t->tokenizer != NULL;
}

nw_status nw_target_tokenize(nw_target *t, const char *text, size_t n_bytes, bool add_bos,
                             int32_t **ids, size_t *n, nw_error *err)
{
    nw_ids v;

    if (t->tokenizer == NULL) {
        return t->ops->tokenize(t->impl, text, n_bytes, add_bos, ids, n, err);
    }
    nw_ids_init(&v);
    if (nw_tokenizer_encode(t->tokenizer, text, n_bytes, add_bos ? NW_TOK_BOS : 0, &v, err) !=
        NW_OK) {
        nw_ids_release(&v);
        return err->code;
    }
    *ids = v.ids;
    *n = v.n;
    return NW_OK;
}

json_t *nw_target_facts(nw_target *t)
{
    return t->ops->facts(t->impl);
}
