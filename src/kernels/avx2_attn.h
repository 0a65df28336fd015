/* Products of attention in vectors of 8 (AVX2, FMA): a group of rows against a page. Panels are read
 * once for the group, and each load asks for the same place of the next page. Queries and
 * probabilities are packed rows:
 *   floats   in order, for pages of F32 and BF16, and of FP8, which are widened to F32
 *   words    of 16 bits for pages of INT8 and INT4, since vpmaddwd adds two products of them without
 *            loss: of each quad of columns 0, 2, 1, 3, as bytes widen without a shuffle
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_AVX2_ATTN_H
#define NW_KERNELS_AVX2_ATTN_H

#include <immintrin.h>

#include "kernels/attn_tile.h"

/* A packed query: a head, then its numbers; words: q = scale * word. */
typedef struct {
    float scale;
    int32_t sum; /* of the words */
} nw_avx2_q_head;
#define NW_AVX2_Q_AT     64u  /* first byte of the numbers */
#define NW_AVX2_P_STRIDE 256u /* from a packed row of probabilities to the next */
#define NW_AVX2_P_STEPS  32767.0F
#define NW_AVX2_P_STEPS8 255.0F

/* Panels of a page and the rows that they meet. */
typedef struct {
    const uint8_t *w; /* first panel */
    size_t panel;     /* bytes from a panel to the next */
    ptrdiff_t ahead;  /* from a byte to the one to ask for */
    uint32_t n_vectors, n_panels;
    const uint8_t *a; /* first row's numbers; rows are NW_ATTN_STRIDE or NW_AVX2_P_STRIDE apart */
} nw_avx2_side;

/* s [n_rows][NW_KV_PAGE] = factor * scale * (q . k), of words in units of the query's scale. Of the
 * panels that no row sees some are computed and the others are not: they are of no interest. */
typedef struct {
    nw_avx2_side side;
    const uint8_t *scales; /* 16 floats a panel, `side.panel` of the page apart; NULL: none */
    size_t scale_panel;
    float factor;
    float *s;
} nw_avx2_keys;

/* o = o * shrink + share * (p . v). */
typedef struct {
    nw_avx2_side side;
    const float *shrink, *share; /* [n_rows] */
    float *o;                    /* [n_rows][NW_ATTN_STRIDE / 4] */
} nw_avx2_values;

void nw_avx2_keys_f32(const nw_avx2_keys *k, unsigned n_rows);
void nw_avx2_keys_bf16(const nw_avx2_keys *k, unsigned n_rows);
void nw_avx2_keys_int8(const nw_avx2_keys *k, unsigned n_rows);
void nw_avx2_keys_int4(const nw_avx2_keys *k, unsigned n_rows);
void nw_avx2_values_f32(const nw_avx2_values *v, unsigned n_rows);
void nw_avx2_values_bf16(const nw_avx2_values *v, unsigned n_rows);
void nw_avx2_values_int8(const nw_avx2_values *v, unsigned n_rows);
void nw_avx2_values_int4(const nw_avx2_values *v, unsigned n_rows);

/* A group of rows of scores, which are used up, to packed rows p for values of `kind`. */
#define NW_AVX2_SOFTMAX_ROWS 8u
typedef struct {
    nw_kv_kind kind;
    float steps; /* of words: what the largest counts */
    float softcap;
    const float *v_scales;   /* [NW_KV_PAGE], or NULL */
    float *s;                /* [n_rows][NW_KV_PAGE] */
    uint8_t *p;              /* [n_rows][NW_AVX2_P_STRIDE] */
    nw_softmax_states state; /* [n_rows] */
    float *share;            /* [n_rows] out: nw_avx2_values.share */
    bool masked;             /* not every row sees all slots */
    uint32_t j0[NW_AVX2_SOFTMAX_ROWS], j1[NW_AVX2_SOFTMAX_ROWS]; /* slots that a row sees */
    float unit[NW_AVX2_SOFTMAX_ROWS]; /* of a row's scores, in log2; changed */
} nw_avx2_softmax;
void nw_avx2_softmax_rows(nw_avx2_softmax *g, unsigned n_rows);

/* Contracts: attn_tile.h. */
void nw_avx2_attn_load(nw_kv_kind kind, bool a8, const float *q, uint32_t d_head, uint8_t *row);
void nw_avx2_attn_page(const nw_attn_tile *t, const nw_attn_page *p);
void nw_avx2_attn_join(const nw_attn_tile *t, const nw_softmax_states *state, const float *o,
                       size_t ldo);
void nw_avx2_scale(const float *x, uint32_t n, float factor, float *out);
void nw_avx2_rotate(float *x, uint32_t n);
/* Contracts: attention.h. */
void nw_avx2_attend(const nw_attn *a);
void nw_avx2_kv_put(const nw_kv_type *kv, uint32_t slot, const float *k, const float *v,
                    uint8_t *k_page, uint8_t *v_page);

NW_INLINE __m256i nw_avx2_bytes(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

NW_INLINE void nw_avx2_ask(const uint8_t *p, ptrdiff_t ahead)
{
    _mm_prefetch((const char *)(p + ahead), _MM_HINT_T1);
}

#endif
