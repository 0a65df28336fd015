/* The encoder of one token's key and value: loops over 16 lanes, without sums whose order could
 * change and without contraction, so that each tier compiles them for its own vectors and writes
 * the same bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_KERNELS_KV_PUT_H
#define NW_KERNELS_KV_PUT_H

#include <math.h>
#include <string.h>

#include "formats/half.h"
#include "kernels/kv_page.h"
#include "kernels/tile.h"

#define NW_KV_TINY    0x1p-100F /* an absmax below this is stored as zeros */
#define NW_E4M3_LIMIT 448.0F

/* A vector as the code generator of the tier wants it. */
typedef struct {
    _Alignas(64) float x[NW_KV_MAX_HEAD]; /* padded with zeros to a multiple of 16 */
    _Alignas(64) int32_t code[NW_KV_MAX_HEAD];
    float scale;
} nw_kv_coded;

/* Nearest whole number, ties to even, of |x| < 2^22. */
NW_INLINE float nw_kv_round(float x)
{
    return x + 0x1.8p23F - 0x1.8p23F;
}

NW_INLINE uint32_t nw_kv_pad(uint32_t n)
{
    return (n + NW_KV_LANES - 1) / NW_KV_LANES * NW_KV_LANES;
}

/* absmax as bits: a NaN or Inf is larger than any number. */
NW_INLINE uint32_t nw_kv_top(const float *x, uint32_t padded)
{
    uint32_t lane[NW_KV_LANES] = {0};
    uint32_t top = 0;

    for (uint32_t i = 0; i < padded; i += NW_KV_LANES) {
        for (uint32_t l = 0; l < NW_KV_LANES; l++) {
            const uint32_t u = nw_f32_bits(x[i + l]) & 0x7FFFFFFFU;
            lane[l] = u > lane[l] ? u : lane[l];
        }
    }
    for (uint32_t l = 0; l < NW_KV_LANES; l++) {
        top = lane[l] > top ? lane[l] : top;
    }
    return top;
}

/* Whole codes of x * inv, clipped to [lo, hi]. */
NW_INLINE void nw_kv_whole(nw_kv_coded *t, uint32_t padded, float inv, float lo, float hi)
{
    for (uint32_t i = 0; i < padded; i += NW_KV_LANES) {
        for (uint32_t l = 0; l < NW_KV_LANES; l++) {
            float y = nw_kv_round(t->x[i + l] * inv);
            y = y < lo ? lo : y;
            y = y > hi ? hi : y;
            t->code[i + l] = (int32_t)y;
        }
    }
}

/* x / scale, as engines with fixed scales divide. */
NW_INLINE void nw_kv_divide(nw_kv_coded *t, uint32_t padded, float scale)
{
    for (uint32_t i = 0; i < padded; i += NW_KV_LANES) {
        for (uint32_t l = 0; l < NW_KV_LANES; l++) {
            t->x[i + l] /= scale;
        }
    }
}

/* E4M3 of x * inv: nearest, ties to even, and 448 for what is larger. */
NW_INLINE void nw_kv_e4m3(nw_kv_coded *t, uint32_t padded, float inv)
{
    for (uint32_t i = 0; i < padded; i += NW_KV_LANES) {
        for (uint32_t l = 0; l < NW_KV_LANES; l++) {
            const uint32_t u = nw_f32_bits(t->x[i + l] * inv);
            const uint32_t mag = u & 0x7FFFFFFFU;
            const float small = nw_kv_round(nw_f32_from_bits(mag) * 0x1p9F);
            uint32_t code = ((mag + 0x7FFFFU + (mag >> 20 & 1U)) >> 20) - (120U << 3);
            code = mag < 0x3C800000U ? (uint32_t)(int32_t)small : code; /* below 2^-6 */
            code = code > 0x7EU ? 0x7EU : code;
            t->code[i + l] = (int32_t)(code | (u >> 24 & 0x80U));
        }
    }
}

/* Squared error of INT4 with a scale, and its inverse. */
NW_INLINE float nw_kv_int4_error(const nw_kv_coded *t, uint32_t padded, float scale, float inv)
{
    float lane[NW_KV_LANES] = {0};
    float sum = 0;

    for (uint32_t i = 0; i < padded; i += NW_KV_LANES) {
        for (uint32_t l = 0; l < NW_KV_LANES; l++) {
            float y = nw_kv_round(t->x[i + l] * inv);
            y = y < -8 ? -8 : y;
            y = y > 7 ? 7 : y;
            const float e = t->x[i + l] - y * scale;
            lane[l] += e * e;
        }
    }
    for (uint32_t l = 0; l < NW_KV_LANES; l++) {
        sum += lane[l];
    }
    return sum;
}

/* The best of scales from absmax / 7.5 to absmax / 10.5; of keys also with the other sign, since -8
 * is a code and 8 is not (values want scales >= 0: probabilities times them are unsigned). */
NW_INLINE void nw_kv_int4(nw_kv_coded *t, uint32_t padded, float amax, bool key)
{
    float best = INFINITY;

    t->scale = amax / 8;
    for (int i = 0; i < 14; i += key ? 1 : 2) {
        const float steps = (7.5F + 0.5F * (float)(i / 2)) * (i % 2 == 0 ? 1.0F : -1.0F);
        const float error = nw_kv_int4_error(t, padded, amax / steps, steps / amax);
        if (error < best) {
            best = error;
            t->scale = amax / steps;
        }
    }
    nw_kv_whole(t, padded, 1 / t->scale, -8, 7);
}

/* Codes of t->x [n], padded; F32 has none. A NaN or Inf makes the scale NaN and all
 * codes 0. fixed: the scale of FP8, or 0. */
NW_INLINE void nw_kv_encode(nw_kv_kind kind, nw_kv_coded *t, uint32_t n, bool key, float fixed)
{
    const uint32_t padded = nw_kv_pad(n);

    if (kind == NW_KV_BF16) {
        for (uint32_t i = 0; i < padded; i++) {
            t->code[i] = nw_bf16_from_f32(t->x[i]);
        }
    }
    if (!nw_kv_scaled(kind)) {
        return;
    }
    const uint32_t top = nw_kv_top(t->x, padded);
    const float amax = nw_f32_from_bits(top);
    if (top >= 0x7F800000U || amax < NW_KV_TINY) {
        t->scale = top >= 0x7F800000U ? NAN : 0.0F;
        memset(t->code, 0, padded * sizeof *t->code);
    } else if (kind == NW_KV_FP8 && fixed > 0) {
        t->scale = fixed;
        nw_kv_divide(t, padded, fixed);
        nw_kv_e4m3(t, padded, 1);
    } else if (kind == NW_KV_FP8) {
        t->scale = amax / NW_E4M3_LIMIT;
        nw_kv_e4m3(t, padded, NW_E4M3_LIMIT / amax);
    } else if (kind == NW_KV_INT8) {
        t->scale = amax / 127;
        nw_kv_whole(t, padded, 127 / amax, -127, 127);
    } else {
        nw_kv_int4(t, padded, amax, key);
    }
}

NW_INLINE void nw_kv_store32(uint8_t *p, uint32_t x)
{
    memcpy(p, &x, sizeof x);
}

/* Four codes as bytes. */
NW_INLINE uint32_t nw_kv_quad(const int32_t *code, uint32_t flip)
{
    return ((uint32_t)(code[0] & 255) | (uint32_t)(code[1] & 255) << 8 |
            (uint32_t)(code[2] & 255) << 16 | (uint32_t)(code[3] & 255) << 24) ^
           flip;
}

/* A token's row of a K page. Columns beyond d_head are zeros of t->code. */
NW_INLINE void nw_kv_place_k(const nw_kv_type *kv, const nw_kv_coded *t, uint32_t slot,
                             uint8_t *page)
{
    const uint32_t r = slot % NW_KV_LANES;
    uint8_t *p = page + slot / NW_KV_LANES * nw_kv_k_panel_bytes(kv);
    const int32_t *c = t->code;
    const int32_t *end = c + kv->d_head;

    if (nw_kv_scaled(kv->k)) {
        memcpy(p + r * sizeof t->scale, &t->scale, sizeof t->scale);
        p += 64;
    }
    switch (kv->k) {
    case NW_KV_F32:
        for (uint32_t i = 0; i < kv->d_head; i++) {
            memcpy(p + (size_t)i * 64 + r * sizeof *t->x, &t->x[i], sizeof *t->x);
        }
        return;
    case NW_KV_BF16:
        for (; c < end; c += 2, p += 64) {
            nw_kv_store32(p + r * 4, (uint32_t)c[0] | (uint32_t)c[1] << 16);
        }
        return;
    case NW_KV_FP8:
        for (; c < end; c += 4, p += 64) {
            const uint32_t q = nw_kv_quad(c, 0);
            const uint16_t pair[2] = {(uint16_t)q, (uint16_t)(q >> 16)};
            memcpy(p + r / 4 * 16 + r % 4 * 2, &pair[0], sizeof pair[0]);
            memcpy(p + r / 4 * 16 + r % 4 * 2 + 8, &pair[1], sizeof pair[1]);
        }
        return;
    case NW_KV_INT8:
        for (; c < end; c += 4, p += 64) {
            nw_kv_store32(p + r * 4, nw_kv_quad(c, 0x80808080U));
        }
        return;
    case NW_KV_INT4:
        for (; c < end; c += 8, p += 64) {
            const uint32_t low = nw_kv_quad(c, 0x08080808U) & 0x0F0F0F0FU;
            const uint32_t high = nw_kv_quad(c + 4, 0x08080808U) & 0x0F0F0F0FU;
            nw_kv_store32(p + r * 4, low | high << 4);
        }
        return;
    }
}

/* Where value 0 of a token stands in a V page of bytes (or words, or floats), after the scales. */
NW_INLINE size_t nw_kv_v_at(nw_kv_kind kind, uint32_t slot)
{
    switch (kind) {
    case NW_KV_F32:
        return (size_t)slot * 64;
    case NW_KV_BF16:
        return (size_t)(slot / 2) * 64 + slot % 2 * 2;
    case NW_KV_FP8:
        return (size_t)(slot / 4) * 64 + slot % 4 / 2 * 8 + slot % 2;
    case NW_KV_INT8:
        return (size_t)(slot / 4) * 64 + slot % 4;
    case NW_KV_INT4:
        return (size_t)(slot / 8) * 64 + slot % 4;
    }
    return 0;
}

/* A token's column of a V page. */
NW_INLINE void nw_kv_place_v(const nw_kv_type *kv, const nw_kv_coded *t, uint32_t slot,
                             uint8_t *page)
{
    const size_t panel = nw_kv_panel_bytes(kv->v, NW_KV_PAGE);
    uint8_t *p = page + nw_kv_v_codes_at(kv->v) + nw_kv_v_at(kv->v, slot);
    const uint8_t low = slot / 4 % 2 == 0 ? 0x0F : 0xF0; /* INT4: the nibble that it has */

    if (nw_kv_scaled(kv->v)) {
        memcpy(page + slot * sizeof t->scale, &t->scale, sizeof t->scale);
    }
    for (uint32_t i = 0; i < kv->d_head; i += NW_KV_LANES, p += panel) {
        const uint32_t n = kv->d_head - i < NW_KV_LANES ? kv->d_head - i : NW_KV_LANES;
        for (uint32_t r = 0; r < n; r++) {
            const int32_t c = t->code[i + r];
            const uint16_t word = (uint16_t)c;
            switch (kv->v) {
            case NW_KV_F32:
                memcpy(p + r * sizeof *t->x, &t->x[i + r], sizeof *t->x);
                break;
            case NW_KV_BF16:
                memcpy(p + r * 4, &word, sizeof word);
                break;
            case NW_KV_FP8:
                p[r / 4 * 16 + r % 4 * 2] = (uint8_t)c;
                break;
            case NW_KV_INT8:
                p[r * 4] = (uint8_t)c;
                break;
            case NW_KV_INT4:
                p[r * 4] = (uint8_t)((p[r * 4] & ~low) | ((c & 15) * 17 & low));
                break;
            }
        }
    }
}

/* An empty page: zeros; a K page of integers holds the codes that stand for 0. */
NW_INLINE void nw_kv_clear(const nw_kv_type *kv, uint8_t *k_page, uint8_t *v_page)
{
    const uint8_t zero = kv->k == NW_KV_INT8 ? 0x80 : kv->k == NW_KV_INT4 ? 0x88 : 0;
    const size_t panel = nw_kv_k_panel_bytes(kv);

    memset(v_page, 0, nw_kv_v_page_bytes(kv));
    memset(k_page, zero, nw_kv_k_page_bytes(kv));
    for (uint32_t p = 0; zero != 0 && p < NW_KV_PAGE / NW_KV_LANES; p++) {
        memset(k_page + p * panel, 0, 64);
    }
}

NW_INLINE void nw_kv_load(nw_kv_coded *t, const float *x, uint32_t n)
{
    memset(t->x + n, 0, (nw_kv_pad(n) - n) * sizeof *x);
    memcpy(t->x, x, n * sizeof *x);
}

typedef void (*nw_kv_rotate_fn)(float *x, uint32_t n);

NW_INLINE void nw_kv_put(const nw_kv_type *kv, uint32_t slot, const float *k, const float *v,
                         uint8_t *k_page, uint8_t *v_page, nw_kv_rotate_fn rotate)
{
    nw_kv_coded t;

    assert(slot < NW_KV_PAGE && kv->d_head <= NW_KV_MAX_HEAD);
    if (slot == 0) {
        nw_kv_clear(kv, k_page, v_page);
    }
    nw_kv_load(&t, k, kv->d_head);
    if (kv->rotate_k) {
        rotate(t.x, kv->d_head);
    }
    nw_kv_encode(kv->k, &t, kv->d_head, true, kv->k_scale);
    nw_kv_place_k(kv, &t, slot, k_page);
    nw_kv_load(&t, v, kv->d_head);
    if (kv->rotate_v) {
        rotate(t.x, kv->d_head);
    }
    nw_kv_encode(kv->v, &t, kv->d_head, false, kv->v_scale);
    nw_kv_place_v(kv, &t, slot, v_page);
}

#endif
