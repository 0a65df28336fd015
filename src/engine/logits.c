/* Loops over one row of logits.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/logits.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16u
#define BLOCK 256u

bool nw_all_finite(const float *x, size_t n)
{
    const uint32_t exponent = 0x7f800000u; /* all ones: infinity or NaN */
    uint32_t bad = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits = 0;
        memcpy(&bits, &x[i], sizeof bits);
        bad |= (bits & exponent) == exponent ? 1u : 0u;
    }
    return bad == 0;
}

float nw_max(const float *x, size_t n)
{
    float lane[LANES];
    size_t i = 0;

    for (size_t k = 0; k < LANES; k++) {
        lane[k] = -FLT_MAX;
    }
    for (; i + LANES <= n; i += LANES) {
        for (size_t k = 0; k < LANES; k++) {
            lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
        }
    }
    for (; i < n; i++) {
        lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    }
    for (size_t k = 1; k < LANES; k++) {
        lane[0] = lane[k] > lane[0] ? lane[k] : lane[0];
    }
    return lane[0];
}

size_t nw_argmax(const float *x, size_t n)
{
    const float max = nw_max(x, n);
    size_t i = 0;

    while (i + 1 < n && x[i] < max) {
        i++;
    }
    return i;
}

/* exp(x) for x <= 0: x = k ln 2 + f, |f| <= ln 2 / 2, exp(f) by its Taylor polynomial of degree 7
 * (remainder below 2^-27), k in two parts (Cody and Waite) so that f keeps its bits. Below the
 * smallest normal float the result is 0. */
static inline float exp_negative(float x)
{
    const float log2e = 1.44269504F;
    const float ln2_hi = 0.693359375F; /* 9 bits: k * ln2_hi is exact */
    const float ln2_lo = -2.12194440e-4F;
    const float clamped = x < -87.0F ? -87.0F : x;
    const int32_t k = (int32_t)(clamped * log2e - 0.5F); /* x <= 0: towards zero is rounding */
    const float f = (clamped - (float)k * ln2_hi) - (float)k * ln2_lo;
    float p = 1.0F / 5040.0F;

    p = p * f + 1.0F / 720.0F;
    p = p * f + 1.0F / 120.0F;
    p = p * f + 1.0F / 24.0F;
    p = p * f + 1.0F / 6.0F;
    p = p * f + 0.5F;
    p = p * f + 1.0F;
    p = p * f + 1.0F;
    const uint32_t bits = (uint32_t)(k + 127) << 23;
    float scale = 0;
    memcpy(&scale, &bits, sizeof scale);
    return x < -87.0F ? 0.0F : p * scale;
}

double nw_log_sum_exp(const float *x, size_t n)
{
    const float max = nw_max(x, n);
    float e[BLOCK];
    double sum[4] = {0};

    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t m = n - at < BLOCK ? n - at : BLOCK;
        for (size_t i = 0; i < m; i++) {
            e[i] = exp_negative(x[at + i] - max);
        }
        for (size_t i = m; i % 4 != 0; i++) {
            e[i] = 0;
        }
        for (size_t i = 0; i < m; i += 4) {
            for (size_t k = 0; k < 4; k++) {
                sum[k] += (double)e[i + k];
            }
        }
    }
    return (double)max + log((sum[0] + sum[1]) + (sum[2] + sum[3]));
}
