/* What each group of matrices costs in each layout, measured: the model runs with that group alone
 * quantized, everything else as it is, and its next-token distributions are held to those of the whole
 * model by KL divergence, over samples of a text or a log.
 *
 * The quantized groups are those of artifacts that `narrow quantize` would write, one a layout, so that
 * what is measured is the bytes that a mix of layouts will hold. A folder keeps everything:
 *
 *   <layout>-<hash>/     the artifact (its unfinished form, when the run was killed)
 *   sensitivity.jsonl    {"format": "narrow-sensitivity", "version": 1, "of": {"model", "data", "sampling", "tool"}},
 *                        then a line each for what was measured: {"group", "type", "artifact", "kl",
 *                        "kl_se", "bytes"}
 *
 * A run that was killed or stopped goes on where it ended; lines of another model or other samples
 * are refused.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_SENSITIVITY_H
#define NW_QUANT_SENSITIVITY_H

#include "base/hash.h"
#include "quant/calib_sample.h"
#include "quant/group.h"
#include "quant/method.h"

#define NW_SENSITIVITY_TYPES 16

typedef struct {
    const char *model; /* checkpoint */
    const char *work;  /* folder to be made or gone on with */
    nw_sample_options sample;
    nw_panel_type types[NW_SENSITIVITY_TYPES];
    size_t n_types;
    nw_method method;
    const char *calibration; /* statistics, for methods that need them */
    bool per_tensor;         /* each matrix by itself; else groups that engines fuse */
    bool replace;            /* lines of something else are thrown away */
    unsigned n_threads;
    bool show_progress;
} nw_sensitivity_options;

/* One cell of groups x layouts. */
typedef struct {
    double kl; /* mean over the scored tokens, nats; NaN where the layout does not fit the group */
    double kl_se; /* its standard error over samples */
    uint64_t bytes;
} nw_sensitivity_cell;

typedef struct {
    nw_group *groups;
    size_t n_groups, n_types;
    nw_panel_type types[NW_SENSITIVITY_TYPES];
    nw_method method, embed_method; /* of the layers' matrices; of the embedding */
    nw_sensitivity_cell *cells;     /* [n_groups][n_types] */
    uint64_t other_bytes;           /* of the file: norms and header */
    uint64_t n_params, n_tokens;    /* of the model; scored */
    nw_digest hash;                 /* of the lines */
} nw_sensitivity;

NW_MUST_USE nw_status nw_sensitivity_measure(const nw_sensitivity_options *o, nw_sensitivity *out,
                                             nw_error *err);
void nw_sensitivity_release(nw_sensitivity *s); /* takes a zero object */

#endif
