/* A quantization_config and the tensors it is to describe: u16 n | n bytes of config.json | safetensors.
 * Whatever the bytes: an error that says something, or matrices whose codes, scales and zero points lie
 * inside the file, whose integers have their width, and which a panel that takes them gives back.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "artifact/artifact_parts.h"
#include "base/json.h"
#include "fuzz/check.h"

#define MAX_SIDE 256U

static void *must(size_t n)
{
    void *p = malloc(n > 0 ? n : 1);
    NW_CHECK(p != NULL);
    return p;
}

/* The panel of rows [row0, row0 + n) against the values; NVFP4 divides once, panels multiply. */
static void check_panel(const nw_hfq_matrix *m, nw_panel_type type, uint32_t row0, uint32_t n,
                        const float *values)
{
    size_t n_bytes = 0;
    float *back = must(m->n_cols * sizeof *back);

    NW_CHECK(nw_panel_bytes(type, m->n_cols, &n_bytes));
    uint8_t *panel = must(n_bytes);
    void *scratch = must(nw_quant_scratch_bytes(type, m->n_cols));
    if (nw_quant_pack_panel(m, type, row0, n, panel, scratch)) {
        for (uint32_t r = 0; r < n; r++) {
            nw_panel_unpack_row(type, panel, m->n_cols, r, back);
            for (uint32_t c = 0; c < m->n_cols; c++) {
                const float want = values[(size_t)r * m->n_cols + c];
                const float slack = type.kind == NW_PANEL_NVFP4 ? 1e-6F * fabsf(want) + 1e-40F : 0;
                NW_CHECK(fabsf(back[c] - want) <= slack || (isinf(want) && back[c] == want));
            }
        }
    }
    free(scratch);
    free(panel);
    free(back);
}

static void check_matrix(const nw_hfq_matrix *m)
{
    uint8_t *codes = must(m->n_cols);
    float *values = must((size_t)NW_PANEL_ROWS * m->n_cols * sizeof *values);
    nw_panel_type type = {0};
    const bool packs = nw_quant_panel_type(m, &type);
    char name[32];

    NW_CHECK(nw_hfq_name(m, name)[0] != '\0');
    for (uint32_t row0 = 0; row0 < m->n_rows; row0 += NW_PANEL_ROWS) {
        const uint32_t left = m->n_rows - row0;
        const uint32_t n = left < NW_PANEL_ROWS ? left : NW_PANEL_ROWS;
        for (uint32_t r = 0; r < n; r++) {
            nw_hfq_row(m, row0 + r, codes, values + (size_t)r * m->n_cols);
            for (uint32_t c = 0; c < m->n_cols; c++) {
                NW_CHECK(codes[c] >> (m->bits - 1) >> 1 == 0);
                NW_CHECK(nw_hfq_group_of(m, c) < m->n_groups);
            }
        }
        if (packs) {
            check_panel(m, type, row0, n, values);
        }
    }
    free(values);
    free(codes);
}

/* Every module with a quantized part, as a matrix of several shapes. */
static void check_tensors(const nw_safetensors *s, const nw_hfq_config *c)
{
    for (size_t i = 0; i < nw_st_n_tensors(s) && i < 64; i++) {
        const nw_st_tensor *t = nw_st_at(s, i);
        const size_t stem = nw_hfq_stem(t->name);
        const size_t n_module = stem > 0 ? stem : strcspn(t->name, ".");
        const uint32_t side = t->n_dims > 0 && t->dims[0] <= MAX_SIDE ? (uint32_t)t->dims[0] : 0;
        const uint32_t rows[] = {16, side, 32, side};
        const uint32_t cols[] = {32, 32, side, 8 * side};
        for (size_t k = 0; k < NW_COUNT(rows); k++) {
            nw_hfq_matrix m = {0};
            nw_error err = {0};
            if (rows[k] == 0 || cols[k] == 0) {
                continue;
            }
            const nw_status st = nw_hfq_bind(s, c, t->name, n_module, rows[k], cols[k], &m, &err);
            NW_CHECK(st == NW_OK || err.message[0] != '\0');
            if (st == NW_OK && m.codes != NULL) {
                check_matrix(&m);
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t n = size < 2 ? 0 : data[0] | (size_t)data[1] << 8;
    nw_safetensors *s = NULL;
    nw_hfq_config c = {0};
    nw_error err = {0};
    json_t *root = NULL;

    if (size < 2 || n > size - 2 ||
        nw_json_parse("fuzz", (const char *)data + 2, n, &root, &err) != NW_OK) {
        return 0;
    }
    if (nw_hfq_config_parse("fuzz", root, &c, &err) != NW_OK) {
        NW_CHECK(err.message[0] != '\0');
    } else if (nw_st_read("fuzz", data + 2 + n, size - 2 - n, &s, &err) == NW_OK) {
        check_tensors(s, &c);
        nw_st_close(s);
    }
    json_decref(root);
    return 0;
}
