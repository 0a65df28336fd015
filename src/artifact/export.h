/* Writing other people's formats: the table of them, and what a writer is given.
 *
 * A writer gets a source, a native artifact or any checkpoint, and hands on what that stores. A tensor
 * is codes with scales (and zero points or minima), row by row, as they stand; or it is wide values.
 * What the format can hold of a code is carried exactly; what it cannot is told in the loss report.
 * A new format is one row in export.c and one file.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_EXPORT_H
#define NW_ARTIFACT_EXPORT_H

#include "artifact/loss.h"
#include "base/pool.h"
#include "model/tokenizer.h"

/* ---- source ---- */
typedef struct nw_export_source nw_export_source;

typedef struct {
    const char *name; /* HF tensor name */
    nw_role role;
    int32_t layer;           /* -1: not of a layer */
    bool is_vector;          /* one row of F32 values */
    uint32_t n_rows, n_cols; /* a vector: n_rows = 1 */
    nw_panel_type type;      /* what nw_export_codes gives; f32, bf16, bf16-12: values only */
    nw_format_id format;     /* of a checkpoint: as its file has it; F32 in an artifact */
    /* where it lies; for export_source.c */
    const nw_ckpt_tensor *ckpt; /* NULL: of an artifact */
    const uint8_t *data;        /* of an artifact: panels, or F32 values */
} nw_export_tensor;

/* A native artifact's folder, or anything nw_checkpoint_open takes. */
NW_MUST_USE nw_status nw_export_source_open(const char *path, nw_export_source **out,
                                            nw_error *err);
void nw_export_source_close(nw_export_source *s); /* takes NULL */

const char *nw_export_path(const nw_export_source *s);
const nw_model_config *nw_export_config(const nw_export_source *s);
const char *nw_export_note(const nw_export_source *s);   /* "" when there is none */
const char *nw_export_recipe(const nw_export_source *s); /* "checkpoint" where it is one */
nw_act_rule nw_export_act(const nw_export_source *s);    /* what is asked for of activations */
/* Fixed scales of FP8 keys and values, of a source whose sessions keep both so: how many a layer has, 1
 * or one a kv head; 0: none. k and v [that many]. */
uint32_t nw_export_n_kv_scales(const nw_export_source *s);
void nw_export_kv_scales(const nw_export_source *s, uint32_t layer, float *k, float *v);
/* Notes in the loss report what the source says of keys and values and a format cannot; has_place: it has
 * one for fixed scales of FP8. */
NW_MUST_USE nw_status nw_export_note_kv(const nw_export_source *s, bool has_place, nw_loss *loss,
                                        nw_error *err);
/* What an artifact says of keys and values; NULL for a checkpoint. */
const struct nw_artifact_kv *nw_export_kv(const nw_export_source *s);
/* What is fixed of a matrix's input; NULL: nothing. */
const nw_act_fixed *nw_export_fixed(const nw_export_source *s, const nw_export_tensor *t);
/* NULL for an artifact. */
const nw_checkpoint *nw_export_checkpoint(const nw_export_source *s);
/* The manifest of an artifact; NULL for a checkpoint. */
const nw_manifest *nw_export_manifest(const nw_export_source *s);

/* Order: embedding, layers (roles in enum order), out norm, head. */
size_t nw_export_n_tensors(const nw_export_source *s);
const nw_export_tensor *nw_export_at(const nw_export_source *s, size_t i);
/* layer is ignored for roles that have none; NULL: absent (a tied head is absent). */
const nw_export_tensor *nw_export_find(const nw_export_source *s, nw_role role, int32_t layer);

/* ---- what a tensor holds; any number of threads may read ---- */
bool nw_export_has_codes(const nw_export_tensor *t);
/* "int4-g64", or for checkpoints the file's own "Q4_0"; buf gives room. */
const char *nw_export_type_name(const nw_export_tensor *t, char buf[32]);

/* What is stored for one row. Codes, int8: -128..127; int4: 0..15; fp8, nvfp4, mxfp4: the code's bits.
 * Scales, one for what shares one in a row (nw_panel_scales; one for a row where type.group is 0), minima
 * likewise; w = scale * (code - zero) + min. zeros and mins may be NULL: not wanted. */
typedef struct {
    int8_t *codes; /* [n_cols rounded up to nw_panel_cols] */
    float *scales; /* [nw_panel_groups]; nvfp4: without the tensor scale */
    int8_t *zeros; /* likewise; 8 where int4 stores none */
    float *mins;   /* likewise; 0 where none are stored */
} nw_export_row;

/* Bytes that nw_export_codes needs of one caller at a time; 0 for artifacts. */
size_t nw_export_scratch_bytes(const nw_export_tensor *t);
/* Panels in t->type, the row being row *at of them: the artifact's own, or one made in scratch. */
NW_MUST_USE nw_status nw_export_panel(const nw_export_tensor *t, uint32_t row, void *scratch,
                                      const uint8_t **panels, uint32_t *at, nw_error *err);
NW_MUST_USE nw_status nw_export_codes(const nw_export_tensor *t, uint32_t row, void *scratch,
                                      nw_export_row *out, nw_error *err);
/* nvfp4: the scale of the panel that holds the row; 1 for every other type. */
float nw_export_tensor_scale(const nw_export_tensor *t, uint32_t row);
/* Values of a row, out [n_cols], finite: the reference decode, as Hugging Face has them (gemma3's norms
 * are gain - 1). */
NW_MUST_USE nw_status nw_export_values(const nw_export_source *s, const nw_export_tensor *t,
                                       uint32_t row, float *out, nw_error *err);

/* ---- job ---- */
typedef struct {
    const nw_export_source *source;
    const char *dir;      /* exists, empty; becomes the result when all is written */
    bool no_tokenizer;    /* the model has none; otherwise a missing one is an error */
    bool no_fallback;     /* a tensor that the format cannot hold as it is ends the job */
    bool has_dtype;       /* type of wide matrices given: dtype; otherwise as in the source */
    nw_format_id dtype;   /* BF16, F16 or F32 */
    uint64_t shard_bytes; /* of safetensors; 0: one file */
    nw_pool *pool;
    const char *progress; /* what the progress line says; NULL: none */
    nw_loss *loss;        /* gets a row for each tensor */
    uint64_t *n_bytes;    /* gets the bytes of all tensors */
} nw_export_job;

typedef nw_status (*nw_export_fn)(const nw_export_job *job, nw_error *err);

typedef struct {
    const char *name; /* "gguf" */
    nw_export_fn write;
    const char *help; /* what the folder then holds */
    bool bf16_scales; /* its readers round scales of integers to BF16 */
    bool kv_scales;   /* it has a place for those of keys and values */
    bool activations; /* it says how inputs are rounded, fixed scales included */
    bool
        drops_fixed; /* it may be written without an artifact's fixed scales of inputs: decoded values */
} nw_export_format;

const nw_export_format *nw_export_format_at(size_t i); /* NULL past the last */
/* NW_E_USAGE for an unknown name, with the list of what exists; `own` is what the caller writes itself. */
NW_MUST_USE nw_status nw_export_format_find(const char *name, const char *own,
                                            const nw_export_format **out, nw_error *err);

/* The small files of a Hugging Face folder beside config.json, into job->dir: generation config,
 * tokenizer and template, byte for byte where the source has such files. */
NW_MUST_USE nw_status nw_export_hf_files(const nw_export_job *job, nw_error *err);

/* ---- driver ---- */
typedef struct {
    const char *source, *out;
    const nw_export_format *format;
    bool replace, no_tokenizer, no_fallback, has_dtype, show_progress;
    nw_format_id dtype;
    unsigned n_threads; /* 0: nw_cpu_threads */
    uint64_t shard_bytes;
} nw_export_options;

typedef struct {
    char *note; /* "" when there is none */
    uint64_t n_bytes;
    nw_loss loss;
} nw_export_report;

/* Writes the folder, narrow.json included; it appears whole or not at all. *report is set on success;
 * release it. */
NW_MUST_USE nw_status nw_export(const nw_export_options *o, nw_export_report *report,
                                nw_error *err);
void nw_export_report_release(nw_export_report *r);

#endif
