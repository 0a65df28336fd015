/* The driver of `narrow convert`: any checkpoint to a Hugging Face folder in BF16 or F32, with a
 * loss report (zero where the written type holds the source values), and optionally taken off the
 * grid of an earlier quantization (quant/offgrid.h) with a check of the logits. narrow.json in the
 * folder keeps the source, the note about it (artifact/source_note.h) and these figures.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_CONVERT_H
#define NW_QUANT_CONVERT_H

#include "artifact/manifest.h"

/* Tensors of one file take at most this many bytes (one tensor always fits), as the Hugging Face
 * tools do. */
#define NW_CONVERT_SHARD_BYTES UINT64_C(5000000000)

/* The rescaled model in F32 is the same function up to rounding: more than this, in nats at any
 * position of the check, is a fault of ours and nothing is written. */
#define NW_CONVERT_MAX_KL_F32 1e-6

typedef struct {
    const char *source, *out;
    nw_format_id dtype; /* NW_FMT_BF16 or NW_FMT_F32 */
    bool off_grid;
    uint64_t seed;     /* of off_grid */
    bool no_check;     /* of off_grid: leave out the comparison of logits */
    bool no_tokenizer; /* the model has none */
    bool replace;      /* an earlier result of that name is replaced */
    bool show_progress;
    unsigned n_threads;   /* 0: nw_cpu_threads */
    uint64_t shard_bytes; /* 0: NW_CONVERT_SHARD_BYTES */
} nw_convert_options;

typedef struct {
    char *note; /* "" when there is none */
    size_t n_tensors, n_exact, n_shards;
    uint64_t n_params, n_bytes;        /* of tensors */
    double worst_sqnr_db, max_abs_err; /* of tensors that are not exact; against the values that
                                        * were to be written, that is, after rescaling */
    char *worst_name;                  /* NULL when all are exact */
    json_t *dropped; /* ["rounding of activations (a8)"]: what the source says beside its values */
    bool logits_checked;
    double max_kl_f32;              /* nats, source against rescaled weights in F32 */
    double max_kl_out, mean_kl_out; /* nats, source against what was written */
    size_t n_positions;             /* token positions compared */
} nw_convert_report;

/* *report is set on success; release it. */
NW_MUST_USE nw_status nw_convert(const nw_convert_options *o, nw_convert_report *report,
                                 nw_error *err);
void nw_convert_report_release(nw_convert_report *r);
json_t *nw_convert_report_json(const nw_convert_report *r); /* owned by the caller */

#endif
