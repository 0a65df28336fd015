/* Inside of the checkpoint view: what each kind of file gives it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_MODEL_SOURCES_H
#define NW_MODEL_SOURCES_H

#include "base/file.h"
#include "model/config.h"
#include "model/gguf.h"

/* Keys of arch X under "X.", tensor shapes for the vocabulary, rope_freqs.weight for the scaling. */
NW_MUST_USE nw_status nw_config_from_gguf(const nw_gguf *g, nw_model_config *out, nw_error *err);

/* A llama2.c file (its legacy, version 0 layout). Tensors are told by role: see llama2c.c. */
typedef struct {
    char *name; /* HF name; owned by the nw_llama2c */
    uint32_t n_rows, n_cols;
    bool vector;
    const uint8_t *data;
    size_t n_bytes;
} nw_llama2c_tensor;

typedef struct {
    nw_model_config config;
    nw_llama2c_tensor *tensors;
    size_t n_tensors;
} nw_llama2c;

/* bytes are borrowed; path stands in messages. Release takes a zero object. */
NW_MUST_USE nw_status nw_llama2c_read(const char *path, const uint8_t *bytes, size_t n,
                                      nw_llama2c *out, nw_error *err);
void nw_llama2c_release(nw_llama2c *m);

#endif
