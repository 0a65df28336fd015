/* Encoders of GGUF's blocks of 32 (and NVFP4's of 64): plain by the reference rule, and searched. See
 * encode.h for the contract, block.h for the layouts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/encode.h"

#include <math.h>
#include <string.h>

#include "formats/block_parts.h"
#include "formats/encode_parts.h"
#include "formats/fit.h"
#include "formats/fp4.h"
#include "formats/fp8.h"

void nw_put_scale(uint8_t *p, float scale)
{
    nw_put16(p, nw_f16_from_f32(nw_store_half(scale)));
}

void nw_put_nibbles(const uint8_t q[NW_BLOCK], uint8_t qs[NW_HALF])
{
    for (int j = 0; j < NW_HALF; j++) {
        qs[j] = (uint8_t)((q[j] & 15U) | (unsigned)(q[j + NW_HALF] & 15U) << 4);
    }
}

void nw_put_codes5(const uint8_t q[NW_BLOCK], uint8_t *qh)
{
    uint32_t high = 0;

    for (int j = 0; j < NW_BLOCK; j++) {
        high |= ((uint32_t)q[j] >> 4 & 1U) << j;
    }
    nw_put32(qh, high);
    nw_put_nibbles(q, qh + 4);
}

/* Rounds down; what is no number becomes 0. */
static uint8_t to_code(float v, int max)
{
    if (!(v > 0)) {
        return 0;
    }
    return (uint8_t)(v < (float)max ? v : (float)max);
}

static float inverse(float d)
{
    const float inv = 1 / d;
    return d != 0 && isfinite(inv) ? inv : 0;
}

/* The first value of the largest magnitude. */
static float peak_of(const float *x, int n)
{
    float peak = 0;

    for (int i = 0; i < n; i++) {
        peak = fabsf(x[i]) > fabsf(peak) ? x[i] : peak;
    }
    return peak;
}

/* Codes around `zero`: the peak becomes code 0. Returns the scale. */
static float plain_symmetric(const float *x, int zero, uint8_t q[NW_BLOCK])
{
    const float d = peak_of(x, NW_BLOCK) / (float)-zero;
    const float id = inverse(d);

    for (int j = 0; j < NW_BLOCK; j++) {
        q[j] = to_code(x[j] * id + ((float)zero + 0.5F), 2 * zero - 1);
    }
    return d;
}

/* Codes 0 to max from the least value to the greatest. Returns the scale. */
static float plain_minimum(const float *x, int max, uint8_t q[NW_BLOCK], float *min)
{
    float lo = x[0];
    float hi = x[0];

    for (int j = 1; j < NW_BLOCK; j++) {
        lo = x[j] < lo ? x[j] : lo;
        hi = x[j] > hi ? x[j] : hi;
    }
    const float d = (hi - lo) / (float)max;
    const float id = inverse(d);
    for (int j = 0; j < NW_BLOCK; j++) {
        q[j] = to_code((x[j] - lo) * id + 0.5F, max);
    }
    *min = lo;
    return d;
}

void nw_encode_q4_0(const float *src, uint8_t *dst, size_t n_blocks)
{
    uint8_t q[NW_BLOCK];

    for (size_t b = 0; b < n_blocks; b++, src += NW_BLOCK, dst += 18) {
        nw_put_scale(dst, plain_symmetric(src, 8, q));
        nw_put_nibbles(q, dst + 2);
    }
}

void nw_encode_q4_1(const float *src, uint8_t *dst, size_t n_blocks)
{
    uint8_t q[NW_BLOCK];
    float min = 0;

    for (size_t b = 0; b < n_blocks; b++, src += NW_BLOCK, dst += 20) {
        nw_put_scale(dst, plain_minimum(src, 15, q, &min));
        nw_put_scale(dst + 2, min);
        nw_put_nibbles(q, dst + 4);
    }
}

void nw_encode_q5_0(const float *src, uint8_t *dst, size_t n_blocks)
{
    uint8_t q[NW_BLOCK];

    for (size_t b = 0; b < n_blocks; b++, src += NW_BLOCK, dst += 22) {
        nw_put_scale(dst, plain_symmetric(src, 16, q));
        nw_put_codes5(q, dst + 2);
    }
}

void nw_encode_q5_1(const float *src, uint8_t *dst, size_t n_blocks)
{
    uint8_t q[NW_BLOCK];
    float min = 0;

    for (size_t b = 0; b < n_blocks; b++, src += NW_BLOCK, dst += 24) {
        nw_put_scale(dst, plain_minimum(src, 31, q, &min));
        nw_put_scale(dst + 2, min);
        nw_put_codes5(q, dst + 4);
    }
}

void nw_encode_q8_0(const float *src, uint8_t *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += NW_BLOCK, dst += 34) {
        const float d = fabsf(peak_of(src, NW_BLOCK)) / 127;
        const float id = inverse(d);
        nw_put_scale(dst, d);
        for (int j = 0; j < NW_BLOCK; j++) {
            dst[2 + j] = (uint8_t)(int8_t)roundf(src[j] * id); /* half way: away from zero */
        }
    }
}

/* The code of the nearest E2M1 value, d the scale; the first of two that are as near, which is the one
 * nearer to zero, and never the negative zero. */
static uint8_t nearest_fp4(float x, float half_d)
{
    unsigned best = 0;
    float least = fabsf(x);

    for (unsigned i = 1; i < 16; i++) {
        const float err = fabsf((float)nw_fp4_halves[i] * half_d - x);
        if (err < least) {
            best = i;
            least = err;
        }
    }
    return (uint8_t)best;
}

/* The OCP scale: the largest power of two that is not above the peak, over that of E2M1. */
void nw_encode_mxfp4(const float *src, uint8_t *dst, size_t n_blocks)
{
    uint8_t q[NW_BLOCK];

    for (size_t b = 0; b < n_blocks; b++, src += NW_BLOCK, dst += 17) {
        const uint8_t e = nw_e8m0_floor(fabsf(peak_of(src, NW_BLOCK)));
        dst[0] = e > 2 ? (uint8_t)(e - 2) : 0;
        const float half_d = nw_e8m0_to_f32(dst[0]) / 2;
        for (int j = 0; j < NW_BLOCK; j++) {
            q[j] = nearest_fp4(src[j], half_d);
        }
        nw_put_nibbles(q, dst + 1);
    }
}

/* Codes of n values under scale d; returns the weighted squared error. */
static float fp4_codes(const float *x, const float *w, int n, float d, uint8_t *q)
{
    float err = 0;

    for (int j = 0; j < n; j++) {
        q[j] = nearest_fp4(x[j], d / 2);
        const float diff = x[j] - (float)nw_fp4_halves[q[j]] * (d / 2);
        err += w[j] * diff * diff;
    }
    return err;
}

static void search_mxfp4(const float *src, const float *weights, uint8_t *dst, size_t n_blocks)
{
    float ones[NW_BLOCK];

    for (size_t b = 0; b < n_blocks; b++, src += NW_BLOCK, dst += 17) {
        const float *w = nw_weights_at(weights, b, NW_BLOCK, ones);
        const int floor_e = nw_e8m0_floor(fabsf(peak_of(src, NW_BLOCK))) - 2;
        float least = INFINITY;
        for (int e = floor_e - 1; e <= floor_e + 1; e++) {
            uint8_t q[NW_BLOCK];
            const uint8_t code = (uint8_t)(e < 0 ? 0 : e > 252 ? 252 : e);
            const float err = fp4_codes(src, w, NW_BLOCK, nw_e8m0_to_f32(code), q);
            if (err < least) {
                least = err;
                dst[0] = code;
                nw_put_nibbles(q, dst + 1);
            }
        }
    }
}

/* One group of 16: the best of the E4M3 scales around absmax / 6, from 0.7 to 1.6 of it (absmax may be
 * code 4 as well as code 6). */
static uint8_t nvfp4_group(const float *x, const float *w, uint8_t q[NW_NVFP4_GROUP])
{
    const float base = fabsf(peak_of(x, NW_NVFP4_GROUP)) / NW_E2M1_MAX;
    uint8_t best = 0;
    float least = INFINITY;

    for (int i = 0; i < 19; i++) {
        uint8_t codes[NW_NVFP4_GROUP];
        const uint8_t scale = nw_e4m3_from_f32(base * (0.7F + 0.05F * (float)i));
        const float err = fp4_codes(x, w, NW_NVFP4_GROUP, nw_e4m3_to_f32(scale), codes);
        if (err < least) {
            least = err;
            best = scale;
            memcpy(q, codes, sizeof codes);
        }
    }
    return best;
}

static void search_nvfp4(const float *src, const float *weights, uint8_t *dst, size_t n_blocks)
{
    float ones[NW_NVFP4_BLOCK];

    for (size_t b = 0; b < n_blocks; b++, src += NW_NVFP4_BLOCK, dst += 36) {
        const float *w = nw_weights_at(weights, b, NW_NVFP4_BLOCK, ones);
        for (int s = 0; s < 4; s++) {
            uint8_t q[NW_NVFP4_GROUP];
            uint8_t *qs = dst + 4 + (ptrdiff_t)8 * s;
            dst[s] = nvfp4_group(src + s * NW_NVFP4_GROUP, w + s * NW_NVFP4_GROUP, q);
            for (int j = 0; j < 8; j++) {
                qs[j] = (uint8_t)(q[j] | (unsigned)q[j + 8] << 4);
            }
        }
    }
}

void nw_encode_nvfp4(const float *src, uint8_t *dst, size_t n_blocks)
{
    search_nvfp4(src, NULL, dst, n_blocks);
}

const float *nw_weights_at(const float *weights, size_t b, size_t n, float *ones)
{
    float sum = 0;

    for (size_t i = 0; weights != NULL && i < n; i++) {
        sum += weights[b * n + i];
    }
    if (sum > 0) {
        return weights + b * n;
    }
    for (size_t i = 0; i < n; i++) {
        ones[i] = 1;
    }
    return ones;
}

/* The best codes of a block of 32, counted from b->lo on. */
static nw_fit search_block(const float *x, const float *w, int lo, int hi, bool has_min,
                           uint8_t q[NW_BLOCK])
{
    const nw_fit_block b = {.x = x, .w = w, .n = NW_BLOCK, .lo = lo, .hi = hi};
    nw_fit fit =
        has_min ? nw_fit_minimum(&b, INFINITY, nw_store_half) : nw_fit_symmetric(&b, nw_store_half);
    int8_t codes[NW_BLOCK];

    nw_fit_codes(&b, &fit, codes);
    for (int j = 0; j < NW_BLOCK; j++) {
        q[j] = (uint8_t)(codes[j] - lo);
    }
    return fit;
}

static void put_q8(const uint8_t q[NW_BLOCK], uint8_t *qs)
{
    for (int j = 0; j < NW_BLOCK; j++) {
        qs[j] = (uint8_t)(q[j] - 127);
    }
}

/* A block of 32: a scale, a minimum where it has one, then its codes, which count from lo on. */
typedef struct {
    int lo, hi;
    bool has_min;
    uint32_t bytes;
    void (*put)(const uint8_t q[NW_BLOCK], uint8_t *codes);
} block_kind;

static void search_blocks(const block_kind *k, const float *src, const float *weights, uint8_t *dst,
                          size_t n_blocks)
{
    float ones[NW_BLOCK];
    uint8_t q[NW_BLOCK];

    for (size_t b = 0; b < n_blocks; b++, src += NW_BLOCK, dst += k->bytes) {
        const float *w = nw_weights_at(weights, b, NW_BLOCK, ones);
        const nw_fit fit = search_block(src, w, k->lo, k->hi, k->has_min, q);
        nw_put_scale(dst, fit.scale);
        if (k->has_min) {
            nw_put_scale(dst + 2, fit.min);
        }
        k->put(q, dst + (k->has_min ? 4 : 2));
    }
}

static void search_q4_0(const float *src, const float *weights, uint8_t *dst, size_t n_blocks)
{
    search_blocks(&(block_kind){-8, 7, false, 18, nw_put_nibbles}, src, weights, dst, n_blocks);
}

static void search_q4_1(const float *src, const float *weights, uint8_t *dst, size_t n_blocks)
{
    search_blocks(&(block_kind){0, 15, true, 20, nw_put_nibbles}, src, weights, dst, n_blocks);
}

static void search_q5_0(const float *src, const float *weights, uint8_t *dst, size_t n_blocks)
{
    search_blocks(&(block_kind){-16, 15, false, 22, nw_put_codes5}, src, weights, dst, n_blocks);
}

static void search_q5_1(const float *src, const float *weights, uint8_t *dst, size_t n_blocks)
{
    search_blocks(&(block_kind){0, 31, true, 24, nw_put_codes5}, src, weights, dst, n_blocks);
}

static void search_q8_0(const float *src, const float *weights, uint8_t *dst, size_t n_blocks)
{
    search_blocks(&(block_kind){-127, 127, false, 34, put_q8}, src, weights, dst, n_blocks);
}

nw_encode_search_fn nw_encode_search(nw_format_id format)
{
    static const struct {
        nw_format_id format;
        nw_encode_search_fn fn;
    } rows[] = {
        {NW_FMT_Q4_0, search_q4_0},    {NW_FMT_Q4_1, search_q4_1},    {NW_FMT_Q5_0, search_q5_0},
        {NW_FMT_Q5_1, search_q5_1},    {NW_FMT_Q8_0, search_q8_0},    {NW_FMT_MXFP4, search_mxfp4},
        {NW_FMT_NVFP4, search_nvfp4},  {NW_FMT_Q4_K, nw_search_q4_k}, {NW_FMT_Q5_K, nw_search_q5_k},
        {NW_FMT_Q6_K, nw_search_q6_k},
    };

    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        if (rows[i].format == format) {
            return rows[i].fn;
        }
    }
    return NULL;
}
