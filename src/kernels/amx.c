/* The table of the AMX tier: AVX-512's, but that linear layers of several tokens and attention of several rows are
 * multiplied in tiles, and BF16 activations always are, as one token has to give the bits that it gives among
 * others. Integers give the bits of the AVX-512 tier: their sums are exact, and are scaled in the same order.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernels/amx.h"

#include <assert.h>

#include "base/cpu.h"
#include "kernels/avx512_attn.h"
#include "kernels/avx512_ops.h"
#include "kernels/group.h"

/* Panels that all runs of tokens pass before the next: they and a run's activations stay in the second cache. */
#define NEAR_PANELS 8u

/* One run of tokens past panels [p, end), in pairs; where there is one token past each alone: memory is read best
 * as one stream. */
static void pass_panels(nw_amx_run *r, const nw_weight *w, uint32_t p, uint32_t end,
                        nw_amx_run_fn *run)
{
    float *y = r->t.y;

    for (; p < end; p += r->t.n_panels) {
        r->t.n_panels = r->n_tokens > 1 && end - p > 1 ? 2 : 1;
        r->t.w = w->data + p * r->t.w_stride;
        r->t.n_rows = w->n_rows - p * NW_PANEL_ROWS;
        r->t.y = y + (size_t)p * NW_PANEL_ROWS;
        run(r);
    }
}

void nw_amx_linear(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1, float *y,
                   size_t ldy, uint32_t steps, nw_amx_run_fn *run)
{
    const uint32_t n = a->n_tokens;
    const uint32_t n_runs = (n + NW_AMX_TOKENS - 1) / NW_AMX_TOKENS;
    size_t panel = 0;
    const bool fits = nw_panel_bytes(w->type, w->n_cols, &panel);
    nw_amx_run r = {.t = {.type = w->type,
                          .n_cols = w->n_cols,
                          .w_stride = panel,
                          .a_stride = nw_act_stride(a->kind, a->n_cols),
                          .far = n == 1 ? NW_AMX_FAR : 0,
                          .ldy = ldy},
                    .rows = n < NW_AMX_ROWS ? n : NW_AMX_ROWS};

    assert(fits && a->n_cols == w->n_cols && panel1 <= nw_panel_count(w->n_rows));
    (void)fits;
    if (n == 0) {
        return;
    }
    nw_amx_begin(r.rows, steps);
    for (uint32_t p = panel0; p < panel1; p += NEAR_PANELS) {
        const uint32_t end = panel1 - p < NEAR_PANELS ? panel1 : p + NEAR_PANELS;
        for (uint32_t i = 0; i < n_runs; i++) {
            const uint32_t t0 = (uint32_t)((uint64_t)n * i / n_runs);
            r.n_tokens = (uint32_t)((uint64_t)n * (i + 1) / n_runs) - t0;
            r.n_tiles = (r.n_tokens + NW_AMX_ROWS - 1) / NW_AMX_ROWS;
            r.t.a = (const uint8_t *)a->data + t0 * r.t.a_stride;
            r.t.y = y + t0 * ldy;
            pass_panels(&r, w, p, end, run);
        }
    }
    nw_amx_end();
}

/* Tokens from which tiles are faster than vectors, of integers; with fewer columns that share a scale the sums' way
 * through memory takes what the products save, unless the vectors have two levels of scales to make (docs/speed.md). */
#define FROM_TOKENS 12u
#define FROM_COLS   64u

static bool pays(nw_panel_type type, uint32_t n_tokens)
{
    const bool wide =
        !nw_has_groups(type) || type.group >= FROM_COLS || (type.two_level && type.group == 32);
    return n_tokens >= FROM_TOKENS && wide;
}

static void linear(const nw_weight *w, const nw_act *a, uint32_t panel0, uint32_t panel1, float *y,
                   size_t ldy)
{
    const nw_tile_fn stream = a->n_tokens == 1 ? nw_avx512_stream(w->type, a->kind) : NULL;
    nw_linear_fn *run = nw_kernels_avx512.linear;

    if (stream != NULL) {
        nw_linear_far(w, a, panel0, panel1, y, ldy, stream, NW_AMX_FAR);
        return;
    }
    if (a->kind == NW_ACT_BF16) {
        run = nw_amx_linear_a16;
    } else if (nw_has_a8(w->type) && pays(w->type, a->n_tokens)) {
        const bool row = a->kind == NW_ACT_INT8 && !nw_has_groups(w->type);
        run = row ? nw_amx_linear_row_a8 : nw_amx_linear_group;
    }
    run(w, a, panel0, panel1, y, ldy);
}

const nw_kernels nw_kernels_amx = {
    .tier = "amx",
    .need = NW_AVX512_NEED | NW_CPU_AMX,
    .linear = linear,
    .attend = nw_amx_attend,
    NW_AVX512_OPS,
};
