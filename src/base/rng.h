/* Seeded random numbers: xoshiro256++ seeded through splitmix64 (Blackman and Vigna, ACM TOMS 47
 * (2021) 36). Same seed, same stream on every machine. Not for secrets.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_RNG_H
#define NW_BASE_RNG_H

#include <stdint.h>

typedef struct {
    uint64_t s[4];
} nw_rng;

nw_rng nw_rng_seed(uint64_t seed);
/* An independent stream for (seed, key): item k of a suite, tensor k of a model. */
nw_rng nw_rng_stream(uint64_t seed, uint64_t key);
uint64_t nw_rng_u64(nw_rng *r);
uint64_t nw_rng_below(nw_rng *r, uint64_t n); /* uniform in [0, n), unbiased; n > 0 */
double nw_rng_unit(nw_rng *r);                /* uniform in [0, 1), 53 bits */
double nw_rng_normal(nw_rng *r);              /* mean 0, variance 1 (polar method) */
double nw_rng_exponential(nw_rng *r);         /* mean 1 */

#endif
