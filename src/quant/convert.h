/* The driver of `narrow convert`: any checkpoint to a Hugging Face folder in BF16 or F32, with a
 * loss report per tensor (zero where the written type holds the source values), and optionally
 * taken off the grid of an earlier quantization (quant/offgrid.h) with a check of the logits.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_CONVERT_H
#define NW_QUANT_CONVERT_H

#include "artifact/manifest.h"

/* Shards above this many bytes of tensors, as the Hugging Face tools do. */
#define NW_CONVERT_SHARD_BYTES UINT64_C(5000000000)

typedef struct {
    const char *source, *out;
    nw_format_id dtype; /* NW_FMT_BF16 or NW_FMT_F32 */
    bool off_grid;
    uint64_t seed; /* of off_grid */
    bool replace, show_progress, check_logits;
    unsigned n_threads;
    uint64_t shard_bytes; /* 0: NW_CONVERT_SHARD_BYTES */
} nw_convert_options;

typedef struct {
    char *note; /* "" when there is none */
    size_t n_tensors, n_exact;
    double worst_sqnr_db, max_abs_err; /* of tensors that are not exact */
    char *worst_name;                  /* NULL when all are exact */
    bool logits_checked;
    double max_kl_f32;                /* nats, source against rescaled weights in F32 */
    double max_kl_bf16, mean_kl_bf16; /* source against what was written */
    uint64_t n_positions;             /* token positions compared */
} nw_convert_report;

NW_MUST_USE nw_status nw_convert(const nw_convert_options *o, nw_convert_report *report,
                                 nw_error *err);
void nw_convert_report_release(nw_convert_report *r);

/* Largest and mean KL(a || b) in nats over the positions of a built-in prompt, both models run by
 * the reference tier in F32. */
NW_MUST_USE nw_status nw_logits_distance(const char *path_a, const char *path_b, double *max_kl,
                                         double *mean_kl, uint64_t *n, nw_error *err);

#endif
