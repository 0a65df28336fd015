/* The parts of panel.c: what every kind of panel says of itself. A new kind is one row in panel.c and
 * one span decoder here.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_PANEL_PARTS_H
#define NW_FORMATS_PANEL_PARTS_H

#include <string.h>

#include "formats/half.h"
#include "formats/panel.h"

/* How the bytes of a panel are made up: head, then units of columns, then tail. */
typedef struct {
    uint32_t head;       /* bytes */
    uint32_t unit_cols;  /* columns of a unit: a pair, a quad, a group, a block */
    uint32_t unit_bytes; /* of 16 rows of a unit, its scales included */
    uint32_t tail;       /* bytes */
} nw_panel_shape;

nw_panel_shape nw_panel_shape_of(nw_panel_type type);

/* For columns that were checked when the tensor was opened. */
size_t nw_panel_size(nw_panel_type type, uint32_t n_cols);

/* One row of one panel. */
typedef struct {
    nw_panel_type type;
    const uint8_t *panel;
    uint32_t n_cols;
    uint32_t r; /* 0..15 */
} nw_panel_row;

nw_panel_row nw_panel_row_of(nw_panel_type type, const uint8_t *tensor, uint32_t n_cols,
                             uint32_t row);

/* The values of columns [c0, c0 + n) of a row; c0 + n <= padded columns. */
typedef void (*nw_panel_span_fn)(const nw_panel_row *p, uint32_t c0, uint32_t n, float *out);
void nw_panel_span_f32(const nw_panel_row *p, uint32_t c0, uint32_t n, float *out);
void nw_panel_span_bf16(const nw_panel_row *p, uint32_t c0, uint32_t n, float *out);
void nw_panel_span_int(const nw_panel_row *p, uint32_t c0, uint32_t n, float *out);
void nw_panel_span_fp8(const nw_panel_row *p, uint32_t c0, uint32_t n, float *out);
void nw_panel_span_fp4(const nw_panel_row *p, uint32_t c0, uint32_t n, float *out);
void nw_panel_span_bf16_12(const nw_panel_row *p, uint32_t c0, uint32_t n, float *out);

/* What a row stores for a group of columns: w = scale * (code - zero) + min. */
typedef struct {
    const uint8_t *codes; /* of the group, 16 rows */
    float scale, min;
    int8_t zero;
} nw_panel_group;

/* Both levels of scales of a group of a -k panel. */
typedef struct {
    uint16_t d, dmin; /* binary16 */
    int8_t scale;
    uint8_t min;
} nw_panel_k_scales;

/* Where the parts of a group of integers stand, of all 16 rows; not of a -k panel. NULL where it has no
 * such part: without `scale` a panel begins with one float a row. */
typedef struct {
    const uint8_t *scale, *min; /* binary16 */
    const uint8_t *zero;        /* bytes */
    const uint8_t *codes;
} nw_panel_int_parts;

nw_panel_int_parts nw_panel_int_parts_of(nw_panel_type type, const uint8_t *panel, uint32_t g);
int8_t nw_panel_int_zero(nw_panel_type type, const nw_panel_int_parts *parts, uint32_t r);
nw_panel_k_scales nw_panel_k_scales_of(const nw_panel_row *p, uint32_t g);
nw_panel_group nw_panel_int_group(const nw_panel_row *p, uint32_t g); /* int8, int4 */
int8_t nw_panel_int_code(const nw_panel_row *p, uint32_t c);
float nw_panel_fp_scale(const nw_panel_row *p, uint32_t g);        /* fp8, nvfp4, mxfp4 */
uint8_t nw_panel_fp_scale_code(const nw_panel_row *p, uint32_t g); /* nvfp4, mxfp4 */
uint8_t nw_panel_fp_code(const nw_panel_row *p, uint32_t c);

/* Where the code of column c of a group and row r stands: four-bit codes, from the start of the
 * group's codes; a byte holds columns c and c + group / 2. */
static inline size_t nw_panel_nibble_at(uint32_t group, uint32_t c, uint32_t r, unsigned *shift)
{
    const uint32_t quads = group / 8U;
    *shift = c / 4 >= quads ? 4 : 0;
    return (size_t)(c / 4 % quads) * 64 + r * 4 + c % 4;
}

/* Eight-bit codes of a quad: rows side by side, or (fp8) pairs of columns in halves of a lane. */
static inline size_t nw_panel_byte_at(uint32_t c, uint32_t r)
{
    return (size_t)(c / 4) * 64 + r * 4 + c % 4;
}

static inline size_t nw_panel_split_at(uint32_t c, uint32_t r)
{
    const uint32_t t = c % 4;
    return (size_t)(c / 4) * 64 + r / 4 * 16 + t / 2 * 8 + r % 4 * 2 + t % 2;
}

static inline uint16_t nw_panel_half(const uint8_t *p, uint32_t r)
{
    uint16_t h = 0;
    memcpy(&h, p + r * sizeof h, sizeof h);
    return h;
}

/* The codes of columns c to c + 3 of a row as four bytes; `pad` from column n on. */
static inline uint32_t nw_panel_quad(const uint8_t *row, uint32_t n, uint32_t c, uint8_t pad)
{
    uint8_t bytes[4] = {pad, pad, pad, pad};
    uint32_t v = 0;

    if (n >= 4 && c <= n - 4) {
        memcpy(&v, row + c, sizeof v);
        return v;
    }
    for (uint32_t t = 0; c + t < n; t++) {
        bytes[t] = row[c + t];
    }
    memcpy(&v, bytes, sizeof v);
    return v;
}

/* The nibbles of one group: row r at codes + r * ld; `pad` [16] where a row or column is missing. */
void nw_panel_put_nibbles(uint32_t group, const uint8_t *codes, size_t ld, const uint8_t pad[16],
                          uint32_t n_rows, uint32_t n_cols, uint8_t *dst);

#endif
