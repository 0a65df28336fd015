/* SHA-256 over libcrypto's EVP: see hash.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <assert.h>
#include <openssl/evp.h>

#include "base/file.h"

#define SHA256_BYTES 32

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

nw_status nw_digest_file(const char *path, nw_digest *out, nw_error *err)
{
    nw_file f = {0};
    nw_status st = nw_file_map(path, &f, err);

    if (st == NW_OK) {
        st = nw_digest_bytes(f.data, f.size, out, err);
        nw_file_unmap(&f);
    }
    return st;
}
