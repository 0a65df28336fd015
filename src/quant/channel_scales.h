/* Channel factors of a place (transform.h) chosen by search, so that its readers lose less when they
 * are quantized. With x the input of the readers W, the input becomes x / s and the columns W s:
 *
 *   awq          s = mean|x|^r, r = 0, .05 .. .95, over sqrt(max s min s); loss: the readers' output
 *                error E |(W' - W) x|^2 = tr((W' - W) H (W' - W)^T), H = E[x x^T], W' what the recipe
 *                makes of W s, times 1 / s
 *   smoothquant  s = absmax(x)^a / absmax(W)^(1 - a), a = .5, .55 .. .95, or 1 throughout; loss: the
 *                same plus what rounding x / s to 8 bits adds, |W s|^2 step^2 / 12 with the step of
 *                the largest |x / s|
 *
 * Losses are taken over at most 128 rows of each reader, spread evenly. A dead channel has s = 1.
 * Sources: J. Lin et al., AWQ (arXiv 2306.00978); G. Xiao et al., SmoothQuant (arXiv 2211.10438).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_CHANNEL_SCALES_H
#define NW_QUANT_CHANNEL_SCALES_H

#include "base/pool.h"
#include "quant/recipe.h"
#include "quant/transform.h"

typedef enum { NW_SEARCH_AWQ, NW_SEARCH_SMOOTH } nw_search_rule;

/* One place of one layer. */
typedef struct {
    const nw_checkpoint *ckpt; /* read through its edit: the place's own factors are still 1 */
    const nw_recipe_choice *readers[3];
    size_t n_readers;
    nw_scales scales;            /* of the recipe */
    const nw_input_stats *stats; /* of the input, finished, of the model as it is read */
    nw_place place;
    nw_search_rule rule;
} nw_search_place;

typedef struct {
    double exponent;      /* r or a; 0 where s is 1 throughout */
    double before, after; /* loss with s = 1, and the least one */
} nw_search_result;

/* s [nw_place_width] of least loss; the first of equal ones, and always finite. */
NW_MUST_USE nw_status nw_search_channel_scales(const nw_search_place *p, nw_pool *pool, double *s,
                                               nw_search_result *out, nw_error *err);

#endif
