/* Keys and values by calibration: statistics as they are kept, scales of FP8 in the artifact and in the
 * engine, key channels, and what is refused or told where calibration is missing.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/guard.h"
#include "artifact/kv_scales.h"
#include "caught_stderr.h"
#include "formats/fp8.h"
#include "formats/half.h"
#include "kernels/kv_page.h"
#include "kv_fixture.h"
#include "quant/kv_stats.h"
#include "quant/logits_probe.h"

/* ---- statistics ---- */

static void statistics_are_those_of_the_numbers(void **state)
{
    (void)state;
    nw_model_config c = nw_tiny_wide();
    static const float k[2][4] = {{1, -2, 0, 4}, {3, -2, 0, -4}};
    static const float v[2][4] = {{-5, 1, 0, 2}, {4, -1.5F, 0, 2}};
    nw_kv_stats s = {0};
    nw_error err = {0};

    c.n_layers = 1;
    c.n_kv_heads = 2;
    c.d_head = 2;
    must(nw_kv_stats_init(&s, &c, &err), &err);
    must(nw_kv_stats_add(&s, 0, false, k[0], 2, &err), &err);
    must(nw_kv_stats_add(&s, 0, true, v[0], 2, &err), &err);
    nw_kv_stats_finish(&s);
    assert_memory_equal(s.k_min, ((float[]){1, -2, 0, -4}), 4 * sizeof(float));
    assert_memory_equal(s.k_max, ((float[]){3, -2, 0, 4}), 4 * sizeof(float));
    assert_memory_equal(s.k_mean, ((float[]){2, -2, 0, 0}), 4 * sizeof(float));
    assert_memory_equal(s.k_spread, ((float[]){1, 0, 0, 4}), 4 * sizeof(float));
    assert_memory_equal(s.v_absmax, ((float[]){5, 1.5F, 0, 2}), 4 * sizeof(float));
    const float bad[4] = {0, 0, NAN, 0};
    assert_int_equal(nw_kv_stats_add(&s, 0, false, bad, 1, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "channel 2"));
    nw_kv_stats_release(&s);
}

static void stats_load(nw_kv_stats *s, nw_digest *hash)
{
    const nw_model_config c = nw_tiny_wide();
    nw_stats *stats = NULL;
    nw_error err = {0};

    must(nw_stats_open(in_dir("stats"), &stats, &err), &err);
    must(nw_kv_stats_load(stats, &c, s, &err), &err);
    (void)snprintf(hash->hex, sizeof hash->hex, "%s", nw_stats_hash(stats));
    nw_stats_close(stats);
}

static void statistics_of_another_model_are_refused(void **state)
{
    (void)state;
    nw_model_config c = nw_tiny_wide();
    nw_stats *stats = NULL;
    nw_kv_stats s = {0};
    nw_error err = {0};

    c.n_kv_heads++;
    must(nw_stats_open(in_dir("stats"), &stats, &err), &err);
    assert_int_equal(nw_kv_stats_load(stats, &c, &s, &err), NW_E_FORMAT);
    nw_stats_close(stats);
}

/* ---- artifact ---- */

/* 448 times a scale holds the largest of its channels, and 255/256 of it does not: the next lower number
 * of BF16 would clip. */
static void assert_fits(float scale, float most)
{
    assert_true(scale * 448 >= most && scale * 448 * (1 - 0x1p-7F) < most);
    assert_true(nw_bf16_to_f32(nw_bf16_from_f32(scale)) - scale == 0.0F);
}

static void load_manifest(const char *artifact, nw_manifest *m)
{
    char path[512];
    nw_error err = {0};

    (void)snprintf(path, sizeof path, "%s/manifest.json", in_dir(artifact));
    must(nw_manifest_load(path, m, &err), &err);
}

static void scales_hold_what_calibration_saw(void **state)
{
    (void)state;
    nw_kv_stats s = {0};
    nw_digest hash;
    nw_manifest m = {.version = 0};
    nw_error err = {0};
    const nw_model_config c = nw_tiny_wide();

    stats_load(&s, &hash);
    for (int heads = 0; heads < 2; heads++) {
        nw_artifact *a = NULL;
        must(quantize(heads ? "kv: fp8\nkv_scales: head\n" TARGETS : "kv: fp8\n" TARGETS, "q", true,
                      &err),
             &err);
        must(nw_artifact_open(in_dir("q"), &a, &err), &err);
        load_manifest("q", &m);
        const json_t *of = json_object_get(m.recipe, "kv_calibration");
        assert_non_null(of);
        assert_string_equal(json_string_value(json_object_get(of, "hash")), hash.hex);
        nw_manifest_release(&m);
        const nw_artifact_kv *kv = nw_artifact_get_kv(a);
        assert_string_equal(kv->format, "fp8");
        assert_int_equal(kv->n_scales, heads ? c.n_kv_heads : 1);
        const uint32_t per = s.n_channels / kv->n_scales;
        for (size_t i = 0; i < (size_t)c.n_layers * kv->n_scales; i++) {
            float k = 0;
            float v = 0;
            for (size_t j = i * per; j < (i + 1) * per; j++) {
                k = fmaxf(k, fmaxf(fabsf(s.k_min[j]), fabsf(s.k_max[j])));
                v = fmaxf(v, s.v_absmax[j]);
            }
            assert_fits(kv->k_scale[i], k);
            assert_fits(kv->v_scale[i], v);
        }
        nw_artifact_close(a);
    }
    nw_kv_stats_release(&s);
}

static void a_format_without_numbers_needs_no_calibration(void **state)
{
    (void)state;
    static const char *const free_of_it[] = {"kv: int8\n" TARGETS, "kv: fp8+dynamic\n" TARGETS,
                                             "kv: int4/int8+window128\n" TARGETS};
    static const struct {
        const char *yaml, *says;
    } bad[] = {{"kv: fp8\n" TARGETS, "needs calibration"},
               {"kv: int4+channel\n" TARGETS, "needs calibration"},
               {"kv: int5\n" TARGETS, "int5"},
               {"kv_scales: head\n" TARGETS, "want a format"},
               {"kv: int8\nkv_scales: head\n" TARGETS, "kv_scales: head has no meaning"},
               {"kv: fp8+dynamic\nkv_calibration: s\n" TARGETS, "kv_calibration has no meaning"},
               {"kv: 8\n" TARGETS, "not a string"}};
    nw_manifest m = {.version = 0};
    nw_error err = {0};

    for (size_t i = 0; i < NW_COUNT(free_of_it); i++) {
        nw_artifact *a = NULL;
        must(quantize(free_of_it[i], "q", false, &err), &err);
        must(nw_artifact_open(in_dir("q"), &a, &err), &err);
        assert_int_equal(nw_artifact_get_kv(a)->n_scales, 0);
        load_manifest("q", &m);
        assert_null(json_object_get(m.recipe, "kv_scales"));
        nw_manifest_release(&m);
        nw_artifact_close(a);
    }
    for (size_t i = 0; i < NW_COUNT(bad); i++) {
        assert_int_not_equal(quantize(bad[i].yaml, "bad", false, &err), NW_OK);
        if (strstr(err.message, bad[i].says) == NULL) {
            fail_msg("'%s' is not in: %s", bad[i].says, err.message);
        }
    }
}

static void values_that_change_need_statistics_of_their_own(void **state)
{
    static const char *const changes[] = {"rotate-heads", "awq", "smoothquant"};
    char yaml[512];
    nw_error err = {0};

    (void)state;
    for (size_t i = 0; i < NW_COUNT(changes); i++) {
        (void)snprintf(yaml, sizeof yaml,
                       "kv: fp8\ntransform: [%s]\nactivations: a8\n"
                       "targets: [{match: '.*_proj', weights: int8}]\n",
                       changes[i]);
        assert_int_equal(quantize(yaml, "bad", true, &err), NW_E_USAGE);
        assert_non_null(strstr(err.message, "kv_calibration"));
        assert_non_null(strstr(err.message, changes[i]));
    }
}

/* ---- engine ---- */

/* F4 of the reports: where the scales come from is always told. */
static void the_source_of_scales_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *model, *kv, *is, *says;
    } rows[] = {{"q", NULL, "fp8", "calibrated, one a layer"},
                {"q", "fp8+dynamic", "fp8+dynamic", "in place of the calibrated"},
                {"q", "fp8/int8", "fp8/int8", "calibrated"},
                {"q", "int8", "int8", "needs no calibration"},
                {"q", "bf16", "bf16", "none"},
                {"model", NULL, "f32", "none"},
                {"model", "fp8", "fp8+dynamic", "uncalibrated"},
                {"model", "fp8/int4", "fp8/int4+dynamic", "uncalibrated"}};
    nw_error err = {0};

    must(quantize("kv: fp8\n" TARGETS, "q", true, &err), &err);
    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        nw_engine *e = open_engine(rows[i].model, rows[i].kv);
        const nw_engine_facts *f = nw_engine_get_facts(e);
        assert_string_equal(f->kv, rows[i].is);
        if (strstr(f->kv_scales, rows[i].says) == NULL) {
            fail_msg("'%s' is not in: %s", rows[i].says, f->kv_scales);
        }
        nw_engine_close(e);
    }
}

typedef struct {
    float *keep;
    uint32_t n_vocab;
    double sum_kl;
    bool compare;
} scored;

static bool take(void *ctx, size_t pos, const float *logits)
{
    scored *s = ctx;
    float *row = s->keep + pos * s->n_vocab;

    if (s->compare) {
        s->sum_kl += nw_logits_kl(row, logits, s->n_vocab);
    } else {
        memcpy(row, logits, s->n_vocab * sizeof *row);
    }
    return true;
}

/* Mean KL of a KV format against F32, same weights. */
static double kl_of(const char *model, const char *kv)
{
    scored s = {0};
    nw_error err = {0};
    int32_t ids[N_IDS];

    for (int32_t i = 0; i < N_IDS; i++) {
        ids[i] = i * 37 % 256;
    }
    for (int i = 0; i < 2; i++) {
        nw_engine *e = open_engine(model, i == 0 ? "f32" : kv);
        s.n_vocab = nw_engine_config(e)->n_vocab;
        s.compare = i == 1;
        s.keep = i == 0 ? calloc((size_t)N_IDS * s.n_vocab, sizeof *s.keep) : s.keep;
        assert_non_null(s.keep);
        must(nw_engine_score(e, ids, N_IDS, 0, take, &s, &err), &err);
        nw_engine_close(e);
    }
    free(s.keep);
    return s.sum_kl / N_IDS;
}

/* Scores move by the same number for all keys of a query: nothing is left of it but rounding. */
static void channels_leave_the_softmax_alone(void **state)
{
    (void)state;
    nw_error err = {0};

    must(quantize("kv: int4+channel\n" TARGETS, "q", true, &err), &err);
    assert_true(kl_of("q", "f32+channel") < 1e-7);
    assert_true(kl_of("q", "int4+channel") < 0.05);
    assert_true(kl_of("q", NULL) > 1e-7); /* the artifact's own format: int4+channel */
}

static void fixed_scales_are_used(void **state)
{
    (void)state;
    nw_error err = {0};

    must(quantize("kv: fp8\n" TARGETS, "q", true, &err), &err);
    const double fixed = kl_of("q", "fp8");
    const double dynamic = kl_of("q", "fp8+dynamic");
    assert_true(fixed > 0 && dynamic > 0 && fabs(fixed - dynamic) > 0);
    assert_true(fixed < 30 * dynamic);
}

/* Codes of E4M3 of x / scale, clipped, on every tier. */
static void pages_take_a_fixed_scale(void **state)
{
    (void)state;
    const nw_kernels *tier = NULL;
    static const float scales[] = {0.002F, 0.5F, 0x1.8p-3F};

    for (size_t i = 0; (tier = nw_tier(i)) != NULL; i++) {
        for (size_t j = 0; j < NW_COUNT(scales); j++) {
            nw_kv_type kv = nw_kv_type_of(NW_KV_FP8, NW_KV_FP8, 16);
            float k[16];
            float v[16];
            float got[16];
            kv.k_scale = scales[j];
            kv.v_scale = 2 * scales[j];
            for (uint32_t d = 0; d < 16; d++) {
                k[d] = (float)d * 0.37F - 3;
                v[d] = d == 3 ? 1e5F : -k[d]; /* beyond 448 times the scale */
            }
            uint8_t *page = aligned_alloc(64, nw_kv_k_page_bytes(&kv) + nw_kv_v_page_bytes(&kv));
            assert_non_null(page);
            uint8_t *values = page + nw_kv_k_page_bytes(&kv);
            tier->kv_put(&kv, 0, k, v, page, values);
            nw_kv_k_token(&kv, page, 0, got);
            for (uint32_t d = 0; d < 16; d++) {
                const float want = nw_e4m3_to_f32(nw_e4m3_from_f32(k[d] / kv.k_scale)) * kv.k_scale;
                assert_memory_equal(&got[d], &want, sizeof want);
            }
            nw_kv_v_token(&kv, values, 0, got);
            assert_true(got[3] >= 448 * kv.v_scale && got[3] <= 448 * kv.v_scale);
            free(page);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_are_those_of_the_numbers),
        cmocka_unit_test(statistics_of_another_model_are_refused),
        cmocka_unit_test(scales_hold_what_calibration_saw),
        cmocka_unit_test(a_format_without_numbers_needs_no_calibration),
        cmocka_unit_test(values_that_change_need_statistics_of_their_own),
        cmocka_unit_test(the_source_of_scales_is_told),
        cmocka_unit_test(channels_leave_the_softmax_alone),
        cmocka_unit_test(fixed_scales_are_used),
        cmocka_unit_test(pages_take_a_fixed_scale),
    };
    return cmocka_run_group_tests_name("kv_scales", tests, setup, teardown);
}
