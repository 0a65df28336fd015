/* A prefix code (Huffman, at most 11 bits a symbol) for the exponents of a tensor, made to be decoded
 * fast: a look-up of 11 bits gives as many symbols as they hold, and four streams are read side by
 * side, so that one waits while the others work.
 *
 * A stream is read from the low bits of its bytes on; codes are canonical (shorter first, then by
 * symbol), their first bit in the lowest place. Bits left over in the last byte are 0.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_EXPONENT_CODE_H
#define NW_FORMATS_EXPONENT_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define NW_CODE_BITS    11u /* the longest code */
#define NW_CODE_STREAMS 4u

/* The best code lengths for symbols that occur n[s] times; 0 for those that do not occur, unless
 * fewer than two do, when the first two symbols without a code get one too. */
void nw_code_lengths(const uint64_t n[256], uint8_t lengths[256]);

typedef struct {
    uint16_t codes[256]; /* first bit lowest */
    uint8_t lengths[256];
} nw_code_writer;

/* lengths as nw_code_lengths makes them. */
void nw_code_writer_init(nw_code_writer *w, const uint8_t lengths[256]);
/* Bytes written to out, which has room for nw_code_bound(n). Every symbol has a code. */
size_t nw_code_write(const nw_code_writer *w, const uint8_t *symbols, size_t n, uint8_t *out);
static inline size_t nw_code_bound(size_t n)
{
    return n / 8 * NW_CODE_BITS + n % 8 * 2 + 8; /* 11 bits a symbol, and a word of slack */
}

typedef struct {
    uint64_t many[1U << NW_CODE_BITS]; /* up to 6 symbols, then bits used, then how many symbols */
    uint16_t one[1U << NW_CODE_BITS];  /* the first symbol, its bits above it */
} nw_code_reader;

/* Symbol s is given out as names[s]. False unless the lengths make a complete code: from a file they
 * may be anything. */
NW_MUST_USE bool nw_code_reader_init(nw_code_reader *r, const uint8_t lengths[256],
                                     const uint8_t names[256]);

/* Fills out[0, n) from four streams that lie one behind the other, sizes[i] bytes each, the i-th of which
 * holds symbols [n i / 4, n (i + 1) / 4). False when a stream does not hold just its symbols. */
NW_MUST_USE bool nw_code_read(const nw_code_reader *r, const uint8_t *in, const uint32_t sizes[4],
                              uint8_t *out, size_t n);
static inline size_t nw_code_part(size_t n, unsigned i) /* where the i-th stream's symbols begin */
{
    return n / NW_CODE_STREAMS * i + n % NW_CODE_STREAMS * i / NW_CODE_STREAMS;
}

#endif
