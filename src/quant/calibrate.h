/* The driver of `narrow calibrate`: draws samples (calib_sample.h), walks the model layer by layer
 * over all of them and writes what each matrix reads (input_stats.h) into a folder
 * (stats_folder.h). Memory: the weights as the engine holds them (a native artifact is mapped), the
 * statistics of one layer, one sample. The residual stream of all samples is in a file beside the
 * result, 4 bytes x tokens x d_model, which goes when the result is whole.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_CALIBRATE_H
#define NW_QUANT_CALIBRATE_H

#include "quant/calib_sample.h"

typedef struct {
    const char *model; /* checkpoint or native artifact */
    const char *out;   /* folder to be made */
    nw_sample_options sample;
    bool replace;       /* an earlier result of that name is replaced */
    unsigned n_threads; /* 0: nw_cpu_threads; the bytes do not depend on it */
    bool show_progress;
} nw_calibrate_options;

/* *manifest (may be NULL) gets the manifest of the result; the caller owns it. */
NW_MUST_USE nw_status nw_calibrate(const nw_calibrate_options *o, json_t **manifest, nw_error *err);

#endif
