/* INT4 round to nearest in vectors against the rule as rtn.h says it, value by value: the same bytes
 * for every instruction set that this machine has.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "quant/rtn_int4.h"
#include "table.h"

enum { MOST_COLS = 128, N_TRIALS = 400 };

static float clamp(float x)
{
    const float least = x > 0 ? x : 0;
    return least < 15 ? least : 15;
}

static float code_of(float w, float scale, float zero)
{
    const float inv = 1 / scale;
    return rintf(clamp(w * (isfinite(inv) ? inv : 0) + zero));
}

typedef struct {
    float scale, zero, err;
} fit;

static fit measured(const float *w, uint32_t n, float scale, float zero)
{
    fit f = {scale, zero, 0};

    for (uint32_t k = 0; k < n; k++) {
        const float d = w[k] - scale * (code_of(w[k], scale, zero) - zero);
        f.err += d * d;
    }
    return f;
}

static void keep(fit *best, fit f)
{
    *best = f.err < best->err ? f : *best;
}

/* One row of a group. */
static fit best_of(const nw_rtn_group *g, const float *w)
{
    const bool bf16 = g->scales->bf16;
    const bool search = g->scales->rule == NW_SCALE_SEARCH;
    float lo = 0;
    float hi = 0;

    for (uint32_t k = 0; k < g->n; k++) {
        lo = lo < w[k] ? lo : w[k];
        hi = hi > w[k] ? hi : w[k];
    }
    const float peak = -lo > hi ? lo : hi;
    const float step = (hi - lo) / 15;
    const float first = nw_scale_store(g->type.zero_point ? step : peak / -8, bf16);
    fit best = measured(w, g->n, first, g->type.zero_point ? code_of(-lo, first, 0) : 8);
    for (int i = 0; search && i < NW_RTN_CANDIDATES; i++) {
        const float f = 0.6F + 0.025F * (float)i;
        const float scale = nw_scale_store(step * f, bf16);
        for (int k = -1; g->type.zero_point && k <= 1; k++) {
            keep(&best, measured(w, g->n, scale, clamp(code_of(-lo * f, scale, 0) + (float)k)));
        }
        if (!g->type.zero_point) {
            keep(&best, measured(w, g->n, nw_scale_store(peak / 8 * -f, bf16), 8));
            keep(&best, measured(w, g->n, nw_scale_store(peak / 8 * f, bf16), 8));
        }
    }
    return best;
}

/* The bytes of the group by the packer of the panels; the first row that does not fit. */
static uint32_t reference(const nw_rtn_group *g, uint8_t *panel)
{
    uint8_t codes[16][MOST_COLS];
    uint16_t scales[16];
    uint8_t zeros[16];

    for (uint32_t r = 0; r < g->n_rows; r++) {
        const float *w = g->rows + r * g->ld;
        const fit f = best_of(g, w);
        if (!isfinite(f.scale)) {
            return r;
        }
        scales[r] = nw_f16_from_f32(f.scale);
        zeros[r] = (uint8_t)f.zero;
        for (uint32_t k = 0; k < g->n; k++) {
            codes[r][k] = (uint8_t)code_of(w[k], f.scale, f.zero);
        }
    }
    nw_panel_pack_int4(g->type, &codes[0][0], MOST_COLS, scales, g->type.zero_point ? zeros : NULL,
                       1, g->n_rows, g->n, panel);
    return NW_RTN_ALL_FIT;
}

/* Rows of one of the kinds that a search may stumble over. */
static void fill(nw_rng *rng, unsigned kind, uint32_t n, float *w)
{
    static const float factors[] = {0.02F, 1, 1e-6F, 3e-8F, 1e-20F, 6e4F, 5e5F, 1e30F};
    const float factor = factors[nw_rng_below(rng, NW_COUNT(factors))];

    for (uint32_t k = 0; k < n; k++) {
        switch (kind) {
        case 0:
            w[k] = 0;
            break;
        case 1: /* few values, so that candidates tie */
            w[k] = ((float)nw_rng_below(rng, 5) - 2) * factor;
            break;
        case 2: /* one sign */
            w[k] = fabsf((float)nw_rng_normal(rng)) * factor;
            break;
        case 3: /* an outlier */
            w[k] = (float)nw_rng_normal(rng) * (k == n / 2 ? 50 : 1) * factor;
            break;
        case 4:
            w[k] = -0.0F;
            break;
        default:
            w[k] = (float)nw_rng_normal(rng) * 0.02F;
            break;
        }
    }
}

static struct tier {
    const char *name;
    uint32_t need;
} tiers[] = {
    {"plain", 0},
    {"avx2", NW_CPU_AVX2},
    {"avx512", NW_CPU_AVX512},
};

static void same_bytes(void **state)
{
    const struct tier *t = *state;
    static const uint16_t groups[] = {32, 64, 128};
    float rows[16 * MOST_COLS];
    _Alignas(64) float tile[MOST_COLS * 16];
    uint8_t want[MOST_COLS * 8 + 64];
    uint8_t got[MOST_COLS * 8 + 64];

    if ((nw_cpu_features() & t->need) != t->need) {
        skip();
    }
    nw_rng rng = nw_rng_seed(20);
    for (int i = 0; i < N_TRIALS; i++) {
        const nw_scales scales = {.rule = i % 4 == 0 ? NW_SCALE_ABSMAX : NW_SCALE_SEARCH,
                                  .bf16 = i % 3 == 0};
        nw_rtn_group g = {.type = {.kind = NW_PANEL_INT4,
                                   .group = groups[nw_rng_below(&rng, NW_COUNT(groups))],
                                   .zero_point = i % 2 == 0},
                          .scales = &scales,
                          .rows = rows,
                          .ld = MOST_COLS,
                          .n_rows = 1 + (uint32_t)nw_rng_below(&rng, 16),
                          .tile = tile};
        g.n = i % 5 == 0 ? 1 + (uint32_t)nw_rng_below(&rng, g.type.group) : g.type.group;
        for (uint32_t r = 0; r < g.n_rows; r++) {
            fill(&rng, (unsigned)nw_rng_below(&rng, 9), g.n, rows + (size_t)r * MOST_COLS);
        }
        memset(tile, 0xA5, sizeof tile);
        memset(got, 0xA5, sizeof got);
        memset(want, 0xA5, sizeof want);
        const uint32_t row = reference(&g, want);
        assert_int_equal(nw_rtn_int4_pick(t->need)(&g, got), row);
        if (row == NW_RTN_ALL_FIT) {
            assert_memory_equal(got, want, nw_rtn_int4_bytes(g.type));
        }
    }
}

int main(void)
{
    return NW_RUN_TABLE("rtn_int4", tiers, same_bytes);
}
