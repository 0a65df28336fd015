/* Scales of keys and values in folders of other programs' formats: written, read back, and what is refused or
 * told.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact.h"
#include "artifact/export.h"
#include "artifact/kv_scales.h"
#include "caught_stderr.h"
#include "kv_fixture.h"
#include "model/safetensors.h"

static void export_folder(const char *from, const char *to)
{
    nw_export_report r = {0};
    nw_error err = {0};
    nw_export_options o = {
        .source = in_dir(from), .out = in_dir(to), .replace = true, .n_threads = 1};

    must(nw_export_format_find("compressed-tensors", "native", &o.format, &err), &err);
    must(nw_export(&o, &r, &err), &err);
    nw_export_report_release(&r);
}

static void assert_same_scales(const char *from, const char *to)
{
    nw_artifact *a[2] = {NULL, NULL};
    nw_error err = {0};

    must(nw_artifact_open(in_dir(from), &a[0], &err), &err);
    must(nw_artifact_open(in_dir(to), &a[1], &err), &err);
    const nw_artifact_kv *x = nw_artifact_get_kv(a[0]);
    const nw_artifact_kv *y = nw_artifact_get_kv(a[1]);
    const size_t n = (size_t)x->n_scales * nw_artifact_config(a[0])->n_layers;
    assert_string_equal(y->format, "fp8");
    assert_int_equal(x->n_scales, y->n_scales);
    assert_memory_equal(x->k_scale, y->k_scale, n * sizeof(float));
    assert_memory_equal(x->v_scale, y->v_scale, n * sizeof(float));
    nw_artifact_close(a[0]);
    nw_artifact_close(a[1]);
}

/* Written, read back, and written again from what was read. */
static void scales_survive_compressed_tensors(void **state)
{
    (void)state;
    static const char *const yamls[] = {"kv: fp8\n" TARGETS,
                                        "kv: fp8+window64\nkv_scales: head\n" TARGETS,
                                        "kv: fp8\ntargets: [{match: '.*_proj', weights: int8}]\n"};
    nw_error err = {0};

    for (size_t i = 0; i < NW_COUNT(yamls); i++) {
        must(quantize(yamls[i], "q", true, &err), &err);
        export_folder("q", "ct");
        assert_same_scales("q", "ct");
        export_folder("ct", "again");
        assert_same_scales("ct", "again");
    }
    nw_engine *e = open_engine("ct", NULL);
    assert_string_equal(nw_engine_get_facts(e)->kv, "fp8");
    assert_non_null(strstr(nw_engine_get_facts(e)->kv_scales, "calibrated"));
    nw_engine_close(e);
}

/* Sets every scale of keys and values in a folder, or only the keys' of the first layer. */
static void set_scales(const char *folder, float x, bool first_only)
{
    char path[512];
    char *bytes = NULL;
    size_t n = 0;
    nw_safetensors *st = NULL;
    nw_error err = {0};
    uint64_t header = 0;

    (void)snprintf(path, sizeof path, "%s/model.safetensors", in_dir(folder));
    must(nw_file_read(path, 1 << 24, &bytes, &n, &err), &err);
    memcpy(&header, bytes, sizeof header);
    must(nw_st_open(path, &st, &err), &err);
    const uint8_t *first = nw_st_at(st, 0)->data;
    for (size_t i = 0; i < nw_st_n_tensors(st); i++) {
        first = nw_st_at(st, i)->data < first ? nw_st_at(st, i)->data : first;
    }
    for (size_t i = 0; i < nw_st_n_tensors(st); i++) {
        const nw_st_tensor *t = nw_st_at(st, i);
        const bool wanted = strstr(t->name, first_only ? "layers.0.self_attn.k_scale" : "_scale");
        for (size_t k = 0; wanted && k < t->n_elems; k++) {
            memcpy(bytes + sizeof header + header + (t->data - first) + k * sizeof x, &x, sizeof x);
        }
    }
    nw_st_close(st);
    must(nw_file_write(path, bytes, n, &err), &err);
    free(bytes);
}

/* F4: a scale that nobody measured is none. */
static void scales_of_one_are_uncalibrated(void **state)
{
    (void)state;
    nw_error err = {0};
    nw_artifact *a = NULL;

    must(quantize("kv: fp8\n" TARGETS, "q", true, &err), &err);
    export_folder("q", "ct");
    set_scales("ct", 1, false);
    must(nw_artifact_open(in_dir("ct"), &a, &err), &err);
    assert_int_equal(nw_artifact_get_kv(a)->n_scales, 0);
    nw_artifact_close(a);
    nw_engine *e = open_engine("ct", "fp8");
    assert_non_null(strstr(nw_engine_get_facts(e)->kv_scales, "uncalibrated"));
    nw_engine_close(e);
}

static void scales_that_are_none_are_refused(void **state)
{
    (void)state;
    static const float bad[] = {0, -1, NAN, INFINITY};
    nw_error err = {0};

    must(quantize("kv: fp8\n" TARGETS, "q", true, &err), &err);
    for (size_t i = 0; i < NW_COUNT(bad); i++) {
        nw_artifact *a = NULL;
        export_folder("q", "ct");
        set_scales("ct", bad[i], true);
        assert_int_equal(nw_artifact_open(in_dir("ct"), &a, &err), NW_E_FORMAT);
        assert_non_null(strstr(err.message, "k_scale"));
    }
}

/* As other engines: what the config does not ask for is not used. */
static void scales_without_a_scheme_are_not_used(void **state)
{
    static const char *const schemes[] = {
        "{\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"tensor\"}", "null"};
    char path[512];
    nw_error err = {0};

    (void)state;
    must(quantize("kv: fp8\n" TARGETS, "q", true, &err), &err);
    export_folder("q", "ct");
    (void)snprintf(path, sizeof path, "%s/config.json", in_dir("ct"));
    for (size_t i = 0; i < NW_COUNT(schemes); i++) {
        nw_artifact *a = NULL;
        json_t *config = json_load_file(path, 0, NULL);
        json_t *scheme = json_loads(schemes[i], JSON_DECODE_ANY, NULL);
        json_t *quant = json_object_get(config, "quantization_config");
        assert_non_null(json_object_get(quant, "kv_cache_scheme"));
        assert_int_equal(json_object_set_new(quant, "kv_cache_scheme", scheme), 0);
        assert_int_equal(json_dump_file(config, path, JSON_INDENT(2)), 0);
        json_decref(config);
        must(nw_artifact_open(in_dir("ct"), &a, &err), &err);
        assert_int_equal(nw_artifact_get_kv(a)->n_scales, 0);
        assert_string_equal(nw_artifact_get_kv(a)->format, "");
        nw_artifact_close(a);
    }
}

static void scales_that_are_left_out_are_told(void **state)
{
    char text[8192];
    int kept = -1;
    nw_error err = {0};

    (void)state;
    must(quantize("kv: fp8\n" TARGETS, "q", true, &err), &err);
    export_folder("q", "ct");
    for (int said = 0; said < 2; said++) {
        const nw_quantize_options o = {.source = in_dir("ct"),
                                       .recipe = "bf16",
                                       .kv = said ? "fp8+dynamic" : NULL,
                                       .out = in_dir("requantized"),
                                       .replace = true,
                                       .n_threads = 1};
        FILE *file = catch_stderr(&kept);
        const nw_status st = nw_quantize(&o, NULL, &err);
        caught(file, kept, text, sizeof text);
        must(st, &err);
        assert_int_equal(strstr(text, "FP8 keys and values are left out") != NULL, !said);
    }
}

static void words_that_no_folder_says_are_told(void **state)
{
    static const struct {
        const char *yaml, *says; /* NULL: nothing */
    } rows[] = {
        {"kv: fp8\n" TARGETS, NULL},
        {"kv: fp8+window128+sinks64\n" TARGETS, "more than fp8 and its scales"},
        {"kv: fp8+channel\n" TARGETS, "more than fp8 and its scales"},
        {"kv: fp8+dynamic\ntargets: [{match: '.*_proj', weights: int8}]\n", "does not say so"}};
    char text[8192];
    int kept = -1;
    nw_error err = {0};

    (void)state;
    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        must(quantize(rows[i].yaml, "q", true, &err), &err);
        FILE *file = catch_stderr(&kept);
        export_folder("q", "ct");
        caught(file, kept, text, sizeof text);
        const char *told = strstr(text, "keys and values in fp8");
        assert_int_equal(told != NULL, rows[i].says != NULL);
        assert_true(told == NULL || strstr(told, rows[i].says) != NULL);
    }
}

/* ---- quant_method fp8 ---- */

#define MAX_TENSORS 256

/* Writes the folder's tensors anew: those of which `name` says so under another name, or not at all (""). */
static void rename_tensors(const char *folder, const char *(*name)(const char *old, char *buf))
{
    static char names[MAX_TENSORS][128];
    nw_st_decl decls[MAX_TENSORS];
    const nw_st_tensor *from[MAX_TENSORS];
    char path[512];
    char out[512];
    nw_safetensors *st = NULL;
    nw_st_writer *w = NULL;
    nw_error err = {0};
    size_t n = 0;

    (void)snprintf(path, sizeof path, "%s/model.safetensors", in_dir(folder));
    (void)snprintf(out, sizeof out, "%s/renamed", in_dir(folder));
    must(nw_st_open(path, &st, &err), &err);
    assert_true(nw_st_n_tensors(st) <= MAX_TENSORS);
    for (size_t i = 0; i < nw_st_n_tensors(st); i++) {
        const nw_st_tensor *t = nw_st_at(st, i);
        const char *now = name(t->name, names[n]);
        if (*now != '\0') {
            decls[n] = (nw_st_decl){.name = now, .format = t->format, .n_dims = t->n_dims};
            memcpy(decls[n].dims, t->dims, sizeof t->dims);
            from[n++] = t;
        }
    }
    must(nw_st_writer_open(out, decls, n, NULL, 64, &w, &err), &err);
    for (size_t i = 0; i < n; i++) {
        must(nw_st_writer_write(w, decls[i].name, from[i]->data, from[i]->n_bytes, &err), &err);
    }
    must(nw_st_writer_commit(w, &err), &err);
    nw_st_writer_close(w);
    nw_st_close(st);
    assert_int_equal(rename(out, path), 0);
}

/* ".k_scale" and ".v_scale" of layers get the endings; "": left out, NULL: as it was. */
static const char *const *endings;

static const char *renamed(const char *old, char *buf)
{
    const char *at = strstr(old, ".self_attn.");
    const int which = at == NULL                              ? -1
                      : strcmp(at, ".self_attn.k_scale") == 0 ? 0
                      : strcmp(at, ".self_attn.v_scale") == 0 ? 1
                                                              : -1;

    if (which < 0 || endings[which] == NULL) {
        return old;
    }
    if (endings[which][0] == '\0') {
        return "";
    }
    (void)snprintf(buf, 128, "%.*s.self_attn.%s", (int)(at - old), old, endings[which]);
    return buf;
}

static void set_quantization(const char *folder, const char *text)
{
    char path[512];

    (void)snprintf(path, sizeof path, "%s/config.json", in_dir(folder));
    json_t *config = json_load_file(path, 0, NULL);
    json_t *quant = json_loads(text, 0, NULL);
    assert_non_null(quant);
    assert_int_equal(json_object_set_new(config, "quantization_config", quant), 0);
    assert_int_equal(json_dump_file(config, path, JSON_INDENT(2)), 0);
    json_decref(config);
}

/* kv_cache_scheme "static", scales under every name that writers of such folders gave them. */
static void fp8_folders_have_scales_too(void **state)
{
    static const struct {
        const char *scheme;
        const char *endings[2];
        bool read, shared;
    } rows[] = {
        {"\"static\"", {NULL, NULL}, true, false},
        {"\"static\"", {"k_proj.output_scale", "v_proj.output_scale"}, true, false},
        {"\"static\"", {"kv_scale", ""}, true, true},
        {"\"static\"", {"kv_scale", NULL}, true, false},
        {"null", {NULL, NULL}, false, false},
        {"\"dynamic\"", {"kv_scale", ""}, false, false},
    };
    char text[256];
    nw_error err = {0};

    (void)state;
    must(quantize("kv: fp8\n" TARGETS, "q", true, &err), &err);
    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        nw_artifact *a = NULL;
        nw_artifact *q = NULL;
        export_folder("q", "fp8");
        endings = rows[i].endings;
        rename_tensors("fp8", renamed);
        (void)snprintf(text, sizeof text, "{\"quant_method\": \"fp8\", \"kv_cache_scheme\": %s}",
                       rows[i].scheme);
        set_quantization("fp8", text);
        must(nw_artifact_open(in_dir("fp8"), &a, &err), &err);
        must(nw_artifact_open(in_dir("q"), &q, &err), &err);
        const nw_artifact_kv *have = nw_artifact_get_kv(a);
        const nw_artifact_kv *want = nw_artifact_get_kv(q);
        assert_string_equal(have->format, rows[i].read ? "fp8" : "");
        assert_int_equal(have->n_scales, rows[i].read ? 1 : 0);
        const size_t n = have->n_scales * nw_artifact_config(a)->n_layers * sizeof(float);
        if (rows[i].read) {
            assert_memory_equal(have->k_scale, want->k_scale, n);
            assert_memory_equal(have->v_scale, rows[i].shared ? want->k_scale : want->v_scale, n);
        }
        nw_artifact_close(a);
        nw_artifact_close(q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_survive_compressed_tensors),
        cmocka_unit_test(scales_of_one_are_uncalibrated),
        cmocka_unit_test(scales_that_are_none_are_refused),
        cmocka_unit_test(scales_without_a_scheme_are_not_used),
        cmocka_unit_test(scales_that_are_left_out_are_told),
        cmocka_unit_test(words_that_no_folder_says_are_told),
        cmocka_unit_test(fp8_folders_have_scales_too),
    };
    return cmocka_run_group_tests_name("kv_folders", tests, setup, teardown);
}
