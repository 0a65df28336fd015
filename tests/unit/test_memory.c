/* Memory of a native artifact: its file is mapped and never copied, so that what a process has of its
 * own stays within keys, values and 64 MiB, after a prompt of a whole step and some decoding. The model
 * is larger than that, so a copy of its weights would show. Skipped under sanitizers, whose shadow
 * memory is no part of the program.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/speed.h"
#include "engine_fixture.h"

#define LIMIT_BYTES ((uint64_t)64 << 20)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAVE_SANITIZER 1
#else
#define HAVE_SANITIZER 0
#endif

/* A field of /proc/self/status in bytes. */
static uint64_t status_bytes(const char *field)
{
    char line[256];
    uint64_t bytes = 0;
    FILE *fp = fopen("/proc/self/status", "re");

    assert_non_null(fp);
    while (fgets(line, sizeof line, fp) != NULL) {
        if (strncmp(line, field, strlen(field)) == 0) {
            bytes = strtoull(line + strlen(field) + 1, NULL, 10) * 1024;
        }
    }
    (void)fclose(fp);
    assert_true(bytes > 0);
    return bytes;
}

static nw_model_config large(void)
{
    nw_model_config c = nw_tiny_llama();
    c.d_model = 1024;
    c.n_heads = 16;
    c.n_kv_heads = 4;
    c.d_head = 64;
    c.d_ff = 8192;
    c.n_ctx = 1024;
    c.attn_scale = 0.125F;
    return c;
}

static void a_mapped_artifact_is_not_copied(void **state)
{
    (void)state;
    const nw_model_config c = large();
    char source[300];
    char path[300];
    nw_error err = {0};
    nw_engine *e = NULL;
    nw_speed *s = NULL;
    double seconds = 0;

    nw_tiny_write(&c, 1, nw_tmpdir_file(&fixture_dir, "source", source, sizeof source));
    const nw_quantize_options q = {
        .source = source,
        .recipe = "bf16",
        .out = nw_tmpdir_file(&fixture_dir, "artifact", path, sizeof path),
    };
    assert_int_equal(nw_quantize(&q, NULL, &err), NW_OK);

    const uint64_t before = status_bytes("RssAnon");
    nw_engine_options o = nw_engine_options_default();
    o.n_threads = 2;
    o.max_seqs = 1;
    o.no_tokenizer = true;
    assert_int_equal(nw_engine_open(path, &o, &e, &err), NW_OK);
    assert_int_equal(nw_speed_open(e, 1, 0, &s, &err), NW_OK);
    assert_int_equal(nw_speed_prefill(s, o.max_step_tokens, &seconds, &err), NW_OK);
    assert_int_equal(nw_speed_decode(s, 4, 1, &seconds, &err), NW_OK);
    const nw_engine_facts *f = nw_engine_get_facts(e);
    const uint64_t own = status_bytes("RssAnon") - before;
    print_message("own memory %.1f MiB, keys and values %.1f MiB, weights read %.1f MiB\n",
                  (double)own / 1048576, (double)f->kv_pool_bytes / 1048576,
                  (double)f->weight_bytes / 1048576);
    assert_true(f->weight_bytes > LIMIT_BYTES + f->kv_pool_bytes);
    assert_true(own <= LIMIT_BYTES + f->kv_pool_bytes);
    nw_speed_close(s);
    nw_engine_close(e);
}

/* Attention keeps nothing that grows with the square of the context, nor one row of scores a query of a
 * step: at 32k tokens that would be 64 MiB a head. What grows is pages, which were there when the engine
 * opened. */
static void a_context_of_32k_takes_its_pages(void **state)
{
    (void)state;
    const uint32_t n_ctx = 32768;
    nw_model_config c = nw_tiny_llama();
    char path[300];
    nw_error err = {0};
    nw_engine *e = NULL;
    nw_speed *s = NULL;
    double seconds = 0;

    c.n_layers = 1;
    c.d_model = 64;
    c.n_heads = 2;
    c.n_kv_heads = 1;
    c.d_head = 32;
    c.attn_scale = 0.17677669F; /* 1 / sqrt(32) */
    c.n_ctx = n_ctx;
    nw_tiny_write(&c, 2, nw_tmpdir_file(&fixture_dir, "long", path, sizeof path));
    nw_engine_options o = nw_engine_options_default();
    assert_int_equal(nw_engine_kv_parse("int4+window128+sinks64", &o, &err), NW_OK);
    o.n_threads = 2;
    o.max_seqs = 1;
    o.n_ctx = n_ctx;
    o.no_tokenizer = true;
    const uint64_t before = status_bytes("RssAnon");
    assert_int_equal(nw_engine_open(path, &o, &e, &err), NW_OK);
    assert_int_equal(nw_speed_open(e, 1, n_ctx - 4, &s, &err), NW_OK);
    assert_int_equal(nw_speed_decode(s, 4, 1, &seconds, &err), NW_OK);
    const nw_engine_facts *f = nw_engine_get_facts(e);
    const uint64_t own = status_bytes("RssAnon") - before;
    print_message("own memory %.1f MiB, keys and values %.1f MiB, workspace %.1f MiB\n",
                  (double)own / 1048576, (double)f->kv_pool_bytes / 1048576,
                  (double)f->workspace_bytes / 1048576);
    assert_int_equal(f->kv_capacity_tokens, n_ctx);
    assert_true(own < f->kv_pool_bytes + ((uint64_t)16 << 20));
    nw_speed_close(s);
    nw_engine_close(e);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(a_mapped_artifact_is_not_copied),
                                              cmocka_unit_test(a_context_of_32k_takes_its_pages)};

    if (HAVE_SANITIZER) {
        (void)puts("skipped: sanitizers take memory of their own");
        return 77;
    }
    fixture_dir = nw_tmpdir_make();
    const int failed = cmocka_run_group_tests_name("memory", tests, NULL, NULL);
    (void)fixture_teardown(NULL);
    return failed;
}
