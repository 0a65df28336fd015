/* Weights ready for an engine. A native artifact is a folder
 *
 *     manifest.json          what the weights are (artifact/manifest.h)
 *     config.json            Hugging Face keys; generation_config.json, tokenizer.json,
 *     tokenizer_config.json, chat_template.jinja as Hugging Face lays them out
 *     model.safetensors      matrices as U8 in the 16-row panels of formats/panel.h, vectors as F32;
 *                            data starts at a multiple of 4 KiB, matrices are multiples of 64 bytes
 *
 * and is opened by mapping it: nothing is copied or converted, but for matrices that lie entropy-coded
 * in the file, which are transcoded into memory. Any checkpoint that
 * model/checkpoint.h reads opens too; its matrices are then packed into memory, in the layout that
 * keeps their format's codes and scales (formats/repack.h) or else as F32 panels: exact either way. A
 * non-finite weight is refused by name.
 *
 * Threads: an open artifact is immutable; any number of threads may read it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_ARTIFACT_H
#define NW_ARTIFACT_ARTIFACT_H

#include "artifact/manifest.h"
#include "base/pool.h"

typedef struct nw_artifact nw_artifact;

/* A matrix; `data` is aligned to 64 bytes and lives as long as the artifact. Same fields as the
 * kernels' nw_weight. */
typedef struct {
    const char *name; /* HF tensor name */
    nw_panel_type type;
    const uint8_t *data; /* ceil(n_rows / 16) panels */
    uint32_t n_rows, n_cols;
    size_t n_bytes;
    bool coded; /* its file has codes of 8 bits or fewer, in whatever panels it is held */
} nw_artifact_matrix;

typedef struct {
    uint64_t n_params;     /* values of all tensors; a tied embedding counts once */
    uint64_t weight_bytes; /* bytes of all tensors as held */
    uint64_t file_bytes;   /* size of the weight files on disk */
    double nominal_bits, target_bits, effective_bits; /* see nw_manifest */
    nw_act_rule act;                                  /* what its maker wants of activations */
    bool hadamard_down;                               /* likewise for a turned input of down */
    bool native;                                      /* mapped, not packed at load */
} nw_artifact_facts;

/* On failure *out is NULL. Packing a checkpoint uses the threads of nw_cpu_threads. */
NW_MUST_USE nw_status nw_artifact_open(const char *path, nw_artifact **out, nw_error *err);
void nw_artifact_close(nw_artifact *a); /* takes NULL */
/* For weights that are read again and again, after the first time: mapped files of 64 MiB and more into
 * huge pages, where they are not there already, for about so many seconds; whether more is left. */
bool nw_artifact_to_huge(nw_artifact *a, double seconds, nw_pool *pool);

const char *nw_artifact_path(const nw_artifact *a);
const nw_model_config *nw_artifact_config(const nw_artifact *a);
const char *nw_artifact_hash(const nw_artifact *a);   /* 64 hex digits */
const char *nw_artifact_note(const nw_artifact *a);   /* "" when there is none */
const char *nw_artifact_recipe(const nw_artifact *a); /* name; "checkpoint" when not native */
const nw_artifact_facts *nw_artifact_get_facts(const nw_artifact *a);

/* The matrix of a role; layer -1 for NW_ROLE_EMBED and NW_ROLE_HEAD. NULL when the model has none.
 * A tied head is the embedding: the same pointer. */
const nw_artifact_matrix *nw_artifact_get_matrix(const nw_artifact *a, nw_role role, int32_t layer);

/* Norm gains as the forward pass multiplies by them: where the architecture stores gain - 1
 * (config norm_plus_one) one was added. NULL when the model has none; *n is set when n != NULL. */
const float *nw_artifact_get_vector(const nw_artifact *a, nw_role role, int32_t layer, uint32_t *n);

/* Row `id` of the embedding, decoded: out [d_model]. id < n_vocab. */
void nw_artifact_embed_row(const nw_artifact *a, uint32_t id, float *out);

/* Is this folder a native artifact (has it a manifest.json)? */
bool nw_artifact_is_native(const char *path);

/* Called once a tensor. `problem` is NULL when the tensor is in order, otherwise a sentence. */
typedef void (*nw_verify_fn)(void *ctx, const nw_manifest_tensor *t, const char *problem);

/* Re-opens a native artifact and holds every tensor to the manifest: presence, shape, size, hash,
 * finite scales, non-zero share and rms of the decoded values; with `source` (a checkpoint; may be
 * NULL) also SQNR and largest error, recomputed. All tensors are looked at; the error then counts
 * the faults and names the first tensor. */
NW_MUST_USE nw_status nw_artifact_verify(const char *path, const char *source, nw_verify_fn report,
                                         void *ctx, nw_error *err);

#endif
