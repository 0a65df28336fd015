/* narrow's own weight layout: panels of 16 output rows, made so that a kernel reads one sequential
 * stream and lane r of every vector belongs to row r. It does not depend on the CPU: the same
 * bytes serve AVX-512, AVX2, NEON and plain C, in memory and in an artifact (mapped, not copied).
 *
 *   f32     per column:              16 x f32
 *   bf16    per pair of columns:     64 bytes, u16[r * 2 + t] = w[r][2j + t]
 *   bf16-12 a head, then per quad of columns 64 bytes of signs and mantissas and 32 of exponent
 *           codes, then the escapes: formats/bf16_12.h. Bit-exact bfloat16 in 12 bits
 *   int8    16 x f32 row scales, then per quad of columns 64 bytes,
 *           byte[r * 4 + t] = code[r][4j + t] ^ 0x80      w = scale * code
 *   int8-gG per group of G columns:  16 x fp16 scales [16 x u8 zero points, each ^ 0x80 | 16 x fp16 minima],
 *           G / 4 x 64 bytes as int8                      w = scale * (code - zero) [+ min]
 *   int4-gG per group of G columns:  16 x fp16 scales [16 x u8 zero points | 16 x fp16 minima], then
 *           G / 8 x 64 bytes, byte[r * 4 + t] of the j-th: low nibble = code of column 4j + t of
 *           the group, high nibble = code of column 4 (j + G / 8) + t; codes 0..15
 *                                 w = scale * (code - zero), zero = 8 where none is stored
 *                                 with minima w = scale * code + min
 *   int4-g256, int4-row, int4-tensor, int8-g256 and so on: the bytes of groups of 128 (or as the name says 64
 *           or 32), in which 256 columns, a row or the whole tensor have one scale and zero point, that
 *           each group repeats (nw_panel_type.span; docs/decisions)
 *   ..-k    int4-g32-k, int8-g32-k, int8-g16-k: GGUF's K-quants, two levels of scales. Per block of
 *           256 columns: 16 x fp16 d, 16 x fp16 dmin (zeros in int8-g16-k), then per group
 *           16 x s8 scales, then (not in int8-g16-k) per group 16 x u8 minima, then the codes of
 *           each group as above    w = (d * scale) * code [- dmin * min]
 *   fp8-..  16 x f32 row scales, then per quad of columns 64 bytes,
 *           byte[r/4 * 16 + t/2 * 8 + r%4 * 2 + t%2] = code[r][4j + t]    w = scale * value(code)
 *   nvfp4   64 bytes: f32 tensor scale, zeros; then per 32 columns, two blocks A and B of 16:
 *           16 x E4M3 scales of A, 16 of B, 4 x 64 bytes as int4-g32 (so that low nibbles are of A)
 *                                                 w = tensor scale * (value(code) * scale)
 *   mxfp4   per 32 columns: 16 x E8M0 scales, 4 x 64 bytes as int4-g32    w = value(code) * scale
 *
 * Rows are padded to 16 (scale 0 and code 0; INT4 without minima: code 8), columns to
 * nw_panel_cols() likewise (with the zero point's code where one is stored), and a panel to a multiple of 64
 * bytes with zero bytes. A padded column decodes to 0, but for minima, where it decodes to the group's minimum: activations are 0 there.
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
#define NW_PANEL_K_COLS  256u /* columns of a block with two levels of scales */
#define NW_SPAN_ROW      0xFFFFu
#define NW_SPAN_TENSOR   0xFFFEu

typedef enum {
    NW_PANEL_F32,
    NW_PANEL_BF16,
    NW_PANEL_INT8,
    NW_PANEL_INT4,
    NW_PANEL_FP8_E4M3,
    NW_PANEL_FP8_E5M2,
    NW_PANEL_NVFP4,
    NW_PANEL_MXFP4,
    NW_PANEL_BF16_12,
    NW_PANEL_KINDS
} nw_panel_kind;

typedef struct {
    nw_panel_kind kind;
    uint16_t
        group; /* columns that share a scale: int4 and int8 16, 32, 64 or 128; int8 also 0 (a row);
                       * nvfp4 16, mxfp4 32; else 0 */
    uint16_t
        span; /* 0, or wider than the group: so many columns (256), a row (NW_SPAN_ROW) or the tensor
                      * (NW_SPAN_TENSOR) have the same scale and zero point, stored with each group */
    bool zero_point;  /* int4, int8 with groups: a stored zero point for each row and group */
    bool min;         /* int4, int8 with groups: a stored minimum for each row and group */
    bool two_level;   /* the -k layouts */
    uint16_t escapes; /* bf16-12 only: room for so many escapes in each panel */
    bool packed;      /* bf16 and bf16-12 in a file: entropy-coded (bf16_stored.h), some 10.6 bits a
                       * weight. Memory never holds it: sizes and decoders are those of the layout that
                       * it is transcoded to at load */
} nw_panel_type;

/* "f32" "int4-g64" "int4-g32-zp" "int4-row" "int8-g32-min" "nvfp4" "bf16-12-e7" "bf16-packed-e7" ("bf16-packed-wide": bf16
 * in memory) ...; returns buf. */
const char *nw_panel_name(nw_panel_type type, char buf[32]);
/* False for any other text; *out is then untouched. "bf16-12" has room for no escape: who packs a
 * tensor finds the room that it needs (formats/bf16_12.h). */
NW_MUST_USE bool nw_panel_parse(const char *name, nw_panel_type *out);
/* The same layout; `packed` and `escapes` aside. */
bool nw_panel_same(nw_panel_type a, nw_panel_type b);
/* Bits of a code without scales and padding: 32, 16, 12, 8 or 4. */
unsigned nw_panel_code_bits(nw_panel_type type);

/* Columns after padding: a multiple of 1 (f32), 2 (bf16), 4 (int8, fp8, bf16-12), 32 (nvfp4, mxfp4)
 * or of the group. n_cols <= UINT32_MAX - 127. */
uint32_t nw_panel_cols(nw_panel_type type, uint32_t n_cols);
static inline uint32_t nw_panel_count(uint32_t n_rows)
{
    return n_rows / NW_PANEL_ROWS + (n_rows % NW_PANEL_ROWS != 0);
}
/* Groups of one row, padded columns / group; 1 where there are none. */
uint32_t nw_panel_groups(nw_panel_type type, uint32_t n_cols);
/* Columns of a row that have one scale: of the span, or else the group; n_cols where a row has one. And how
 * many scales that makes of a row. */
uint32_t nw_panel_scale_cols(nw_panel_type type, uint32_t n_cols);
uint32_t nw_panel_scales(nw_panel_type type, uint32_t n_cols);
/* Scales and zero points of a row as nw_panel_codes_row gives them, one a group, to one a span; zeros may be
 * NULL. False where the groups of a span differ, which no packer of ours writes. */
NW_MUST_USE bool nw_panel_join_groups(nw_panel_type type, uint32_t n_cols, float *scales,
                                      int8_t *zeros);
/* The widest groups that a span of rows or of the tensor can stand in without padding columns of the model, of
 * 128, 64 and 32; 32 where there are none. Other types as they are. */
nw_panel_type nw_panel_for_columns(nw_panel_type type, uint32_t n_cols);

/* Bytes of one panel (always a multiple of 64) and of a whole tensor; false on overflow, and for
 * columns of a -k layout that are no multiple of 256. */
NW_MUST_USE bool nw_panel_bytes(nw_panel_type type, uint32_t n_cols, size_t *out);
NW_MUST_USE bool nw_panel_tensor_bytes(nw_panel_type type, uint32_t n_rows, uint32_t n_cols,
                                       size_t *out);

/* Packers. Each writes one whole panel (nw_panel_bytes) from n_rows <= 16 rows of n_cols plain
 * values, row r at w + r * ld. Codes and scales go in as they are: unpacking gives them back.
 * Scales and minima of groups are fp16 bits [n_rows][lds], one a group.
 *   int8         codes -128..127; scales [n_rows]
 *   int8_groups  codes -128..127; mins where type.min, zeros -128..127 [n_rows][lds] where type.zero_point,
 *                else NULL
 *   int4         codes 0..15; zeros u8 0..15 [n_rows][lds] where type.zero_point, else NULL
 *   int4_min     codes 0..15; mins */
void nw_panel_pack_f32(const float *w, size_t ld, uint32_t n_rows, uint32_t n_cols, uint8_t *panel);
void nw_panel_pack_bf16(const uint16_t *w, size_t ld, uint32_t n_rows, uint32_t n_cols,
                        uint8_t *panel);
void nw_panel_pack_int8(const int8_t *codes, size_t ld, const float *scales, uint32_t n_rows,
                        uint32_t n_cols, uint8_t *panel);
void nw_panel_pack_int8_groups(nw_panel_type type, const int8_t *codes, size_t ld,
                               const uint16_t *scales, const uint16_t *mins, const int8_t *zeros,
                               size_t lds, uint32_t n_rows, uint32_t n_cols, uint8_t *panel);
void nw_panel_pack_int4(nw_panel_type type, const uint8_t *codes, size_t ld, const uint16_t *scales,
                        const uint8_t *zeros, size_t lds, uint32_t n_rows, uint32_t n_cols,
                        uint8_t *panel);
void nw_panel_pack_int4_min(nw_panel_type type, const uint8_t *codes, size_t ld,
                            const uint16_t *scales, const uint16_t *mins, size_t lds,
                            uint32_t n_rows, uint32_t n_cols, uint8_t *panel);

/* The -k layouts. codes: 0..15 (int4) or two's complement (int8) bytes; d, dmin fp16 bits
 * [n_rows][ld_block], one a block of 256; scales, mins [n_rows][lds], one a group (dmin and mins
 * NULL in int8-g16-k). n_cols is a multiple of 256. */
typedef struct {
    const uint8_t *codes;
    size_t ld;
    const uint16_t *d, *dmin;
    size_t ld_block;
    const int8_t *scales;
    const uint8_t *mins;
    size_t lds;
} nw_panel_k_rows;
void nw_panel_pack_k(nw_panel_type type, const nw_panel_k_rows *rows, uint32_t n_rows,
                     uint32_t n_cols, uint8_t *panel);

/* fp8: codes as formats/fp8.h encodes them; scales [n_rows].
 * nvfp4, mxfp4: E2M1 codes 0..15 (formats/fp4.h), scale codes [n_rows][lds], one a block of 16 or
 * 32: E4M3 codes 0 to 0x7E (no sign, no NaN), E8M0 codes 0 to 254 (no NaN). */
void nw_panel_pack_fp8(nw_panel_type type, const uint8_t *codes, size_t ld, const float *scales,
                       uint32_t n_rows, uint32_t n_cols, uint8_t *panel);
void nw_panel_pack_nvfp4(const uint8_t *codes, size_t ld, const uint8_t *scales, size_t lds,
                         float tensor_scale, uint32_t n_rows, uint32_t n_cols, uint8_t *panel);
void nw_panel_pack_mxfp4(const uint8_t *codes, size_t ld, const uint8_t *scales, size_t lds,
                         uint32_t n_rows, uint32_t n_cols, uint8_t *panel);

/* The reference decode: row `row` of a packed tensor, out [n_cols]. Exact but for one rounding to
 * float32: of a product with an f32 scale (int8, fp8, nvfp4), or of the sum with a minimum. Used
 * for embedding look-up, tests and the reference kernels. */
void nw_panel_unpack_row(nw_panel_type type, const uint8_t *tensor, uint32_t n_cols, uint32_t row,
                         float *out);
/* The same for columns [col0, col0 + n) of a row. */
void nw_panel_unpack_span(nw_panel_type type, const uint8_t *tensor, uint32_t n_cols, uint32_t row,
                          uint32_t col0, uint32_t n, float *out);
/* What is stored for a row, for lossless conversion: codes (int8: -128..127; int4: 0..15; fp8, nvfp4,
 * mxfp4: the code's bits), scales, one a group (-k: d * scale), zero points (where none is stored 0 of int8
 * and of minima, else 8) and minima (-k: -dmin * min; 0 where none is stored). zeros and mins may be NULL. Not for
 * f32, bf16 and bf16-12. */
void nw_panel_codes_row(nw_panel_type type, const uint8_t *tensor, uint32_t n_cols, uint32_t row,
                        int8_t *codes, float *scales, int8_t *zeros);
void nw_panel_mins_row(nw_panel_type type, const uint8_t *tensor, uint32_t n_cols, uint32_t row,
                       float *mins);
/* The tensor scale of a panel; 1 for every type but nvfp4, which alone can be given another. */
float nw_panel_tensor_scale(nw_panel_type type, const uint8_t *panel);
void nw_panel_set_tensor_scale(nw_panel_type type, uint8_t *panel, float scale);

#endif
