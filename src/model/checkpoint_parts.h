/* The open checkpoint, shared by checkpoint.c (roles, checks), checkpoint_sources.c (the tensors of each
 * kind of file), checkpoint_quant.c (matrices of several tensors), checkpoint_edit.c (views that change
 * values on the way) and checkpoint_read.c, and by nothing else.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_MODEL_CHECKPOINT_PARTS_H
#define NW_MODEL_CHECKPOINT_PARTS_H

#include "model/checkpoint.h"
#include "model/hf_quant.h"
#include "model/names.h"
#include "model/sources.h"

#define NW_CKPT_GLOBAL_ROLES ((size_t)NW_ROLE_ATTN_NORM) /* roles without a layer come first */
#define NW_CKPT_LAYER_ROLES  ((size_t)NW_ROLE_COUNT - NW_CKPT_GLOBAL_ROLES)

struct nw_checkpoint {
    nw_ckpt_kind kind;
    char *path;
    nw_model_config config;
    nw_gguf *gguf;
    nw_safetensors *st;
    nw_file file; /* of a llama2.c checkpoint */
    nw_llama2c llama2c;
    nw_ckpt_tensor
        *slots; /* NW_CKPT_GLOBAL_ROLES, then NW_CKPT_LAYER_ROLES a layer; name == NULL: empty */
    size_t n_slots;
    const nw_ckpt_tensor **list; /* the full slots in the order of the header */
    size_t n_list, n_ignored;
    size_t n_warned; /* ignored, and not expected to be there */
    const char *first_unused;
    nw_names names;    /* HF names of GGUF tensors */
    nw_ckpt_edit edit; /* fn NULL: values are the file's */
    nw_hfq_config quant;
    struct nw_ckpt_kv *kv;   /* [n_layers] scales of keys and values; NULL: none */
    bool kv_all_one;         /* there were some, and all of them 1, which is what nobody measured */
    nw_hfq_matrix *matrices; /* of the slots, [n_slots]; NULL without quantization_config */
};

/* A tensor as its file gives it; dims in C order. */
typedef struct {
    const char *name;
    nw_format_id format;
    uint32_t n_dims;
    uint64_t dims[NW_ST_MAX_DIMS];
    const uint8_t *data;
    uint32_t file;
} nw_ckpt_source;

/* The tensors of a layer's scales; name NULL: absent. */
typedef struct nw_ckpt_kv {
    nw_ckpt_source k, v;
} nw_ckpt_kv;

/* Takes a tensor that is such a scale; *placed says whether it is one. */
NW_MUST_USE nw_status nw_ckpt_place_kv(nw_checkpoint *c, const nw_ckpt_source *s, const char *name,
                                       bool *placed, nw_error *err);
/* All layers have both, in numbers that can be scales; or none has any. */
NW_MUST_USE nw_status nw_ckpt_check_kv(nw_checkpoint *c, nw_error *err);

size_t nw_ckpt_n_sources(const nw_checkpoint *c);
nw_ckpt_source nw_ckpt_source_at(const nw_checkpoint *c, size_t i);

static inline size_t nw_ckpt_slot(nw_role role, int32_t layer)
{
    return role < NW_ROLE_ATTN_NORM ? (size_t)role
                                    : NW_CKPT_GLOBAL_ROLES + (size_t)layer * NW_CKPT_LAYER_ROLES +
                                          ((size_t)role - NW_CKPT_GLOBAL_ROLES);
}

#define NW_CKPT_NAME_BYTES 128

/* Multimodal files of Hugging Face wrap the text model; its tensors are looked up by their plain names:
 * the name itself, or one made in buf. */
const char *nw_ckpt_plain_name(const nw_checkpoint *c, const char *name,
                               char buf[NW_CKPT_NAME_BYTES]);

/* *placed: the tensor, `name` without a wrapper's prefix, is of a quantized matrix and needs nothing
 * more. Sets *placed to false where it is none. */
NW_MUST_USE nw_status nw_ckpt_place_quant(nw_checkpoint *c, const nw_ckpt_source *s,
                                          const char *name, bool *placed, nw_error *err);
/* No scale or zero point is left over; what the file asks for and is not done is logged. */
NW_MUST_USE nw_status nw_ckpt_check_quant(const nw_checkpoint *c, nw_error *err);

#endif
