/* Pages of keys and values as panels (attention.h): what all tiers share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_KV_PAGE_H
#define NW_KERNELS_KV_PAGE_H

#include <stdbool.h>

#include "formats/panel.h"
#include "kernels/attention.h"

#define NW_KV_MAX_HEAD 512u

nw_panel_type nw_kv_panel(nw_kv_kind kind);
/* The 64 f32 token scales behind the panels of an int8 V page. */
size_t nw_kv_v_scales_at(const nw_kv_type *kv);
/* An empty page: zeros, or int8 codes of 0; V row scales of 1. */
void nw_kv_clear_k(const nw_kv_type *kv, uint8_t *page);
void nw_kv_clear_v(const nw_kv_type *kv, uint8_t *page);
/* First key a query at `pos` sees. */
static inline uint32_t nw_attn_first(const nw_attn *a, uint32_t pos)
{
    return a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
}

/* Rows (query heads x query tokens) that share the loads of a page. */
#define NW_ATTN_ROWS 24u

/* The reference keeps one query head in doubles, and one decoded row of a page. */
typedef struct {
    double max, sum;
    double out[NW_KV_MAX_HEAD];
    double p[NW_KV_PAGE];
    float row[NW_KV_MAX_HEAD];
} nw_attn_ref_state;

/* kv_put in plain C. */
void nw_kv_put_plain(const nw_kv_type *kv, uint32_t slot, const float *k, const float *v,
                     uint8_t *k_page, uint8_t *v_page);

#endif
