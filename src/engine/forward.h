/* Pieces of the forward pass shared by its files: timed parallel loops, packing of activations, and
 * linears split by output panels.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_FORWARD_H
#define NW_ENGINE_FORWARD_H

#include "engine/state.h"
#include "engine/wide.h"

/* One linear among up to three that read the same input. */
typedef struct {
    const nw_weight *w;
    const nw_weight *wide; /* its wide columns (wide.h) */
    float *y;              /* [n_tokens][w->n_rows] */
} nw_linear;

/* Kinds of activations that the weights want, as a mask of 1 << nw_act_kind; and NW_ACT_ROUND where the
 * engine's rule rounds their values first, those of coded matrices. */
#define NW_ACT_ROUND (1U << NW_ACT_KINDS)
unsigned nw_act_mask(const nw_engine *e, const nw_weight *const *w, unsigned n, bool coded);
/* Packs tokens [t0, t1) of x [..][n_cols] into each kind of the mask, as is said of the input (`in` may
 * be NULL); x itself is rounded by a rule. */
void nw_pack_tokens(nw_engine *e, unsigned mask, const nw_artifact_input *in, float *x,
                    uint32_t n_cols, uint32_t t0, uint32_t t1);
/* Bytes that nw_pack_tokens converts into another kind than float for n tokens. */
uint64_t nw_pack_bytes(unsigned mask, uint32_t n_cols, uint32_t n_tokens);
/* The packed input of w for n_tokens tokens. */
nw_act nw_act_view(const nw_engine *e, const nw_weight *w, uint32_t n_tokens);
/* Bytes of a weight's panels, and its multiply-adds for n tokens. */
uint64_t nw_weight_bytes(const nw_weight *w);
uint64_t nw_weight_macs(const nw_weight *w, uint32_t n_tokens);

/* Runs fn over n items and books the time under (op, layer). */
void nw_run_op(nw_engine *e, nw_ledger_entry entry, size_t n, nw_pool_fn fn, void *ctx);
/* The same over all tokens of the step in items of NW_ITEM_TOKENS; a single item stays here. */
size_t nw_token_items(uint32_t n_tokens);
void nw_token_range(size_t item, uint32_t n_tokens, uint32_t *t0, uint32_t *t1);

/* Shows an input of `role` to whoever watches this layer. */
static inline void nw_show_input(const nw_engine *e, nw_role role, uint32_t layer, const float *x,
                                 uint32_t n_cols)
{
    if (e->on_input != NULL) {
        e->on_input(e->on_input_ctx, (int)role, layer, x, e->work.n_tokens, n_cols);
    }
}

/* y = W x for each of n <= 3 weights, inputs packed before. */
void nw_run_linears(nw_engine *e, nw_op op, int32_t layer, const nw_linear *l, unsigned n);

/* The halves of a layer, from and to work.x (+ work.y, not added yet), and the head. */
void nw_forward_attention(nw_engine *e, uint32_t layer);
void nw_forward_ffn(nw_engine *e, uint32_t layer);
void nw_forward_head(nw_engine *e);

#endif
