/* Inside of the GGUF reader: one file of a set, parsed and checked. See gguf.h for the layout.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_MODEL_GGUF_SHARD_H
#define NW_MODEL_GGUF_SHARD_H

#include "base/file.h"
#include "model/gguf.h"
#include "model/names.h"

typedef struct {
    nw_file file;     /* all zero when the bytes are borrowed */
    const char *path; /* for messages: file.path or the caller's name */
    const uint8_t *data;
    size_t size;
    uint32_t version;
    nw_names keys;
    nw_gguf_kv *kvs;
    size_t n_kv;
    nw_names tensor_names;
    nw_gguf_tensor *tensors;
    size_t n_tensors;
} nw_gguf_shard;

/* path, data and size are set; the rest is zero. */
NW_MUST_USE nw_status nw_gguf_shard_parse(nw_gguf_shard *s, nw_error *err);
void nw_gguf_shard_release(nw_gguf_shard *s);
const nw_gguf_kv *nw_gguf_shard_find(const nw_gguf_shard *s, const char *key);

static inline uint32_t nw_gguf_le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t nw_gguf_le64(const uint8_t *p)
{
    return nw_gguf_le32(p) | (uint64_t)nw_gguf_le32(p + 4) << 32;
}

#endif
