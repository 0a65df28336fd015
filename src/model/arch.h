/* Architectures as data: one row each, with its names in Hugging Face and GGUF files, its flags, its
 * defaults and its tensors. A new decoder of the same build is a row here and nothing elsewhere.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_MODEL_ARCH_H
#define NW_MODEL_ARCH_H

#include "model/checkpoint.h"

typedef enum { NW_NAMING_HF, NW_NAMING_GGUF, NW_NAMING_COUNT } nw_naming;

/* Names without the layer's prefix ("model.layers.3.", "blk.3."). */
typedef struct {
    nw_role role;
    const char *name[NW_NAMING_COUNT];
} nw_arch_tensor;

/* Which layers see a window only, and what says so in config.json. */
typedef enum {
    NW_WINDOW_NONE,    /* all layers see everything */
    NW_WINDOW_PATTERN, /* all but every n-th layer: sliding_window_pattern or layer_types */
    NW_WINDOW_ALL,     /* all layers, where sliding_window is a number */
    NW_WINDOW_SWITCHED /* layers from max_window_layers on, where use_sliding_window is true */
} nw_window_kind;

typedef struct {
    nw_arch_id id;
    const char *name;        /* for people: "qwen2" */
    const char *gguf_name;   /* general.architecture, and the prefix of its keys; the first row of a
                                  name is what a GGUF file of it is read as */
    const char *model_type;  /* config.json */
    const char *nested_type; /* model_type of a config whose text_config is this; NULL: none */
    const char *hf_class;    /* architectures[0] */
    const char *act_key, *act; /* config.json: activation key and the one value that is supported */
    bool gguf_pairs_qk;        /* GGUF keeps q and k rows as interleaved RoPE pairs */
    float gguf_norm_offset;    /* added to GGUF's norms to give Hugging Face's */
    bool gguf_no_ffn_scales;   /* llama.cpp leaves out NVFP4's tensor scales of gate, up and down */
    bool scale_embed;          /* embeddings times sqrt(d_model) */
    nw_window_kind window;
    nw_model_config defaults; /* flags, and values a config.json may leave out (0: it may not) */
    const nw_arch_tensor *tensors;
    size_t n_tensors;
} nw_arch;

const nw_arch *nw_arch_get(nw_arch_id id);
const nw_arch *nw_arch_at(size_t i); /* NULL past the end */

/* The name of a role's row, without prefix; NULL: the architecture has no such tensor. */
const char *nw_arch_tensor_name(const nw_arch *a, nw_role role, nw_naming naming);
/* The whole name; false when there is no such tensor or buf is too small. */
bool nw_arch_full_name(const nw_arch *a, nw_role role, int32_t layer, nw_naming naming, char *buf,
                       size_t n);
/* Takes a full name apart; layer is -1 where there is none. False: no tensor of the architecture. */
bool nw_arch_match(const nw_arch *a, nw_naming naming, const char *name, nw_role *role,
                   int32_t *layer);

#endif
