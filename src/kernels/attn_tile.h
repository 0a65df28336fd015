/* Attention in tiles of rows (query tokens x query heads of a kv head): what the walk over pages
 * (attn_tile.c) wants from a tier. A tier gives either its own products of a page, or the few
 * vector operations from which attn_plain.c makes them with the tier's `linear` for F32.
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
    nw_act_kind kind;      /* of the probabilities: F32 here */
    bool a8;               /* probabilities are counted in 255ths (attention.h) */
} nw_softmax_page;

/* Running states of rows, [rows] each; max is in units of log2. */
typedef struct {
    float *max, *sum, *shrink;
} nw_softmax_states;

/* Those of rows r0 and on. */
static inline nw_softmax_states nw_softmax_from(const nw_softmax_states *s, uint32_t r0)
{
    return (nw_softmax_states){s->max + r0, s->sum + r0, s->shrink + r0};
}

/* Steps of the largest query: of 8-bit ones, and of those that are as good as BF16's. */
#define NW_ATTN_Q8  127.0F
#define NW_ATTN_Q15 16256.0F /* 127 * 128: the largest |128 * high + low| */

#define NW_SOFTMAX_FLOOR (-1e30F) /* below any score: the max before the first key */

typedef struct nw_attn_ops nw_attn_ops;

/* Rows of one call at positions of one page, and their part of the scratch. */
#define NW_ATTN_ROWS   64u   /* at most */
#define NW_ATTN_VECTOR 24u   /* of vectors: their queries and sums stay in the nearest cache */
#define NW_ATTN_GROUP  6u    /* rows that share each load of a vector of keys or values */
#define NW_ATTN_STRIDE 2112u /* bytes from a row to the next: 512 floats and a head, odd lines */

typedef struct {
    const nw_attn *a;
    const nw_attn_ops *ops;
    uint32_t row0, n_rows; /* of n_queries * n_rep */
    uint32_t pos[NW_ATTN_ROWS];
    uint8_t *q, *q_wide; /* [rows][NW_ATTN_STRIDE] packed queries for packed and wide pages */
    float *o, *total;    /* [rows][NW_ATTN_STRIDE / 4] of the segment, of all */
    nw_softmax_states state, sums; /* [rows] of the segment, of all */
    uint8_t *work;                 /* NW_ATTN_WORK_BYTES of the products */
} nw_attn_tile;

/* One page for rows [0, n_rows): they see something of it, the others do not. */
typedef struct {
    nw_kv_type kv;
    const uint8_t *k, *v;
    const uint8_t *next_k, *next_v; /* what comes next, or the same page */
    const uint8_t *q;
    uint32_t first; /* position of slot 0 */
    uint32_t n_rows;
} nw_attn_page;

struct nw_attn_ops {
    const nw_kernels *tier; /* plain products: act_pack and linear */
    uint32_t n_rows;        /* of a tile, 1..NW_ATTN_ROWS */
    /* From the raw products s [NW_KV_PAGE]: updates the first state, sets shrink = 2^(old max - new
     * max), and writes 2^(score - max) * v_scale, 0 for hidden keys, as a packed row p. */
    void (*softmax)(const nw_softmax_page *page, const float *s, const nw_softmax_states *st,
                    void *p);
    /* out = out * shrink + part;  out = x * factor. */
    void (*merge)(const float *part, uint32_t n, float shrink, float *out);
    void (*scale)(const float *x, uint32_t n, float factor, float *out);

    /* Own products, all or none (NULL). One query, rotated, to a packed row for keys of `kind`; a
     * page: state and o of its rows; rows of a segment to the totals, where a row's sum is not 0;
     * and the rotation of nw_kv_rotate_plain. */
    void (*load)(nw_kv_kind kind, bool a8, const float *q, uint32_t d_head, uint8_t *row);
    void (*page)(const nw_attn_tile *t, const nw_attn_page *p);
    void (*join)(const nw_attn_tile *t, const nw_softmax_states *state, const float *o, size_t ldo);
    void (*rotate)(float *x, uint32_t n);
};

/* Visible slots [j0, j1) of a page for a row of the tile. */
static inline void nw_attn_span(const nw_attn_tile *t, const nw_attn_page *p, uint32_t row,
                                uint32_t *j0, uint32_t *j1)
{
    const uint32_t first = nw_attn_first(t->a->window, t->pos[row]);
    const uint32_t seen = t->pos[row] - p->first;
    *j0 = first > p->first ? first - p->first : 0;
    *j1 = seen < NW_KV_PAGE - 1 ? seen + 1 : NW_KV_PAGE;
}

/* Bytes of `work`: the largest that a tier wants (attn_plain.c: a page as F32, and scores,
 * probabilities and sums of NW_ATTN_ROWS rows). */
size_t nw_attn_work_bytes(uint32_t d_head);

void nw_attend_tiled(const nw_attn *a, const nw_attn_ops *ops);

/* The plain products. */
void nw_attn_plain_load(const nw_attn_tile *t, nw_kv_kind kind, const float *q, uint8_t *row);
void nw_attn_plain_page(const nw_attn_tile *t, const nw_attn_page *p);
void nw_attn_plain_join(const nw_attn_tile *t, const nw_softmax_states *state, const float *o,
                        size_t ldo);

/* body(n) with a constant n, for 1..NW_ATTN_GROUP rows. */
#define NW_FOR_ROWS(body, n_rows) \
    do {                          \
        switch (n_rows) {         \
        case 1:                   \
            body(1);              \
            break;                \
        case 2:                   \
            body(2);              \
            break;                \
        case 3:                   \
            body(3);              \
            break;                \
        case 4:                   \
            body(4);              \
            break;                \
        case 5:                   \
            body(5);              \
            break;                \
        default:                  \
            body(6);              \
            break;                \
        }                         \
    } while (0)

#endif
