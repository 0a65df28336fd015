/* SHA-256: see hash.h. FIPS 180-4.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <assert.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/file.h"
#include "base/sha256_x86.h"

#define SHA256_BYTES 32
#define BLOCK        64u

static bool has_instructions(void)
{
#if NW_HAVE_X86_KERNELS
    return nw_sha256_x86_runs();
#else
    return false;
#endif
}

static void add_blocks(nw_sha256 *h, const uint8_t *bytes, size_t n_blocks)
{
#if NW_HAVE_X86_KERNELS
    nw_sha256_x86_blocks(h->state, bytes, n_blocks);
#else
    (void)h;
    (void)bytes;
    (void)n_blocks;
#endif
}

static void add_blocks_two(nw_sha256 *const h[2], const uint8_t *const bytes[2], size_t n_blocks)
{
#if NW_HAVE_X86_KERNELS
    uint32_t *const states[2] = {h[0]->state, h[1]->state};
    nw_sha256_x86_blocks_two(states, bytes, n_blocks);
#else
    add_blocks(h[0], bytes[0], n_blocks);
    add_blocks(h[1], bytes[1], n_blocks);
#endif
}

nw_status nw_sha256_init(nw_sha256 *h, nw_error *err)
{
    /* the first 32 bits of the fractions of the square roots of the first 8 primes */
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    if (has_instructions()) {
        *h = (nw_sha256){.by_blocks = true};
        memcpy(h->state, start, sizeof start);
        return NW_OK;
    }
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    if (ctx == NULL || EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(ctx);
        return nw_fail(err, NW_E_NOMEM, "sha256: libcrypto gives no context");
    }
    *h = (nw_sha256){.ctx = ctx};
    return NW_OK;
}

static void add_by_evp(nw_sha256 *h, const void *bytes, size_t n)
{
    assert(h->ctx != NULL);
    const int ok = EVP_DigestUpdate(h->ctx, bytes, n);
    assert(ok == 1);
    (void)ok;
}

/* As many bytes as the begun block takes; returns how many those were. */
static size_t fill_block(nw_sha256 *h, const uint8_t *bytes, size_t n)
{
    const size_t have = (size_t)(h->n_bytes % BLOCK);
    const size_t room = have == 0 ? 0 : BLOCK - have;
    const size_t part = n < room ? n : room;

    if (part > 0) {
        memcpy(h->block + have, bytes, part);
        h->n_bytes += part;
    }
    if (part > 0 && part == room) {
        add_blocks(h, h->block, 1);
    }
    return part;
}

void nw_sha256_add(nw_sha256 *h, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;

    if (!h->by_blocks) {
        add_by_evp(h, bytes, n);
        return;
    }
    if (n == 0) {
        return;
    }
    const size_t first = fill_block(h, p, n);
    const size_t n_blocks = (n - first) / BLOCK;
    const size_t rest = (n - first) % BLOCK;
    add_blocks(h, p + first, n_blocks);
    if (rest > 0) {
        memcpy(h->block, p + n - rest, rest);
    }
    h->n_bytes += n - first;
}

void nw_sha256_add_two(nw_sha256 *const h[2], const void *const bytes[2], const size_t n[2])
{
    const uint8_t *p[2] = {bytes[0], bytes[1]};
    size_t left[2] = {n[0], n[1]};

    assert(h[0] != h[1]);
    if (h[0]->by_blocks && h[1]->by_blocks) {
        for (unsigned k = 0; k < 2; k++) {
            const size_t first = left[k] > 0 ? fill_block(h[k], p[k], left[k]) : 0;
            p[k] += first;
            left[k] -= first;
        }
        const size_t both = (left[0] < left[1] ? left[0] : left[1]) / BLOCK;
        if (both > 0) { /* then neither has a begun block */
            add_blocks_two(h, (const uint8_t *const[2]){p[0], p[1]}, both);
        }
        for (unsigned k = 0; k < 2; k++) {
            h[k]->n_bytes += both * BLOCK;
            p[k] += both * BLOCK;
            left[k] -= both * BLOCK;
        }
    }
    nw_sha256_add(h[0], p[0], left[0]);
    nw_sha256_add(h[1], p[1], left[1]);
}

static void put_be(uint64_t x, unsigned n, uint8_t *out)
{
    for (unsigned i = 0; i < n; i++) {
        out[i] = (uint8_t)(x >> 8 * (n - 1 - i));
    }
}

/* A one, zeros, and the length in bits, up to a whole block. */
static void end_by_blocks(nw_sha256 *h, uint8_t raw[SHA256_BYTES])
{
    uint8_t end[2 * BLOCK] = {0x80};
    const size_t have = (size_t)(h->n_bytes % BLOCK);
    const size_t n_zeros = (have < BLOCK - 8 ? BLOCK : 2 * BLOCK) - have - 8;

    put_be(8 * h->n_bytes, 8, end + n_zeros);
    nw_sha256_add(h, end, n_zeros + 8);
    for (unsigned i = 0; i < 8; i++) {
        put_be(h->state[i], 4, raw + (size_t)4 * i);
    }
}

static void end_by_evp(nw_sha256 *h, uint8_t raw[SHA256_BYTES])
{
    unsigned n = 0;

    assert(h->ctx != NULL);
    const int ok = EVP_DigestFinal_ex(h->ctx, raw, &n);
    assert(ok == 1 && n == SHA256_BYTES);
    (void)ok;
}

nw_digest nw_sha256_end(nw_sha256 *h)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t raw[SHA256_BYTES] = {0};
    nw_digest d = {0};

    if (h->by_blocks) {
        end_by_blocks(h, raw);
    } else {
        end_by_evp(h, raw);
    }
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        d.hex[2 * i] = digits[raw[i] >> 4];
        d.hex[2 * i + 1] = digits[raw[i] & 15];
    }
    nw_sha256_release(h);
    return d;
}

void nw_sha256_release(nw_sha256 *h)
{
    EVP_MD_CTX_free(h->ctx);
    *h = (nw_sha256){0};
}

nw_status nw_digest_bytes(const void *bytes, size_t n, nw_digest *out, nw_error *err)
{
    nw_sha256 h = {0};
    const nw_status st = nw_sha256_init(&h, err);

    if (st != NW_OK) {
        return st;
    }
    nw_sha256_add(&h, bytes, n);
    *out = nw_sha256_end(&h);
    return NW_OK;
}

/* A span whose hash is being made. */
typedef struct {
    nw_sha256 h;
    const uint8_t *bytes;
    size_t left, at; /* bytes; which span */
} running;

static nw_status begin_span(running *r, const nw_byte_span *spans, size_t at, nw_error *err)
{
    *r = (running){.bytes = spans[at].bytes, .left = spans[at].n, .at = at};
    return nw_sha256_init(&r->h, err);
}

/* The next span takes the place of one that is done. */
nw_status nw_digest_spans(const nw_byte_span *spans, size_t n_spans, nw_digest *out, nw_error *err)
{
    running r[2] = {0};
    size_t next = 0;
    size_t n_open = 0;
    nw_status st = NW_OK;

    while (st == NW_OK && (next < n_spans || n_open > 0)) {
        if (next < n_spans && n_open < 2) {
            st = begin_span(&r[n_open++], spans, next++, err);
            continue;
        }
        if (n_open == 1) {
            nw_sha256_add(&r[0].h, r[0].bytes, r[0].left);
            out[r[0].at] = nw_sha256_end(&r[0].h);
            n_open = 0;
            continue;
        }
        const size_t n = r[0].left < r[1].left ? r[0].left : r[1].left;
        nw_sha256_add_two((nw_sha256 *const[2]){&r[0].h, &r[1].h},
                          (const void *const[2]){r[0].bytes, r[1].bytes}, (size_t[2]){n, n});
        for (unsigned k = 0; k < 2; k++) {
            r[k].bytes += n;
            r[k].left -= n;
        }
        const unsigned done = r[0].left == 0 ? 0 : 1;
        out[r[done].at] = nw_sha256_end(&r[done].h);
        if (done == 0) {
            r[0] = r[1];
            r[1] = (running){0};
        }
        n_open = 1;
    }
    nw_sha256_release(&r[0].h);
    nw_sha256_release(&r[1].h);
    return st;
}

nw_status nw_digest_file(const char *path, nw_digest *out, nw_error *err)
{
    nw_file f = {0};
    nw_status st = nw_file_map(path, &f, err);

    st = st == NW_OK ? nw_digest_bytes(f.data, f.size, out, err) : st;
    nw_file_unmap(&f);
    return st;
}
