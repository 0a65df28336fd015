/* Attention in tiles of rows (query tokens x query heads of a kv head), for every tier that has a
 * tiled `linear`: keys and values are panels, so both products are calls of it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_ATTN_TILE_H
#define NW_KERNELS_ATTN_TILE_H

#include "kernels/kv_page.h"
#include "kernels/tile.h"

/* Keys [j0, j1) of one page are visible to a row. */
typedef struct {
    float scale, softcap;  /* of nw_attn */
    uint32_t j0, j1;       /* within the page, j0 < j1 <= NW_KV_PAGE */
    const float *v_scales; /* [NW_KV_PAGE] factors of the values, or NULL */
    nw_act_kind kind;      /* of the probabilities: F32 or BF16 */
} nw_softmax_page;

/* Running state of a row; max is in units of log2. */
typedef struct {
    float max, sum, shrink;
} nw_softmax_state;

typedef struct {
    const nw_kernels *tier; /* act_kind, act_pack and linear are used */
    /* From the raw products s [NW_KV_PAGE]: updates the state, sets shrink = 2^(old max - new
     * max), and writes 2^(score - max) * v_scale, 0 for hidden keys, as a packed row p. */
    void (*softmax)(const nw_softmax_page *page, const float *s, nw_softmax_state *st, void *p);
    /* out = out * shrink + part;  out = x * factor. */
    void (*merge)(const float *part, uint32_t n, float shrink, float *out);
    void (*scale)(const float *x, uint32_t n, float factor, float *out);
} nw_attn_ops;

void nw_attend_tiled(const nw_attn *a, const nw_attn_ops *ops);

#define NW_SOFTMAX_FLOOR (-1e30F) /* below any score: the max before the first key */

#endif
