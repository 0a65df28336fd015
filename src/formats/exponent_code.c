/* The prefix code of exponents: see exponent_code.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/exponent_code.h"

#include <assert.h>
#include <string.h>

#define SLOTS   (1U << NW_CODE_BITS)
#define SYMBOLS 256u
#define IN_SLOT 6u /* symbols of an entry of `many` */

/* Symbols that occur, least frequent first; ties by symbol. */
static unsigned sort_symbols(const uint64_t n[SYMBOLS], uint16_t order[SYMBOLS])
{
    unsigned count = 0;

    for (unsigned s = 0; s < SYMBOLS; s++) {
        unsigned i = count;
        if (n[s] == 0) {
            continue;
        }
        for (; i > 0 && n[order[i - 1]] > n[s]; i--) {
            order[i] = order[i - 1];
        }
        order[i] = (uint16_t)s;
        count++;
    }
    return count;
}

/* One level's list: the symbols in order and the pairs of the level below, by weight. leaf tells which
 * of them are symbols. `below` [n_below] becomes the list; returns its length. */
static unsigned merge_level(const uint64_t n[SYMBOLS], const uint16_t *order, unsigned count,
                            uint64_t below[2 * SYMBOLS], unsigned n_below, bool leaf[2 * SYMBOLS])
{
    uint64_t list[2 * SYMBOLS] = {0};
    unsigned i = 0;
    unsigned pair = 0;

    while (i < count || pair < n_below / 2) {
        const uint64_t two = pair < n_below / 2 ? below[2 * pair] + below[2 * pair + 1] : 0;
        const bool is_leaf = pair == n_below / 2 || (i < count && n[order[i]] <= two);
        list[i + pair] = is_leaf ? n[order[i]] : two;
        leaf[i + pair] = is_leaf;
        i += is_leaf ? 1 : 0;
        pair += is_leaf ? 0 : 1;
    }
    memcpy(below, list, sizeof list);
    return i + pair;
}

/* Fewer than two symbols: each gets a code of one bit, and so do others, up to two. */
static void short_code(const uint64_t n[SYMBOLS], unsigned count, uint8_t lengths[SYMBOLS])
{
    for (unsigned s = 0; s < SYMBOLS; s++) {
        if (n[s] != 0 || count < 2) {
            lengths[s] = 1;
            count += n[s] != 0 ? 0 : 1;
        }
    }
}

/* Package-merge (Larmore and Hirschberg, JACM 37 (1990) 464): the first 2 count - 2 of the top level's
 * list are taken, pairs taken take theirs below, and a symbol's length is how often it is taken. */
void nw_code_lengths(const uint64_t n[256], uint8_t lengths[256])
{
    uint16_t order[SYMBOLS] = {0};
    bool leaf[NW_CODE_BITS][2 * SYMBOLS];
    uint64_t below[2 * SYMBOLS] = {0};
    const unsigned count = sort_symbols(n, order);
    unsigned n_below = 0;

    memset(lengths, 0, SYMBOLS);
    if (count < 2) {
        short_code(n, count, lengths);
        return;
    }
    for (unsigned level = 0; level < NW_CODE_BITS; level++) {
        n_below = merge_level(n, order, count, below, n_below, leaf[level]);
    }
    for (unsigned level = NW_CODE_BITS, take = 2 * count - 2; level-- > 0;) {
        unsigned leaves = 0;
        for (unsigned i = 0; i < take; i++) {
            leaves += leaf[level][i] ? 1 : 0;
        }
        for (unsigned i = 0; i < leaves; i++) {
            lengths[order[i]]++;
        }
        take = 2 * (take - leaves);
    }
}

static uint16_t reversed(unsigned code, unsigned bits)
{
    unsigned out = 0;

    for (unsigned i = 0; i < bits; i++) {
        out |= (code >> i & 1U) << (bits - 1 - i);
    }
    return (uint16_t)out;
}

/* Canonical codes; false unless they are complete: Σ 2^-length = 1. */
static bool canonical(const uint8_t lengths[SYMBOLS], uint16_t codes[SYMBOLS])
{
    unsigned code = 0;

    for (unsigned bits = 1; bits <= NW_CODE_BITS; bits++) {
        for (unsigned s = 0; s < SYMBOLS; s++) {
            if (lengths[s] == bits) {
                if (code >= 1U << bits) {
                    return false;
                }
                codes[s] = reversed(code, bits);
                code++;
            }
        }
        code <<= 1;
    }
    for (unsigned s = 0; s < SYMBOLS; s++) {
        if (lengths[s] > NW_CODE_BITS) {
            return false;
        }
    }
    return code == 2 * SLOTS;
}

void nw_code_writer_init(nw_code_writer *w, const uint8_t lengths[256])
{
    memcpy(w->lengths, lengths, SYMBOLS);
    memset(w->codes, 0, sizeof w->codes);
    const bool complete = canonical(lengths, w->codes);
    assert(complete);
    (void)complete;
}

size_t nw_code_write(const nw_code_writer *w, const uint8_t *symbols, size_t n, uint8_t *out)
{
    uint64_t bits = 0;
    unsigned have = 0;
    uint8_t *p = out;

    for (size_t i = 0; i < n; i++) {
        assert(w->lengths[symbols[i]] > 0);
        bits |= (uint64_t)w->codes[symbols[i]] << have;
        have += w->lengths[symbols[i]];
        for (; have >= 8; have -= 8, bits >>= 8) {
            *p++ = (uint8_t)(bits & 0xFFU);
        }
    }
    if (have > 0) {
        *p++ = (uint8_t)bits;
    }
    return (size_t)(p - out);
}

bool nw_code_reader_init(nw_code_reader *r, const uint8_t lengths[256], const uint8_t names[256])
{
    uint16_t codes[SYMBOLS] = {0};

    if (!canonical(lengths, codes)) {
        return false;
    }
    for (unsigned s = 0; s < SYMBOLS; s++) {
        for (unsigned i = 0; lengths[s] > 0 && i < SLOTS >> lengths[s]; i++) {
            r->one[i << lengths[s] | codes[s]] = (uint16_t)(names[s] | (unsigned)lengths[s] << 8);
        }
    }
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        uint64_t entry = 0;
        unsigned used = 0;
        unsigned k = 0;
        for (; k < IN_SLOT; k++) {
            const unsigned e = r->one[slot >> used];
            if (used + (e >> 8) > NW_CODE_BITS) {
                break;
            }
            entry |= (uint64_t)(e & 0xFFU) << (8 * k);
            used += e >> 8;
        }
        r->many[slot] = entry | (uint64_t)used << 48 | (uint64_t)k << 56;
    }
    return true;
}

/* Where one stream stands. Bits of `bits` above the first `have` are those that p points at, or 0. */
typedef struct {
    const uint8_t *p, *end;
    uint64_t bits;
    unsigned have;
    uint8_t *out, *out_end;
} stream;

static inline uint64_t load_le64(const uint8_t *p)
{
    uint64_t v = 0;
    memcpy(&v, p, sizeof v);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static inline void store_le64(uint8_t *p, uint64_t v)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    memcpy(p, &v, sizeof v);
}

#define STEPS 5u /* look-ups after a refill: 5 * 11 bits of the 56 that it gives */
#define ROOM  32 /* bytes they may write: 4 * 6 symbols, then 8 */

static inline bool has_room(const stream *s)
{
    return s->end - s->p >= 8 && s->out_end - s->out >= ROOM;
}

static inline void refill(stream *s)
{
    s->bits |= load_le64(s->p) << s->have;
    s->p += (63 - s->have) >> 3;
    s->have |= 56;
}

static inline void look_up(const nw_code_reader *r, stream *s)
{
    const uint64_t e = r->many[s->bits & (SLOTS - 1)];
    const unsigned used = (unsigned)(e >> 48) & 63U;
    store_le64(s->out, e); /* the two bytes that are no symbols are written over */
    s->out += e >> 56;
    s->bits >>= used;
    s->have -= used;
}

/* The four together, while all have input and room. */
static void read_fast(const nw_code_reader *r, stream *s)
{
    stream a = s[0];
    stream b = s[1];
    stream c = s[2];
    stream d = s[3];

    while (has_room(&a) && has_room(&b) && has_room(&c) && has_room(&d)) {
        refill(&a);
        refill(&b);
        refill(&c);
        refill(&d);
        for (unsigned i = 0; i < STEPS; i++) {
            look_up(r, &a);
            look_up(r, &b);
            look_up(r, &c);
            look_up(r, &d);
        }
    }
    s[0] = a;
    s[1] = b;
    s[2] = c;
    s[3] = d;
}

/* The rest of one, symbol by symbol; false when bits are missing or left over. */
static bool read_rest(const nw_code_reader *r, stream *s)
{
    s->bits &= s->have < 64 ? (UINT64_C(1) << s->have) - 1 : UINT64_MAX;
    while (s->out < s->out_end) {
        for (; s->have < NW_CODE_BITS && s->p < s->end; s->have += 8) {
            s->bits |= (uint64_t)*s->p++ << s->have;
        }
        const unsigned e = r->one[s->bits & (SLOTS - 1)];
        if (e >> 8 > s->have) {
            return false;
        }
        *s->out++ = (uint8_t)(e & 0xFFU);
        s->bits >>= e >> 8;
        s->have -= e >> 8;
    }
    return s->p == s->end && s->have < 8 && s->bits == 0;
}

bool nw_code_read(const nw_code_reader *r, const uint8_t *in, const uint32_t sizes[4], uint8_t *out,
                  size_t n)
{
    stream s[NW_CODE_STREAMS] = {{.p = NULL}};
    bool whole = true;

    for (unsigned i = 0; i < NW_CODE_STREAMS; i++) {
        s[i] = (stream){.p = in,
                        .end = in + sizes[i],
                        .out = out + nw_code_part(n, i),
                        .out_end = out + nw_code_part(n, i + 1)};
        in += sizes[i];
    }
    read_fast(r, s);
    for (unsigned i = 0; i < NW_CODE_STREAMS; i++) {
        whole = read_rest(r, &s[i]) && whole;
    }
    return whole;
}
