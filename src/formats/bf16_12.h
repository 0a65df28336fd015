/* Bit-exact bfloat16 in 12 bits: a weight is its sign and mantissa (8 bits) and a code of its exponent
 * (4 bits), which stands for one of the 15 exponents that the tensor uses most, or for exponent 0.
 *
 * A panel of 16 rows:
 *   head, 64 bytes: u8 exponents[16] (what a code stands for; [15] is 0), u32 n_escapes, zeros
 *   per quad of columns, 96 bytes: sm[64], then codes[32]; the value in row r, column 4j + t has
 *     index w = t / 2 * 32 + 2 r + t % 2:  sm[w] = sign << 7 | mantissa,
 *     its code is the low nibble of codes[w] for w < 32, the high one of codes[w - 32] else
 *   escapes, 8 bytes each, by column, then row; type.escapes + 1 slots of them. A slot not used (the
 *     last never is) has column 0xFFFFFFFF, row and value 0. With room for 4 they lie in the head, from
 *     byte 24 on, and nothing stands behind the quads
 *
 * The table is the panel's own: the exponents of 16 rows are fewer than those of a whole tensor.
 *
 *   value = sign | exponents[code] << 7 | mantissa as the bits of a bfloat16
 *
 * A value whose exponent is not in the table is an escape: its place holds +0 (sm 0, code 15), its
 * true bits are in the list. So a kernel that adds the products of the list, or puts the values in
 * place as it passes their columns, is exact, and one that meets no escape never looks at it.
 * Zeros and subnormal values need no escape: code 15 is exponent 0. Padding is +0.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_BF16_12_H
#define NW_FORMATS_BF16_12_H

#include "formats/panel.h"

#define NW_BF16_12_HEAD   64u
#define NW_BF16_12_QUAD   96u
#define NW_BF16_12_ESCAPE 15u         /* the code of exponent 0 */
#define NW_BF16_12_END    0xFFFFFFFFu /* column of a slot not used */
#define NW_BF16_12_FEW    4u          /* room for so many is in the head */

typedef struct {
    uint32_t col;
    uint16_t row;  /* 0..15 */
    uint16_t bits; /* bfloat16 */
} nw_bf16_escape;

typedef struct {
    uint8_t exponents[16];
    uint32_t n_escapes;
    uint8_t zeros[4];
    nw_bf16_escape few[NW_BF16_12_FEW + 1]; /* where type.escapes is NW_BF16_12_FEW; else zeros */
} nw_bf16_12_head;

/* Where the list begins in a panel. */
static inline size_t nw_bf16_12_list_at(nw_panel_type type, uint32_t n_cols)
{
    return type.escapes == NW_BF16_12_FEW
               ? offsetof(nw_bf16_12_head, few)
               : NW_BF16_12_HEAD + (size_t)((n_cols + 3) / 4) * NW_BF16_12_QUAD;
}
/* The list of a panel, type.escapes + 1 slots with at least one at the end that is not used where the
 * panel was written by narrow: who reads a panel from a file stops at *n. *n <= type.escapes. */
const nw_bf16_escape *nw_bf16_12_escapes(nw_panel_type type, const uint8_t *panel, uint32_t n_cols,
                                         uint32_t *n);

/* How often each exponent occurs: add the values of a panel (or of more), then make the table. Exponent 0 is not
 * counted; ties go to the smaller exponent, so that the table depends on the counts alone. */
typedef struct {
    uint64_t n[256];
} nw_exponent_counts;
void nw_exponent_count(nw_exponent_counts *counts, const uint16_t *bits, size_t n);
void nw_bf16_12_table(const nw_exponent_counts *counts, uint8_t exponents[16]);

/* Escapes that so many rows need. */
uint32_t nw_bf16_12_count(const uint8_t exponents[16], const uint16_t *w, size_t ld,
                          uint32_t n_rows, uint32_t n_cols);
/* The type whose panels have room for max_escapes each (NW_BF16_12_FEW at least, and a little more, so that
 * a longer list fills its 64 bytes); false when that is more than 1 in 128 values, where plain bf16 is the better choice. */
NW_MUST_USE bool nw_bf16_12_type(uint32_t max_escapes, uint32_t n_cols, nw_panel_type *out);
/* The most escapes a type of that many columns has room for. */
uint32_t nw_bf16_12_most(uint32_t n_cols);

/* False, with the panel's bytes unspecified, when the rows need more than type.escapes. */
NW_MUST_USE bool nw_panel_pack_bf16_12(nw_panel_type type, const uint8_t exponents[16],
                                       const uint16_t *w, size_t ld, uint32_t n_rows,
                                       uint32_t n_cols, uint8_t *panel);

#endif
