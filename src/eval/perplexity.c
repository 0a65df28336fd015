/* The loop over windows: the context before the first scored token is prefilled without logits,
 * then chunks of a few tokens give logits of both engines, and the threads measure one token each.
 * SPDX-License-Identifier: Apache-2.0 */
#include "eval/perplexity.h"

#include <math.h>
#include <stdlib.h>

#include "base/pool.h"
#include "base/progress.h"
#include "base/signal.h"
#include "model/config.h"

/* Logits of one chunk take n_vocab * 4 bytes a token and engine; 64 MiB for each engine. */
enum { CHUNK_BYTES = 64 << 20, CHUNK_MAX = 128 };

typedef struct {
    nw_engine *engine;
    nw_session *session;
    float *logits; /* [chunk][n_vocab] */
} side;

typedef struct {
    side cand, base; /* base.engine NULL: none */
    uint32_t n_vocab, chunk, max_step;
    nw_divergence *out;     /* [chunk] */
    const int32_t *targets; /* [n] of the chunk being measured */
    nw_pool *pool;
} run;

static nw_status open_side(run *r, side *s, nw_engine *e, nw_error *err)
{
    s->engine = e;
    s->logits = calloc((size_t)r->chunk * r->n_vocab, sizeof *s->logits);
    return s->logits != NULL
               ? NW_OK
               : nw_fail(err, NW_E_NOMEM, "no memory for logits of %u tokens", r->chunk);
}

static nw_status open_run(run *r, nw_engine *e, nw_engine *base, nw_error *err)
{
    const nw_engine_facts *f = nw_engine_get_facts(e);
    const size_t fit = CHUNK_BYTES / sizeof(float) / nw_engine_config(e)->n_vocab;

    r->n_vocab = nw_engine_config(e)->n_vocab;
    r->max_step = f->max_step_tokens;
    r->chunk = (uint32_t)(fit < 1 ? 1 : fit > CHUNK_MAX ? CHUNK_MAX : fit);
    if (base != NULL) {
        const uint32_t other = nw_engine_get_facts(base)->max_step_tokens;
        r->max_step = other < r->max_step ? other : r->max_step;
        if (nw_engine_config(base)->n_vocab != r->n_vocab) {
            return nw_fail(err, NW_E_RANGE, "vocabulary of %u tokens, the baseline has %u",
                           r->n_vocab, nw_engine_config(base)->n_vocab);
        }
    }
    r->chunk = r->chunk > r->max_step ? r->max_step : r->chunk;
    r->out = calloc(r->chunk, sizeof *r->out);
    if (r->out == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for the measures of %u tokens", r->chunk);
    }
    if (nw_pool_open(f->n_threads, &r->pool, err) != NW_OK ||
        open_side(r, &r->cand, e, err) != NW_OK) {
        return err->code;
    }
    return base != NULL ? open_side(r, &r->base, base, err) : NW_OK;
}

static void close_run(run *r)
{
    nw_session_close(r->cand.session);
    nw_session_close(r->base.session);
    free(r->cand.logits);
    free(r->base.logits);
    free(r->out);
    nw_pool_close(r->pool);
}

static nw_status feed(side *s, const int32_t *ids, uint32_t n, bool logits, nw_error *err)
{
    if (s->engine == NULL) {
        return NW_OK;
    }
    const nw_step_item item = {.session = s->session,
                               .tokens = ids,
                               .n_tokens = n,
                               .n_logits = logits ? n : 0,
                               .logits = logits ? s->logits : NULL};
    return nw_engine_step(s->engine, &item, 1, err);
}

static nw_status feed_both(run *r, const int32_t *ids, uint32_t n, bool logits, nw_error *err)
{
    const nw_status st = feed(&r->cand, ids, n, logits, err);
    return st == NW_OK ? feed(&r->base, ids, n, logits, err) : st;
}

static nw_status fresh_session(side *s, nw_error *err)
{
    nw_session_close(s->session);
    s->session = NULL;
    return s->engine != NULL ? nw_session_open(s->engine, &s->session, err) : NW_OK;
}

static void measure(void *ctx, size_t i, unsigned worker)
{
    run *r = ctx;
    const float *base = r->base.engine != NULL ? r->base.logits + i * r->n_vocab : NULL;

    (void)worker;
    r->out[i] = nw_divergence_of(r->cand.logits + i * r->n_vocab, base, r->n_vocab, r->targets[i]);
}

/* Logits at positions at..at+n-1, which predict the tokens one further on. */
static nw_status score_chunk(run *r, const nw_window *w, size_t index, uint32_t at, uint32_t n,
                             nw_token_fn each, void *ctx, nw_error *err)
{
    nw_status st = feed_both(r, w->ids + at, n, true, err);

    if (st != NW_OK) {
        return st;
    }
    r->targets = w->ids + at + 1;
    nw_pool_run(r->pool, n, measure, r);
    for (uint32_t i = 0; i < n && st == NW_OK; i++) {
        const nw_divergence *d = &r->out[i];
        if (!isfinite(d->nll) || (r->base.engine != NULL && !isfinite(d->kl))) {
            return nw_fail(err, NW_E_FORMAT, "window %zu, position %u: logits are not finite",
                           index, at + i);
        }
        st = each(ctx, index, at + 1 + i, d, err);
    }
    return st;
}

static nw_status run_window(run *r, const nw_window *w, size_t index, nw_token_fn each, void *ctx,
                            nw_error *err)
{
    nw_status st = fresh_session(&r->cand, err);
    st = st == NW_OK ? fresh_session(&r->base, err) : st;

    uint32_t at = 0;
    const uint32_t first_logits = w->first - 1;
    while (st == NW_OK && at < first_logits) {
        const uint32_t left = first_logits - at;
        const uint32_t n = left < r->max_step ? left : r->max_step;
        st = feed_both(r, w->ids + at, n, false, err);
        at += n;
    }
    while (st == NW_OK && at + 1 < w->n) {
        const uint32_t left = w->n - 1 - at;
        const uint32_t n = left < r->chunk ? left : r->chunk;
        st = nw_stop_requested() ? nw_fail(err, NW_E_CANCELLED, "stopped at window %zu", index)
                                 : score_chunk(r, w, index, at, n, each, ctx, err);
        at += n;
    }
    return st;
}

nw_status nw_perplexity_run(nw_engine *e, nw_engine *base, const nw_windows *w, nw_token_fn each,
                            void *ctx, nw_error *err)
{
    run r = {.n_vocab = 0};
    nw_progress progress;
    nw_status st = open_run(&r, e, base, err);

    nw_progress_begin(&progress, "perplexity", "windows", w->n);
    for (size_t i = 0; i < w->n && st == NW_OK; i++) {
        st = run_window(&r, &w->items[i], i, each, ctx, err);
        nw_progress_step(&progress, i + 1);
    }
    close_run(&r);
    return st;
}
