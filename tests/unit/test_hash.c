/* SHA-256 against the vectors of FIPS 180-4's examples (NIST, "SHA256.pdf") and the usual long one.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/hash.h"
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

int main(void)
{
    return NW_RUN_TABLE("sha256", rows, sha256);
}
