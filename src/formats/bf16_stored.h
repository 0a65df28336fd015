/* A whole BF16 tensor as it lies in a file: the packed panels of bf16_packed.h with what is needed to
 * find each of them.
 *
 *   nw_bf16_packed_head (160 bytes)
 *   u32 sizes[n_panels]        bytes of each packed panel
 *   the panels, one behind the other, then zeros up to a multiple of 64 bytes
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_BF16_STORED_H
#define NW_FORMATS_BF16_STORED_H

#include "formats/bf16_packed.h"

/* Bytes before the panels, and of the whole tensor with panels of these sizes; false on overflow. */
NW_MUST_USE bool nw_bf16_stored_prefix(uint32_t n_rows, size_t *out);
NW_MUST_USE bool nw_bf16_stored_bytes(const uint32_t *sizes, uint32_t n_rows, uint64_t *out);
/* The least bytes that a tensor of this shape can have: what a file must hold before anything is
 * allocated for it. */
NW_MUST_USE bool nw_bf16_stored_least(uint32_t n_rows, uint32_t n_cols, uint64_t *out);

/* An opened tensor: views into its bytes, which outlive it. Panels decode alone, on any thread. */
typedef struct {
    nw_bf16_unpacker unpacker;
    nw_panel_type type; /* in memory */
    const uint8_t *bytes;
    uint64_t *at; /* [n_panels + 1] where panels begin */
    uint32_t n_panels, n_cols;
} nw_bf16_stored;

/* False unless head and sizes fit the bytes [n] and this shape. Nothing of the panels is read. */
NW_MUST_USE bool nw_bf16_stored_open(nw_bf16_stored *s, const uint8_t *bytes, size_t n,
                                     uint32_t n_rows, uint32_t n_cols);
void nw_bf16_stored_close(nw_bf16_stored *s); /* takes a zero object */
/* Panel i as one of s->type, written whole; scratch: nw_bf16_packed_scratch(n_cols). False where its bytes
 * are not just such a panel. */
NW_MUST_USE bool nw_bf16_stored_panel(const nw_bf16_stored *s, uint32_t i, uint8_t *panel,
                                      void *scratch);

#endif
