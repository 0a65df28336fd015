/* BF16 tensors on disk, bit for bit in some 10.6 bits a weight: exponents through a prefix code
 * (exponent_code.h), signs and mantissas as they are; in the order of the 12-bit panels
 * (bf16_12.h), so that loading makes those with one pass over the bytes.
 *
 * A tensor is a head (nw_bf16_packed_head), then its panels of 16 rows one after the other, each:
 *   u32 sizes[4]           bytes of the four streams
 *   the streams            exponents, in the order of the 12-bit panel: quad by quad, index w = 0..63
 *   sm[64] per quad        sign << 7 | mantissa, the same order
 * Padding is +0. Numbers are little endian.
 *
 * A panel decodes alone: panels may be spread over threads, given where each begins.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_BF16_PACKED_H
#define NW_FORMATS_BF16_PACKED_H

#include "formats/bf16_12.h"
#include "formats/exponent_code.h"

typedef struct {
    uint8_t exponents[16]; /* of the 12-bit panels */
    uint8_t lengths[128];  /* of the codes: two to a byte, the even exponent in the low nibble */
    uint32_t escapes;      /* room that the 12-bit panels need, type.escapes; NW_BF16_12_END: they
                            * would need too much, and the tensor becomes bf16 */
    uint8_t zeros[12];
} nw_bf16_packed_head;

/* From the counts of a tensor's exponents (of its values alone: padding is seen to here). */
void nw_bf16_packed_head_make(const nw_exponent_counts *counts, uint32_t escapes,
                              nw_bf16_packed_head *out);

/* Most bytes of a packed panel; false on overflow. */
NW_MUST_USE bool nw_bf16_packed_bound(uint32_t n_cols, size_t *out);
/* Working memory of packing or unpacking a panel. */
size_t nw_bf16_packed_scratch(uint32_t n_cols);

typedef struct {
    nw_code_writer code;
} nw_bf16_packer;
void nw_bf16_packer_init(nw_bf16_packer *p, const nw_bf16_packed_head *head);
/* Writes one panel from n_rows <= 16 rows of n_cols values, row r at w + r * ld; returns its bytes. */
size_t nw_bf16_pack(const nw_bf16_packer *p, const uint16_t *w, size_t ld, uint32_t n_rows,
                    uint32_t n_cols, uint8_t *out, void *scratch);

typedef struct {
    nw_code_reader code;
    uint8_t exponents[16];
    uint8_t exponent_of[256]; /* by symbol: 0..15 as in the 12-bit panels, then the others */
    nw_panel_type type;
} nw_bf16_unpacker;

/* False when the head is no head. */
NW_MUST_USE bool nw_bf16_unpacker_init(nw_bf16_unpacker *u, const nw_bf16_packed_head *head);
/* What panels become: bf16-12 with room for their escapes, or bf16. */
nw_panel_type nw_bf16_unpacked_type(const nw_bf16_unpacker *u);
/* One panel of n_bytes to one of nw_bf16_unpacked_type, written whole. False when the bytes are not
 * just a panel of so many columns. */
NW_MUST_USE bool nw_bf16_unpack(const nw_bf16_unpacker *u, const uint8_t *in, size_t n_bytes,
                                uint32_t n_cols, uint8_t *panel, void *scratch);

#endif
