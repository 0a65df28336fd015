/* What calibration knows about one input of a layer: the vector that q, k and v read, or o, or gate
 * and up, or down, or the head. Per channel the largest |x|, the mean of |x| and of x^2, and the
 * mean of x x^T (half the Hessian of the squared output error of every matrix that reads it).
 *
 * Sums are taken sample by sample, each sample whole and in F32, and split over threads by channels
 * and by tiles of x x^T, never over tokens: the same bits for any number of threads, and no padding
 * is ever counted.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_INPUT_STATS_H
#define NW_QUANT_INPUT_STATS_H

#include "base/pool.h"
#include "model/checkpoint.h"

typedef enum {
    NW_INPUT_ATTN, /* q, k, v */
    NW_INPUT_O,
    NW_INPUT_FFN, /* gate, up */
    NW_INPUT_DOWN,
    NW_INPUT_HEAD,
    NW_INPUT_COUNT
} nw_input;

const char *nw_input_name(nw_input input); /* "attn_in" "o_in" "ffn_in" "down_in" "head_in" */
/* The input that the matrix of a role reads; false for the embedding (unless `tied`: then the
 * head's) and for norms. */
bool nw_input_of_role(nw_role role, bool tied, nw_input *out);
uint32_t nw_input_cols(const nw_model_config *c, nw_input input);

typedef struct {
    uint32_t n_cols;
    uint64_t n_tokens;
    float *absmax, *mean_abs, *mean_sq; /* [n_cols] */
    float *moments; /* [n_cols][n_cols], mean of x x^T; symmetric once finished */
} nw_input_stats;

/* Zeroed sums of n_cols channels. Everything is freed by release, which takes a zero object. */
NW_MUST_USE nw_status nw_input_stats_init(nw_input_stats *s, uint32_t n_cols, nw_error *err);
void nw_input_stats_release(nw_input_stats *s);

/* Adds x [n_tokens][n_cols]. NW_E_FORMAT where a value is not finite, with its channel and token. */
NW_MUST_USE nw_status nw_input_stats_add(nw_input_stats *s, nw_pool *pool, const float *x,
                                         uint32_t n_tokens, nw_error *err);
/* Sums to means, and the lower triangle from the upper. */
void nw_input_stats_finish(nw_input_stats *s);

/* Holds finished statistics to what they must be: at least one token, finite, nothing negative on
 * the diagonal, and one diagonal in both places. `name` stands in the message. */
NW_MUST_USE nw_status nw_input_stats_check(const nw_input_stats *s, const char *name,
                                           nw_error *err);
/* Channels that were not 0 in some token. */
uint32_t nw_input_stats_live(const nw_input_stats *s);

#endif
