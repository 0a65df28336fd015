/* Attention of every tier against the reference, over pages of every pair of formats: shared query
 * heads, windows, softcap, odd head sizes, wide pages, pages taken in any order and with an old tail;
 * and the same bits for a query alone, in a span, or with its keys split over threads.
 *
 * Bound. Both sides read the same pages, so only arithmetic differs. u = 2^-24; by Cauchy-Schwarz
 * sum|q k| <= |q||k|. Queries are whole BF16 numbers, so that a tier which packs them in BF16 loses
 * nothing, unless they are rotated for wide pages (2^-8 of each). Where keys are integers a tier may
 * pack queries in 15 bits: off by max|q| / 32512 each, which is sqrt(d_head) |q||k| / 32512 in all.
 * A score is off by at most e = scale |q||k| ((d_head + 8 + log2 d_head) u + sqrt(d_head) / 32512
 * [+ 2^-8]), tanh included; a probability by e^2e - 1. Probabilities are rounded to BF16 (2^-8), or
 * counted in 65535ths of a page's largest factor: over its 64 keys, 64 / 131070 < 2^-8 of that, and a
 * tier's 2^x is off by 2^-18 at most. Sums of F32 over the keys: by 64 u a page. Hence |error| <=
 * (e^2e - 1 + 2^-8 + (64 + n_pages) u) max|v|, of the result before it is turned back, which may add
 * up sqrt(block) of them.
 *
 * With 8-bit activations both sides count factors in 255ths, but a tier's 2^x, off by less than 2^-13,
 * may round to the next: no more than 2 * 255 * 2^-13.7 of the factors do so, 2.4 of a page's 64. Four
 * steps are allowed, each 1 / 255 of the page's largest, which the page's sum is no less than.
 * SPDX-License-Identifier: Apache-2.0 */
#include "guard.h"
#include "kernels/attn_tile.h"
#include "table.h"

#define U         0x1p-24
#define MAX_PAGES 16

static struct row {
    const char *name;
    nw_kv_kind k, v;
    uint32_t d_head, n_rep, n_queries, q_pos, window;
    float softcap;
    uint32_t n_wide, n_sinks; /* newest and first pages in BF16 beside the others */
} rows[] = {
    {"first_token", NW_KV_BF16, NW_KV_BF16, 64, 3, 1, 0, 0, 0, 0, 0},
    {"decode_smol", NW_KV_BF16, NW_KV_BF16, 64, 3, 1, 300, 0, 0, 0, 0},
    {"prefill_smol", NW_KV_BF16, NW_KV_BF16, 64, 3, 200, 0, 0, 0, 0, 0},
    {"chunk_across_pages", NW_KV_BF16, NW_KV_BF16, 64, 3, 40, 50, 0, 0, 0, 0},
    {"last_slot_of_a_page", NW_KV_BF16, NW_KV_BF16, 64, 1, 1, 63, 0, 0, 0, 0},
    {"first_slot_of_a_page", NW_KV_BF16, NW_KV_BF16, 64, 1, 1, 64, 0, 0, 0, 0},
    {"f32_pages", NW_KV_F32, NW_KV_F32, 64, 2, 70, 20, 0, 0, 0, 0},
    {"int8_pages", NW_KV_INT8, NW_KV_INT8, 64, 3, 70, 20, 0, 0, 0, 0},
    {"int8_k_bf16_v", NW_KV_INT8, NW_KV_BF16, 64, 4, 5, 130, 0, 0, 0, 0},
    {"bf16_k_int8_v", NW_KV_BF16, NW_KV_INT8, 128, 4, 5, 130, 0, 0, 0, 0},
    {"f32_k_int8_v", NW_KV_F32, NW_KV_INT8, 32, 1, 5, 130, 0, 0, 0, 0},
    {"tiny_head", NW_KV_BF16, NW_KV_BF16, 2, 2, 70, 10, 0, 0, 0, 0},
    {"head_8", NW_KV_F32, NW_KV_BF16, 8, 2, 70, 10, 0, 0, 0, 0},
    {"head_48", NW_KV_BF16, NW_KV_BF16, 48, 1, 33, 10, 0, 0, 0, 0},
    {"head_80", NW_KV_INT8, NW_KV_INT8, 80, 1, 9, 100, 0, 0, 0, 0},
    {"head_256", NW_KV_BF16, NW_KV_BF16, 256, 4, 9, 100, 0, 0, 0, 0},
    {"head_512", NW_KV_F32, NW_KV_F32, 512, 2, 3, 10, 0, 0, 0, 0},
    {"many_query_heads", NW_KV_BF16, NW_KV_BF16, 64, 50, 3, 100, 0, 0, 0, 0},
    {"window_of_one", NW_KV_BF16, NW_KV_BF16, 64, 2, 80, 0, 1, 0, 0, 0},
    {"window_within_a_page", NW_KV_BF16, NW_KV_BF16, 64, 2, 200, 100, 20, 0, 0, 0},
    {"window_of_pages", NW_KV_BF16, NW_KV_BF16, 64, 2, 100, 250, 128, 0, 0, 0},
    {"softcap", NW_KV_BF16, NW_KV_BF16, 64, 2, 30, 100, 0, 5, 0, 0},
    {"softcap_window_int8", NW_KV_INT8, NW_KV_INT8, 64, 2, 30, 100, 70, 5, 0, 0},
    {"fp8_pages", NW_KV_FP8, NW_KV_FP8, 64, 3, 70, 20, 0, 0, 0, 0},
    {"int4_pages", NW_KV_INT4, NW_KV_INT4, 64, 3, 70, 20, 0, 0, 0, 0},
    {"decode_4_segments", NW_KV_INT8, NW_KV_INT8, 64, 4, 1, 900, 0, 0, 0, 0},
    {"chunk_of_4_segments", NW_KV_BF16, NW_KV_INT4, 64, 4, 16, 880, 0, 0, 0, 0},
    {"window_of_2_segments", NW_KV_INT4, NW_KV_FP8, 128, 2, 40, 700, 300, 0, 0, 0},
    {"window_from_a_segment", NW_KV_INT8, NW_KV_INT8, 64, 2, 2, 511, 256, 0, 0, 0},
    {"int4_head_2", NW_KV_INT4, NW_KV_INT4, 2, 2, 70, 10, 0, 0, 0, 0},
    {"int8_head_6", NW_KV_INT8, NW_KV_FP8, 6, 5, 9, 10, 0, 0, 0, 0},
    {"int4_head_10", NW_KV_INT4, NW_KV_INT8, 10, 1, 9, 60, 0, 0, 0, 0},
    {"fp8_head_10", NW_KV_FP8, NW_KV_INT4, 10, 7, 9, 60, 0, 0, 0, 0},
    {"int4_head_80", NW_KV_INT4, NW_KV_INT4, 80, 3, 9, 100, 0, 0, 0, 0},
    {"int8_head_512", NW_KV_INT8, NW_KV_INT8, 512, 2, 3, 70, 0, 0, 0, 0},
    {"int4_head_512", NW_KV_INT4, NW_KV_INT4, 512, 2, 3, 70, 0, 0, 0, 0},
    {"most_query_heads", NW_KV_INT8, NW_KV_INT8, 64, 64, 3, 62, 0, 0, 0, 0},
    {"wide_newest_page", NW_KV_INT4, NW_KV_INT4, 64, 3, 100, 250, 0, 0, 1, 1},
    {"wide_two_pages", NW_KV_INT4, NW_KV_INT4, 64, 4, 40, 600, 0, 0, 2, 1},
    {"wide_int8_window", NW_KV_INT8, NW_KV_INT4, 48, 4, 40, 300, 150, 0, 2, 1},
    {"sinks_alone", NW_KV_INT4, NW_KV_INT4, 64, 3, 100, 250, 0, 0, 0, 2},
    {"newest_alone", NW_KV_INT8, NW_KV_INT4, 64, 3, 100, 250, 0, 0, 2, 0},
    {"sinks_out_of_a_window", NW_KV_INT4, NW_KV_FP8, 64, 2, 40, 700, 300, 0, 1, 2},
};

typedef struct {
    nw_attn a;
    nw_guarded pool, wide, q, out, scratch;
    uint32_t pages[MAX_PAGES];
    double max_v, max_k, max_q; /* largest |v| of a value, Euclidean norms of k and q */
} job;

/* Euclidean. */
static double norm(const float *x, uint32_t n)
{
    double size = 0;
    for (uint32_t d = 0; d < n; d++) {
        size += (double)x[d] * (double)x[d];
    }
    return sqrt(size);
}

/* The numbers that a slot stands for. */
static void measure(job *j, const nw_kv_type *kv, const uint8_t *k_page, uint32_t slot)
{
    float x[512];

    nw_kv_k_token(kv, k_page, slot, x);
    j->max_k = fmax(j->max_k, norm(x, kv->d_head));
    nw_kv_v_token(kv, k_page + nw_kv_k_page_bytes(kv), slot, x);
    for (uint32_t d = 0; d < kv->d_head; d++) {
        j->max_v = fmax(j->max_v, fabs((double)x[d]));
    }
}

static nw_kv_type wide_type(const nw_kv_type *kv)
{
    nw_kv_type wide = *kv;
    wide.k = wide.v = NW_KV_BF16;
    return wide;
}

/* Encodes the keys and values of positions 0 .. last in pages that lie backwards in the pool, and
 * leaves an old tail behind them. */
static void fill_pages(job *j, const nw_kernels *tier, uint32_t last, nw_rng *rng)
{
    const nw_kv_type wide = wide_type(&j->a.kv);
    float k[512];
    float v[512];

    for (uint32_t pos = 0; pos <= last + 5; pos++) {
        if (pos > last && pos % NW_KV_PAGE == 0) {
            break;
        }
        nw_fill_normal(k, j->a.kv.d_head, rng);
        nw_fill_normal(v, j->a.kv.d_head, rng);
        k[pos % j->a.kv.d_head] *= 20; /* an outlier now and then */
        uint8_t *page = j->pool.data + j->pages[pos / NW_KV_PAGE] * j->a.page_stride;
        tier->kv_put(&j->a.kv, pos % NW_KV_PAGE, k, v, page, page + nw_kv_k_page_bytes(&j->a.kv));
        measure(j, &j->a.kv, page, pos % NW_KV_PAGE);
        if (nw_attn_has_wide(&j->a)) {
            page = j->wide.data + j->pages[pos / NW_KV_PAGE] * j->a.wide.page_stride;
            tier->kv_put(&wide, pos % NW_KV_PAGE, k, v, page, page + nw_kv_k_page_bytes(&wide));
            measure(j, &wide, page, pos % NW_KV_PAGE);
        }
    }
}

static void fill_queries(job *j, const struct row *r, nw_rng *rng)
{
    const size_t width = (size_t)r->n_rep * r->d_head;

    j->q = nw_guard_new(((r->n_queries - 1) * j->a.ldq + width) * sizeof(float));
    float *q = (float *)(void *)j->q.data;
    for (uint32_t i = 0; i < r->n_queries; i++) {
        for (size_t d = 0; d < width; d++) {
            q[i * j->a.ldq + d] = nw_bf16_to_f32(nw_bf16_from_f32((float)nw_rng_normal(rng)));
        }
        for (uint32_t h = 0; h < r->n_rep; h++) {
            j->max_q = fmax(j->max_q, norm(q + i * j->a.ldq + (size_t)h * r->d_head, r->d_head));
        }
    }
    j->a.q = q;
}

static void job_pages(job *j, uint32_t n_pages)
{
    const nw_kv_type wide = wide_type(&j->a.kv);

    j->a.page_stride = nw_kv_k_page_bytes(&j->a.kv) + nw_kv_v_page_bytes(&j->a.kv);
    j->pool = nw_guard_new(n_pages * j->a.page_stride);
    j->a.pages = j->pages;
    j->a.k_base = j->pool.data;
    j->a.v_base = j->pool.data + nw_kv_k_page_bytes(&j->a.kv);
    if (nw_attn_has_wide(&j->a)) {
        j->a.wide.page_stride = nw_kv_k_page_bytes(&wide) + nw_kv_v_page_bytes(&wide);
        j->wide = nw_guard_new(n_pages * j->a.wide.page_stride);
        j->a.wide.pages = j->pages;
        j->a.wide.k_base = j->wide.data;
        j->a.wide.v_base = j->wide.data + nw_kv_k_page_bytes(&wide);
    }
    for (uint32_t p = 0; p < n_pages; p++) {
        j->pages[p] = n_pages - 1 - p;
    }
}

static void job_open(job *j, const struct row *r, const nw_kernels *tier, bool a8)
{
    const uint32_t last = r->q_pos + r->n_queries - 1;
    const uint32_t n_pages = last / NW_KV_PAGE + 1;
    const size_t width = (size_t)r->n_rep * r->d_head;
    nw_rng rng = nw_rng_seed(r->d_head * 7919U + r->q_pos);

    assert_true(n_pages <= MAX_PAGES);
    *j = (job){.a = {.kv = nw_kv_type_of(r->k, r->v, r->d_head),
                     .n_rep = r->n_rep,
                     .n_queries = r->n_queries,
                     .q_pos = r->q_pos,
                     .window = r->window,
                     .scale = 1 / sqrtf((float)r->d_head),
                     .softcap = r->softcap,
                     .a8 = a8,
                     .wide = {.n_first = r->n_sinks, .n_newest = r->n_wide},
                     .ldq = width + 3,
                     .ldo = width + 1}};
    job_pages(j, n_pages);
    fill_pages(j, tier, last, &rng);
    fill_queries(j, r, &rng);
    j->out = nw_guard_new(((r->n_queries - 1) * j->a.ldo + width) * sizeof(float));
    j->scratch = nw_guard_new(nw_attn_scratch_bytes(r->d_head));
    j->a.out = (float *)(void *)j->out.data;
    j->a.scratch = j->scratch.data;
}

static void job_close(job *j)
{
    nw_guard_free(&j->pool);
    if (nw_attn_has_wide(&j->a)) {
        nw_guard_free(&j->wide);
    }
    nw_guard_free(&j->q);
    nw_guard_free(&j->out);
    nw_guard_free(&j->scratch);
}

static double bound_of(const job *j)
{
    const double d = j->a.kv.d_head;
    const double rotated = nw_attn_has_wide(&j->a) && j->a.kv.rotate_k ? 0x1p-8 : 0;
    const double e = (double)j->a.scale * j->max_q * j->max_k *
                     ((d + 8 + log2(d)) * U + sqrt(d) / 32512 + rotated);
    const uint32_t block = j->a.kv.d_head & (~j->a.kv.d_head + 1);
    const double turned = j->a.kv.rotate_v ? sqrt((double)block) : 1;

    const double counted = j->a.a8 && nw_kv_is_int(j->a.kv.v) ? 4 / 255.0 : 0;

    return (expm1(2 * e) + 0x1p-8 + counted + (64 + MAX_PAGES) * U) * j->max_v * turned;
}

static void tiers_against_reference_of(const struct row *r, bool a8)
{
    const nw_kernels *ref = nw_kernels_by_name("ref");
    const nw_kernels *tier = NULL;

    for (size_t i = 0; (tier = nw_tier(i)) != NULL; i++) {
        job j;
        job_open(&j, r, tier, a8);
        const size_t width = (size_t)r->n_rep * r->d_head;
        nw_guarded want = nw_guard_new(((r->n_queries - 1) * j.a.ldo + width) * sizeof(float));
        nw_attn b = j.a;
        b.out = (float *)(void *)want.data;
        ref->attend(&b);
        tier->attend(&j.a);
        const double bound = bound_of(&j);
        for (uint32_t q = 0; q < r->n_queries; q++) {
            for (size_t d = 0; d < width; d++) {
                const size_t at = q * j.a.ldo + d;
                if (!(fabs((double)(j.a.out[at] - b.out[at])) <= bound)) {
                    fail_msg("%s %s%s query %u [%zu]: %.9g, reference %.9g, bound %.3g", r->name,
                             tier->tier, a8 ? " a8" : "", q, d, (double)j.a.out[at],
                             (double)b.out[at], bound);
                }
            }
        }
        nw_guard_free(&want);
        job_close(&j);
    }
}

static void tiers_against_reference(const struct row *r)
{
    tiers_against_reference_of(r, false);
    tiers_against_reference_of(r, true);
}

static void against_reference(void **state)
{
    tiers_against_reference(*state);
}

/* Every pair of formats, with a chunk of a prompt and with one token. */
static void every_pair(void **state)
{
    static const uint32_t heads[] = {64, 80, 128};
    (void)state;

    for (int pair = 0; pair < (int)(NW_KV_KINDS * NW_KV_KINDS); pair++) {
        for (size_t h = 0; h < NW_COUNT(heads); h++) {
            struct row r = {.k = (nw_kv_kind)(pair / (int)NW_KV_KINDS),
                            .v = (nw_kv_kind)(pair % (int)NW_KV_KINDS),
                            .d_head = heads[h],
                            .n_rep = 3,
                            .n_queries = 20,
                            .q_pos = 50};
            char name[32];
            (void)snprintf(name, sizeof name, "%s/%s %u", nw_kv_kind_name(r.k),
                           nw_kv_kind_name(r.v), r.d_head);
            r.name = name;
            tiers_against_reference(&r);
            r.n_queries = 1;
            r.q_pos = 290;
            tiers_against_reference(&r);
        }
    }
}

/* A query's keys computed segment by segment, last one first, and joined: the bits of the whole. */
static void same_bits_in_parts_of(const struct row *r, bool a8)
{
    const nw_kernels *tier = NULL;

    for (size_t i = 0; (tier = nw_tier(i)) != NULL; i++) {
        job j;
        job_open(&j, r, tier, a8);
        const size_t width = (size_t)r->n_rep * r->d_head;
        const size_t bytes = ((r->n_queries - 1) * j.a.ldo + width) * sizeof(float);
        const uint32_t first = nw_attn_first_segment(r->q_pos, r->window);
        const uint32_t last = (r->q_pos + r->n_queries - 1) / NW_ATTN_SEGMENT;
        nw_guarded whole = nw_guard_new(bytes);
        nw_guarded parts = nw_guard_new((size_t)(last - first + 1) * r->n_queries * r->n_rep *
                                        nw_attn_part_floats(r->d_head) * sizeof(float));
        nw_attn b = j.a;
        b.out = (float *)(void *)whole.data;
        tier->attend(&b);
        j.a.parts = (float *)(void *)parts.data;
        j.a.phase = NW_ATTN_PART;
        for (uint32_t s = last + 1; s-- > first;) {
            j.a.segment = s;
            tier->attend(&j.a);
        }
        j.a.phase = NW_ATTN_JOIN;
        tier->attend(&j.a);
        assert_memory_equal(j.out.data, whole.data, bytes);
        nw_guard_free(&whole);
        nw_guard_free(&parts);
        job_close(&j);
    }
}

static void same_bits_in_parts(void **state)
{
    same_bits_in_parts_of(*state, false);
    same_bits_in_parts_of(*state, true);
}

/* A query has the same bits alone, and in spans cut anywhere. */
static void same_bits_of(const struct row *r, bool a8)
{
    const nw_kernels *tier = NULL;

    for (size_t i = 0; (tier = nw_tier(i)) != NULL; i++) {
        job j;
        job_open(&j, r, tier, a8);
        const size_t width = (size_t)r->n_rep * r->d_head;
        const size_t bytes = ((r->n_queries - 1) * j.a.ldo + width) * sizeof(float);
        nw_guarded whole = nw_guard_new(bytes);
        nw_attn b = j.a;
        b.out = (float *)(void *)whole.data;
        tier->attend(&b);
        for (uint32_t span = 1; span <= 7; span += 3) {
            memset(j.out.data, 0xA5, bytes);
            for (uint32_t q = 0; q < r->n_queries; q += span) {
                const uint32_t left = r->n_queries - q;
                b.n_queries = left < span ? left : span;
                b.q_pos = r->q_pos + q;
                b.q = j.a.q + q * j.a.ldq;
                b.out = j.a.out + q * j.a.ldo;
                tier->attend(&b);
            }
            assert_memory_equal(j.out.data, whole.data, bytes);
        }
        nw_guard_free(&whole);
        job_close(&j);
    }
}

static void same_bits(void **state)
{
    same_bits_of(*state, false);
    same_bits_of(*state, true);
}

/* Every tier encodes the bytes of plain C (the reference), page clearing and old tails included. */
static void same_pages(void **state)
{
    const struct row *r = *state;
    const nw_kernels *ref = nw_kernels_by_name("ref");
    const nw_kernels *tier = NULL;

    for (size_t i = 0; (tier = nw_tier(i)) != NULL; i++) {
        job a;
        job b;
        job_open(&a, r, tier, false);
        job_open(&b, r, ref, false);
        const size_t n = (r->q_pos + r->n_queries - 1) / NW_KV_PAGE + 1;
        assert_memory_equal(a.pool.data, b.pool.data, n * a.a.page_stride);
        job_close(&a);
        job_close(&b);
    }
}

/* By hand: two keys, equal scores -> the mean of the values; and a window of 1 -> the last. */
static void two_keys(void **state)
{
    const nw_kernels *tier = NULL;
    (void)state;

    for (size_t i = 0; (tier = nw_tier(i)) != NULL; i++) {
        struct row r = {"", NW_KV_F32, NW_KV_F32, 2, 1, 1, 1, 0, 0, 0, 0};
        static const float k[2] = {1, 0};
        static const float v[2][2] = {{2, 4}, {4, 16}};
        job j;
        job_open(&j, &r, tier, false);
        uint8_t *page = j.pool.data;
        for (uint32_t s = 0; s < 2; s++) {
            tier->kv_put(&j.a.kv, s, k, v[s], page, page + nw_kv_k_page_bytes(&j.a.kv));
        }
        tier->attend(&j.a);
        assert_true(fabs((double)j.a.out[0] - 3) < 1e-6 && fabs((double)j.a.out[1] - 10) < 1e-5);
        j.a.window = 1;
        tier->attend(&j.a);
        assert_true(j.a.out[0] == 4 && j.a.out[1] == 16);
        job_close(&j);
    }
}

/* Relative error of a token as stored, in the Euclidean norm, of normal numbers with an outlier.
 * BF16: 2^-8 of each. FP8: 2^-4 of each, and 2^-10 of the scale below 2^-6 of it. INT8: half a step of
 * absmax / 127 each. INT4: the best of the scales tried is no worse than absmax / 8, whose error is
 * half a step each and a whole one of an absmax that would be code 8. A scale read from another
 * place, or codes that lie elsewhere, are off by more than 0.7. */
static double stored_bound(nw_kv_kind kind, const float *x, uint32_t n)
{
    const double root = sqrt((double)n);
    double top = 0;

    for (uint32_t d = 0; d < n; d++) {
        top = fmax(top, fabs((double)x[d]));
    }
    switch (kind) {
    case NW_KV_F32:
        return 0;
    case NW_KV_BF16:
        return 0x1p-8 * norm(x, n);
    case NW_KV_FP8:
        return 0x1p-4 * norm(x, n) + root * top / 448 * 0x1p-10;
    case NW_KV_INT8:
        return root * top / 254 * (1 + 0x1p-20);
    case NW_KV_INT4:
        return top / 8 * sqrt(n / 4.0 + 1) * (1 + 0x1p-20);
    }
    return 0;
}

static void stored_numbers(nw_kv_kind kind, bool rotate, const nw_kernels *tier)
{
    const uint32_t n = 64;
    const nw_kv_type kv = {
        .k = kind, .v = kind, .d_head = n, .rotate_k = rotate, .rotate_v = rotate};
    nw_guarded k_page = nw_guard_new(nw_kv_k_page_bytes(&kv));
    nw_guarded v_page = nw_guard_new(nw_kv_v_page_bytes(&kv));
    nw_rng rng = nw_rng_seed(5);
    float x[2][NW_KV_PAGE][64];

    for (uint32_t slot = 0; slot < NW_KV_PAGE; slot++) {
        nw_fill_normal(x[0][slot], n, &rng);
        nw_fill_normal(x[1][slot], n, &rng);
        x[0][slot][slot] *= 5;
        tier->kv_put(&kv, slot, x[0][slot], x[1][slot], k_page.data, v_page.data);
    }
    for (uint32_t slot = 0; slot < NW_KV_PAGE; slot++) {
        for (int v = 0; v < 2; v++) {
            float y[64];
            if (rotate) {
                nw_kv_rotate_plain(x[v][slot], n);
            }
            if (v == 0) {
                nw_kv_k_token(&kv, k_page.data, slot, y);
            } else {
                nw_kv_v_token(&kv, v_page.data, slot, y);
            }
            for (uint32_t d = 0; d < n; d++) {
                y[d] -= x[v][slot][d];
            }
            const double bound = stored_bound(kind, x[v][slot], n);
            if (!(norm(y, n) <= bound)) {
                fail_msg("%s %s %d slot %u: %g, bound %g", tier->tier, nw_kv_kind_name(kind), v,
                         slot, norm(y, n), bound);
            }
        }
    }
    nw_guard_free(&k_page);
    nw_guard_free(&v_page);
}

static void stored_within_bounds(void **state)
{
    const nw_kernels *tier = NULL;
    (void)state;

    for (size_t i = 0; (tier = nw_tier(i)) != NULL; i++) {
        for (int kind = 0; kind < (int)NW_KV_KINDS; kind++) {
            stored_numbers((nw_kv_kind)kind, false, tier);
            stored_numbers((nw_kv_kind)kind, true, tier);
        }
    }
}

/* The matrix of the rotation is orthogonal and its own inverse: by hand for 2, for norms beyond. */
static void rotation_keeps_products(void **state)
{
    float x[96];
    float y[96];
    nw_rng rng = nw_rng_seed(9);
    (void)state;

    x[0] = 3;
    x[1] = 1;
    nw_kv_rotate_plain(x, 2);
    assert_true(fabs((double)x[0] - 4 / sqrt(2)) < 1e-6 && fabs((double)x[1] - 2 / sqrt(2)) < 1e-6);
    for (uint32_t n = 2; n <= 96; n += 2) {
        nw_fill_normal(x, n, &rng);
        memcpy(y, x, n * sizeof *x);
        nw_kv_rotate_plain(y, n);
        assert_true(fabs(norm(y, n) - norm(x, n)) < 1e-5 * norm(x, n));
        nw_kv_rotate_plain(y, n);
        for (uint32_t d = 0; d < n; d++) {
            assert_true(fabs((double)(y[d] - x[d])) < 1e-5);
        }
    }
}

int main(void)
{
    const struct CMUnitTest single[] = {cmocka_unit_test(two_keys), cmocka_unit_test(every_pair),
                                        cmocka_unit_test(rotation_keeps_products),
                                        cmocka_unit_test(stored_within_bounds)};

    return NW_RUN_TABLE("against_reference", rows, against_reference) +
           NW_RUN_TABLE("same_bits", rows, same_bits) +
           NW_RUN_TABLE("same_bits_in_parts", rows, same_bits_in_parts) +
           NW_RUN_TABLE("same_pages", rows, same_pages) +
           cmocka_run_group_tests_name("by_hand", single, NULL, NULL);
}
