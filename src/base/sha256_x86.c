/* Blocks of SHA-256 (FIPS 180-4) by the SHA instructions of x86. A round waits for the one before it, and
 * one message leaves half of the unit idle: two go side by side at close to the price of one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/sha256_x86.h"

#include <cpuid.h>
#include <immintrin.h>

#define BLOCK 64u

/* The first 32 bits of the fractions of the cube roots of the first 64 primes. */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/* The eight words of a state as the instructions want them, from the highest lane on: a b e f, c d g h. */
typedef struct {
    __m128i abef, cdgh;
} halves;

static inline __m128i load(const void *p)
{
    return _mm_loadu_si128(p);
}

static inline halves halves_of(const uint32_t state[8])
{
    const __m128i cdab = _mm_shuffle_epi32(load(state), 0xB1);
    const __m128i efgh = _mm_shuffle_epi32(load(state + 4), 0x1B);

    return (halves){_mm_alignr_epi8(cdab, efgh, 8), _mm_blend_epi16(efgh, cdab, 0xF0)};
}

static inline void put_halves(const halves *h, uint32_t state[8])
{
    const __m128i feba = _mm_shuffle_epi32(h->abef, 0x1B);
    const __m128i dchg = _mm_shuffle_epi32(h->cdgh, 0xB1);

    _mm_storeu_si128((void *)state, _mm_blend_epi16(feba, dchg, 0xF0));
    _mm_storeu_si128((void *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

/* Four rounds with their words, constants added. */
static inline void four_rounds(halves *h, __m128i words)
{
    h->cdgh = _mm_sha256rnds2_epu32(h->cdgh, h->abef, words);
    h->abef = _mm_sha256rnds2_epu32(h->abef, h->cdgh, _mm_shuffle_epi32(words, 0x0E));
}

/* The four words behind the sixteen of m, of which m[i] are the oldest, in their place. */
static inline void next_words(__m128i m[4], unsigned i)
{
    const __m128i newest = m[(i + 3) % 4];
    const __m128i seven_back = _mm_alignr_epi8(newest, m[(i + 2) % 4], 4);
    const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(m[i], m[(i + 1) % 4]), seven_back);

    m[i] = _mm_sha256msg2_epu32(sum, newest);
}

/* Rounds 4 i to 4 i + 3 of each message. */
static inline __attribute__((always_inline)) void rounds_of_each(unsigned n_messages, halves *h,
                                                                 __m128i m[][4], unsigned i)
{
    const __m128i constants = load(round_constants + (size_t)4 * i);

#pragma GCC unroll 2
    for (unsigned k = 0; k < n_messages; k++) {
        four_rounds(&h[k], _mm_add_epi32(m[k][i % 4], constants));
        if (i < 12) {
            next_words(m[k], i % 4);
        }
    }
}

/* n_messages is a constant: 1 or 2. */
static inline __attribute__((always_inline)) void add_blocks(unsigned n_messages,
                                                             uint32_t *const state[],
                                                             const uint8_t *const bytes[],
                                                             size_t n_blocks)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    halves h[2];

#pragma GCC unroll 2
    for (unsigned k = 0; k < n_messages; k++) {
        h[k] = halves_of(state[k]);
    }
    for (size_t at = 0; at < n_blocks * BLOCK; at += BLOCK) {
        const halves before[2] = {h[0], h[n_messages - 1]};
        __m128i m[2][4];
#pragma GCC unroll 2
        for (unsigned k = 0; k < n_messages; k++) {
#pragma GCC unroll 4
            for (unsigned i = 0; i < 4; i++) {
                m[k][i] = _mm_shuffle_epi8(load(bytes[k] + at + (size_t)16 * i), big_endian);
            }
        }
#pragma GCC unroll 16
        for (unsigned i = 0; i < 16; i++) {
            rounds_of_each(n_messages, h, m, i);
        }
#pragma GCC unroll 2
        for (unsigned k = 0; k < n_messages; k++) {
            h[k].abef = _mm_add_epi32(h[k].abef, before[k].abef);
            h[k].cdgh = _mm_add_epi32(h[k].cdgh, before[k].cdgh);
        }
    }
#pragma GCC unroll 2
    for (unsigned k = 0; k < n_messages; k++) {
        put_halves(&h[k], state[k]);
    }
}

void nw_sha256_x86_blocks(uint32_t state[8], const uint8_t *bytes, size_t n_blocks)
{
    uint32_t *const states[] = {state};
    const uint8_t *const from[] = {bytes};

    add_blocks(1, states, from, n_blocks);
}

void nw_sha256_x86_blocks_two(uint32_t *const state[2], const uint8_t *const bytes[2],
                              size_t n_blocks)
{
    add_blocks(2, state, bytes, n_blocks);
}

bool nw_sha256_x86_runs(void)
{
    uint32_t a = 0, b = 0, c = 0, d = 0;
    uint32_t a7 = 0, b7 = 0, c7 = 0, d7 = 0;

    return __get_cpuid(1, &a, &b, &c, &d) != 0 &&
           __get_cpuid_count(7, 0, &a7, &b7, &c7, &d7) != 0 && (c >> 9 & 1U) != 0 &&
           (c >> 19 & 1U) != 0 && (b7 >> 29 & 1U) != 0; /* SSSE3 SSE4.1 SHA */
}
