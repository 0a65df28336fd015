/* Speed of an engine's steps: see speed.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/speed.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/signal.h"
#include "engine/forward.h"
#include "engine/logits.h"

struct nw_speed {
    nw_engine *engine;
    uint32_t n_seqs, depth;
    nw_session **sessions; /* [n_seqs] */
    nw_step_item *items;   /* [n_seqs] */
    int32_t *ids;          /* [n_seqs] the next token of each */
    int32_t *prompt;       /* [max_step_tokens] */
    float *logits;         /* [n_seqs][n_vocab] */
};

static nw_status go_on(nw_error *err)
{
    return nw_stop_requested() ? nw_fail(err, NW_E_CANCELLED, "stopped between two steps") : NW_OK;
}

/* n tokens of sequence i in steps as large as fit; logits after the last one where asked. */
static nw_status feed(nw_speed *s, uint32_t i, uint32_t n, bool logits, nw_error *err)
{
    const uint32_t most = s->engine->facts.max_step_tokens;

    while (n > 0) {
        const uint32_t take = n < most ? n : most;
        const nw_step_item it = {.session = s->sessions[i],
                                 .tokens = s->prompt,
                                 .n_tokens = take,
                                 .n_logits = logits && take == n ? 1 : 0,
                                 .logits = s->logits};
        if (go_on(err) != NW_OK || nw_engine_step(s->engine, &it, 1, err) != NW_OK) {
            return err->code;
        }
        n -= take;
    }
    return NW_OK;
}

/* Sequence i back to its depth. */
static nw_status rewind_to_depth(nw_speed *s, uint32_t i, nw_error *err)
{
    return feed(s, i, s->depth - nw_session_truncate(s->sessions[i], s->depth), false, err);
}

static nw_status open_all(nw_speed *s, nw_error *err)
{
    const nw_engine_facts *f = &s->engine->facts;
    const uint32_t n_vocab = s->engine->config->n_vocab;
    nw_rng rng = nw_rng_seed(1);

    s->sessions = calloc(s->n_seqs, sizeof *s->sessions);
    s->items = calloc(s->n_seqs, sizeof *s->items);
    s->ids = calloc(s->n_seqs, sizeof *s->ids);
    s->prompt = calloc(f->max_step_tokens, sizeof *s->prompt);
    s->logits = calloc((size_t)s->n_seqs * n_vocab, sizeof *s->logits);
    if (s->sessions == NULL || s->items == NULL || s->ids == NULL || s->prompt == NULL ||
        s->logits == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %u sequences", s->n_seqs);
    }
    for (uint32_t i = 0; i < f->max_step_tokens; i++) {
        s->prompt[i] = (int32_t)nw_rng_below(&rng, n_vocab);
    }
    for (uint32_t i = 0; i < s->n_seqs; i++) {
        s->ids[i] = (int32_t)nw_rng_below(&rng, n_vocab);
        if (nw_session_open(s->engine, &s->sessions[i], err) != NW_OK ||
            feed(s, i, s->depth, false, err) != NW_OK) {
            return err->code;
        }
    }
    return NW_OK;
}

nw_status nw_speed_open(nw_engine *e, uint32_t n_seqs, uint32_t depth, nw_speed **out,
                        nw_error *err)
{
    nw_speed *s = calloc(1, sizeof *s);

    *out = NULL;
    if (s == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %u sequences", n_seqs);
    }
    *s = (nw_speed){.engine = e, .n_seqs = n_seqs, .depth = depth};
    if (open_all(s, err) != NW_OK) {
        nw_speed_close(s);
        return nw_context(err, "%u sequences of %u tokens", n_seqs, depth);
    }
    *out = s;
    return NW_OK;
}

void nw_speed_close(nw_speed *s)
{
    if (s == NULL) {
        return;
    }
    for (uint32_t i = 0; s->sessions != NULL && i < s->n_seqs; i++) {
        nw_session_close(s->sessions[i]);
    }
    free(s->sessions);
    free(s->items);
    free(s->ids);
    free(s->prompt);
    free(s->logits);
    free(s);
}

nw_status nw_speed_prefill(nw_speed *s, uint32_t n, double *seconds, nw_error *err)
{
    const double start = nw_now_s();

    if (feed(s, 0, n, true, err) != NW_OK) {
        return err->code;
    }
    *seconds = nw_now_s() - start;
    return rewind_to_depth(s, 0, err);
}

static void pick_item(void *ctx, size_t i, unsigned worker)
{
    nw_speed *s = ctx;
    (void)worker;
    s->ids[i] = (int32_t)nw_argmax(s->items[i].logits, s->engine->config->n_vocab);
}

nw_status nw_speed_decode(nw_speed *s, uint32_t n, uint32_t n_seqs, double *seconds, nw_error *err)
{
    const uint32_t n_vocab = s->engine->config->n_vocab;

    if (n_seqs == 0 || n_seqs > s->n_seqs) {
        return nw_fail(err, NW_E_RANGE, "%u sequences to decode, not in [1, %u]", n_seqs,
                       s->n_seqs);
    }
    for (uint32_t i = 0; i < n_seqs; i++) {
        s->items[i] = (nw_step_item){.session = s->sessions[i],
                                     .tokens = &s->ids[i],
                                     .n_tokens = 1,
                                     .n_logits = 1,
                                     .logits = s->logits + (size_t)i * n_vocab};
    }
    const double start = nw_now_s();
    for (uint32_t step = 0; step < n; step++) {
        if (go_on(err) != NW_OK || nw_engine_step(s->engine, s->items, n_seqs, err) != NW_OK) {
            return err->code;
        }
        nw_pool_run(s->engine->pool, n_seqs, pick_item, s);
    }
    *seconds = nw_now_s() - start;
    for (uint32_t i = 0; i < n_seqs; i++) {
        if (rewind_to_depth(s, i, err) != NW_OK) {
            return err->code;
        }
    }
    return NW_OK;
}

double nw_speed_linear(nw_speed *s, uint32_t n)
{
    nw_engine *e = s->engine;
    const nw_weight *o = &e->weights.layers[0].o;
    const double start = nw_now_s();

    e->work.n_tokens = 1;
    for (uint32_t i = 0; i < n; i++) {
        nw_run_linears(e, NW_OP_O, 0, (nw_linear[]){{o, &e->weights.layers[0].o_wide, e->work.y}},
                       1);
    }
    return nw_now_s() - start;
}
