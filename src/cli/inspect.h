/* What `narrow inspect` knows of a model, taken from a checkpoint or a native artifact before any of
 * it is printed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_CLI_INSPECT_H
#define NW_CLI_INSPECT_H

#include "base/hash.h"
#include "model/checkpoint.h"

typedef struct {
    char *name;   /* HF; owned */
    char *source; /* as the file names it; owned, NULL where equal */
    nw_role role;
    int32_t layer; /* -1: not of a layer */
    char format[32];
    uint32_t n_rows, n_cols;
    uint64_t n_bytes;
} nw_inspect_tensor;

/* Sums over the tensors of one format, in the order of first appearance. */
typedef struct {
    const char *format; /* of the first tensor that has it */
    size_t n_tensors;
    uint64_t n_params, n_bytes;
} nw_inspect_format;

typedef struct {
    const char *path;
    const char *kind; /* "gguf" "hf" "llama2.c" "artifact" */
    nw_model_config config;
    nw_inspect_tensor *tensors;
    size_t n_tensors, n_ignored;
    nw_inspect_format *formats;
    size_t n_formats;
    uint64_t n_params, n_bytes, file_bytes;
    uint32_t n_files;
    nw_digest hash;
    char recipe[64];          /* of an artifact; "" otherwise */
    char note[256];           /* of an artifact; "" otherwise */
    char act[64];             /* how inputs are rounded: "a8, fixed scales of 4 matrices"; "" */
    char kv[64];              /* keys and values: "fp8, one scale a layer"; "" */
    char tokenizer[32];       /* kind; "" when there is none */
    char tokenizer_why[1024]; /* why there is none */
    uint32_t n_tokens;
    bool has_template;
} nw_inspection;

NW_MUST_USE nw_status nw_inspect(const char *path, nw_inspection *out, nw_error *err);
void nw_inspection_release(nw_inspection *m); /* all zero too */

/* Bits stored for each parameter. */
double nw_inspect_bits(uint64_t n_bytes, uint64_t n_params);

/* Text for a terminal; with all_tensors one line a tensor, else one for each role and format. */
void nw_inspect_print(const nw_inspection *m, bool all_tensors);

#endif
