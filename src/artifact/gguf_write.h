/* A model as one GGUF file, model.gguf, which llama.cpp loads unchanged.
 *
 * Codes are carried exactly, in the narrowest block type that holds them (formats/unpack_blocks.h); of a
 * GGUF source every block, and every key, goes over byte for byte. A matrix that no block type holds
 * (fp8, columns that are no multiple of the block, int8 with minima of more than 32 levels) becomes
 * BF16: that is said, and an error with job->no_fallback. Rows of q and k are written in the order of
 * interleaved RoPE pairs where the architecture's GGUF has them so, norms with the 1 that it adds.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_GGUF_WRITE_H
#define NW_ARTIFACT_GGUF_WRITE_H

#include "artifact/export.h"

NW_MUST_USE nw_status nw_gguf_export(const nw_export_job *job, nw_error *err);

#endif
