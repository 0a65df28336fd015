/* The open checkpoint, shared by checkpoint.c (opening, look-ups) and checkpoint_edit.c (views that
 * change values on the way), and by nothing else.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_MODEL_CHECKPOINT_PARTS_H
#define NW_MODEL_CHECKPOINT_PARTS_H

#include "model/checkpoint.h"
#include "model/names.h"
#include "model/safetensors.h"
#include "model/sources.h"

struct nw_checkpoint {
    nw_ckpt_kind kind;
    char *path;
    nw_model_config config;
    nw_gguf *gguf;
    nw_safetensors *st;
    nw_file file; /* of a llama2.c checkpoint */
    nw_llama2c llama2c;
    nw_ckpt_tensor *slots; /* GLOBAL_ROLES, then LAYER_ROLES a layer; name == NULL: empty */
    size_t n_slots;
    const nw_ckpt_tensor **list; /* the full slots in the order of the header */
    size_t n_list, n_ignored;
    size_t n_warned; /* ignored, and not expected to be there */
    const char *first_unused;
    nw_names names;    /* HF names of GGUF tensors */
    nw_ckpt_edit edit; /* fn NULL: values are the file's */
};

#endif
