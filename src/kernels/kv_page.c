/* Sizes and names of key and value pages, the decoder and the encoder of one token in plain C.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kv_page.h"

#include "formats/fp8.h"
#include "kernels/act.h"
#include "kernels/attn_tile.h"
#include "kernels/kv_put.h"

const char *nw_kv_kind_name(nw_kv_kind kind)
{
    static const char *const names[NW_KV_KINDS] = {"f32", "bf16", "fp8", "int8", "int4"};
    return (size_t)kind < NW_COUNT(names) ? names[kind] : NULL;
}

nw_kv_type nw_kv_type_of(nw_kv_kind k, nw_kv_kind v, uint32_t d_head)
{
    return (nw_kv_type){
        .k = k, .v = v, .d_head = d_head, .rotate_k = k == NW_KV_INT4, .rotate_v = v == NW_KV_INT4};
}

size_t nw_kv_k_page_bytes(const nw_kv_type *kv)
{
    return NW_KV_PAGE / NW_KV_LANES * nw_kv_k_panel_bytes(kv);
}

size_t nw_kv_v_page_bytes(const nw_kv_type *kv)
{
    return nw_kv_v_codes_at(kv->v) +
           nw_kv_v_panels(kv->d_head) * nw_kv_panel_bytes(kv->v, NW_KV_PAGE);
}

void nw_kv_rotate_plain(float *x, uint32_t n)
{
    const uint32_t block = n & (~n + 1); /* the largest power of two that divides n */
    const float scale = 1 / sqrtf((float)block);

    for (uint32_t half = 1; half < block; half *= 2) {
        for (uint32_t i = 0; i < n; i += 2 * half) {
            for (uint32_t j = i; j < i + half; j++) {
                const float a = x[j];
                const float b = x[j + half];
                x[j] = a + b;
                x[j + half] = a - b;
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        x[i] *= scale;
    }
}

void nw_kv_put_plain(const nw_kv_type *kv, uint32_t slot, const float *k, const float *v,
                     uint8_t *k_page, uint8_t *v_page)
{
    nw_kv_put(kv, slot, k, v, k_page, v_page, nw_kv_rotate_plain);
}

/* Code `col` of row r of a panel of K; of a panel of V where `value`, whose integers are two's
 * complement. */
static float code_at(nw_kv_kind kind, bool value, const uint8_t *panel, uint32_t r, uint32_t col)
{
    const uint32_t t = col % 4;
    const uint8_t *quad = panel + (size_t)(col / nw_kv_vector_cols(kind)) * 64;
    uint16_t half = 0;
    float x = 0;
    int c = 0;

    switch (kind) {
    case NW_KV_F32:
        memcpy(&x, quad + r * sizeof x, sizeof x);
        return x;
    case NW_KV_BF16:
        memcpy(&half, quad + r * 4 + col % 2 * 2, sizeof half);
        return nw_bf16_to_f32(half);
    case NW_KV_FP8:
        return nw_e4m3_to_f32(quad[r / 4 * 16 + t / 2 * 8 + r % 4 * 2 + t % 2]);
    case NW_KV_INT8:
        c = quad[r * 4 + t];
        c = value ? c ^ 128 : c;
        return (float)(c - 128);
    case NW_KV_INT4:
        c = quad[r * 4 + t] >> (col % 8 / 4 * 4) & 15;
        c = value ? c ^ 8 : c;
        return (float)(c - 8);
    }
    return x;
}

void nw_kv_k_token(const nw_kv_type *kv, const uint8_t *page, uint32_t slot, float *out)
{
    const uint32_t r = slot % NW_KV_LANES;
    const uint8_t *panel = page + slot / NW_KV_LANES * nw_kv_k_panel_bytes(kv);
    const uint8_t *codes = panel + (nw_kv_scaled(kv->k) ? 64 : 0);
    float scale = 1;

    if (nw_kv_scaled(kv->k)) {
        memcpy(&scale, panel + r * sizeof scale, sizeof scale);
    }
    for (uint32_t d = 0; d < kv->d_head; d++) {
        out[d] = code_at(kv->k, false, codes, r, d) * scale;
    }
}

void nw_kv_v_token(const nw_kv_type *kv, const uint8_t *page, uint32_t slot, float *out)
{
    const size_t panel = nw_kv_panel_bytes(kv->v, NW_KV_PAGE);
    const uint8_t *codes = page + nw_kv_v_codes_at(kv->v);
    float scale = 1;

    if (nw_kv_scaled(kv->v)) {
        memcpy(&scale, page + slot * sizeof scale, sizeof scale);
    }
    for (uint32_t d = 0; d < kv->d_head; d++) {
        out[d] =
            scale * code_at(kv->v, true, codes + d / NW_KV_LANES * panel, d % NW_KV_LANES, slot);
    }
}
