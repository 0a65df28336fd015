/* Products of attention in the AVX-512 tier: one group of rows against a page. Panels of 16 lanes
 * are read once for the group, and each load asks for the same place of the next page. Queries and
 * probabilities are packed rows:
 *   f32, bf16   numbers in order, for pages of F32, and of BF16 and FP8 (widened to BF16)
 *   int         for pages of INT8 and INT4: numbers as 15- and 16-bit integers in two planes of
 *               bytes, so that products of integers are exact and no narrower than BF16's; where
 *               activations are 8 bits (nw_attn.a8), one plane
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_AVX512_ATTN_H
#define NW_KERNELS_AVX512_ATTN_H

#include "kernels/attn_tile.h"
#include "kernels/avx512.h"

/* A packed query: a head, then its numbers. Integers: q = scale * (128 * high + low) of signed bytes in
 * two planes, or scale * high in one. */
typedef struct {
    float scale;
    int32_t high_sum, low_sum;
} nw_q_head;
#define NW_Q_AT    64u  /* first byte of the numbers, or of the high plane */
#define NW_Q_PLANE 512u /* from the high plane to the low one */

/* A packed row of probabilities: NW_P_STRIDE bytes from one to the next; integers are
 * 256 * high + low, unsigned bytes, the planes NW_KV_PAGE bytes apart, or one byte. */
#define NW_P_STRIDE    256u
#define NW_P_LOG2_BYTE 0x1.ffa37cp+2F /* log2(255) */
#define NW_P_LOG2_TWO  0x1.ffffd2p+3F /* log2(65535) */

/* Keys of a page against n_rows queries: s [n_rows][NW_KV_PAGE] = q . k, of integers in units of
 * nw_q_head.scale. */
typedef struct {
    const uint8_t *k;      /* codes of the first panel */
    size_t panel;          /* bytes from a panel to the next */
    const uint8_t *scales; /* 16 floats of a panel, `scale_panel` bytes apart; NULL: none */
    size_t scale_panel;
    ptrdiff_t ahead; /* from a byte to the one to ask for */
    const uint8_t *q;
    uint32_t n_vectors; /* of a panel */
    uint32_t n_panels;  /* that any row sees, 1..4; the others' scores are of no interest */
    unsigned planes;    /* of integers: bytes of a number of q */
    uint32_t steps;     /* nw_attn_products */
    float *s;
} nw_keys;

/* Values of a page under n_rows rows of probabilities: o = o * shrink + share * p . v. */
typedef struct {
    const uint8_t *v;
    size_t panel;
    ptrdiff_t ahead;
    const uint8_t *p;
    uint32_t n_vectors, n_panels;
    unsigned planes;
    uint32_t steps;              /* nw_attn_products */
    const float *shrink, *share; /* [n_rows] */
    float *o;                    /* [n_rows][NW_ATTN_STRIDE / 4] */
} nw_values;

/* What a tier multiplies a page's rows by: in groups of n_rows at most, of which n_groups have one softmax. */
typedef struct {
    uint32_t n_rows, n_groups;
    uint32_t steps; /* vectors of a tile: where products are tiles, they pad what is not whole */
    bool nibbles_as_bytes; /* INT4 comes as INT8: keys code + 8, values 16 * code */
    void (*keys[NW_KV_KINDS])(const nw_keys *w, unsigned n_rows);
    void (*values[NW_KV_KINDS])(const nw_values *w, unsigned n_rows);
} nw_attn_products;

void nw_avx512_keys_f32(const nw_keys *w, unsigned n_rows);
void nw_avx512_keys_bf16(const nw_keys *w, unsigned n_rows);
void nw_avx512_keys_int8(const nw_keys *w, unsigned n_rows);
void nw_avx512_keys_int4(const nw_keys *w, unsigned n_rows);
void nw_avx512_values_f32(const nw_values *w, unsigned n_rows);
void nw_avx512_values_bf16(const nw_values *w, unsigned n_rows);
void nw_avx512_values_int8(const nw_values *w, unsigned n_rows);
void nw_avx512_values_int4(const nw_values *w, unsigned n_rows);

/* Contracts: attn_tile.h. */
void nw_avx512_attn_load(nw_kv_kind kind, bool a8, const float *q, uint32_t d_head, uint8_t *row);
void nw_avx512_attn_page(const nw_attn_tile *t, const nw_attn_page *p);
void nw_avx512_attn_page_by(const nw_attn_tile *t, const nw_attn_page *p,
                            const nw_attn_products *x);
void nw_avx512_attn_join(const nw_attn_tile *t, const nw_softmax_states *state, const float *o,
                         size_t ldo);
void nw_avx512_scale(const float *x, uint32_t n, float factor, float *out);
void nw_avx512_rotate(float *x, uint32_t n);
/* Contract: attention.h. */
void nw_avx512_kv_put(const nw_kv_type *kv, uint32_t slot, const float *k, const float *v,
                      uint8_t *k_page, uint8_t *v_page);

/* The scales of a page's values as the softmax wants them (avx512_softmax.c). A scale below 2^-100 is
 * taken for that: it is one of zeros. */
typedef struct {
    _Alignas(64) float log2[NW_KV_PAGE], inverse[NW_KV_PAGE]; /* log2: times 2^23 */
} nw_value_factors;
#define NW_KV_TINY_SCALE 0x1p-100F

/* A group of rows of scores, which are used up, to packed rows p for values of `kind`. */
#define NW_SOFTMAX_ROWS 16u
typedef struct {
    nw_kv_kind kind;
    unsigned planes; /* of integers: bytes of a probability */
    float softcap;
    const nw_value_factors *v;      /* of kinds with scales */
    float *s;                       /* [n_rows][NW_KV_PAGE] */
    uint8_t *p;                     /* [n_rows][NW_P_STRIDE] */
    nw_softmax_states state;        /* [n_rows] */
    float *share;                   /* [16] out: nw_values.share; 64-byte aligned */
    uint64_t seen[NW_SOFTMAX_ROWS]; /* slots that each row sees, one at least */
    float unit[NW_SOFTMAX_ROWS];    /* of each row's scores, in log2; changed */
} nw_softmax_group;

void nw_avx512_softmax_rows(nw_softmax_group *g, unsigned n_rows);
/* codes: how many steps of the stored codes the products take for one. */
void nw_avx512_value_factors(const float *scales, float codes, nw_value_factors *out);

NW_INLINE void nw_ask(const uint8_t *p, ptrdiff_t ahead)
{
    _mm_prefetch((const char *)(p + ahead), _MM_HINT_T1);
}

#endif
