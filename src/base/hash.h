/* SHA-256 (libcrypto's EVP: SHA-NI where the CPU has it). Hashes name artifacts, data, settings.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_HASH_H
#define NW_BASE_HASH_H

#include "base/status.h"

typedef struct {
    void *ctx;
} nw_sha256;

typedef struct {
    char hex[65]; /* lower case, NUL-terminated */
} nw_digest;

NW_MUST_USE nw_status nw_sha256_init(nw_sha256 *h, nw_error *err);
void nw_sha256_add(nw_sha256 *h, const void *bytes, size_t n);
nw_digest nw_sha256_end(nw_sha256 *h); /* also releases */
void nw_sha256_release(nw_sha256 *h);  /* takes an ended or zero object */

NW_MUST_USE nw_status nw_digest_bytes(const void *bytes, size_t n, nw_digest *out, nw_error *err);
NW_MUST_USE nw_status nw_digest_file(const char *path, nw_digest *out, nw_error *err);

/* Goes beside the hashing of long files: called before every few MiB; false ends it with NW_E_CANCELLED. */
typedef struct {
    bool (*go_on)(void *ctx, uint64_t n_bytes); /* so many come next; may wait */
    void *ctx;
} nw_digest_watch;
/* watch may be NULL. */
NW_MUST_USE nw_status nw_digest_file_watched(const char *path, const nw_digest_watch *watch,
                                             nw_digest *out, nw_error *err);

#endif
