/* Codes, scales and values of a row of a quantized matrix: see hf_quant.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "formats/block_parts.h"
#include "formats/fp4.h"
#include "formats/fp8.h"
#include "formats/words.h"
#include "model/hf_quant.h"

#define WORD 4U /* bytes */

void nw_hfq_codes(const nw_hfq_matrix *m, uint32_t row, uint8_t *codes)
{
    const size_t line =
        nw_bits_words(m->layout == NW_HFQ_GEMM ? m->n_rows : m->n_cols, m->bits) * WORD;
    const uint8_t *at = m->codes;
    const size_t per_word = 32U / m->bits;

    switch (m->layout) {
    case NW_HFQ_WORDS:
        for (uint32_t c = 0; c < m->n_cols; c++) {
            codes[c] = nw_bits_get(at + row * line, c, m->bits);
        }
        break;
    case NW_HFQ_BYTES:
        for (uint32_t c = 0; c < m->n_cols; c++) {
            codes[c] = at[(size_t)row * m->n_cols + c] ^ 0x80U;
        }
        break;
    case NW_HFQ_GEMM:
        for (uint32_t c = 0; c < m->n_cols; c++) {
            codes[c] = nw_bits_get(at + c * line, nw_awq_at(row), m->bits);
        }
        break;
    case NW_HFQ_DOWN:
        for (uint32_t c = 0; c < m->n_cols; c++) {
            const uint8_t *word = at + (c / per_word * m->n_rows + row) * WORD;
            codes[c] = nw_bits_get(word, c % per_word, m->bits);
        }
        break;
    case NW_HFQ_E4M3:
        memcpy(codes, at + (size_t)row * m->n_cols, m->n_cols);
        break;
    case NW_HFQ_E2M1:
        for (uint32_t c = 0; c < m->n_cols; c++) {
            codes[c] = nw_bits_get(at + (size_t)row * (m->n_cols / 2), c, 4);
        }
        break;
    }
}

static size_t scale_at(const nw_hfq_matrix *m, uint32_t row, uint32_t group)
{
    return m->groups_first ? (size_t)group * m->n_rows + row
                           : (size_t)(row / m->scale_rows) * m->n_groups + group;
}

uint8_t nw_hfq_scale_byte(const nw_hfq_matrix *m, uint32_t row, uint32_t group)
{
    return m->scales[scale_at(m, row, group)];
}

float nw_hfq_scale(const nw_hfq_matrix *m, uint32_t row, uint32_t group)
{
    const nw_format *f =
        nw_format_get(m->scale_format == NW_FMT_U8 ? NW_FMT_F8_E8M0 : m->scale_format);
    float scale = 0;

    f->decode(m->scales + scale_at(m, row, group) * f->block_bytes, &scale, 1);
    return scale;
}

uint8_t nw_hfq_zero(const nw_hfq_matrix *m, uint32_t row, uint32_t group)
{
    const size_t per_word = 32U / m->bits;
    const size_t line = nw_bits_words(m->n_rows, m->bits) * WORD;
    const unsigned mask = (1U << m->bits) - 1U;
    unsigned zero = 1U << (m->bits - 1);

    if (m->zeros == NULL) {
        return (uint8_t)zero;
    }
    const uint32_t at_row = row / m->scale_rows;
    if (m->zero_bytes) {
        zero += m->zeros[(size_t)at_row * m->n_groups + group];
    } else if (m->layout == NW_HFQ_WORDS) {
        const uint8_t *word = m->zeros + (at_row / per_word * m->n_groups + group) * WORD;
        zero = nw_bits_get(word, at_row % per_word, m->bits);
    } else {
        const size_t at = m->layout == NW_HFQ_GEMM ? nw_awq_at(row) : row;
        zero = nw_bits_get(m->zeros + group * line, at, m->bits);
    }
    return (uint8_t)((zero + (m->zero_less_one ? 1U : 0U)) & mask); /* v1: 0 was stored as -1 */
}

uint32_t nw_hfq_group_of(const nw_hfq_matrix *m, uint32_t col)
{
    return m->g_idx != NULL ? nw_le32(m->g_idx + (size_t)col * 4) : col / m->scale_cols;
}

void nw_hfq_row(const nw_hfq_matrix *m, uint32_t row, uint8_t *codes, float *out)
{
    uint32_t group = UINT32_MAX;
    float scale = 0;
    int zero = 0;

    nw_hfq_codes(m, row, codes);
    for (uint32_t c = 0; c < m->n_cols; c++) {
        const uint32_t g = nw_hfq_group_of(m, c);
        if (g != group) {
            group = g;
            scale = nw_hfq_scale(m, row, g) / m->global;
            zero = nw_hfq_zero(m, row, g);
        }
        out[c] = scale * (m->layout == NW_HFQ_E4M3   ? nw_e4m3_to_f32(codes[c])
                          : m->layout == NW_HFQ_E2M1 ? nw_e2m1_to_f32(codes[c])
                                                     : (float)(codes[c] - zero));
    }
}

/* "-g64", "-128x128", "-tensor" or "" (a scale a row). */
static void name_blocks(const nw_hfq_matrix *m, char *buf, size_t n)
{
    if (m->scale_rows >= m->n_rows && m->n_rows > 1 && m->n_groups == 1) {
        (void)snprintf(buf, n, "-tensor");
    } else if (m->scale_rows > 1) {
        (void)snprintf(buf, n, "-%ux%u", (unsigned)m->scale_rows, (unsigned)m->scale_cols);
    } else if (m->n_groups > 1) {
        (void)snprintf(buf, n, "-g%u", (unsigned)m->scale_cols);
    }
}

const char *nw_hfq_name(const nw_hfq_matrix *m, char buf[32])
{
    const bool power = m->scale_format == NW_FMT_U8 || m->scale_format == NW_FMT_F8_E8M0;
    char blocks[24] = "";
    char full[96];

    if (m->layout == NW_HFQ_E2M1) {
        (void)snprintf(buf, 32, "%s-%s", m->stem, power ? "mxfp4" : "nvfp4");
        return buf;
    }
    if (m->layout == NW_HFQ_E4M3 && power) {
        (void)snprintf(buf, 32, "%s-mxfp8", m->stem);
        return buf;
    }
    name_blocks(m, blocks, sizeof blocks);
    if (m->layout == NW_HFQ_E4M3) {
        (void)snprintf(buf, 32, "%s-fp8%s", m->stem, blocks);
    } else {
        (void)snprintf(full, sizeof full, "%s-int%u%s%s%s", m->stem, m->bits, blocks,
                       m->zeros != NULL ? "-zp" : "", m->g_idx != NULL ? "-order" : "");
        (void)snprintf(buf, 32, "%.31s", full);
    }
    return buf;
}
