/* Products of attention in the AVX-512 tier: one group of rows against a page. Panels of 16 lanes
 * are read once for the group, and each load asks for the same place of the next page. Queries and
 * probabilities are packed rows:
 *   f32, bf16   numbers in order, for pages of F32, and of BF16 and FP8 (widened to BF16)
 *   int         for pages of INT8 and INT4: numbers as 15- and 16-bit integers in two planes of
 *               bytes, so that products of integers are exact and no narrower than BF16's
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_AVX512_ATTN_H
#define NW_KERNELS_AVX512_ATTN_H

#include "kernels/attn_tile.h"
#include "kernels/avx512.h"

/* A packed query: a head, then its numbers. Integers: q = scale * (128 * high + low), high and low
 * signed bytes. */
typedef struct {
    float scale;
    int32_t high_sum, low_sum;
} nw_q_head;
#define NW_Q_AT    64u      /* first byte of the numbers, or of the high plane */
#define NW_Q_PLANE 512u     /* from the high plane to the low one */
#define NW_Q_STEPS 16256.0F /* 127 * 128: the largest |128 * high + low| */

/* A packed row of probabilities: NW_P_STRIDE bytes from one to the next; integers are
 * 256 * high + low, unsigned bytes, the planes NW_KV_PAGE bytes apart. */
#define NW_P_STRIDE 256u
#define NW_P_STEPS  65535.0F

/* Keys of a page against n_rows queries: s [n_rows][NW_KV_PAGE] = q . k. */
typedef struct {
    const uint8_t *k;      /* codes of the first panel */
    size_t panel;          /* bytes from a panel to the next */
    const uint8_t *scales; /* 16 floats of a panel, `scale_panel` bytes apart; NULL: none */
    size_t scale_panel;
    ptrdiff_t ahead; /* from a byte to the one to ask for */
    const uint8_t *q;
    uint32_t n_vectors; /* of a panel */
    uint32_t n_panels;  /* that any row sees, 1..4; the others' scores are of no interest */
    float *s;
} nw_keys;

/* Values of a page under n_rows rows of probabilities: o = o * shrink + unit * p . v. */
typedef struct {
    const uint8_t *v;
    size_t panel;
    ptrdiff_t ahead;
    const uint8_t *p;
    uint32_t n_vectors, n_panels;
    const nw_softmax_state *state; /* [n_rows] */
    const float *unit;             /* [n_rows] of the integers */
    float *o;                      /* [n_rows][NW_ATTN_STRIDE / 4] */
} nw_values;

void nw_avx512_keys_f32(const nw_keys *w, unsigned n_rows);
void nw_avx512_keys_bf16(const nw_keys *w, unsigned n_rows);
void nw_avx512_keys_int8(const nw_keys *w, unsigned n_rows);
void nw_avx512_keys_int4(const nw_keys *w, unsigned n_rows);
void nw_avx512_values_f32(const nw_values *w, unsigned n_rows);
void nw_avx512_values_bf16(const nw_values *w, unsigned n_rows);
void nw_avx512_values_int8(const nw_values *w, unsigned n_rows);
void nw_avx512_values_int4(const nw_values *w, unsigned n_rows);

/* Contracts: attn_tile.h. */
void nw_avx512_attn_load(nw_kv_kind kind, const float *q, uint32_t d_head, uint8_t *row);
void nw_avx512_attn_page(const nw_attn_tile *t, const nw_attn_page *p);
void nw_avx512_attn_join(const nw_attn_tile *t, const nw_softmax_state *state, const float *o,
                         size_t ldo);
void nw_avx512_scale(const float *x, uint32_t n, float factor, float *out);
void nw_avx512_rotate(float *x, uint32_t n);
/* Contract: attention.h. */
void nw_avx512_kv_put(const nw_kv_type *kv, uint32_t slot, const float *k, const float *v,
                      uint8_t *k_page, uint8_t *v_page);

/* What a row of scores becomes: 2^(score - max) * v_scale, packed for values of kind v. */
typedef struct {
    nw_kv_kind v;
    float scale, softcap;
    const float *v_scales; /* [NW_KV_PAGE] >= 0, or NULL */
    uint64_t seen;         /* visible slots */
    float top;             /* integers: the largest factor among those; they count NW_P_STEPS-ths */
} nw_softmax_row;

void nw_avx512_softmax_row(const nw_softmax_row *row, const float *s, nw_softmax_state *st,
                           uint8_t *p);
/* The largest of the visible factors, by bits: a NaN is larger than any number. */
float nw_avx512_top_scale(const float *v_scales, uint64_t seen);

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

NW_INLINE void nw_ask(const uint8_t *p, ptrdiff_t ahead)
{
    _mm_prefetch((const char *)(p + ahead), _MM_HINT_T1);
}

#endif
