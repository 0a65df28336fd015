/* manifest.json of a native artifact: where the weights came from, which recipe made them, and for
 * each tensor its layout, bytes, hash and the error the quantizer measured. Everything a later
 * stage says about an artifact ("effective bits", "made from 4-bit weights") is read from here.
 *
 * Errors are measured against the values of the source checkpoint, after decoding the stored bytes
 * with the reference decoder: sqnr_db = 10 log10(sum w^2 / sum (w - w')^2), infinite (null in the
 * file) where every value is equal. Bits count what is stored, scales and padding included.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_MANIFEST_H
#define NW_ARTIFACT_MANIFEST_H

#include "base/hash.h"
#include "base/json.h"
#include "formats/panel_rows.h"
#include "model/checkpoint.h"

#define NW_MANIFEST_VERSION 1
#define NW_MANIFEST_KV      64 /* bytes */

/* Sums over the values of a tensor, added up panel by panel in row order, so that they have the
 * same bits for any number of threads. */
typedef struct {
    double sum_sq;      /* sum w^2, w the source value */
    double sum_err_sq;  /* sum (w - w')^2, w' the decoded value */
    double max_abs_err; /* max |w - w'| */
    double sum_out_sq;  /* sum w'^2 */
    uint64_t n_nonzero; /* of w' */
    uint64_t n;         /* values, padding not counted */
} nw_tensor_error;

void nw_tensor_error_add(nw_tensor_error *sum, const nw_tensor_error *part);
/* Compares n source values with n decoded ones and adds the result to *e. */
void nw_tensor_error_measure(nw_tensor_error *e, const float *source, const float *decoded,
                             size_t n);
/* Adds what n values came to. */
void nw_tensor_error_add_rows(nw_tensor_error *e, const nw_row_error *rows, uint64_t n);
double nw_tensor_error_sqnr_db(const nw_tensor_error *e); /* INFINITY where nothing differs */

typedef struct {
    char *name; /* HF tensor name */
    nw_role role;
    int32_t layer;      /* -1: not of a layer */
    bool targeted;      /* a target of the recipe named it */
    bool is_vector;     /* norm gains: F32 values in the file, no panel */
    nw_panel_type type; /* of matrices; F32 for vectors */
    uint32_t n_rows, n_cols;
    uint64_t n_bytes;
    nw_digest sha256; /* of the tensor's bytes */
    double sqnr_db, max_abs_err, nonzero_share;
    double rms; /* of the decoded values: what verify can recompute without the source */
} nw_manifest_tensor;

#define NW_RECIPE_AS_IS "as-is" /* codes of the source as they are */

typedef struct {
    uint32_t version;
    char *tool_version; /* "narrow 0.1.0" */
    char *source_name;  /* last component of the path the weights were read from */
    nw_digest source;   /* sha256 of the source's tensor data files; hex[0] == 0 when unknown */
    char *note;         /* "BF16 made from published 4-bit weights"; "" when there is none */
    char *recipe_name;  /* "int4-g64" */
    char *scale_rule;   /* how scales were chosen, a sentence; "" for exact layouts */
    nw_act_rule act;    /* of the inputs of quantized matrices */
    char kv[NW_MANIFEST_KV]; /* format of keys and values, such as "fp8"; "": nothing is said */
    nw_digest inputs; /* of inputs.safetensors (artifact/inputs.h); hex[0] == 0: there is none */
    uint64_t inputs_bytes; /* its size */
    bool hadamard_down;    /* down reads its input turned by Hadamard blocks (attention.h) */
    double nominal_bits;   /* bits of a code of the targeted matrices */
    double target_bits;    /* bits stored per weight of the targeted matrices */
    double effective_bits; /* bits stored per parameter of the whole model */
    json_t *recipe;        /* the recipe as resolved: targets, ignored, kept; owned */
    nw_manifest_tensor *tensors;
    size_t n_tensors;
    nw_digest hash; /* names the artifact: sha256 of the canonical manifest without this key */
} nw_manifest;

/* A tensor's row of the manifest, and the same back; `path` stands in messages. The caller owns the
 * row, and releases *t with free(t->name). */
json_t *nw_manifest_tensor_json(const nw_manifest_tensor *t);
NW_MUST_USE nw_status nw_manifest_tensor_read(const json_t *row, const char *path,
                                              nw_manifest_tensor *t, nw_error *err);

/* Everything allocated with malloc; all zero is empty and may be released. */
void nw_manifest_release(nw_manifest *m);

/* Sets m->hash from all other fields. */
NW_MUST_USE nw_status nw_manifest_seal(nw_manifest *m, nw_error *err);
/* The text of manifest.json; the caller frees it. NULL when there is no memory. */
char *nw_manifest_text(const nw_manifest *m);
/* Reads a manifest's text; `name` stands in messages. *out is set only on success.
 * Strict: unknown format version, wrong types, absurd numbers and a hash that does not fit are
 * refused, naming the file and the key. */
NW_MUST_USE nw_status nw_manifest_parse(const char *name, const char *text, size_t n,
                                        nw_manifest *out, nw_error *err);
NW_MUST_USE nw_status nw_manifest_load(const char *path, nw_manifest *out, nw_error *err);

#endif
