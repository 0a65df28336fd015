/* BF16 in 12 bits from checkpoint to artifact: every matrix holds the bits of the plain BF16 artifact, and
 * one whose exponents are too many stays BF16.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "artifact/artifact.h"
#include "base/file.h"
#include "quant/quantize.h"
#include "suite_dir.h"
#include "table.h"
#include "tiny_checkpoint.h"

static void quantize(const char *recipe, const char *out, nw_manifest *m)
{
    const nw_quantize_options o = {.source = in_dir("model"),
                                   .recipe = recipe,
                                   .out = in_dir(out),
                                   .no_tokenizer = true,
                                   .n_threads = 2};
    nw_error err = {0};
    must(nw_quantize(&o, m, &err), &err);
}

/* Down projections have values of 60 exponents. */
static float spread(nw_role role, size_t i, float value)
{
    return role == NW_ROLE_DOWN ? ldexpf(value, (int)(i % 60) - 30) : value;
}

static int setup(void **state)
{
    nw_tiny t = nw_tiny_llama();

    (void)state;
    dir = nw_tmpdir_make();
    t.config.tied = false;
    t.dtype = NW_FMT_BF16;
    t.shape = spread;
    nw_tiny_write(&t, in_dir("model"));
    return 0;
}

static void matrices_hold_the_same_bits(void **state)
{
    nw_artifact *plain = NULL;
    nw_artifact *packed = NULL;
    nw_manifest m = {0};
    nw_error err = {0};
    float x[1024];
    float y[1024];

    (void)state;
    quantize("bf16", "plain", NULL);
    quantize("bf16-12", "packed", &m);
    must(nw_artifact_open(in_dir("plain"), &plain, &err), &err);
    must(nw_artifact_open(in_dir("packed"), &packed, &err), &err);
    for (size_t i = 0; i < m.n_tensors; i++) {
        const nw_manifest_tensor *t = &m.tensors[i];
        if (t->is_vector) {
            continue;
        }
        const nw_artifact_matrix *a = nw_artifact_get_matrix(plain, t->role, t->layer);
        const nw_artifact_matrix *b = nw_artifact_get_matrix(packed, t->role, t->layer);
        assert_int_equal(a->type.kind, NW_PANEL_BF16);
        assert_int_equal(b->type.kind, t->role == NW_ROLE_DOWN ? NW_PANEL_BF16 : NW_PANEL_BF16_12);
        assert_true(t->max_abs_err == 0);
        assert_true(a->n_cols <= NW_COUNT(x));
        for (uint32_t r = 0; r < a->n_rows; r++) {
            nw_panel_unpack_row(a->type, a->data, a->n_cols, r, x);
            nw_panel_unpack_row(b->type, b->data, b->n_cols, r, y);
            assert_memory_equal(x, y, a->n_cols * sizeof *x);
        }
    }
    nw_artifact_close(plain);
    nw_artifact_close(packed);
    nw_manifest_release(&m);
}

/* The same weights entropy-coded on the disk: in memory the bits of the 12-bit artifact, with one table of
 * exponents a tensor where that has one a panel. */
static void packed_artifacts_hold_the_same_bits(void **state)
{
    float x[1024];
    float y[1024];
    nw_artifact *twelve = NULL;
    nw_artifact *stored = NULL;
    nw_manifest m = {0};
    nw_error err = {0};

    (void)state;
    quantize("bf16-12", "twelve", NULL);
    quantize("bf16-packed", "stored", &m);
    must(nw_artifact_open(in_dir("twelve"), &twelve, &err), &err);
    must(nw_artifact_open(in_dir("stored"), &stored, &err), &err);
    for (size_t i = 0; i < m.n_tensors; i++) {
        const nw_manifest_tensor *t = &m.tensors[i];
        if (t->is_vector) {
            continue;
        }
        const nw_artifact_matrix *a = nw_artifact_get_matrix(twelve, t->role, t->layer);
        const nw_artifact_matrix *b = nw_artifact_get_matrix(stored, t->role, t->layer);
        assert_true(t->type.packed);
        assert_false(b->type.packed);
        assert_int_equal(a->type.kind, b->type.kind);
        assert_true(a->n_bytes <= b->n_bytes && a->n_cols <= NW_COUNT(x));
        for (uint32_t r = 0; r < a->n_rows; r++) {
            nw_panel_unpack_row(a->type, a->data, a->n_cols, r, x);
            nw_panel_unpack_row(b->type, b->data, b->n_cols, r, y);
            assert_memory_equal(x, y, a->n_cols * sizeof *x);
        }
        assert_true((uintptr_t)b->data % 64 == 0);
        assert_true(t->max_abs_err == 0);
    }
    nw_artifact_close(twelve);
    nw_artifact_close(stored);
    nw_manifest_release(&m);
    must(nw_artifact_verify(in_dir("stored"), in_dir("model"), NULL, NULL, &err), &err);
}

/* Every byte of the first packed tensor changed, one at a time: verify names the tensor, and opening
 * either refuses the file or reads other values, but never fails in another way. */
static void a_damaged_packed_tensor_is_named(void **state)
{
    nw_safetensors *st = NULL;
    nw_error err = {0};
    char path[512];
    char *bytes = NULL;
    size_t n = 0;

    (void)state;
    quantize("bf16-packed", "hurt", NULL);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", in_dir("hurt"));
    must(nw_file_read(path, 1 << 24, &bytes, &n, &err), &err);
    must(nw_st_open(path, &st, &err), &err);
    const nw_st_tensor *t = nw_st_find(st, "model.embed_tokens.weight");
    assert_non_null(t);
    const size_t at = n - t->n_bytes; /* where it is not the last, its bytes are found by content */
    size_t first = 0;
    while (memcmp(bytes + first, t->data, t->n_bytes) != 0) {
        first++;
        assert_true(first <= at);
    }
    const size_t size = t->n_bytes;
    nw_st_close(st);
    size_t n_refused = 0;
    for (size_t i = 0; i < size; i += i < 400 ? 7 : 301) {
        nw_artifact *a = NULL;
        bytes[first + i] = (char)(bytes[first + i] ^ 0x21);
        must(nw_file_write(path, bytes, n, &err), &err);
        assert_int_equal(nw_artifact_verify(in_dir("hurt"), NULL, NULL, NULL, &err), NW_E_FORMAT);
        assert_non_null(strstr(err.message, "model.embed_tokens"));
        err = (nw_error){0};
        n_refused += nw_artifact_open(in_dir("hurt"), &a, &err) != NW_OK;
        nw_artifact_close(a);
        err = (nw_error){0};
        bytes[first + i] = (char)(bytes[first + i] ^ 0x21);
    }
    assert_true(n_refused > 10); /* sizes and streams that fit no panel */
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_hold_the_same_bits),
        cmocka_unit_test(packed_artifacts_hold_the_same_bits),
        cmocka_unit_test(a_damaged_packed_tensor_is_named),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
