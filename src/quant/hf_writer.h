/* Weights of a checkpoint, as it reads (nw_checkpoint_set_edit), into the safetensors of a Hugging Face
 * folder, in BF16 or F32, in one file or in shards with their index.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_HF_WRITER_H
#define NW_QUANT_HF_WRITER_H

#include "artifact/manifest.h"
#include "base/pool.h"
#include "model/checkpoint.h"

typedef struct {
    const nw_checkpoint *ckpt;
    nw_format_id dtype;
    const char *dir;
    uint64_t shard_bytes;
    nw_pool *pool;
    const char *progress; /* what the progress line says; NULL: none */
} nw_hf_job;

/* What writing cost, tensor by tensor: errors against the values to be written. */
typedef void (*nw_hf_tensor_fn)(void *ctx, const nw_ckpt_tensor *t, const nw_tensor_error *e);

NW_MUST_USE nw_status nw_hf_write(const nw_hf_job *job, nw_hf_tensor_fn on_tensor, void *ctx,
                                  size_t *n_shards, nw_error *err);

#endif
