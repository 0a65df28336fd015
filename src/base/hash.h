/* SHA-256: by the processor's own instructions where it has them (sha256_x86.h), else libcrypto's. Hashes
 * name artifacts, data, settings. Two messages that go side by side cost little more than one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_HASH_H
#define NW_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct {
    void *ctx; /* libcrypto's, or NULL */
    bool by_blocks;
    uint32_t state[8];
    uint64_t n_bytes;
    uint8_t block[64]; /* the last, begun one */
} nw_sha256;

typedef struct {
    char hex[65]; /* lower case, NUL-terminated */
} nw_digest;

NW_MUST_USE nw_status nw_sha256_init(nw_sha256 *h, nw_error *err);
void nw_sha256_add(nw_sha256 *h, const void *bytes, size_t n);
/* To two different messages, side by side as far as both reach. */
void nw_sha256_add_two(nw_sha256 *const h[2], const void *const bytes[2], const size_t n[2]);
nw_digest nw_sha256_end(nw_sha256 *h); /* also releases */
void nw_sha256_release(nw_sha256 *h);  /* takes an ended or zero object */

NW_MUST_USE nw_status nw_digest_bytes(const void *bytes, size_t n, nw_digest *out, nw_error *err);
typedef struct {
    const void *bytes;
    size_t n;
} nw_byte_span;
/* Of each of n_spans, two at a time. */
NW_MUST_USE nw_status nw_digest_spans(const nw_byte_span *spans, size_t n_spans, nw_digest *out,
                                      nw_error *err);
NW_MUST_USE nw_status nw_digest_file(const char *path, nw_digest *out, nw_error *err);

#endif
