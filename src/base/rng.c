/* xoshiro256++ 1.0 seeded by splitmix64, both by D. Blackman and S. Vigna (ACM TOMS 47 (2021) 36;
 * the published constants). Tested against the values of the authors' reference.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"

#include <assert.h>
#include <math.h>

static uint64_t splitmix(uint64_t *x)
{
    *x += 0x9e3779b97f4a7c15U;
    uint64_t z = *x;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

static uint64_t rotl(uint64_t x, unsigned k)
{
    return (x << k) | (x >> (64 - k));
}

nw_rng nw_rng_seed(uint64_t seed)
{
    nw_rng r;
    for (int i = 0; i < 4; i++) {
        r.s[i] = splitmix(&seed);
    }
    return r;
}

/* Hashing the seed before the key is added keeps (1, 2) and (2, 1) apart, and hashing the sum keeps
 * neighbouring keys from sharing parts of their states. */
nw_rng nw_rng_stream(uint64_t seed, uint64_t key)
{
    uint64_t mixed = splitmix(&seed) + key;
    return nw_rng_seed(splitmix(&mixed));
}

uint64_t nw_rng_u64(nw_rng *r)
{
    uint64_t *s = r->s;
    const uint64_t result = rotl(s[0] + s[3], 23) + s[0];
    const uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

/* Draws below 2^64 mod n are thrown away: what is left is a whole number of ranges of n. */
uint64_t nw_rng_below(nw_rng *r, uint64_t n)
{
    assert(n > 0);
    const uint64_t reject = (0 - n) % n;
    uint64_t x = nw_rng_u64(r);

    while (x < reject) {
        x = nw_rng_u64(r);
    }
    return x % n;
}

double nw_rng_unit(nw_rng *r)
{
    return (double)(nw_rng_u64(r) >> 11) * 0x1p-53;
}

/* Marsaglia's polar method; the second value is dropped so that a stream has no hidden state. */
double nw_rng_normal(nw_rng *r)
{
    double u = 0;
    double q = 0;

    do {
        u = 2 * nw_rng_unit(r) - 1;
        const double v = 2 * nw_rng_unit(r) - 1;
        q = u * u + v * v;
    } while (q >= 1 || q == 0);
    return u * sqrt(-2 * log(q) / q);
}

double nw_rng_exponential(nw_rng *r)
{
    return -log1p(-nw_rng_unit(r));
}
