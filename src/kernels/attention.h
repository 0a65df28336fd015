/* Paged keys and values, and attention over them. A page holds NW_KV_PAGE tokens of one layer and
 * one kv head, keys and values apart, each in a format of its own. Pages are panels
 * (formats/panel.h), so that both products of attention run on the kernels of `linear`:
 *   K page: 64 rows (tokens) x d_head columns; int8: the row scale is the token's
 *   V page: d_head rows x 64 columns (tokens); int8: row scales are 1, and 64 f32 token scales
 *           follow the panels
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_ATTENTION_H
#define NW_KERNELS_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#define NW_KV_PAGE 64u

/* INT8: symmetric with one f32 scale a token and head (absmax / 127). */
typedef enum { NW_KV_F32, NW_KV_BF16, NW_KV_INT8 } nw_kv_kind;

typedef struct {
    nw_kv_kind k, v;
    uint32_t d_head; /* even, 2..512 */
} nw_kv_type;

/* Bytes of a page; multiples of 64, and pages must start 64-byte aligned. */
size_t nw_kv_k_page_bytes(const nw_kv_type *kv);
size_t nw_kv_v_page_bytes(const nw_kv_type *kv);
/* "f32" "bf16" "int8", or NULL where the kind is out of range. */
const char *nw_kv_kind_name(nw_kv_kind kind);

/* kv_put(kv, slot, k, v, k_page, v_page) of the op table encodes k [d_head] and v [d_head] of one
 * token into its slot (position % NW_KV_PAGE). Slot 0 clears the page first, so a page needs no
 * other preparation; slots are filled in order, and an old tail (after a truncation) is harmless:
 * attention never reads past the query's own position.
 *
 * attend(a): for each query token i < n_queries at position q_pos + i, and each of the n_rep query
 * heads that share this kv head:
 *   s[j] = cap(scale * q . k[j]),  out = sum softmax(s)[j] * v[j],
 * over keys j <= position, and j > position - window where window > 0; cap(x) is
 * softcap * tanh(x / softcap) where softcap > 0. Keys of the queries' own tokens are already in
 * their pages. Pages are taken in order with an online softmax, so a query's bits do not depend on
 * n_queries, on the split over threads, or on what else is in the batch. */
typedef struct {
    nw_kv_type kv;
    uint32_t n_rep; /* query heads of this kv head, 1..64 */
    uint32_t n_queries, q_pos;
    uint32_t window; /* tokens, the query's own included; 0: all */
    float scale;     /* natural units, such as 1 / sqrt(d_head) */
    float softcap;   /* 0: none */
    const float *q;  /* head h of query i: q + i * ldq + h * d_head */
    size_t ldq;
    /* Page p (tokens 64p ..) is at k_base + pages[p] * page_stride, and v_base likewise. */
    const uint32_t *pages;
    const uint8_t *k_base, *v_base;
    size_t page_stride; /* bytes */
    float *out;         /* head h of query i: out + i * ldo + h * d_head */
    size_t ldo;
    void *scratch; /* nw_attn_scratch_bytes(), 64-byte aligned, one a thread */
} nw_attn;

size_t nw_attn_scratch_bytes(uint32_t d_head);

#endif
