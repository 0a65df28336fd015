/* Blocks of a file into panels, code by code: what a format stores is kept as it is, so that
 * nw_panel_unpack_row gives the block decoder's values bit for bit.
 *
 *   Q4_0 int4-g32    Q5_0, Q8_0, IQ4_NL int8-g32    Q4_K int4-g32-k    MXFP4 mxfp4
 *   Q4_1 int4-g32-min   Q5_1 int8-g32-min           Q5_K int8-g32-k    NVFP4 nvfp4, tensor scale 1
 *   F8_E4M3 fp8-e4m3, F8_E5M2 fp8-e5m2, scales 1    Q6_K int8-g16-k    BF16 bf16
 *
 * Rows are taken one by one, so a caller may take them in any order (GGUF's q and k rows).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_REPACK_H
#define NW_FORMATS_REPACK_H

#include "formats/format.h"
#include "formats/panel.h"

/* The layout that a format's rows go into; false where there is none, *out is then untouched. */
NW_MUST_USE bool nw_repack_type(nw_format_id format, nw_panel_type *out);

/* Working memory for one caller at a time. */
size_t nw_repack_scratch_bytes(nw_format_id format, uint32_t n_cols);

/* Writes one panel from n_rows <= 16 rows of n_cols values, whole blocks, rows[r] at the bytes of row r.
 * False when a row cannot be kept exactly, *bad_row then tells which: a scale that is infinite or no
 * number, or so large that values overflow, or a byte without a value of its own (E4M3's NaN). */
NW_MUST_USE bool nw_repack_panel(nw_format_id format, const uint8_t *const *rows, uint32_t n_rows,
                                 uint32_t n_cols, uint8_t *panel, void *scratch, uint32_t *bad_row);

#endif
