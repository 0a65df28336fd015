/* Sizes of key and value pages, and the encoder of one token in plain C.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kv_page.h"

#include <assert.h>
#include <string.h>

#include "formats/half.h"
#include "kernels/act.h"

nw_panel_type nw_kv_panel(nw_kv_kind kind)
{
    static const nw_panel_kind panels[] = {
        [NW_KV_F32] = NW_PANEL_F32, [NW_KV_BF16] = NW_PANEL_BF16, [NW_KV_INT8] = NW_PANEL_INT8};
    return (nw_panel_type){.kind = panels[kind]};
}

const char *nw_kv_kind_name(nw_kv_kind kind)
{
    static const char *const names[] = {
        [NW_KV_F32] = "f32", [NW_KV_BF16] = "bf16", [NW_KV_INT8] = "int8"};
    return (size_t)kind < NW_COUNT(names) ? names[kind] : NULL;
}

static size_t tensor_bytes(nw_kv_kind kind, uint32_t n_rows, uint32_t n_cols)
{
    size_t n = 0;
    const bool fits = nw_panel_tensor_bytes(nw_kv_panel(kind), n_rows, n_cols, &n);
    assert(fits);
    (void)fits;
    return n;
}

size_t nw_kv_k_page_bytes(const nw_kv_type *kv)
{
    return tensor_bytes(kv->k, NW_KV_PAGE, kv->d_head);
}

size_t nw_kv_v_scales_at(const nw_kv_type *kv)
{
    return tensor_bytes(kv->v, kv->d_head, NW_KV_PAGE);
}

size_t nw_kv_v_page_bytes(const nw_kv_type *kv)
{
    return nw_kv_v_scales_at(kv) + (kv->v == NW_KV_INT8 ? NW_KV_PAGE * sizeof(float) : 0);
}

/* Panels of int8 codes of 0 whose row scales are all `scale`. */
static void clear_int8(uint8_t *page, size_t size, uint32_t n_cols, float scale)
{
    size_t panel = 0;
    const bool fits = nw_panel_bytes(nw_kv_panel(NW_KV_INT8), n_cols, &panel);

    assert(fits);
    (void)fits;
    memset(page, 0x80, size);
    for (size_t at = 0; at < size; at += panel) {
        for (size_t r = 0; r < NW_PANEL_ROWS; r++) {
            memcpy(page + at + r * sizeof scale, &scale, sizeof scale);
        }
    }
}

void nw_kv_clear_k(const nw_kv_type *kv, uint8_t *page)
{
    const size_t size = nw_kv_k_page_bytes(kv);
    if (kv->k == NW_KV_INT8) {
        clear_int8(page, size, kv->d_head, 0);
    } else {
        memset(page, 0, size);
    }
}

void nw_kv_clear_v(const nw_kv_type *kv, uint8_t *page)
{
    const size_t at = nw_kv_v_scales_at(kv);
    if (kv->v == NW_KV_INT8) {
        clear_int8(page, at, NW_KV_PAGE, 1);
        memset(page + at, 0, NW_KV_PAGE * sizeof(float));
    } else {
        memset(page, 0, at);
    }
}

/* One element of a panel tensor; int8 codes come as integers in x. */
static void put(nw_kv_kind kind, uint8_t *tensor, size_t panel, uint32_t row, uint32_t col, float x)
{
    uint8_t *p = tensor + row / NW_PANEL_ROWS * panel;
    const uint32_t r = row % NW_PANEL_ROWS;
    uint16_t h = 0;

    switch (kind) {
    case NW_KV_F32:
        memcpy(p + ((size_t)col * 16 + r) * sizeof x, &x, sizeof x);
        return;
    case NW_KV_BF16:
        h = nw_bf16_from_f32(x);
        memcpy(p + (size_t)(col / 2) * 64 + r * 4 + (col % 2) * 2, &h, sizeof h);
        return;
    case NW_KV_INT8:
        p[64 + (size_t)(col / 4) * 64 + r * 4 + col % 4] = (uint8_t)((int)x + 128);
        return;
    }
}

/* What `put` stores for x: int8 codes are whole numbers. */
static float coded(nw_kv_kind kind, float x, float inv)
{
    return kind == NW_KV_INT8 ? nw_int8_code(x, inv) : x;
}

void nw_kv_put_plain(const nw_kv_type *kv, uint32_t slot, const float *k, const float *v,
                     uint8_t *k_page, uint8_t *v_page)
{
    const size_t k_panel = tensor_bytes(kv->k, NW_PANEL_ROWS, kv->d_head);
    const size_t v_panel = tensor_bytes(kv->v, NW_PANEL_ROWS, NW_KV_PAGE);
    float k_inv = 0;
    float v_inv = 0;

    assert(slot < NW_KV_PAGE && kv->d_head <= NW_KV_MAX_HEAD);
    if (slot == 0) {
        nw_kv_clear_k(kv, k_page);
        nw_kv_clear_v(kv, v_page);
    }
    if (kv->k == NW_KV_INT8) {
        const float s = nw_int8_scale(k, kv->d_head, &k_inv);
        uint8_t *panel = k_page + slot / NW_PANEL_ROWS * k_panel;
        memcpy(panel + slot % NW_PANEL_ROWS * sizeof s, &s, sizeof s);
    }
    if (kv->v == NW_KV_INT8) {
        const float s = nw_int8_scale(v, kv->d_head, &v_inv);
        memcpy(v_page + nw_kv_v_scales_at(kv) + slot * sizeof s, &s, sizeof s);
    }
    for (uint32_t d = 0; d < kv->d_head; d++) {
        put(kv->k, k_page, k_panel, slot, d, coded(kv->k, k[d], k_inv));
        put(kv->v, v_page, v_panel, d, slot, coded(kv->v, v[d], v_inv));
    }
}

/* Enough for any tier: the reference's state, or a tile of rows (attn_tile.c): packed queries and
 * probabilities, scores, sums, products of a page, and 3 floats a row. */
size_t nw_attn_scratch_bytes(uint32_t d_head)
{
    const size_t wide = (d_head + 15U) / 16U * 16U * sizeof(float);
    const size_t row = nw_act_stride(NW_ACT_F32, d_head) + nw_act_stride(NW_ACT_F32, NW_KV_PAGE) +
                       NW_KV_PAGE * sizeof(float) + 2 * wide + 3 * sizeof(float);
    const size_t tile = (NW_ATTN_ROWS * row + 63) / 64 * 64;
    const size_t ref = (sizeof(nw_attn_ref_state) + 63) / 64 * 64;

    return tile > ref ? tile : ref;
}
