/* E4M3 weights in square blocks that share a scale, as "FP8 block" of compressed-tensors has them: those
 * of a folder of that kind are carried as they are, wide ones are rounded to the nearest code. Codes are
 * made of values either way: a code times its scale, divided by that scale, rounds to the code.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/export_parts.h"
#include "formats/block_parts.h"
#include "formats/fp8.h"
#include "model/hf_quant.h"

static uint32_t ceil_div(uint32_t n, uint32_t d)
{
    return n / d + (n % d != 0);
}

const nw_hfq_matrix *nw_block_stored(const nw_export_tensor *t)
{
    const nw_hfq_matrix *q = t->ckpt != NULL ? t->ckpt->quant : NULL;

    return q != NULL && q->layout == NW_HFQ_E4M3 && q->scale_format != NW_FMT_U8 &&
                   q->scale_format != NW_FMT_F8_E8M0 && q->n_groups > 1 && q->scale_rows > 1
               ? q
               : NULL;
}

static float *scale_at(const nw_block_scales *b, uint32_t row, uint32_t col)
{
    return &b->scales[(size_t)(row / b->rows) * b->n_across + col / b->cols];
}

/* The largest |w| of each block. */
static nw_status take_absmax(const nw_export_source *s, const nw_export_tensor *t,
                             const nw_block_scales *b, nw_error *err)
{
    float *values = calloc(t->n_cols, sizeof *values);
    nw_status st = values != NULL
                       ? NW_OK
                       : nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory for a row", t->name);

    for (uint32_t r = 0; st == NW_OK && r < t->n_rows; r++) {
        st = nw_export_values(s, t, r, values, err);
        for (uint32_t c = 0; st == NW_OK && c < t->n_cols; c++) {
            float *top = scale_at(b, r, c);
            *top = fmaxf(*top, fabsf(values[c]));
        }
    }
    free(values);
    return st;
}

nw_status nw_block_scales_of(const nw_export_source *s, const nw_export_tensor *t, uint32_t side,
                             nw_block_scales *out, nw_error *err)
{
    const nw_hfq_matrix *q = nw_block_stored(t);
    nw_block_scales b = {.rows = q != NULL ? q->scale_rows : side,
                         .cols = q != NULL ? q->scale_cols : side};
    nw_status st = NW_OK;

    b.n_down = ceil_div(t->n_rows, b.rows);
    b.n_across = ceil_div(t->n_cols, b.cols);
    b.scales = calloc(b.n_down, b.n_across * sizeof *b.scales);
    if (b.scales == NULL) {
        return nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory for scales of blocks", t->name);
    }
    if (q == NULL) {
        st = take_absmax(s, t, &b, err);
    }
    for (uint32_t i = 0; st == NW_OK && i < b.n_down; i++) {
        for (uint32_t g = 0; g < b.n_across; g++) {
            float *scale = &b.scales[(size_t)i * b.n_across + g];
            /* a block of zeros has any scale; one too small for BF16 is as good as zeros */
            const float chosen = nw_export_rounded(*scale / NW_E4M3_MAX, NW_FMT_BF16);
            *scale = q != NULL ? nw_hfq_scale(q, i * b.rows, g) : chosen > 0 ? chosen : 1;
        }
    }
    if (st != NW_OK) {
        free(b.scales);
        return st;
    }
    *out = b;
    return NW_OK;
}

void nw_put_block_codes(const nw_export_part *p, uint32_t row, const float *values, uint8_t *bytes)
{
    uint8_t *to = bytes + (size_t)row * p->tensor->n_cols;

    for (uint32_t c = 0; c < p->tensor->n_cols; c++) {
        const float scale = *scale_at(p->blocks, row, c);
        to[c] = scale == 0 ? 0 : nw_e4m3_from_f32(values[c] / scale);
    }
}

void nw_block_decode(const nw_export_part *p, uint32_t row, const float *values, float *out)
{
    for (uint32_t c = 0; c < p->tensor->n_cols; c++) {
        const float scale = *scale_at(p->blocks, row, c);
        out[c] = scale == 0 ? 0 : scale * nw_e4m3_to_f32(nw_e4m3_from_f32(values[c] / scale));
    }
}

void nw_put_block_scales(const nw_export_part *p, uint32_t row, const float *values, uint8_t *bytes)
{
    const nw_block_scales *b = p->blocks;
    const float *from = b->scales + (size_t)(row / b->rows) * b->n_across;

    (void)values;
    for (uint32_t g = 0; row % b->rows == 0 && g < b->n_across; g++) {
        const size_t at = (size_t)(row / b->rows) * b->n_across + g;
        if (p->scale_format == NW_FMT_F32) {
            nw_put32(bytes + at * 4, nw_f32_bits(from[g]));
        } else {
            nw_put16(bytes + at * 2, nw_bf16_from_f32(from[g]));
        }
    }
}
