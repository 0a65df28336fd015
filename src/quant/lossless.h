/* BF16 kept bit for bit, in 12 bits (formats/bf16_12.h) or entropy-coded for the disk (bf16_stored.h):
 * what has to be known of a whole tensor before its first panel can be written.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_LOSSLESS_H
#define NW_QUANT_LOSSLESS_H

#include "base/pool.h"
#include "formats/bf16_stored.h"
#include "model/checkpoint.h"

/* Reads the tensor, panels spread over the pool's threads: the type whose panels have room for the escapes
 * of its values, rounded to BF16. For a packed type, which has one table of exponents for all panels,
 * it reads them twice. Where escapes would need too much, *type becomes plain bf16. */
NW_MUST_USE nw_status nw_lossless_plan(const nw_checkpoint *c, const nw_ckpt_tensor *t,
                                       nw_pool *pool, nw_panel_type *type, nw_error *err);

/* What a packed tensor needs besides: its code, and the bytes of each panel, which stand before the
 * panels in the file. */
typedef struct nw_packed_plan {
    nw_bf16_packed_head head;
    nw_bf16_packer packer;
    nw_bf16_unpacker unpacker;
    uint32_t *sizes; /* [n_panels] */
    uint64_t n_bytes;
    size_t bound; /* bytes of a panel at most */
} nw_packed_plan;

/* After a plan, which gave the type in memory: reads the tensor twice more. The caller
 * frees the plan. */
NW_MUST_USE nw_status nw_lossless_plan_packed(const nw_checkpoint *c, const nw_ckpt_tensor *t,
                                              nw_pool *pool, nw_panel_type type,
                                              nw_packed_plan **out, nw_error *err);
void nw_packed_plan_free(nw_packed_plan *p); /* takes NULL */

/* Panel i of a packed tensor, and at *panel what it is transcoded to again, in `scratch`
 * (nw_packed_scratch_bytes). False when the rows are not those that were planned. */
NW_MUST_USE bool nw_lossless_pack_stored(const nw_packed_plan *p, uint32_t i, const float *rows,
                                         uint32_t n_rows, uint32_t n_cols, void *scratch,
                                         uint8_t *out, const uint8_t **panel);
size_t nw_packed_scratch_bytes(const nw_packed_plan *p, uint32_t n_cols);

/* One panel of a tensor that was planned, from n_rows <= 16 rows of float32 values; `half` is working
 * memory of n_rows * n_cols. False when the rows are not those that were planned. */
NW_MUST_USE bool nw_lossless_pack_panel(nw_panel_type type, const float *rows, uint32_t n_rows,
                                        uint32_t n_cols, uint16_t *half, uint8_t *panel);

#endif
