/* KV formats: every pair of K and V kinds runs on every tier for every usual head size, prefill and
 * decode, and stays close to F32 (a packed layout that crosses heads or pages would not).
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "engine/sampler.h"
#include "engine_fixture.h"

#define N_DEEP   560 /* three segments of keys */
#define N_ALONE  12  /* the last of them, one by one */
#define N_KV_IDS 70  /* a full page and the start of the next */

static struct row {
    const char *name;
    uint32_t d_head;
} rows[] = {
    {"head_32", 32}, {"head_64", 64}, {"head_80", 80}, {"head_96", 96}, {"head_128", 128},
};

static nw_engine *engine_of(const char *path, const char *tier, nw_kv_kind k, nw_kv_kind v)
{
    nw_engine_options o = fixture_options();
    nw_engine *e = NULL;
    nw_error err = {0};
    o.tier = tier;
    o.kv_k = (int)k;
    o.kv_v = (int)v;
    if (nw_engine_open(path, &o, &e, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
    return e;
}

/* Half of the ids as a prompt, half one by one. */
static float *logits_of(const char *path, const char *tier, nw_kv_kind k, nw_kv_kind v)
{
    nw_engine *e = engine_of(path, tier, k, v);
    nw_session *s = open_session(e);
    float *y = new_logits(N_KV_IDS);
    int32_t ids[N_KV_IDS];
    random_ids(31, ids, N_KV_IDS);
    feed(e, s, ids, N_KV_IDS / 2, y);
    for (size_t i = N_KV_IDS / 2; i < N_KV_IDS; i++) {
        feed(e, s, ids + i, 1, y + i * NW_TINY_VOCAB);
    }
    nw_session_close(s);
    nw_engine_close(e);
    return y;
}

/* Mean over positions of sum p ln(p / q), in nats. */
static double mean_kl(const float *p, const float *q)
{
    double kl = 0;
    for (size_t i = 0; i < N_KV_IDS; i++, p += NW_TINY_VOCAB, q += NW_TINY_VOCAB) {
        const double zp = nw_log_sum_exp(p, NW_TINY_VOCAB);
        const double zq = nw_log_sum_exp(q, NW_TINY_VOCAB);
        for (size_t j = 0; j < NW_TINY_VOCAB; j++) {
            const double lp = (double)p[j] - zp;
            kl += exp(lp) * (lp - ((double)q[j] - zq));
        }
    }
    return kl / N_KV_IDS;
}

/* INT8 errs by at most 1/254 of a head's largest value, BF16 by 1/256 of each: logits near 1 move by
 * about 0.01, and half of its square is 5e-5 nats. FP8 errs by up to 1/16 of each, INT4 by 1/16 of
 * the largest: logits move by 0.1, which is 5e-3 nats; mixed-up values are other logits altogether:
 * some tenths of a nat. */
static double kl_limit(nw_kv_kind k, nw_kv_kind v)
{
    const bool narrow = k == NW_KV_FP8 || k == NW_KV_INT4 || v == NW_KV_FP8 || v == NW_KV_INT4;
    return narrow ? 2e-2 : 1e-3;
}

static void pairs_for(const char *path, const char *tier)
{
    float *want = logits_of(path, "ref", NW_KV_F32, NW_KV_F32);

    for (int pair = 0; pair < (int)(NW_KV_KINDS * NW_KV_KINDS); pair++) {
        const nw_kv_kind k = (nw_kv_kind)(pair / (int)NW_KV_KINDS);
        const nw_kv_kind v = (nw_kv_kind)(pair % (int)NW_KV_KINDS);
        float *got = logits_of(path, tier, k, v);
        const double kl = mean_kl(want, got);
        if (!(kl >= -1e-6 && kl < kl_limit(k, v))) {
            fail_msg("tier %s, k %s v %s: KL of %g nats", tier, nw_kv_kind_name(k),
                     nw_kv_kind_name(v), kl);
        }
        free(got);
    }
    free(want);
}

static void every_kv_pair_stays_close_to_f32(void **state)
{
    const struct row *r = *state;
    nw_model_config c = nw_tiny_llama();
    char path[300];
    size_t n = 0;
    const nw_kernels *const *list = nw_kernels_list(&n);

    c.n_layers = 1;
    c.d_head = r->d_head;
    c.attn_scale = 1 / sqrtf((float)r->d_head);
    (void)nw_tmpdir_file(&fixture_dir, r->name, path, sizeof path);
    nw_tiny_write(&c, r->d_head, path);
    for (size_t i = 0; i < n; i++) {
        if ((list[i]->need & nw_cpu_features()) == list[i]->need) {
            pairs_for(path, list[i]->tier);
        }
    }
}

/* Tokens decoded far enough that keys are split over threads, or a window begins within one. */
static float *deep_logits(const char *path, const char *tier, int kind, unsigned threads,
                          uint32_t chunk)
{
    nw_engine_options o = fixture_options();
    nw_engine *e = NULL;
    nw_error err = {0};
    int32_t ids[N_DEEP];
    float *y = new_logits(N_DEEP);

    o.tier = tier;
    o.kv_k = o.kv_v = kind;
    o.n_threads = threads;
    if (nw_engine_open(path, &o, &e, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
    nw_session *s = open_session(e);
    random_ids(32, ids, N_DEEP);
    for (uint32_t i = 0; i < N_DEEP;) {
        const uint32_t n = i < N_DEEP - N_ALONE ? chunk : 1;
        const uint32_t left = i < N_DEEP - N_ALONE ? N_DEEP - N_ALONE - i : 1;
        feed(e, s, ids + i, n < left ? n : left, y + (size_t)i * NW_TINY_VOCAB);
        i += n < left ? n : left;
    }
    nw_session_close(s);
    nw_engine_close(e);
    return y;
}

/* Each format, one kv head with a window in some layers: the same bits for 1, 2 and 3 threads and any
 * cut of the prompt, so the same text. */
static void same_bits_for_threads_and_chunks(void **state)
{
    nw_model_config c = nw_tiny_gemma3();
    char path[300];
    (void)state;

    c.n_layers = 3;
    c.n_ctx = 1024;
    c.sliding_window = 300;
    (void)nw_tmpdir_file(&fixture_dir, "deep", path, sizeof path);
    nw_tiny_write(&c, 77, path);
    for (int kind = 0; kind < (int)NW_KV_KINDS; kind++) {
        const char *tier = nw_kernels_pick(nw_cpu_features())->tier;
        float *want = deep_logits(path, tier, kind, 1, 128);
        for (unsigned threads = 2; threads <= 3; threads++) {
            float *got = deep_logits(path, tier, kind, threads, threads == 2 ? 128 : 37);
            assert_memory_equal(got, want, N_DEEP * NW_TINY_VOCAB * sizeof *got);
            free(got);
        }
        free(want);
    }
}

int main(void)
{
    fixture_dir = nw_tmpdir_make();
    const struct CMUnitTest deep[] = {cmocka_unit_test(same_bits_for_threads_and_chunks)};
    const int failed =
        NW_RUN_TABLE("every_kv_pair_stays_close_to_f32", rows, every_kv_pair_stays_close_to_f32) +
        cmocka_run_group_tests_name("deep", deep, NULL, NULL);
    (void)fixture_teardown(NULL);
    return failed;
}
