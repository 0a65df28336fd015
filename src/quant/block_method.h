/* Layouts of a recipe that are GGUF's block types: `weights: q4_k`. Codes and scales are chosen by the
 * block's own encoder (formats/encode.h) and moved into the panel that keeps them as they are
 * (formats/repack.h), so that the artifact and the GGUF file made from it hold the same numbers.
 *
 *   q4_0 q4_1 q5_0 q5_1 q8_0    blocks of 32
 *   q4_k q5_k q6_k              blocks of 256; a matrix whose columns are no multiple of 256 gets
 *                               q5_0, q5_1, q8_0 in their place, as llama.cpp has it: that is told,
 *                               and refused with --no-fallback
 *
 * rtn, refit: the scales of least squared error; rtn with `scale: absmax`: the bytes of GGUF's reference
 * encoder (blocks of 32). imatrix: each column weighted by the mean square of its input. The other
 * methods know the types whose panel is an integer grid of its own: q4_0, q4_1 and q8_0.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_BLOCK_METHOD_H
#define NW_QUANT_BLOCK_METHOD_H

#include "formats/format.h"
#include "quant/method.h"

/* False for any other text; *type is the panel. */
NW_MUST_USE bool nw_block_parse(const char *name, nw_format_id *block, nw_panel_type *type);
const char *nw_block_name(nw_format_id block); /* "q4_k" */
/* Whether the block's own encoder does the method, where a matrix has a block type. */
bool nw_block_encodes(nw_method m);
/* Whether the method works on the type, by its encoder or on its panel's grid. */
bool nw_block_knows(nw_format_id block, nw_method m);
/* The type for n_cols columns: itself, or what stands in its place. */
nw_format_id nw_block_for_columns(nw_format_id block, uint32_t n_cols);

/* What the method does, for the manifest. */
const char *nw_block_text(nw_method m, nw_scale_rule rule);

/* As nw_method_pack_panel, for j->block with methods that are not GPTQ's. */
bool nw_block_pack_panel(const nw_method_job *j, const float *rows, uint32_t n_rows, uint8_t *panel,
                         void *scratch, nw_output_error *out, uint32_t *bad_row);
size_t nw_block_scratch_bytes(const nw_method_job *j);

#endif
