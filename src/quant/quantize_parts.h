/* The inside of the quantize driver, shared by quantize_open.c (what comes before the first weight is
 * written) and quantize.c (the writing), and by nothing else.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_QUANTIZE_PARTS_H
#define NW_QUANT_QUANTIZE_PARTS_H

#include "artifact/writer.h"
#include "base/pool.h"
#include "base/progress.h"
#include "quant/input_cache.h"
#include "quant/kv_plan.h"
#include "quant/quantize.h"
#include "quant/source_digest.h"
#include "quant/transform_plan.h"

typedef struct {
    const nw_quantize_options *options;
    nw_checkpoint *ckpt;
    nw_recipe *recipe;
    nw_transform *transform; /* NULL: none */
    nw_input_plan plan;
    nw_kv_plan kv;
    json_t *channel_scales;    /* what its search found; part of the manifest */
    nw_recipe_choice *choices; /* in writing order: matrices, then vectors */
    size_t n;
    nw_pool *pool;
    nw_artifact_writer *writer;
    nw_source_pages *pages;   /* of ckpt; NULL: all stay */
    nw_source_digest *source; /* the hash of ckpt, made while it is read */
    nw_digest stamp;          /* of ckpt as it was opened */
    bool hash_failed;
    bool source_changed; /* since then: what was made may be of both */
    nw_input_cache inputs;
    json_t *report; /* of the matrices that a method other than rtn made; part of the manifest */
    nw_progress progress;
    size_t n_found; /* tensors that an earlier run had finished */
    uint64_t n_done, n_params;
} nw_quantize_driver;

/* All that can be wrong without reading weights, told together; then the layouts that depend on all
 * values of a tensor, and the writer. */
NW_MUST_USE nw_status nw_quantize_open(nw_quantize_driver *d, nw_error *err);

#endif
