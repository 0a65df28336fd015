/* SHA-256 over libcrypto's EVP: see hash.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <assert.h>
#include <openssl/evp.h>

#include "base/file.h"

#define SHA256_BYTES 32
#define STEP         ((size_t)4 << 20)

nw_status nw_sha256_init(nw_sha256 *h, nw_error *err)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();

    if (ctx == NULL || EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(ctx);
        return nw_fail(err, NW_E_NOMEM, "sha256: libcrypto gives no context");
    }
    h->ctx = ctx;
    return NW_OK;
}

void nw_sha256_add(nw_sha256 *h, const void *bytes, size_t n)
{
    assert(h->ctx != NULL);
    const int ok = EVP_DigestUpdate(h->ctx, bytes, n);
    assert(ok == 1);
    (void)ok;
}

nw_digest nw_sha256_end(nw_sha256 *h)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char raw[EVP_MAX_MD_SIZE] = {0};
    unsigned n = 0;
    nw_digest d = {0};

    assert(h->ctx != NULL);
    const int ok = EVP_DigestFinal_ex(h->ctx, raw, &n);
    assert(ok == 1 && n == SHA256_BYTES);
    (void)ok;
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
    h->ctx = NULL;
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

/* The hash of mapped bytes, a step at a time. */
static nw_status add_steps(nw_sha256 *h, const nw_file *f, const nw_digest_watch *watch,
                           nw_error *err)
{
    for (size_t at = 0; at < f->size;) {
        const size_t n = f->size - at < STEP ? f->size - at : STEP;
        if (watch != NULL && !watch->go_on(watch->ctx, n)) {
            return nw_fail(err, NW_E_CANCELLED, "%s: its hash was given up", f->path);
        }
        nw_sha256_add(h, f->data + at, n);
        at += n;
    }
    return NW_OK;
}

nw_status nw_digest_file_watched(const char *path, const nw_digest_watch *watch, nw_digest *out,
                                 nw_error *err)
{
    nw_file f = {0};
    nw_sha256 h = {0};
    nw_status st = nw_file_map(path, &f, err);

    st = st == NW_OK ? nw_sha256_init(&h, err) : st;
    st = st == NW_OK ? add_steps(&h, &f, watch, err) : st;
    if (st == NW_OK) {
        *out = nw_sha256_end(&h);
    }
    nw_sha256_release(&h);
    nw_file_unmap(&f);
    return st;
}

nw_status nw_digest_file(const char *path, nw_digest *out, nw_error *err)
{
    return nw_digest_file_watched(path, NULL, out, err);
}
