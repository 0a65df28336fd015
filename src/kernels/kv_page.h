/* Pages of keys and values (attention.h): what all tiers share. A vector of a page is 64 bytes.
 *
 * K page: four panels of 16 tokens; lane r of a vector belongs to token r of the panel.
 *   f32    per column             16 x f32
 *   bf16   per pair of columns    u16[r * 2 + t]
 *   int8   16 x f32 scales, then per quad of columns  byte[r * 4 + t] = code ^ 0x80
 *   fp8    16 x f32 scales, then per quad  byte[r / 4 * 16 + t / 2 * 8 + r % 4 * 2 + t % 2]: the
 *          halves of each 16 bytes widen to the two pairs of four rows
 *   int4   16 x f32 scales, then per eight columns  byte[r * 4 + t] = code + 8 of column t in the
 *          low nibble, of column 4 + t in the high one
 * V page: (64 x f32 scales, one a token, of int8, fp8 and int4, then) panels of 16 values of the
 * head; lane r belongs to value r of the panel, and tokens stand where K has columns, as bytes of
 * two's complement (int8), and nibbles of it (int4).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_KV_PAGE_H
#define NW_KERNELS_KV_PAGE_H

#include <assert.h>
#include <stdbool.h>

#include "kernels/attention.h"

#define NW_KV_MAX_HEAD 512u
#define NW_KV_LANES    16u /* rows of a panel */

/* Kinds with a scale a token. */
static inline bool nw_kv_scaled(nw_kv_kind kind)
{
    return kind >= NW_KV_FP8;
}

/* Values of one row in one vector. */
static inline uint32_t nw_kv_vector_cols(nw_kv_kind kind)
{
    static const uint8_t cols[NW_KV_KINDS] = {1, 2, 4, 4, 8};
    return cols[kind];
}

/* Bytes of a panel of n columns, without scales. */
static inline size_t nw_kv_panel_bytes(nw_kv_kind kind, uint32_t n)
{
    const uint32_t cols = nw_kv_vector_cols(kind);
    return (size_t)((n + cols - 1) / cols) * 64;
}

/* K: bytes from a panel to the next; the codes begin after the scales. */
static inline size_t nw_kv_k_panel_bytes(const nw_kv_type *kv)
{
    return nw_kv_panel_bytes(kv->k, kv->d_head) + (nw_kv_scaled(kv->k) ? 64 : 0);
}

static inline size_t nw_kv_v_codes_at(nw_kv_kind kind)
{
    return nw_kv_scaled(kind) ? NW_KV_PAGE * sizeof(float) : 0;
}

static inline uint32_t nw_kv_v_panels(uint32_t d_head)
{
    return (d_head + NW_KV_LANES - 1) / NW_KV_LANES;
}

/* One token's row of a K page and its column of a V page as numbers, rotated where the type says
 * so: the decoder that all else is held to. */
void nw_kv_k_token(const nw_kv_type *kv, const uint8_t *page, uint32_t slot, float *out);
void nw_kv_v_token(const nw_kv_type *kv, const uint8_t *page, uint32_t slot, float *out);

/* kv_put in plain C, for any tier. */
void nw_kv_put_plain(const nw_kv_type *kv, uint32_t slot, const float *k, const float *v,
                     uint8_t *k_page, uint8_t *v_page);
/* Turns x [n] by the Hadamard matrix of attention.h; it is its own inverse. */
void nw_kv_rotate_plain(float *x, uint32_t n);

/* First key a query at `pos` sees. */
static inline uint32_t nw_attn_first(uint32_t window, uint32_t pos)
{
    return window > 0 && pos >= window ? pos - window + 1 : 0;
}

static inline bool nw_attn_has_wide(const nw_attn *a)
{
    return a->wide.n_first > 0 || a->wide.n_newest > 0;
}

/* Whether a query on page `at` reads page `page` from the wide pages. */
static inline bool nw_attn_is_wide(const nw_attn *a, uint32_t at, uint32_t page)
{
    return page < a->wide.n_first || at - page < a->wide.n_newest;
}

#endif
