/* narrow's own weight layout: panels of 16 output rows, made so that a kernel reads one sequential
 * stream and lane r of every vector belongs to row r. It does not depend on the CPU: the same
 * bytes serve AVX-512, AVX2, NEON and plain C, in memory and in an artifact (mapped, not copied).
 *
 *   f32    per column:               16 x f32
 *   bf16   per pair of columns:      64 bytes, u16[r * 2 + t] = w[r][2j + t]
 *   int8   16 x f32 row scales, then per quad of columns 64 bytes,
 *          byte[r * 4 + t] = code[r][4j + t] ^ 0x80       w = scale * code
 *   int4   per group of G columns:   16 x fp16 scales [16 x u8 zero points], G / 8 x 64 bytes,
 *          byte[r * 4 + t] of the j-th: low nibble = code of column 4j + t of the group,
 *          high nibble = code of column 4 (j + G / 8) + t   w = scale * (code - zero), zero = 8
 *                                                            where none is stored
 * Rows are padded to 16 (scale 0), columns to nw_panel_cols() with codes that stand for 0, and a
 * panel to a multiple of 64 bytes with zero bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_PANEL_H
#define NW_FORMATS_PANEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define NW_PANEL_VERSION 1
#define NW_PANEL_ROWS    16u
#define NW_PANEL_PAD     127u /* the most columns that padding adds */

typedef enum { NW_PANEL_F32, NW_PANEL_BF16, NW_PANEL_INT8, NW_PANEL_INT4 } nw_panel_kind;

typedef struct {
    nw_panel_kind kind;
    uint16_t group;  /* columns that share a scale: 32, 64 or 128 for int4, else 0 */
    bool zero_point; /* int4 only: a stored zero point for each row and group */
} nw_panel_type;

/* "f32" "bf16" "int8" "int4-g64" "int4-g32-zp"; returns buf. */
const char *nw_panel_name(nw_panel_type type, char buf[32]);
/* False for any other text; *out is then untouched. */
NW_MUST_USE bool nw_panel_parse(const char *name, nw_panel_type *out);

/* Columns after padding: a multiple of 1 (f32), 2 (bf16), 4 (int8) or of the group (int4).
 * n_cols <= UINT32_MAX - 127. */
uint32_t nw_panel_cols(nw_panel_type type, uint32_t n_cols);
static inline uint32_t nw_panel_count(uint32_t n_rows)
{
    return n_rows / NW_PANEL_ROWS + (n_rows % NW_PANEL_ROWS != 0);
}
/* Groups of one row of an int4 panel: padded columns / group. */
uint32_t nw_panel_groups(nw_panel_type type, uint32_t n_cols);

/* Bytes of one panel (always a multiple of 64) and of a whole tensor; false on overflow. */
NW_MUST_USE bool nw_panel_bytes(nw_panel_type type, uint32_t n_cols, size_t *out);
NW_MUST_USE bool nw_panel_tensor_bytes(nw_panel_type type, uint32_t n_rows, uint32_t n_cols,
                                       size_t *out);

/* Packers. Each writes one whole panel (nw_panel_bytes) from n_rows <= 16 rows of n_cols plain
 * values, row r at w + r * ld. Codes and scales go in as they are: unpacking gives them back.
 *   int8   codes -128..127; scales [n_rows]
 *   int4   codes 0..15; scales fp16 bits [n_rows][lds], one a group; zeros u8 0..15 [n_rows][lds]
 *          where type.zero_point, else NULL */
void nw_panel_pack_f32(const float *w, size_t ld, uint32_t n_rows, uint32_t n_cols, uint8_t *panel);
void nw_panel_pack_bf16(const uint16_t *w, size_t ld, uint32_t n_rows, uint32_t n_cols,
                        uint8_t *panel);
void nw_panel_pack_int8(const int8_t *codes, size_t ld, const float *scales, uint32_t n_rows,
                        uint32_t n_cols, uint8_t *panel);
void nw_panel_pack_int4(nw_panel_type type, const uint8_t *codes, size_t ld, const uint16_t *scales,
                        const uint8_t *zeros, size_t lds, uint32_t n_rows, uint32_t n_cols,
                        uint8_t *panel);

/* The reference decode: row `row` of a packed tensor, out [n_cols]. Exact: f32 holds every
 * bf16, every scale * code product here needs at most 24 bits (int8: one rounding of the product
 * of an f32 scale). Used for embedding look-up, tests and the reference kernels. */
void nw_panel_unpack_row(nw_panel_type type, const uint8_t *tensor, uint32_t n_cols, uint32_t row,
                         float *out);
/* The same for columns [col0, col0 + n) of a row. */
void nw_panel_unpack_span(nw_panel_type type, const uint8_t *tensor, uint32_t n_cols, uint32_t row,
                          uint32_t col0, uint32_t n, float *out);
/* The codes of a row (int8: -128..127; int4: 0..15), its scales and zero points, one a group
 * (int8: one group; zeros NULL or filled with 8 where none is stored). For lossless conversion. */
void nw_panel_codes_row(nw_panel_type type, const uint8_t *tensor, uint32_t n_cols, uint32_t row,
                        int8_t *codes, float *scales, uint8_t *zeros);

#endif
