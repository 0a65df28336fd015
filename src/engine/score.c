/* Scoring: the logits of a known sequence, chunk by chunk, so that memory does not grow with its
 * length times the vocabulary.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "engine/state.h"

/* Logits of a chunk take at most this much memory, but always four rows. */
#define NW_SCORE_BYTES ((size_t)32 << 20)

static nw_status make_rows(nw_engine *e, nw_error *err)
{
    const size_t row_bytes = e->config->n_vocab * sizeof(float);
    size_t rows = NW_SCORE_BYTES / row_bytes;

    if (e->score_logits != NULL) {
        return NW_OK;
    }
    rows = rows < 4 ? 4 : rows;
    rows = rows < e->facts.max_step_tokens ? rows : e->facts.max_step_tokens;
    e->score_logits = malloc(rows * row_bytes);
    if (e->score_logits == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu rows of %u logits", rows,
                       e->config->n_vocab);
    }
    e->score_rows = (uint32_t)rows;
    return NW_OK;
}

/* `it` names the session and the buffer of logits. */
static nw_status score_chunks(nw_engine *e, nw_step_item it, const int32_t *ids, size_t n,
                              size_t first, nw_logits_fn on_logits, void *ctx, nw_error *err)
{
    /* what is not asked for may stand in pages of a text that began alike */
    for (size_t pos = nw_session_attach(it.session, ids, (uint32_t)first + 1); pos < n;
         pos += it.n_tokens) {
        const bool silent = pos < first; /* positions before `first`: no logits, larger chunks */
        const size_t end = silent ? first : n;
        const size_t most = silent ? e->facts.max_step_tokens : e->score_rows;
        it.tokens = ids + pos;
        it.n_tokens = (uint32_t)(end - pos < most ? end - pos : most);
        it.n_logits = silent ? 0 : it.n_tokens;
        if (nw_engine_step(e, &it, 1, err) != NW_OK) {
            return nw_context(err, "scoring positions %zu..%zu", pos, pos + it.n_tokens - 1);
        }
        for (size_t i = 0; i < it.n_logits; i++) {
            if (!on_logits(ctx, pos + i, it.logits + i * e->config->n_vocab)) {
                return nw_fail(err, NW_E_CANCELLED, "scoring stopped at position %zu of %zu",
                               pos + i, n);
            }
        }
    }
    return NW_OK;
}

nw_status nw_engine_score(nw_engine *e, const int32_t *ids, size_t n, size_t first,
                          nw_logits_fn on_logits, void *ctx, nw_error *err)
{
    nw_session *s = &e->sessions[e->facts.max_seqs];

    if (n == 0 || first >= n || n > e->facts.n_ctx) {
        return nw_fail(err, NW_E_RANGE,
                       "scoring %zu tokens from position %zu: the context holds 1..%u", n, first,
                       e->facts.n_ctx);
    }
    if (make_rows(e, err) != NW_OK) {
        return err->code;
    }
    const nw_step_item it = {.session = s, .logits = e->score_logits};
    const nw_status st = score_chunks(e, it, ids, n, first, on_logits, ctx, err);
    (void)nw_session_truncate(s, 0);
    return st;
}
