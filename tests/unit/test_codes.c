/* Every code of the integer layouts under every zero point: what it stands for, through a panel and back, and
 * which code the values around each midpoint get. Scales are powers of two, so that all values are exact.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "quant/grid.h"
#include "table.h"

#define COLS 512u

static struct row {
    const char *name;
    int lo, hi;   /* codes that encoders use */
    int zlo, zhi; /* codes of zero */
    float scale;
} rows[] = {
    {"int8", -127, 127, 0, 0, 0x1p-4F},
    {"int8-g16", -127, 127, 0, 0, 0x1p-9F},
    {"int8-g256", -127, 127, 0, 0, 0x1p-4F},
    {"int8-g16-zp", -128, 127, -128, 127, 0x1p-4F},
    {"int8-g32-zp", -128, 127, -128, 127, 0x1p3F},
    {"int8-g128-zp", -128, 127, -128, 127, 0x1p-4F},
    {"int8-g256-zp", -128, 127, -128, 127, 0x1p-4F},
    {"int8-row-zp", -128, 127, -128, 127, 0x1p-8F},
    {"int8-tensor-g64-zp", -128, 127, -128, 127, 0x1p-4F},
    {"int4-g16", 0, 15, 8, 8, 0x1p-4F},
    {"int4-g32", 0, 15, 8, 8, -0x1p-4F}, /* of either sign */
    {"int4-g256", 0, 15, 8, 8, 0x1p-4F},
    {"int4-row", 0, 15, 8, 8, 0x1p-10F},
    {"int4-tensor-g32", 0, 15, 8, 8, 0x1p-4F},
    {"int4-g16-zp", 0, 15, 0, 15, 0x1p-4F},
    {"int4-g128-zp", 0, 15, 0, 15, 0x1p2F},
    {"int4-g256-zp", 0, 15, 0, 15, 0x1p-4F},
    {"int4-row-g64-zp", 0, 15, 0, 15, 0x1p-4F},
    {"int4-tensor-zp", 0, 15, 0, 15, 0x1p-4F},
};

static nw_grid open_grid(const struct row *r, nw_panel_type *type)
{
    nw_grid g = {0};

    assert_true(nw_panel_parse(r->name, type));
    assert_true(nw_grid_of(*type, &(nw_scales){.rule = NW_SCALE_SEARCH}, COLS, &g));
    assert_true(g.lo == (float)r->lo && g.hi == (float)r->hi);
    return g;
}

static nw_grid_fit fit_of(const nw_grid *g, float scale, int zero)
{
    nw_grid_fit fit = {0};
    float scales[NW_LANES];

    for (uint32_t l = 0; l < NW_LANES; l++) {
        scales[l] = scale;
        fit.zero[l] = (float)zero;
    }
    nw_grid_store(g, scales, fit.offset, &fit);
    return fit;
}

/* The code of w, and that the value beside it is the code's. */
static int code_of(const nw_grid *g, const nw_grid_fit *fit, float w)
{
    float in[NW_LANES];
    float code[NW_LANES];
    float value[NW_LANES];

    for (uint32_t l = 0; l < NW_LANES; l++) {
        in[l] = w;
    }
    nw_grid_encode(g, fit, in, code, value);
    assert_true(value[0] == fit->scale[0] * (code[0] - fit->zero[0]));
    return (int)code[0];
}

/* Values at, just below and just above each midpoint; what lies beyond the ends gets the end. */
static void midpoints_go_to_the_nearest_code(void **state)
{
    const struct row *r = *state;
    nw_panel_type type = {0};
    const nw_grid g = open_grid(r, &type);

    for (int zero = r->zlo; zero <= r->zhi; zero++) {
        const nw_grid_fit fit = fit_of(&g, r->scale, zero);
        for (int c = r->lo; c <= r->hi; c++) {
            const float w = r->scale * (float)(c - zero);
            assert_int_equal(code_of(&g, &fit, w), c);
            if (c == r->hi) {
                continue;
            }
            const float mid = r->scale * ((float)(c - zero) + 0.5F);
            /* a unit in the last place of the midpoint, or of its distance from code 0 */
            const float far = r->scale * ((float)c + 0.5F);
            const float most = fabsf(far) > fabsf(mid) ? fabsf(far) : fabsf(mid);
            const float ulp = copysignf(nextafterf(most, INFINITY) - most, r->scale);
            assert_int_equal(code_of(&g, &fit, mid - ulp), c);
            assert_int_equal(code_of(&g, &fit, mid + ulp), c + 1);
            assert_int_equal(code_of(&g, &fit, mid), c % 2 == 0 ? c : c + 1);
        }
        assert_int_equal(code_of(&g, &fit, r->scale * (float)(r->lo - zero - 40)), r->lo);
        assert_int_equal(code_of(&g, &fit, r->scale * (float)(r->hi - zero + 40)), r->hi);
    }
}

/* A panel of every code in every row, 16 zero points at a time; scales differ from row to row. */
static void codes_come_through_panels(void **state)
{
    const struct row *r = *state;
    nw_panel_type type = {0};
    const nw_grid g = open_grid(r, &type);
    const uint32_t n_fits = COLS / g.group + (COLS % g.group != 0);
    nw_grid_fit *fits = calloc(n_fits, sizeof *fits);
    float *codes = calloc(COLS * NW_LANES, sizeof *codes);
    float *out = calloc(COLS, sizeof *out);
    size_t n_bytes = 0;
    uint32_t bad = 0;

    assert_true(nw_panel_bytes(type, COLS, &n_bytes));
    uint8_t *panel = aligned_alloc(64, n_bytes);
    void *scratch = malloc(nw_grid_scratch_bytes(COLS));
    assert_true(fits && codes && out && panel && scratch);
    for (int zero0 = r->zlo; zero0 <= r->zhi; zero0 += (int)NW_LANES) {
        for (uint32_t k = 0; k < n_fits; k++) {
            for (uint32_t l = 0; l < NW_LANES; l++) {
                const int z = zero0 + (int)l < r->zhi ? zero0 + (int)l : r->zhi;
                const nw_grid_fit one = fit_of(&g, ldexpf(r->scale, -(int)((l + k) % 3)), z);
                fits[k].scale[l] = one.scale[0];
                fits[k].offset[l] = one.offset[0];
                fits[k].zero[l] = one.zero[0];
            }
        }
        for (uint32_t c = 0; c < COLS; c++) {
            for (uint32_t l = 0; l < NW_LANES; l++) {
                codes[c * NW_LANES + l] =
                    (float)(r->lo + (int)((c + l) % (uint32_t)(r->hi - r->lo + 1)));
            }
        }
        assert_true(nw_grid_pack(type, &g, codes, fits, NW_LANES, COLS, panel, scratch, &bad));
        for (uint32_t l = 0; l < NW_LANES; l++) {
            nw_panel_unpack_row(type, panel, COLS, l, out);
            for (uint32_t c = 0; c < COLS; c++) {
                const nw_grid_fit *f = &fits[c / g.group];
                assert_true(out[c] == f->scale[l] * (codes[c * NW_LANES + l] - f->zero[l]));
            }
        }
    }
    free(fits);
    free(codes);
    free(out);
    free(panel);
    free(scratch);
}

int main(void)
{
    return NW_RUN_TABLE("midpoints", rows, midpoints_go_to_the_nearest_code) +
           NW_RUN_TABLE("panels", rows, codes_come_through_panels);
}
