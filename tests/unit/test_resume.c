/* Quantizing goes on where a killed run ended, to the same bytes; what it goes on with is held to its
 * hashes; another command's unfinished work is refused. And every mistake is told at once.
 * SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "artifact/artifact.h"
#include "artifact/export.h"
#include "artifact/writer.h"
#include "base/file.h"
#include "base/signal.h"
#include "quant/quantize.h"
#include "quant/source_digest.h"
#include "suite_dir.h"
#include "table.h"
#include "tiny_checkpoint.h"

/* Files are written in blocks of 2 MiB: the first stands, the second is not allowed any more. */
#define KILL_AT ((rlim_t)3 << 20)

static int setup(void **state)
{
    nw_tiny t = nw_tiny_llama();

    (void)state;
    dir = nw_tmpdir_make();
    t.config.n_layers = 3;
    t.config.d_model = 256;
    t.config.d_head = 64;
    t.config.d_ff = 1024;
    t.config.n_vocab = 512;
    nw_tiny_write(&t, in_dir("model"));
    t.seed = 2;
    nw_tiny_write(&t, in_dir("other"));
    return 0;
}

static nw_quantize_options options(const char *model, const char *recipe, const char *out,
                                   size_t *n_taken_up)
{
    return (nw_quantize_options){.source = in_dir(model),
                                 .recipe = recipe,
                                 .out = in_dir(out),
                                 .no_tokenizer = true,
                                 .n_threads = 2,
                                 .n_taken_up = n_taken_up};
}

/* A process that the system kills in the middle of writing. */
static void killed(nw_status (*run)(const void *ctx, nw_error *err), const void *ctx)
{
    const pid_t child = fork();
    int how = 0;

    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit small = {.rlim_cur = KILL_AT, .rlim_max = KILL_AT};
        const struct rlimit none = {0};
        nw_error err = {0};
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)signal(SIGXFSZ, SIG_DFL);
        (void)setrlimit(RLIMIT_FSIZE, &small);
        _exit(run(ctx, &err) == NW_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
}

static nw_status run_quantize(const void *ctx, nw_error *err)
{
    return nw_quantize(ctx, NULL, err);
}

static void killed_run(const char *model, const char *recipe, const char *out)
{
    const nw_quantize_options o = options(model, recipe, out, NULL);

    killed(run_quantize, &o);
}

/* The partial folder of `out`, and a file in it. */
static char *left_file(const char *out, const char *name)
{
    static char path[1024];
    const size_t n = strlen(out);
    DIR *d = opendir(dir.path);

    path[0] = '\0';
    for (const struct dirent *e = NULL; d != NULL && (e = readdir(d)) != NULL;) {
        if (strncmp(e->d_name, out, n) == 0 && strncmp(e->d_name + n, ".partial-", 9) == 0) {
            (void)snprintf(path, sizeof path, "%s/%.200s/%s", dir.path, e->d_name, name);
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    assert_int_not_equal(path[0], '\0');
    return path;
}

static void assert_same_result(const char *a, const char *b)
{
    assert_same_file(a, b, "model.safetensors");
    assert_same_file(a, b, "manifest.json");
    assert_same_file(a, b, "config.json");
}

static void a_killed_run_is_gone_on_with_to_the_same_bytes(void **state)
{
    static const char *const recipes[] = {"bf16", "int8-w8a8", "bf16-12", "bf16-packed"};
    char names[2][16];
    nw_error err = {0};

    (void)state;
    for (size_t i = 0; i < NW_COUNT(recipes); i++) {
        size_t n_taken_up = 0;
        (void)snprintf(names[0], sizeof names[0], "whole%zu", i);
        (void)snprintf(names[1], sizeof names[1], "killed%zu", i);
        nw_quantize_options o = options("model", recipes[i], names[0], &n_taken_up);
        must(nw_quantize(&o, NULL, &err), &err);
        assert_int_equal(n_taken_up, 0);
        killed_run("model", recipes[i], names[1]);
        o = options("model", recipes[i], names[1], &n_taken_up);
        o.n_threads = 1;
        const int before = nw_tmpdir_count(&dir);
        must(nw_quantize(&o, NULL, &err), &err);
        assert_true(n_taken_up > 0);
        assert_int_equal(nw_tmpdir_count(&dir), before); /* the partial folder got the name */
        assert_same_result(names[0], names[1]);
        assert_false(nw_file_exists(in_dir("killed0/" NW_ARTIFACT_JOURNAL)));
    }
}

/* A changed byte in what stands, a journal whose last line is cut: only what is right is kept. */
static void damage_in_what_stands_is_found_and_made_again(void **state)
{
    nw_error err = {0};
    size_t n_whole = 0;
    size_t n_damaged = 0;
    size_t n_cut = 0;
    nw_quantize_options o = options("model", "bf16", "sound", &n_whole);

    (void)state;
    must(nw_quantize(&o, NULL, &err), &err);
    killed_run("model", "bf16", "hurt");
    FILE *fp = fopen(left_file("hurt", "model.safetensors.part"), "r+b");
    assert_non_null(fp);
    assert_int_equal(fseek(fp, (long)1 << 20, SEEK_SET), 0);
    (void)fputc(0x5A, fp);
    assert_int_equal(fclose(fp), 0);
    o = options("model", "bf16", "hurt", &n_damaged);
    must(nw_quantize(&o, NULL, &err), &err);
    assert_same_result("sound", "hurt");

    killed_run("model", "bf16", "cut");
    char *text = NULL;
    size_t n = 0;
    must(nw_file_read(left_file("cut", NW_ARTIFACT_JOURNAL), 1 << 20, &text, &n, &err), &err);
    /* the middle of the third line: the head and one tensor are whole */
    const char *second = strchr(strchr(text, '\n') + 1, '\n') + 1;
    must(nw_file_write(left_file("cut", NW_ARTIFACT_JOURNAL), text, (size_t)(second - text) + 40,
                       &err),
         &err);
    free(text);
    o = options("model", "bf16", "cut", &n_cut);
    must(nw_quantize(&o, NULL, &err), &err);
    assert_int_equal(n_cut, 1);
    assert_same_result("sound", "cut");

    killed_run("model", "bf16", "clean");
    o = options("model", "bf16", "clean", &n_whole);
    must(nw_quantize(&o, NULL, &err), &err);
    assert_true(n_damaged < n_whole);
    assert_same_result("sound", "clean");
}

static void other_work_is_refused_in_one_sentence_and_replaced_when_asked(void **state)
{
    nw_error err = {0};
    size_t n_taken_up = 7;
    nw_quantize_options o = options("model", "int8-w8a8", "mine", &n_taken_up);

    (void)state;
    killed_run("model", "bf16", "mine");
    assert_int_equal(nw_quantize(&o, NULL, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "unfinished result of another recipe"));
    assert_non_null(strstr(err.message, "--force"));
    assert_null(strchr(err.message, '\n'));
    o = options("other", "bf16", "mine", &n_taken_up);
    assert_int_equal(nw_quantize(&o, NULL, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "unfinished result of another source"));
    o.replace = true;
    must(nw_quantize(&o, NULL, &err), &err);
    assert_int_equal(n_taken_up, 0);
}

/* Two builds of one version may round differently: their tensors do not mix. */
static void work_of_another_build_is_refused(void **state)
{
    nw_error err = {0};
    size_t n_taken_up = 0;
    size_t n = 0;
    char *text = NULL;
    const nw_quantize_options o = options("model", "bf16", "built", &n_taken_up);

    (void)state;
    killed_run("model", "bf16", "built");
    const char *path = left_file("built", NW_ARTIFACT_JOURNAL);
    must(nw_file_read(path, 1 << 20, &text, &n, &err), &err);
    char *build = strstr(text, ", build ");
    assert_non_null(build);
    build[8] = build[8] == '0' ? '1' : '0';
    must(nw_file_write(path, text, n, &err), &err);
    free(text);
    assert_int_equal(nw_quantize(&o, NULL, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "unfinished result of another build of narrow"));
}

/* A stopped run leaves what an earlier one finished. */
static void a_stopped_run_keeps_what_stands(void **state)
{
    nw_error err = {0};
    size_t n_taken_up = 0;
    const nw_quantize_options o = options("model", "bf16", "stopped", &n_taken_up);
    int how = 0;

    (void)state;
    killed_run("model", "bf16", "stopped");
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        nw_stop_request();
        _exit(nw_quantize(&o, NULL, &err) == NW_E_CANCELLED ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    must(nw_quantize(&o, NULL, &err), &err);
    assert_true(n_taken_up > 0);
}

/* The weights of a model give way to what `from` names, or to nothing; what was opened stays open. */
typedef struct {
    const char *from;
    char weights[512], aside[512];
} replacement;

static bool replace_source(void *ctx, const nw_recipe_choice *choices, size_t n)
{
    const replacement *r = ctx;

    (void)choices;
    (void)n;
    return r->from != NULL ? rename(r->from, r->weights) == 0 : rename(r->weights, r->aside) == 0;
}

/* A file that is replaced between the opening and the hash: the hash would be of weights that nobody
 * quantized. */
static void a_source_that_is_replaced_is_told(void **state)
{
    nw_tiny t = nw_tiny_llama();
    nw_error err = {0};
    replacement r = {.from = in_dir("later/model.safetensors")};
    nw_quantize_options o = options("replaced", "bf16", "of-two", NULL);

    (void)state;
    nw_tiny_write(&t, in_dir("replaced"));
    t.seed = 2;
    nw_tiny_write(&t, in_dir("later"));
    (void)nw_tmpdir_file(&dir, "replaced/model.safetensors", r.weights, sizeof r.weights);
    o.on_resolved = replace_source;
    o.on_resolved_ctx = &r;
    const int before = nw_tmpdir_count(&dir);
    assert_int_equal(nw_quantize(&o, NULL, &err), NW_E_IO);
    assert_non_null(strstr(err.message, "was replaced while it was quantized"));
    assert_int_equal(nw_tmpdir_count(&dir), before); /* nothing is left of it */
}

/* A run that fails behind the last tensor, for its source cannot be hashed: all of them stay, those of
 * the run before it too. */
static void a_failed_run_keeps_what_stands(void **state)
{
    nw_error err = {0};
    nw_manifest m = {0};
    size_t n_taken_up = 0;
    replacement r = {0};
    nw_quantize_options o = options("model", "bf16", "failed", &n_taken_up);

    (void)state;
    (void)nw_tmpdir_file(&dir, "model/model.safetensors", r.weights, sizeof r.weights);
    (void)nw_tmpdir_file(&dir, "model/aside", r.aside, sizeof r.aside);
    killed_run("model", "bf16", "failed");
    o.on_resolved = replace_source;
    o.on_resolved_ctx = &r;
    const nw_status st = nw_quantize(&o, NULL, &err);
    assert_int_equal(rename(r.aside, r.weights), 0);
    assert_int_equal(st, NW_E_IO);
    assert_non_null(strstr(err.message, "the same command goes on from there"));
    o.on_resolved = NULL;
    must(nw_quantize(&o, &m, &err), &err);
    assert_int_equal(n_taken_up, m.n_tensors);
    nw_manifest_release(&m);
}

/* ^C while nothing is left but the hash. */
static void a_stop_ends_the_hash(void **state)
{
    nw_checkpoint *c = NULL;
    nw_source_digest *d = NULL;
    nw_digest hash = {0};
    nw_error err = {0};
    int how = 0;

    (void)state;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        nw_stop_request();
        const bool started = nw_checkpoint_open(in_dir("model"), &c, &err) == NW_OK &&
                             nw_source_digest_start(c, NULL, &d, &err) == NW_OK;
        _exit(started && nw_source_digest_end(d, &hash, &err) == NW_E_CANCELLED ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
}

/* Pieces of another message, laid down while the source is hashed, while that hash waits, and behind its end. */
static void another_message_is_hashed_beside_the_source(void **state)
{
    enum { PIECE = 5 << 20, N_PIECES = 4 };
    uint8_t *bytes = malloc((size_t)PIECE * N_PIECES);
    nw_checkpoint *c = NULL;
    nw_source_digest *d = NULL;
    nw_digest whole = {0}, source = {0}, want = {0};
    nw_sha256 h = {0};
    nw_error err = {0};

    (void)state;
    assert_non_null(bytes);
    for (size_t i = 0; i < (size_t)PIECE * N_PIECES; i++) {
        bytes[i] = (uint8_t)(i * 2654435761U >> 13);
    }
    must(nw_checkpoint_open(in_dir("model"), &c, &err), &err);
    must(nw_sha256_init(&h, &err), &err);
    must(nw_source_digest_start(c, NULL, &d, &err), &err);
    for (size_t i = 0; i < N_PIECES; i++) {
        if (i == N_PIECES - 1) {
            must(nw_source_digest_end(d, &source, &err), &err);
        }
        nw_source_digest_lay(d, &h, bytes + i * PIECE, PIECE);
        nw_source_digest_collect(d);
    }
    whole = nw_sha256_end(&h);
    nw_source_digest_close(d);
    must(nw_digest_bytes(bytes, (size_t)PIECE * N_PIECES, &want, &err), &err);
    assert_string_equal(whole.hex, want.hex);
    must(nw_checkpoint_digest(c, &want, &err), &err);
    assert_string_equal(source.hex, want.hex);
    nw_checkpoint_close(c);
    free(bytes);
}

/* A source that fills memory leaves it behind the hash and the driver: the result is the same. */
static void a_source_that_fills_memory_makes_the_same_bytes(void **state)
{
    nw_quantize_options o = options("model", "int8-w8a8", "kept", NULL);
    nw_error err = {0};

    (void)state;
    must(nw_quantize(&o, NULL, &err), &err);
    o.out = in_dir("left");
    o.memory_bytes = (uint64_t)16 << 20;
    must(nw_quantize(&o, NULL, &err), &err);
    assert_same_result("kept", "left");
}

static nw_status run_export(const void *ctx, nw_error *err)
{
    nw_export_report r = {0};
    const nw_status st = nw_export(ctx, &r, err);

    nw_export_report_release(&r);
    return st;
}

/* Nothing goes on with a conversion: what a killed one leaves is in nobody's way. */
static void a_killed_conversion_is_begun_anew(void **state)
{
    nw_export_options o = {
        .source = in_dir("model"), .out = in_dir("as-is"), .no_tokenizer = true, .n_threads = 2};
    nw_error err = {0};

    (void)state;
    must(nw_export_format_find("native", "", &o.format, &err), &err);
    killed(run_export, &o);
    const int before = nw_tmpdir_count(&dir);
    must(run_export(&o, &err), &err);
    assert_int_equal(nw_tmpdir_count(&dir), before); /* one folder for the other */
    must(nw_artifact_verify(in_dir("as-is"), NULL, NULL, NULL, &err), &err);
}

/* Recipe, calibration, folder, disk and memory: five kinds of mistake in one message. */
static void every_mistake_is_told_at_once(void **state)
{
    static const char recipe[] = "name: bad\n"
                                 "method: gptq\n"
                                 "targets:\n"
                                 "  - {match: '.*mlp.*', weights: int4-g128}\n"
                                 "  - {match: 'nothing', weights: int8}\n";
    nw_error err = {0};
    nw_buf all;
    char path[512];

    (void)state;
    nw_buf_init(&all, 1 << 16);
    nw_quantize_options o =
        options("model", nw_tmpdir_put(&dir, "bad.yaml", recipe, strlen(recipe), path, sizeof path),
                "model", NULL);
    o.out = dir.path;
    o.mistakes = &all;
    assert_int_not_equal(nw_quantize(&o, NULL, &err), NW_OK);
    assert_non_null(strstr(err.message, "things are wrong"));
    assert_non_null(strstr(all.data, "'nothing' matches no matrix"));
    assert_non_null(strstr(all.data, "needs calibration statistics"));
    assert_non_null(strstr(all.data, "exists and is not empty"));
    all.len = 0;
    err = (nw_error){0};
    o = options("model", "bf16", "room", NULL);
    o.mistakes = &all;
    o.disk_bytes = 1000;
    o.memory_bytes = 1000;
    assert_int_not_equal(nw_quantize(&o, NULL, &err), NW_OK);
    assert_non_null(strstr(all.data, "GB of disk"));
    assert_non_null(strstr(all.data, "GB of memory"));
    assert_false(nw_file_exists(in_dir("room")));
    nw_buf_release(&all);
}

static void no_fallback_refuses_a_method_that_a_layout_does_not_know(void **state)
{
    nw_error err = {0};
    nw_quantize_options o = options("model", "fp8-e4m3", "fell", NULL);
    nw_manifest m = {0};

    (void)state;
    o.method = "refit";
    o.no_fallback = true;
    assert_int_equal(nw_quantize(&o, NULL, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "method refit does not know layout fp8-e4m3"));
    o.no_fallback = false;
    must(nw_quantize(&o, &m, &err), &err);
    assert_int_equal(json_array_size(json_object_get(m.recipe, "substituted")), 21);
    nw_manifest_release(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_run_is_gone_on_with_to_the_same_bytes),
        cmocka_unit_test(damage_in_what_stands_is_found_and_made_again),
        cmocka_unit_test(other_work_is_refused_in_one_sentence_and_replaced_when_asked),
        cmocka_unit_test(a_stopped_run_keeps_what_stands),
        cmocka_unit_test(a_source_that_is_replaced_is_told),
        cmocka_unit_test(a_failed_run_keeps_what_stands),
        cmocka_unit_test(a_stop_ends_the_hash),
        cmocka_unit_test(another_message_is_hashed_beside_the_source),
        cmocka_unit_test(a_source_that_fills_memory_makes_the_same_bytes),
        cmocka_unit_test(a_killed_conversion_is_begun_anew),
        cmocka_unit_test(every_mistake_is_told_at_once),
        cmocka_unit_test(work_of_another_build_is_refused),
        cmocka_unit_test(no_fallback_refuses_a_method_that_a_layout_does_not_know),
    };
    return cmocka_run_group_tests_name("resume", tests, setup, teardown);
}
