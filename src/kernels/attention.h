/* Paged keys and values, and attention over them. A page holds NW_KV_PAGE tokens of one layer and
 * one kv head, keys and values apart, each in a format of its own. Pages are read as they lie by
 * vectors of 16 tokens (keys) or 16 values of the head (values); kv_page.h has the layouts.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_ATTENTION_H
#define NW_KERNELS_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NW_KV_PAGE 64u

/* INT8, FP8 (E4M3) and INT4 are symmetric with one f32 scale a token and head: absmax / 127,
 * absmax / 448, and for INT4 the scale of least square error among a few below absmax / 8. */
typedef enum { NW_KV_F32, NW_KV_BF16, NW_KV_FP8, NW_KV_INT8, NW_KV_INT4 } nw_kv_kind;
#define NW_KV_KINDS 5u

/* Kinds whose codes are integers: nw_attn.a8 below is for them. */
static inline bool nw_kv_is_int(nw_kv_kind kind)
{
    return kind == NW_KV_INT8 || kind == NW_KV_INT4;
}

/* k_scale, v_scale: 0, or the one scale of all FP8 keys or values of the page, as calibration found
 * it; larger numbers are clipped to 448 times it.
 *
 * rotate_k: keys and queries are turned by the same Hadamard matrix, which leaves their products
 * as they are and spreads a large channel over all, so that few bits hold it. rotate_v: values are
 * turned, and the result turned back. Heads whose size is no power of two are turned in blocks of
 * the largest power of two that divides it. */
typedef struct {
    nw_kv_kind k, v;
    uint32_t d_head; /* even, 2..512 */
    bool rotate_k, rotate_v;
    float k_scale, v_scale;
} nw_kv_type;

/* The type of two kinds, with the rotations that they want (INT4 does). */
nw_kv_type nw_kv_type_of(nw_kv_kind k, nw_kv_kind v, uint32_t d_head);
/* Bytes of a page; multiples of 64, and pages must start 64-byte aligned. */
size_t nw_kv_k_page_bytes(const nw_kv_type *kv);
size_t nw_kv_v_page_bytes(const nw_kv_type *kv);
/* "f32" "bf16" "fp8" "int8" "int4", or NULL where the kind is out of range. */
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
 * their pages.
 *
 * a8: activations are of 8 bits, here too. Against INT8 and INT4 keys a query is symmetric INT8 per
 * head, absmax / 127, after its rotation. With INT8 and INT4 values the factors of a page's values,
 * probability times scale, are counted in whole 255ths of the largest of those that the query sees;
 * sums of probabilities are not. What that costs: docs/speed.md.
 *
 * Bits: keys are taken in pages of NW_KV_PAGE, pages in segments of NW_ATTN_SEGMENT tokens, each at
 * a fixed place of the sequence; a segment is an online softmax of its own, and segments are joined
 * in order. So a query's bits do not depend on n_queries, on what else is in the batch, or on which
 * threads took which segments. */
#define NW_ATTN_SEGMENT 256u

/* WHOLE computes `out`. With few sequences and heads, threads share a query's keys instead: PART
 * computes one segment into `parts`, for every segment from the first of the first query to the
 * last of the last one, and then JOIN computes `out` from them. */
typedef enum { NW_ATTN_WHOLE, NW_ATTN_PART, NW_ATTN_JOIN } nw_attn_phase;

/* Pages in BF16 beside packed ones (rotated as those are): a query reads the first n_first pages of
 * the sequence and the newest n_newest pages, its own included, from here. */
typedef struct {
    uint32_t n_first, n_newest; /* both 0: none, and the rest is not looked at */
    const uint32_t *pages; /* as nw_attn.pages; only entries that some query reads need be right */
    const uint8_t *k_base, *v_base;
    size_t page_stride;
} nw_attn_wide;

typedef struct {
    nw_kv_type kv;
    uint32_t n_rep; /* query heads of this kv head, 1..64 */
    uint32_t n_queries, q_pos;
    uint32_t window; /* tokens, the query's own included; 0: all */
    float scale;     /* natural units, such as 1 / sqrt(d_head) */
    float softcap;   /* 0: none */
    bool a8;         /* see above */
    const float *q;  /* head h of query i: q + i * ldq + h * d_head */
    size_t ldq;
    /* Page p (tokens 64p ..) is at k_base + pages[p] * page_stride, and v_base likewise. */
    const uint32_t *pages;
    const uint8_t *k_base, *v_base;
    size_t page_stride; /* bytes */
    nw_attn_wide wide;
    float *out; /* head h of query i: out + i * ldo + h * d_head */
    size_t ldo;
    void *scratch; /* nw_attn_scratch_bytes(), 64-byte aligned, one a thread */
    nw_attn_phase phase;
    uint32_t segment; /* PART: which, from nw_attn_first_segment() on */
    float *parts;     /* PART, JOIN: nw_attn_part_floats() for each query head of each query of each
                       * segment, 64-byte aligned */
} nw_attn;

size_t nw_attn_scratch_bytes(uint32_t d_head);
/* Floats of one query head of one query in one segment: a multiple of 16. */
size_t nw_attn_part_floats(uint32_t d_head);
/* First segment that a query at q_pos reads; the last one is q_pos / NW_ATTN_SEGMENT. */
uint32_t nw_attn_first_segment(uint32_t q_pos, uint32_t window);

#endif
