/* Panels into blocks of a GGUF file, code by code: the inverse of repack.h. What a panel stores is kept
 * as it is, in the narrowest block type that holds every code of the tensor:
 *
 *   codes about zero (int4 without minima, int8)    -8..7 Q4_0, IQ4_NL's levels IQ4_NL,
 *       scales of 32, 64, 128 columns or a row      -16..15 Q5_0, else Q8_0
 *   codes with minima                               0..15 Q4_1, 0..31 Q5_1
 *   int4-g32-k Q4_K, int8-g32-k Q5_K (0..31), int8-g16-k Q6_K (-32..31)
 *   mxfp4 MXFP4, nvfp4 NVFP4 (the tensor scale apart), bf16 and bf16-12 BF16, f32 F32
 *
 * A code with a zero point counts as code - zero point, so that int4-..-zp fits Q5_0, and int8-..-zp Q8_0
 * where all of them have eight bits. All is exact but for one case: the F32 scale of a whole row (int8) is rounded to binary16 in Q8_0.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_UNPACK_BLOCKS_H
#define NW_FORMATS_UNPACK_BLOCKS_H

#include "formats/format.h"
#include "formats/panel.h"

/* Which codes (less their zero point) a tensor uses: a bit each, of the code's low byte; whether one of them
 * is beyond -128..127. All zero is none. Sets of parts are joined by `or`. */
typedef struct {
    uint64_t used[4];
    bool wider;
} nw_code_set;

/* codes [n_cols]: room for one row. */
void nw_code_set_add_row(nw_code_set *set, nw_panel_type type, const uint8_t *tensor,
                         uint32_t n_cols, uint32_t row, int8_t *codes);
void nw_code_set_join(nw_code_set *set, const nw_code_set *other);
/* Whether the block type depends on the codes; otherwise an empty set will do. */
bool nw_unpack_needs_codes(nw_panel_type type);

/* False where no block type holds such a tensor: *out is untouched. */
NW_MUST_USE bool nw_unpack_format(nw_panel_type type, uint32_t n_cols, const nw_code_set *set,
                                  nw_format_id *out);

/* One row as blocks of `format`, as nw_unpack_format gave it; codes [n_cols]: room for one row. */
void nw_unpack_row(nw_panel_type type, const uint8_t *tensor, uint32_t n_cols, uint32_t row,
                   nw_format_id format, int8_t *codes, uint8_t *dst);

#endif
