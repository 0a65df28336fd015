/* SHA-256 against the vectors of FIPS 180-4's examples (NIST, "SHA256.pdf") and the usual long one.
 * SPDX-License-Identifier: Apache-2.0 */
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "table.h"
#include "tmpdir.h"

static struct row {
    const char *name;
    const char *text;
    size_t repeat;
    const char *want;
} rows[] = {
    {"empty", "", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"one_block", "abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"two_blocks", "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    {"a_million_a", "aaaaaaaaaa", 100000,
     "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
};

static void sha256(void **state)
{
    const struct row *r = *state;
    const nw_tmpdir dir = nw_tmpdir_make();
    char path[512];
    nw_sha256 h = {0};
    nw_digest d;
    nw_error err;
    FILE *fp = fopen(nw_tmpdir_file(&dir, "data", path, sizeof path), "wb");

    assert_non_null(fp);
    assert_int_equal(nw_sha256_init(&h, &err), NW_OK);
    for (size_t i = 0; i < r->repeat; i++) {
        nw_sha256_add(&h, r->text, strlen(r->text));
        assert_true(fputs(r->text, fp) >= 0);
    }
    assert_int_equal(fclose(fp), 0);
    d = nw_sha256_end(&h);
    assert_string_equal(d.hex, r->want);
    nw_sha256_release(&h);

    assert_int_equal(nw_digest_file(path, &d, &err), NW_OK);
    assert_string_equal(d.hex, r->want);
    if (r->repeat == 1) {
        assert_int_equal(nw_digest_bytes(r->text, strlen(r->text), &d, &err), NW_OK);
        assert_string_equal(d.hex, r->want);
    }
    nw_tmpdir_remove(&dir);
}

static void fill(uint8_t *bytes, size_t n, nw_rng *rng)
{
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)nw_rng_u64(rng);
    }
}

/* libcrypto's own, of the same bytes. */
static void check(const nw_digest *d, const uint8_t *bytes, size_t n)
{
    unsigned char raw[EVP_MAX_MD_SIZE];
    char hex[65] = "";

    assert_int_equal(EVP_Digest(bytes, n, raw, NULL, EVP_sha256(), NULL), 1);
    for (size_t i = 0; i < 32; i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", raw[i]);
    }
    assert_string_equal(d->hex, hex);
}

enum { MOST = 1000 };

/* Every length around the ends of blocks, in pieces of any size. */
static void lengths(void **state)
{
    uint8_t bytes[MOST];
    nw_rng rng = nw_rng_seed(3);
    nw_error err;

    (void)state;
    fill(bytes, sizeof bytes, &rng);
    for (size_t n = 0; n <= 200; n++) {
        nw_sha256 h = {0};
        assert_int_equal(nw_sha256_init(&h, &err), NW_OK);
        for (size_t at = 0; at < n;) {
            const size_t part = (size_t)nw_rng_below(&rng, n - at + 1);
            nw_sha256_add(&h, bytes + at, part);
            at += part;
        }
        const nw_digest d = nw_sha256_end(&h);
        check(&d, bytes, n);
    }
}

/* Two messages of any lengths, begun anywhere, side by side and alone by turns. */
static void two_side_by_side(void **state)
{
    uint8_t bytes[2][MOST];
    nw_rng rng = nw_rng_seed(4);
    nw_error err;

    (void)state;
    for (int trial = 0; trial < 300; trial++) {
        nw_sha256 h[2] = {0};
        size_t at[2] = {0};
        for (unsigned k = 0; k < 2; k++) {
            fill(bytes[k], MOST, &rng);
            assert_int_equal(nw_sha256_init(&h[k], &err), NW_OK);
        }
        for (int step = 0; step < 6; step++) {
            const size_t n[2] = {(size_t)nw_rng_below(&rng, MOST - at[0] + 1),
                                 (size_t)nw_rng_below(&rng, MOST - at[1] + 1)};
            const void *const from[2] = {bytes[0] + at[0], bytes[1] + at[1]};
            nw_sha256_add_two((nw_sha256 *const[2]){&h[0], &h[1]}, from, n);
            at[0] += n[0];
            at[1] += n[1];
        }
        for (unsigned k = 0; k < 2; k++) {
            const nw_digest d = nw_sha256_end(&h[k]);
            check(&d, bytes[k], at[k]);
        }
    }
}

static void spans(void **state)
{
    uint8_t bytes[MOST];
    nw_rng rng = nw_rng_seed(5);
    nw_error err;

    (void)state;
    fill(bytes, sizeof bytes, &rng);
    for (size_t n = 0; n <= 7; n++) {
        nw_byte_span s[7];
        nw_digest d[7];
        for (size_t i = 0; i < n; i++) {
            const size_t from = (size_t)nw_rng_below(&rng, MOST);
            s[i] = (nw_byte_span){bytes + from, (size_t)nw_rng_below(&rng, MOST - from + 1)};
        }
        assert_int_equal(nw_digest_spans(s, n, d, &err), NW_OK);
        for (size_t i = 0; i < n; i++) {
            check(&d[i], s[i].bytes, s[i].n);
        }
    }
}

int main(void)
{
    const struct CMUnitTest more[] = {
        cmocka_unit_test(lengths),
        cmocka_unit_test(two_side_by_side),
        cmocka_unit_test(spans),
    };

    return NW_RUN_TABLE("sha256", rows, sha256) + cmocka_run_group_tests(more, NULL, NULL);
}
