/* What an artifact says of the inputs of its matrices: columns that are kept wide beside INT8 (as in
 * LLM.int8(), arXiv 2208.07339), and scales of activations that do not depend on the token. They stand in
 * inputs.safetensors, which the manifest names by size and hash, and are of inputs of layers:
 *
 *   layers.N.ROLE.panels   U8, bf16 panels [n_rows][n wide]: the wide columns of a matrix
 *   layers.N.READER.wide   F32 [n]: which columns of the input those are, rising
 *   layers.N.READER.scale  F32 [1]: the scale of its INT8 or FP8 codes; NVFP4's divisor of their scales
 *   layers.N.READER.zero   F32 [1]: the zero point of its INT8 codes, a whole number; none: 0
 *
 * and of keys and values (kv_scales.h). READER is the first role that reads the input: q (k, v), o, gate (up), down. Codes of wide columns are
 * 0 in the matrix itself: y = W x + W_wide x[wide].
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_INPUTS_H
#define NW_ARTIFACT_INPUTS_H

#include "artifact/artifact.h"

#define NW_INPUTS_FILE "inputs.safetensors"

typedef struct {
    uint32_t n_wide;
    const uint32_t *wide; /* [n_wide] */
    nw_act_fixed fixed;   /* scale 0: each token has its own */
} nw_artifact_input;

/* The first role that reads what `role` reads; false for roles that are no matrix of a layer. */
NW_MUST_USE bool nw_input_reader(nw_role role, nw_role *reader);

/* Writes dir/inputs.safetensors with what is fixed, [n_layers][NW_ROLE_COUNT] by reader; entries of scale 0
 * are left out. */
NW_MUST_USE nw_status nw_inputs_write_fixed(const char *dir, const nw_act_fixed *fixed,
                                            uint32_t n_layers, nw_digest *hash, uint64_t *n_bytes,
                                            nw_error *err);

/* NULL where nothing is said of the input. */
const nw_artifact_input *nw_artifact_get_input(const nw_artifact *a, nw_role reader, int32_t layer);
/* The wide columns of a matrix, n_cols = n_wide; NULL where it has none. */
const nw_artifact_matrix *nw_artifact_get_wide(const nw_artifact *a, nw_role role, int32_t layer);

#endif
