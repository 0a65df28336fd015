/* The tensors of each kind of file, in one form, and the files they lie in.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "model/checkpoint_parts.h"

size_t nw_ckpt_n_sources(const nw_checkpoint *c)
{
    switch (c->kind) {
    case NW_CKPT_GGUF:
        return nw_gguf_n_tensors(c->gguf);
    case NW_CKPT_HF:
        return nw_st_n_tensors(c->st);
    case NW_CKPT_LLAMA2C:
        return c->llama2c.n_tensors;
    }
    return 0;
}

static nw_ckpt_source gguf_source(const nw_gguf_tensor *t)
{
    nw_ckpt_source s = {.name = t->name, .format = t->format, .data = t->data, .file = t->file};

    s.n_dims = t->n_dims;
    for (uint32_t d = 0; d < t->n_dims; d++) {
        s.dims[d] = t->ne[t->n_dims - 1 - d];
    }
    return s;
}

static nw_ckpt_source st_source(const nw_st_tensor *t)
{
    nw_ckpt_source s = {.name = t->name, .format = t->format, .data = t->data, .file = t->file};

    s.n_dims = t->n_dims;
    memcpy(s.dims, t->dims, sizeof s.dims);
    return s;
}

static nw_ckpt_source llama2c_source(const nw_llama2c_tensor *t)
{
    nw_ckpt_source s = {.name = t->name, .format = NW_FMT_F32, .data = t->data};

    s.n_dims = t->vector ? 1 : 2;
    s.dims[0] = t->vector ? t->n_cols : t->n_rows;
    s.dims[1] = t->n_cols;
    return s;
}

nw_ckpt_source nw_ckpt_source_at(const nw_checkpoint *c, size_t i)
{
    switch (c->kind) {
    case NW_CKPT_GGUF:
        return gguf_source(nw_gguf_tensor_at(c->gguf, i));
    case NW_CKPT_HF:
        return st_source(nw_st_at(c->st, i));
    case NW_CKPT_LLAMA2C:
        return llama2c_source(&c->llama2c.tensors[i]);
    }
    return (nw_ckpt_source){0};
}

const char *nw_checkpoint_file(const nw_checkpoint *c, uint32_t file)
{
    switch (c->kind) {
    case NW_CKPT_GGUF:
        return nw_gguf_path(c->gguf, file);
    case NW_CKPT_HF:
        return nw_st_path(c->st, file);
    case NW_CKPT_LLAMA2C:
        return file == 0 ? c->path : NULL;
    }
    return NULL;
}

const uint8_t *nw_checkpoint_bytes(const nw_checkpoint *c, uint32_t file)
{
    switch (c->kind) {
    case NW_CKPT_GGUF:
        return nw_gguf_bytes(c->gguf, file);
    case NW_CKPT_HF:
        return nw_st_bytes(c->st, file);
    case NW_CKPT_LLAMA2C:
        return file == 0 ? c->file.data : NULL;
    }
    return NULL;
}

uint32_t nw_checkpoint_n_files(const nw_checkpoint *c)
{
    switch (c->kind) {
    case NW_CKPT_GGUF:
        return nw_gguf_n_files(c->gguf);
    case NW_CKPT_HF:
        return nw_st_n_files(c->st);
    case NW_CKPT_LLAMA2C:
        return 1;
    }
    return 0;
}
