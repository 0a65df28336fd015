/* What a recipe wants said of the inputs of integer matrices (artifact/inputs.h), from the statistics of
 * the transformed model: the columns whose largest |x| exceeds `outliers`, which stay BF16 beside INT8
 * or INT4, whether the other activations have 8 bits or 16; and under `activation_scale: static` one
 * scale of an input's codes, the largest |x| of the other columns over 127 (a8-ct: 127.5; fp8: 448), or under
 * nvfp4, where it must be static, the divisor of the local scales. All readers of an input must be integers
 * for the one; INT8 by rows, all FP8 or all NVFP4 for the other.
 * Source: T. Dettmers et al., LLM.int8() (arXiv 2208.07339); its columns are found token by token,
 * these beforehand.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_INPUT_PLAN_H
#define NW_QUANT_INPUT_PLAN_H

#include "base/arena.h"
#include "quant/kv_plan.h"
#include "quant/recipe.h"
#include "quant/stats_folder.h"
#include "quant/transform.h"

typedef struct {
    uint32_t n_wide;
    uint32_t *wide; /* rising */
    float scale;    /* 0: of each token */
} nw_planned_input;

typedef struct {
    nw_arena arena;
    uint32_t n_layers;
    nw_planned_input *inputs; /* [n_layers][NW_INPUT_HEAD]; NULL: nothing is planned */
    size_t n_wide;            /* columns of all inputs */
} nw_input_plan;

/* Leaves a zero plan where the recipe asks for nothing. transform may be NULL. */
NW_MUST_USE nw_status nw_input_plan_make(const nw_recipe *r, const nw_checkpoint *c,
                                         const nw_recipe_choice *choices, size_t n,
                                         const nw_stats *stats, const nw_transform *transform,
                                         nw_input_plan *out, nw_error *err);
void nw_input_plan_release(nw_input_plan *p); /* takes a zero object */

/* NULL where nothing is planned for what the matrix reads. */
const nw_planned_input *nw_input_plan_of(const nw_input_plan *p, nw_role role, int32_t layer);

/* Wide columns are 0 in the rows of INT8, and no part of their statistics. */
void nw_input_plan_clear_rows(const nw_planned_input *in, uint32_t n_rows, uint32_t n_cols,
                              float *rows);
void nw_input_plan_clear_stats(const nw_planned_input *in, nw_input_stats *s);

/* Writes dir/inputs.safetensors with the wide columns of every matrix, and what is planned for keys and
 * values. */
NW_MUST_USE nw_status nw_input_plan_write(const nw_input_plan *p, const nw_kv_plan *kv,
                                          const nw_checkpoint *c, const char *dir, nw_digest *hash,
                                          uint64_t *n_bytes, nw_error *err);

#endif
