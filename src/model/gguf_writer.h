/* GGUF, the writing half (version 3, one file): keys first, in the order they are put, then tensors,
 * declared together and streamed one after the other. What llama.cpp's reader insists on holds by
 * construction: u32 and f32 where it wants those, offsets that are the running sum of the padded
 * sizes, padding after the last tensor too. The same calls give the same bytes.
 *
 *   open, put..., declare, write..., commit; close
 *
 * Keys and tensor names are told apart from those put before: a second one is refused.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_MODEL_GGUF_WRITER_H
#define NW_MODEL_GGUF_WRITER_H

#include "model/config.h"
#include "model/gguf.h"
#include "model/tokenizer.h"

typedef struct nw_gguf_writer nw_gguf_writer;

/* Nothing stands under `path` before commit. */
NW_MUST_USE nw_status nw_gguf_writer_open(const char *path, nw_gguf_writer **out, nw_error *err);
void nw_gguf_writer_close(
    nw_gguf_writer *w); /* takes NULL; without commit removes what was written */

/* ---- keys; a failure (memory, a key twice) is kept and told by declare ---- */
void nw_gguf_put_u32(nw_gguf_writer *w, const char *key, uint32_t v);
void nw_gguf_put_f32(nw_gguf_writer *w, const char *key, float v);
void nw_gguf_put_bool(nw_gguf_writer *w, const char *key, bool v);
void nw_gguf_put_str(nw_gguf_writer *w, const char *key, const char *s, size_t n);
/* n items of four bytes: NW_GGUF_I32, NW_GGUF_U32 or NW_GGUF_F32. */
void nw_gguf_put_words(nw_gguf_writer *w, const char *key, nw_gguf_type elem, const void *items,
                       size_t n);
/* n strings follow, each by nw_gguf_put_item, before the next key. */
void nw_gguf_put_strings(nw_gguf_writer *w, const char *key, size_t n);
void nw_gguf_put_item(nw_gguf_writer *w, const char *s, size_t n);
/* A key as another file has it, byte for byte. */
void nw_gguf_put_copy(nw_gguf_writer *w, const nw_gguf_kv *kv);

/* Keys of the architecture, and of a tokenizer for an embedding of n_vocab rows: tokens beyond the
 * tokenizer's are unused ones. NW_E_UNSUPPORTED for what GGUF has no key for. */
NW_MUST_USE nw_status nw_gguf_put_config(nw_gguf_writer *w, const nw_model_config *c,
                                         nw_error *err);
NW_MUST_USE nw_status nw_gguf_put_tokenizer(nw_gguf_writer *w, const nw_tokenizer *t,
                                            uint32_t n_vocab, nw_error *err);
/* What Llama-3 scaling divides frequency i of d_head / 2 by: the values of rope_freqs.weight. */
float nw_gguf_rope_freq(const nw_model_config *c, uint32_t i);

/* ---- tensors ---- */
typedef struct {
    const char *name;    /* at most 63 bytes */
    nw_format_id format; /* one that has a ggml type */
    uint32_t n_dims;     /* 1 or 2 */
    uint64_t ne[2];      /* ne[0] = columns */
} nw_gguf_decl;

/* Once, after all keys. */
NW_MUST_USE nw_status nw_gguf_writer_declare(nw_gguf_writer *w, const nw_gguf_decl *tensors,
                                             size_t n, nw_error *err);
/* The next bytes of the tensor whose turn it is, no more than what is left of it. */
NW_MUST_USE nw_status nw_gguf_writer_write(nw_gguf_writer *w, const void *bytes, size_t n,
                                           nw_error *err);
/* Refuses while declared bytes are missing; then fsync and rename. */
NW_MUST_USE nw_status nw_gguf_writer_commit(nw_gguf_writer *w, nw_error *err);
uint64_t nw_gguf_writer_bytes(
    const nw_gguf_writer *w); /* of tensors as declared, without padding */

#endif
