/* Small unsigned integers in 32-bit little-endian words, as the safetensors of compressed-tensors, GPTQ
 * and AWQ keep them: element i of a run at bit i * bits, so at bit i * bits % 8 of byte i * bits / 8.
 * bits is 2, 4 or 8: none crosses a byte.
 *
 *   compressed-tensors   a run is a row of the matrix (zero points: a column of their table)
 *   GPTQ                 a run is a column of the stored [in][out], that is, a row of the matrix
 *   AWQ                  a run is a row of the stored [in][out], eight columns of a word interleaved
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_WORDS_H
#define NW_FORMATS_WORDS_H

#include <stddef.h>
#include <stdint.h>

static inline uint8_t nw_bits_get(const uint8_t *run, size_t i, unsigned bits)
{
    const size_t per_byte = 8U / bits;
    return (uint8_t)((unsigned)run[i / per_byte] >> (i % per_byte * bits) & ((1U << bits) - 1U));
}

/* Into bytes that were zero. */
static inline void nw_bits_put(uint8_t *run, size_t i, unsigned bits, unsigned value)
{
    const size_t per_byte = 8U / bits;
    run[i / per_byte] |= (uint8_t)(value << (i % per_byte * bits));
}

/* Words of 32 bits for n elements. */
static inline size_t nw_bits_words(size_t n, unsigned bits)
{
    const size_t per_word = 32U / bits;
    return n / per_word + (n % per_word != 0);
}

/* Element of AWQ's run that holds column `col`: nibble i of a word is column 0 2 4 6 1 3 5 7 of its
 * eight. */
static inline size_t nw_awq_at(size_t col)
{
    static const uint8_t at[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return col / 8 * 8 + at[col % 8];
}

#endif
