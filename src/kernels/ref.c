/* The reference tier: the definition of right. Weights and pages are decoded by formats/panel.h and
 * every sum is a double taken in column order, so it is within one rounding of the exact result
 * and slow; it needs no CPU feature.
 * SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "formats/half.h"
#include "kernels/act.h"
#include "kernels/kv_page.h"
#include "kernels/ref_attention.h"
#include "kernels/tiers.h"

#define SPAN       NW_ACT_COLS /* columns decoded at a time */
#define TOKEN_TILE 8u          /* tokens that share a decoded span */

static nw_act_kind ref_act_kind(nw_panel_type type, bool a8)
{
    return a8 && nw_has_a8(type) ? NW_ACT_INT8 : NW_ACT_F32;
}

/* Columns [c0, c0 + n) of a packed row, one span at most; int8 as codes. */
static void act_span(const nw_act *a, uint32_t t, uint32_t c0, uint32_t n, double *out)
{
    const uint8_t *row = nw_act_row(a, t);
    const bool coded = a->kind == NW_ACT_INT8 || a->kind == NW_ACT_INT16;
    const uint8_t *codes = row + (coded ? nw_act_codes_at(a->kind, a->n_cols) : 0) + c0;
    float f = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint16_t h = 0;
        switch (a->kind) {
        case NW_ACT_F32:
            memcpy(&f, row + (size_t)(c0 + i) * sizeof f, sizeof f);
            out[i] = (double)f;
            break;
        case NW_ACT_BF16:
            memcpy(&h, row + (size_t)(c0 + i) * sizeof h, sizeof h);
            out[i] = (double)nw_bf16_to_f32(h);
            break;
        case NW_ACT_INT8:
            out[i] = (int8_t)codes[i];
            break;
        case NW_ACT_INT16:
            memcpy(&f, row + c0 / NW_ACT_COLS * sizeof f, sizeof f);
            out[i] =
                (double)f * ((int8_t)codes[i] * 256 + (int8_t)codes[i + nw_act_cols(a->n_cols)]);
            break;
        }
    }
}

static double act_scale(const nw_act *a, uint32_t t)
{
    nw_act_head head = {.scale = 1};
    if (a->kind == NW_ACT_INT8) {
        memcpy(&head, nw_act_row(a, t), sizeof head);
    }
    return (double)head.scale;
}

/* One row of weights against tokens [t0, t0 + n), n <= TOKEN_TILE. */
static void ref_row(const nw_weight *w, const nw_act *a, uint32_t row, uint32_t t0, uint32_t n,
                    double sum[TOKEN_TILE])
{
    float ws[SPAN];
    double xs[SPAN];

    memset(sum, 0, TOKEN_TILE * sizeof *sum);
    for (uint32_t c0 = 0; c0 < w->n_cols; c0 += SPAN) {
        const uint32_t left = w->n_cols - c0;
        const uint32_t m = left < SPAN ? left : SPAN;
        nw_panel_unpack_span(w->type, w->data, w->n_cols, row, c0, m, ws);
        for (uint32_t t = 0; t < n; t++) {
            act_span(a, t0 + t, c0, m, xs);
            for (uint32_t c = 0; c < m; c++) {
                sum[t] += (double)ws[c] * xs[c];
            }
        }
    }
}

static void ref_linear(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1,
                       float *y, size_t ldy)
{
    const uint32_t end = panel1 * NW_PANEL_ROWS;
    const uint32_t rows = end < w->n_rows ? end : w->n_rows;

    assert(a->n_cols == w->n_cols && panel1 <= nw_panel_count(w->n_rows));
    for (uint32_t t0 = 0; t0 < a->n_tokens; t0 += TOKEN_TILE) {
        const uint32_t left = a->n_tokens - t0;
        const uint32_t n = left < TOKEN_TILE ? left : TOKEN_TILE;
        for (uint32_t r = panel0 * NW_PANEL_ROWS; r < rows; r++) {
            double sum[TOKEN_TILE];
            ref_row(w, a, r, t0, n, sum);
            for (uint32_t t = 0; t < n; t++) {
                y[(t0 + t) * ldy + r] = (float)(sum[t] * act_scale(a, t0 + t));
            }
        }
    }
}

static void ref_rmsnorm(const float *x, const float *gain, uint32_t n, float eps, float *y)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    const double inv = 1 / sqrt(sum / n + (double)eps);
    for (uint32_t i = 0; i < n; i++) {
        y[i] = (float)((double)x[i] * inv * (double)gain[i]);
    }
}

static void ref_rope(float *x, uint32_t n_heads, uint32_t d_head, const float *cos,
                     const float *sin)
{
    const uint32_t half = d_head / 2;

    for (uint32_t h = 0; h < n_heads; h++, x += d_head) {
        for (uint32_t i = 0; i < half; i++) {
            const float a = x[i];
            const float b = x[i + half];
            x[i] = a * cos[i] - b * sin[i];
            x[i + half] = b * cos[i] + a * sin[i];
        }
    }
}

static void ref_silu_mul(const float *gate, const float *up, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++) {
        const double g = (double)gate[i];
        y[i] = (float)(g / (1 + exp(-g)) * (double)up[i]);
    }
}

static void ref_gelu_tanh_mul(const float *gate, const float *up, size_t n, float *y)
{
    const double root_2_over_pi = 0.79788456080286535588;

    for (size_t i = 0; i < n; i++) {
        const double g = (double)gate[i];
        /* 1/2 (1 + tanh u) = 1 / (1 + e^-2u), which does not cancel */
        const double u = root_2_over_pi * (g + 0.044715 * g * g * g);
        y[i] = (float)(g / (1 + exp(-2 * u)) * (double)up[i]);
    }
}

static void ref_add(const float *x, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++) {
        y[i] += x[i];
    }
}

static void ref_softcap(float *x, size_t n, float cap)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)((double)cap * tanh((double)x[i] / (double)cap));
    }
}

const nw_kernels nw_kernels_ref = {
    .tier = "ref",
    .need = 0,
    .act_kind = ref_act_kind,
    .act_pack = nw_act_pack_plain,
    .linear = ref_linear,
    .rmsnorm = ref_rmsnorm,
    .rope = ref_rope,
    .silu_mul = ref_silu_mul,
    .gelu_tanh_mul = ref_gelu_tanh_mul,
    .add = ref_add,
    .softcap = ref_softcap,
    .kv_put = nw_kv_put_plain,
    .attend = nw_ref_attend,
};
