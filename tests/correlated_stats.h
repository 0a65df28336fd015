/* Statistics of inputs whose channels lean on one another and differ in size, as those of a layer do.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_CORRELATED_STATS_H
#define NW_TESTS_CORRELATED_STATS_H

#include "base/rng.h"
#include "quant/input_stats.h"
#include "table.h"

/* Each channel is `lean` of the one before it and noise, times size(channel); channel `dead` (or -1: none)
 * is always 0. */
static inline nw_input_stats correlated_stats(uint64_t seed, uint32_t n_cols, uint32_t n_tokens,
                                              double lean, double (*size)(uint32_t), int dead)
{
    nw_rng rng = nw_rng_seed(seed);
    nw_error err = {0};
    nw_input_stats s = {0};
    float *x = calloc(n_tokens, n_cols * sizeof *x);

    assert_non_null(x);
    for (size_t t = 0; t < n_tokens; t++) {
        double before = 0;
        for (uint32_t c = 0; c < n_cols; c++) {
            before = lean * before + nw_rng_normal(&rng);
            x[t * n_cols + c] = (int)c == dead ? 0 : (float)(before * size(c));
        }
    }
    assert_int_equal(nw_input_stats_init(&s, n_cols, &err), NW_OK);
    assert_int_equal(nw_input_stats_add(&s, NULL, x, n_tokens, &err), NW_OK);
    nw_input_stats_finish(&s);
    free(x);
    return s;
}

#endif
