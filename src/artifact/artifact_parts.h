/* The open artifact, shared by artifact.c (look-ups), artifact_native.c (mapping a folder) and
 * artifact_pack.c (packing a checkpoint), and, for the packing of one panel, by the exports.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_ARTIFACT_PARTS_H
#define NW_ARTIFACT_ARTIFACT_PARTS_H

#include "artifact/artifact.h"
#include "artifact/inputs.h"
#include "artifact/kv_scales.h"
#include "base/arena.h"
#include "base/pool.h"
#include "model/hf_quant.h"
#include "model/safetensors.h"

/* One place of the model; which of the two is filled depends on the role. */
typedef struct {
    nw_artifact_matrix matrix; /* data == NULL: absent */
    const float *vector;       /* NULL: absent */
    nw_artifact_matrix wide;   /* columns kept wide; data == NULL: none */
    nw_artifact_input input;   /* of the role that reads it first */
    uint32_t n;
} nw_artifact_slot;

struct nw_artifact {
    nw_arena arena;
    char *path;
    nw_model_config config;
    nw_artifact_facts facts;
    nw_digest hash;
    char *note, *recipe;
    nw_artifact_slot *slots; /* [NW_ROLE_COUNT][n_layers + 1], layer -1 first; in the arena */
    nw_safetensors *st;      /* native: what matrices point into */
    nw_safetensors *inputs;  /* NULL: nothing is said of inputs (inputs.h) */
    nw_artifact_kv kv;
    nw_pool *pool; /* while packed tensors are transcoded; NULL else */
};

/* NULL for a layer out of range. */
nw_artifact_slot *nw_artifact_slot_of(const nw_artifact *a, nw_role role, int32_t layer);

NW_MUST_USE nw_status nw_artifact_init_slots(nw_artifact *a, nw_error *err);
NW_MUST_USE nw_status nw_artifact_open_native(nw_artifact *a, nw_error *err);
/* Matrices are placed already. */
NW_MUST_USE nw_status nw_artifact_open_inputs(nw_artifact *a, const char *path, nw_error *err);
/* What inputs.safetensors, and a checkpoint, say of keys and values. */
NW_MUST_USE nw_status nw_artifact_take_kv(nw_artifact *a, size_t *n_found, nw_error *err);
NW_MUST_USE nw_status nw_artifact_take_ckpt_kv(nw_artifact *a, const nw_checkpoint *c,
                                               nw_error *err);
NW_MUST_USE nw_status nw_artifact_open_checkpoint(nw_artifact *a, nw_error *err);

/* Transcodes a matrix that lies entropy-coded in the file (formats/bf16_stored.h) into memory, on all
 * threads. */
NW_MUST_USE nw_status nw_artifact_place_packed(nw_artifact *a, const nw_manifest_tensor *t,
                                               const nw_st_tensor *st, nw_artifact_slot *slot,
                                               nw_error *err);

/* Every tensor the config asks for is there with its shape; names the first that is not. */
NW_MUST_USE nw_status nw_artifact_check_complete(const nw_artifact *a, nw_error *err);

/* Adds 1 where the architecture stores gain - 1; refuses a value that is not finite. */
NW_MUST_USE nw_status nw_artifact_set_vector(nw_artifact *a, const char *name, nw_role role,
                                             int32_t layer, float *gain, uint32_t n, nw_error *err);

/* The layout for a quantized matrix of a Hugging Face folder; false: none holds it. */
NW_MUST_USE bool nw_quant_panel_type(const nw_hfq_matrix *m, nw_panel_type *out);
/* Whether every row can be kept in this layout. Packs them all. */
bool nw_quant_holds(const nw_hfq_matrix *m, nw_panel_type t);
/* Working memory for one caller at a time. */
size_t nw_quant_scratch_bytes(nw_panel_type type, uint32_t n_cols);
/* Writes the panel of rows [row0, row0 + n_rows); false where a scale or code of these rows cannot be
 * kept in this layout. */
NW_MUST_USE bool nw_quant_pack_panel(const nw_hfq_matrix *m, nw_panel_type t, uint32_t row0,
                                     uint32_t n_rows, uint8_t *panel, void *scratch);

#endif
