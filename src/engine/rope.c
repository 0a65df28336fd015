/* Rotary tables. SPDX-License-Identifier: Apache-2.0 */
#include "engine/rope.h"

#include <math.h>

static const double two_pi = 6.283185307179586476925286766559;

static double scale_llama3(double freq, const nw_rope_scaling *s)
{
    const double wavelen = two_pi / freq;
    const double n = s->original_n_ctx;
    const double low = (double)s->low_freq_factor;
    const double high = (double)s->high_freq_factor;
    const double factor = (double)s->factor;

    if (wavelen < n / high) {
        return freq;
    }
    if (wavelen > n / low) {
        return freq / factor;
    }
    const double smooth = (n / wavelen - low) / (high - low);
    return (1 - smooth) * freq / factor + smooth * freq;
}

static double scaled(double freq, const nw_rope_scaling *s)
{
    if (s == NULL) {
        return freq;
    }
    switch (s->kind) {
    case NW_ROPE_SCALE_NONE:
        return freq;
    case NW_ROPE_SCALE_LINEAR:
        return freq / (double)s->factor;
    case NW_ROPE_SCALE_LLAMA3:
        return scale_llama3(freq, s);
    }
    return freq;
}

nw_status nw_rope_build(nw_arena *arena, uint32_t n_ctx, uint32_t d_head, float base,
                        const nw_rope_scaling *scaling, nw_rope_table *out, nw_error *err)
{
    const uint32_t half = d_head / 2;
    const size_t n = (size_t)n_ctx * half;
    float *cosines = nw_arena_array(arena, n, sizeof *cosines);
    float *sines = nw_arena_array(arena, n, sizeof *sines);

    if (cosines == NULL || sines == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for RoPE tables of %u positions", n_ctx);
    }
    for (uint32_t i = 0; i < half; i++) {
        const double freq = scaled(pow((double)base, -2.0 * i / d_head), scaling);
        for (uint32_t p = 0; p < n_ctx; p++) {
            cosines[(size_t)p * half + i] = (float)cos(p * freq);
            sines[(size_t)p * half + i] = (float)sin(p * freq);
        }
    }
    *out = (nw_rope_table){.half = half, .cos = cosines, .sin = sines};
    return NW_OK;
}
