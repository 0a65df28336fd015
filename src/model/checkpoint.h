/* One view of every kind of checkpoint narrow reads: GGUF, an HF folder of safetensors, a llama2.c
 * file. Tensors carry their HF names and are given in HF's row order and HF's conventions, however
 * the file keeps them: the q/k row order that GGUF (arch llama) and llama2.c use for interleaved
 * RoPE is undone, and gemma's norms come without the 1 that GGUF adds to them.
 *
 * Open checks that every tensor the architecture needs is there, has the shape the config asks for
 * and lies inside its file; values are not looked at (NaN and infinity pass: who uses them checks).
 * Threads: an open checkpoint is immutable; reads may run side by side.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_MODEL_CHECKPOINT_H
#define NW_MODEL_CHECKPOINT_H

#include "base/hash.h"
#include "formats/act_rule.h"
#include "formats/format.h"
#include "model/config.h"

typedef enum {
    NW_ROLE_EMBED,
    NW_ROLE_HEAD, /* absent when tied */
    NW_ROLE_OUT_NORM,
    NW_ROLE_ATTN_NORM, /* from here on: one a layer */
    NW_ROLE_Q,
    NW_ROLE_K,
    NW_ROLE_V,
    NW_ROLE_O,
    NW_ROLE_Q_BIAS, /* qwen2: added to the products of q, k and v */
    NW_ROLE_K_BIAS,
    NW_ROLE_V_BIAS,
    NW_ROLE_Q_NORM,
    NW_ROLE_K_NORM,
    NW_ROLE_POST_ATTN_NORM, /* gemma: after attention, before the residual add */
    NW_ROLE_FFN_NORM,       /* before the FFN: llama's post_attention_layernorm */
    NW_ROLE_GATE,
    NW_ROLE_UP,
    NW_ROLE_DOWN,
    NW_ROLE_POST_FFN_NORM,
    NW_ROLE_COUNT
} nw_role;

const char *nw_role_name(nw_role role); /* "q", "ffn_norm" */
bool nw_role_is_norm(nw_role role);
bool nw_role_is_vector(nw_role role); /* a norm or a bias: one row, never quantized */
/* Shape the config asks of a role; vectors are one row. */
void nw_role_shape(const nw_model_config *c, nw_role role, uint32_t *n_rows, uint32_t *n_cols);
/* HF name into buf; false when the architecture has no such tensor (the head when tied, gemma's
 * extra norms and qwen2's biases in llama). */
bool nw_role_hf_name(const nw_model_config *c, nw_role role, int32_t layer, char *buf, size_t n);

typedef enum { NW_CKPT_GGUF, NW_CKPT_HF, NW_CKPT_LLAMA2C } nw_ckpt_kind;

typedef struct {
    const char *name;   /* HF: model.layers.0.self_attn.q_proj.weight */
    const char *source; /* as the file names it; equal to name in an HF folder */
    nw_role role;
    int32_t layer; /* -1: not of a layer */
    nw_format_id format;
    uint32_t n_rows, n_cols; /* a vector: n_rows = 1 */
    size_t row_bytes;        /* 0 of a quantized matrix */
    uint64_t n_bytes;        /* in the file, all parts of a quantized matrix */
    const uint8_t *data;     /* first row in the file's order */
    uint32_t file;
    uint32_t
        pair_half; /* > 0: rows are interleaved RoPE pairs within heads of 2 * pair_half rows */
    float offset;  /* added to each decoded value: -1 for gemma norms in GGUF */
    float scale;   /* each decoded value is multiplied by it; 1, but for NVFP4 in GGUF */
    const struct nw_hfq_matrix *quant; /* codes, scales and zero points in tensors of their own
                                        * (hf_quant.h); NULL: rows of blocks in `format` */
} nw_ckpt_tensor;

/* "Q4_K", "BF16", "ct-int4-g64": as reports name it; returns buf. */
const char *nw_ckpt_format_name(const nw_ckpt_tensor *t, char buf[32]);

typedef struct nw_checkpoint nw_checkpoint;

/* Changes rows [row0, row0 + n_rows) of t in place, rows [n_rows][t->n_cols]; called by several
 * threads at a time. */
typedef struct {
    nw_status (*fn)(void *ctx, const nw_ckpt_tensor *t, uint32_t row0, uint32_t n_rows, float *rows,
                    nw_error *err);
    void *ctx;
} nw_ckpt_edit;

/* path: a .gguf file (any shard), a .safetensors file or its folder, a llama2.c .bin. */
NW_MUST_USE nw_status nw_checkpoint_open(const char *path, nw_checkpoint **out, nw_error *err);
void nw_checkpoint_close(nw_checkpoint *c);

/* Files that hold tensors, in shard order. */
uint32_t nw_checkpoint_n_files(const nw_checkpoint *c);
const char *nw_checkpoint_file(const nw_checkpoint *c, uint32_t file);     /* NULL past the last */
const uint8_t *nw_checkpoint_bytes(const nw_checkpoint *c, uint32_t file); /* its mapping */

nw_ckpt_kind nw_checkpoint_kind(const nw_checkpoint *c);
const char *nw_ckpt_kind_name(nw_ckpt_kind kind); /* "gguf", "hf", "llama2.c" */
const char *nw_checkpoint_path(const nw_checkpoint *c);
/* The open file of a GGUF checkpoint, for its keys; NULL for the other kinds. */
const struct nw_gguf *nw_checkpoint_gguf(const nw_checkpoint *c);
const nw_model_config *nw_checkpoint_config(const nw_checkpoint *c);
size_t nw_checkpoint_n_tensors(const nw_checkpoint *c);
/* Order: embedding, layers (roles in enum order), out norm, head. */
const nw_ckpt_tensor *nw_checkpoint_at(const nw_checkpoint *c, size_t i);
/* layer is ignored for roles that have none; NULL: absent. */
const nw_ckpt_tensor *nw_checkpoint_find(const nw_checkpoint *c, nw_role role, int32_t layer);
size_t nw_checkpoint_n_ignored(const nw_checkpoint *c); /* tensors of the file left out */
/* How the file wants the inputs of its quantized matrices rounded; a16 where it says nothing. */
nw_act_rule nw_checkpoint_act(const nw_checkpoint *c);
/* Fixed scales of keys and values of FP8, where the file has them (kv_cache_scheme): how many a layer
 * has, 1 or one a kv head; 0: none. k and v [that many]. */
uint32_t nw_checkpoint_n_kv_scales(const nw_checkpoint *c);
/* Whether the file asks for FP8 with fixed scales, be they there or not. */
bool nw_checkpoint_kv_scheme(const nw_checkpoint *c);
void nw_checkpoint_kv_scales(const nw_checkpoint *c, uint32_t layer, float *k, float *v);

/* Rows [row0, row0 + n_rows) as float32, exact, in HF row order and convention, into
 * dst [n_rows][t->n_cols]. NW_E_UNSUPPORTED names tensor and format when it cannot be decoded;
 * NW_E_RANGE for rows outside the tensor. */
NW_MUST_USE nw_status nw_checkpoint_read_f32(const nw_checkpoint *c, const nw_ckpt_tensor *t,
                                             uint32_t row0, uint32_t n_rows, float *dst,
                                             nw_error *err);
/* The bytes of one row (HF order) in t->format: t->row_bytes of them, unaligned; values are t->scale
 * times what they decode to. NULL when stored values are not HF's (offset != 0), and of a quantized
 * matrix. */
const uint8_t *nw_checkpoint_row(const nw_ckpt_tensor *t, uint32_t row);
/* Rows copied one after the other, t->row_bytes each. NW_E_UNSUPPORTED when offset != 0 or
 * scale != 1, and of a quantized matrix. */
NW_MUST_USE nw_status nw_checkpoint_read_raw(const nw_checkpoint *c, const nw_ckpt_tensor *t,
                                             uint32_t row0, uint32_t n_rows, uint8_t *dst,
                                             nw_error *err);

/* From here on nw_checkpoint_read_f32 passes what it read through `edit`, and the raw readers have no
 * meaning. Not while others read. nw_checkpoint_read_plain_f32 still gives the file's values. */
void nw_checkpoint_set_edit(nw_checkpoint *c, nw_ckpt_edit edit);
const nw_ckpt_edit *nw_checkpoint_edit(const nw_checkpoint *c);
NW_MUST_USE nw_status nw_checkpoint_read_plain_f32(const nw_checkpoint *c, const nw_ckpt_tensor *t,
                                                   uint32_t row0, uint32_t n_rows, float *dst,
                                                   nw_error *err);
/* Gives a tied model a head of its own, the last tensor, with the embedding's values: for edits that
 * treat the two differently. */
void nw_checkpoint_untie(nw_checkpoint *c);

/* SHA-256 of the files that hold tensors: of the file itself when it is one (what sha256sum
 * prints), else of the lines "<hex>  <file name>\n" in shard order. Reads every byte. */
NW_MUST_USE nw_status nw_checkpoint_digest(const nw_checkpoint *c, nw_digest *out, nw_error *err);
/* The same from the hashes of the files, in shard order. */
NW_MUST_USE nw_status nw_checkpoint_digest_join(const nw_checkpoint *c, const nw_digest *files,
                                                nw_digest *out, nw_error *err);
/* SHA-256 of names, sizes and times of those files: what tells at once that they are others. */
NW_MUST_USE nw_status nw_checkpoint_stamp(const nw_checkpoint *c, nw_digest *out, nw_error *err);

/* Rows that will be read soon: the system begins to fetch them, and nobody waits. */
void nw_checkpoint_ahead(const nw_ckpt_tensor *t, uint32_t row0, uint32_t n_rows);

#endif
