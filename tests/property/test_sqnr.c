/* Signal to noise of ten million gaussian weights (sigma 0.02) through every layout, scales as they are
 * stored: the floors of the issue that asked for the quantizers. A million take the same path in the fast
 * tests (test_gptq.c, test_rtn.c).
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "quant/method.h"
#include "table.h"

#define COLS   4096u
#define PANELS 153u /* of 16 rows: 10,027,008 values */

static struct sqnr_row {
    const char *name, *layout;
    nw_method method;
    double at_least; /* dB */
} rows[] = {
    {"int4_g32_asymmetric", "int4-g32-zp", NW_METHOD_RTN, 21.8},
    {"int4_g32_symmetric_search", "int4-g32", NW_METHOD_RTN, 21.7},
    {"int4_g128_symmetric_search", "int4-g128", NW_METHOD_RTN, 20.2},
    {"nvfp4_sweep", "nvfp4", NW_METHOD_RTN, 21.7},
    {"mxfp4_best_of_three", "mxfp4", NW_METHOD_RTN, 19.0},
    {"int8_row", "int8", NW_METHOD_RTN, 41.0},
};

static void draw(uint64_t panel, float *w)
{
    nw_rng rng = nw_rng_stream(77, panel);
    for (size_t i = 0; i < (size_t)16 * COLS; i++) {
        w[i] = (float)(0.02 * nw_rng_normal(&rng));
    }
}

/* NVFP4's tensor scale is that of all the values. */
static float absmax_of_all(float *w)
{
    float most = 0;

    for (uint64_t p = 0; p < PANELS; p++) {
        draw(p, w);
        for (size_t i = 0; i < (size_t)16 * COLS; i++) {
            most = fabsf(w[i]) > most ? fabsf(w[i]) : most;
        }
    }
    return most;
}

static void ten_million_values_keep_their_sqnr(void **state)
{
    const struct sqnr_row *r = *state;
    nw_method_job j = {.method = r->method, .n_cols = COLS};
    float *w = calloc(16, COLS * sizeof *w);
    float *out = calloc(COLS, sizeof *out);
    size_t bytes = 0;
    double signal = 0;
    double noise = 0;

    assert_true(nw_panel_parse(r->layout, &j.type) && nw_panel_bytes(j.type, COLS, &bytes));
    uint8_t *panel = malloc(bytes);
    void *scratch = calloc(1, nw_method_scratch_bytes(&j));
    assert_true(w != NULL && out != NULL && panel != NULL && scratch != NULL);
    j.scales.absmax = j.type.kind == NW_PANEL_NVFP4 ? absmax_of_all(w) : 0;
    for (uint64_t p = 0; p < PANELS; p++) {
        nw_output_error unused;
        uint32_t bad_row = 0;
        draw(p, w);
        assert_true(nw_method_pack_panel(&j, w, 16, panel, scratch, &unused, &bad_row));
        for (uint32_t k = 0; k < 16; k++) {
            nw_panel_unpack_row(j.type, panel, COLS, k, out);
            for (uint32_t c = 0; c < COLS; c++) {
                const double v = (double)w[(size_t)k * COLS + c];
                signal += v * v;
                noise += (v - (double)out[c]) * (v - (double)out[c]);
            }
        }
    }
    const double db = 10 * log10(signal / noise);
    (void)printf("%s: %.3f dB\n", r->name, db);
    if (db < r->at_least) {
        fail_msg("%.3f dB, at least %.2f wanted", db, r->at_least);
    }
    free(w);
    free(out);
    free(panel);
    free(scratch);
}

int main(void)
{
    return NW_RUN_TABLE("sqnr", rows, ten_million_values_keep_their_sqnr);
}
