/* Attention of every tier against the reference, over pages of every pair of formats: shared query
 * heads, windows, softcap, odd head sizes, pages taken in any order and with an old tail; and the
 * same bits for a query alone or in a span.
 *
 * Bound. Queries are whole BF16 numbers here, so that a tier which packs them in BF16 loses nothing
 * and both sides see the same q, k and v. u = 2^-24. A tier's score is off by at most
 * e = (d_head + 8) u sum|q k| scale, tanh included; a probability by e^2e - 1 and by the rounding
 * to BF16 (2^-8 of unit roundoff 2^-9, twice: against the sum and of the value) and the scale of an
 * int8 value; the 64-key sums of f32 by 64 u a page. Hence
 * |error| <= (2 e + 2^-8 + (64 + n_pages) u) max|v|.
 * SPDX-License-Identifier: Apache-2.0 */
#include "guard.h"
#include "table.h"

#define U         0x1p-24
#define MAX_PAGES 8

static struct row {
    const char *name;
    nw_kv_kind k, v;
    uint32_t d_head, n_rep, n_queries, q_pos, window;
    float softcap;
} rows[] = {
    {"first_token", NW_KV_BF16, NW_KV_BF16, 64, 3, 1, 0, 0, 0},
    {"decode_smol", NW_KV_BF16, NW_KV_BF16, 64, 3, 1, 300, 0, 0},
    {"prefill_smol", NW_KV_BF16, NW_KV_BF16, 64, 3, 200, 0, 0, 0},
    {"chunk_across_pages", NW_KV_BF16, NW_KV_BF16, 64, 3, 40, 50, 0, 0},
    {"last_slot_of_a_page", NW_KV_BF16, NW_KV_BF16, 64, 1, 1, 63, 0, 0},
    {"first_slot_of_a_page", NW_KV_BF16, NW_KV_BF16, 64, 1, 1, 64, 0, 0},
    {"f32_pages", NW_KV_F32, NW_KV_F32, 64, 2, 70, 20, 0, 0},
    {"int8_pages", NW_KV_INT8, NW_KV_INT8, 64, 3, 70, 20, 0, 0},
    {"int8_k_bf16_v", NW_KV_INT8, NW_KV_BF16, 64, 4, 5, 130, 0, 0},
    {"bf16_k_int8_v", NW_KV_BF16, NW_KV_INT8, 128, 4, 5, 130, 0, 0},
    {"f32_k_int8_v", NW_KV_F32, NW_KV_INT8, 32, 1, 5, 130, 0, 0},
    {"tiny_head", NW_KV_BF16, NW_KV_BF16, 2, 2, 70, 10, 0, 0},
    {"head_8", NW_KV_F32, NW_KV_BF16, 8, 2, 70, 10, 0, 0},
    {"head_48", NW_KV_BF16, NW_KV_BF16, 48, 1, 33, 10, 0, 0},
    {"head_80", NW_KV_INT8, NW_KV_INT8, 80, 1, 9, 100, 0, 0},
    {"head_256", NW_KV_BF16, NW_KV_BF16, 256, 4, 9, 100, 0, 0},
    {"head_512", NW_KV_F32, NW_KV_F32, 512, 2, 3, 10, 0, 0},
    {"many_query_heads", NW_KV_BF16, NW_KV_BF16, 64, 50, 3, 100, 0, 0},
    {"window_of_one", NW_KV_BF16, NW_KV_BF16, 64, 2, 80, 0, 1, 0},
    {"window_within_a_page", NW_KV_BF16, NW_KV_BF16, 64, 2, 200, 100, 20, 0},
    {"window_of_pages", NW_KV_BF16, NW_KV_BF16, 64, 2, 100, 250, 128, 0},
    {"softcap", NW_KV_BF16, NW_KV_BF16, 64, 2, 30, 100, 0, 5},
    {"softcap_window_int8", NW_KV_INT8, NW_KV_INT8, 64, 2, 30, 100, 70, 5},
};

typedef struct {
    nw_attn a;
    nw_guarded pool, q, out, scratch;
    uint32_t pages[MAX_PAGES];
    double max_v, max_qk;
} job;

/* Encodes the keys and values of positions 0 .. last in pages that lie backwards in the pool, and
 * leaves an old tail behind them. */
static void fill_pages(job *j, const nw_kernels *tier, uint32_t last, nw_rng *rng)
{
    const size_t k_bytes = nw_kv_k_page_bytes(&j->a.kv);
    uint8_t *base = j->pool.data;
    float k[512];
    float v[512];

    for (uint32_t pos = 0; pos <= last + 5; pos++) {
        if (pos > last && pos % NW_KV_PAGE == 0) {
            break;
        }
        nw_fill_normal(k, j->a.kv.d_head, rng);
        nw_fill_normal(v, j->a.kv.d_head, rng);
        uint8_t *page = base + j->pages[pos / NW_KV_PAGE] * j->a.page_stride;
        tier->kv_put(&j->a.kv, pos % NW_KV_PAGE, k, v, page, page + k_bytes);
        double size = 0;
        for (uint32_t d = 0; d < j->a.kv.d_head; d++) {
            size += (double)k[d] * (double)k[d];
            j->max_v = fmax(j->max_v, fabs((double)v[d]));
        }
        j->max_qk = fmax(j->max_qk, sqrt(size));
    }
}

static void job_open(job *j, const struct row *r, const nw_kernels *tier)
{
    const uint32_t last = r->q_pos + r->n_queries - 1;
    const uint32_t n_pages = last / NW_KV_PAGE + 1;
    const size_t width = (size_t)r->n_rep * r->d_head;
    nw_rng rng = nw_rng_seed(r->d_head * 7919U + r->q_pos);
    double q_size = 0;

    assert_true(n_pages <= MAX_PAGES);
    *j = (job){.a = {.kv = {r->k, r->v, r->d_head},
                     .n_rep = r->n_rep,
                     .n_queries = r->n_queries,
                     .q_pos = r->q_pos,
                     .window = r->window,
                     .scale = 1 / sqrtf((float)r->d_head),
                     .softcap = r->softcap,
                     .ldq = width + 3,
                     .ldo = width + 1}};
    j->a.page_stride = nw_kv_k_page_bytes(&j->a.kv) + nw_kv_v_page_bytes(&j->a.kv);
    j->pool = nw_guard_new(n_pages * j->a.page_stride);
    for (uint32_t p = 0; p < n_pages; p++) {
        j->pages[p] = n_pages - 1 - p;
    }
    fill_pages(j, tier, last, &rng);
    j->q = nw_guard_new(((r->n_queries - 1) * j->a.ldq + width) * sizeof(float));
    float *q = (float *)(void *)j->q.data;
    for (uint32_t i = 0; i < r->n_queries; i++) {
        for (size_t d = 0; d < width; d++) {
            q[i * j->a.ldq + d] = nw_bf16_to_f32(nw_bf16_from_f32((float)nw_rng_normal(&rng)));
            q_size = fmax(q_size, fabs((double)q[i * j->a.ldq + d]));
        }
    }
    j->max_qk *= q_size * sqrt((double)r->d_head); /* >= sum|q k| by Cauchy-Schwarz */
    j->out = nw_guard_new(((r->n_queries - 1) * j->a.ldo + width) * sizeof(float));
    j->scratch = nw_guard_new(nw_attn_scratch_bytes(r->d_head));
    j->a.q = q;
    j->a.pages = j->pages;
    j->a.k_base = j->pool.data;
    j->a.v_base = j->pool.data + nw_kv_k_page_bytes(&j->a.kv);
    j->a.out = (float *)(void *)j->out.data;
    j->a.scratch = j->scratch.data;
}

static void job_close(job *j)
{
    nw_guard_free(&j->pool);
    nw_guard_free(&j->q);
    nw_guard_free(&j->out);
    nw_guard_free(&j->scratch);
}

static void against_reference(void **state)
{
    const struct row *r = *state;
    const nw_kernels *ref = nw_kernels_by_name("ref");
    const nw_kernels *tier = NULL;

    for (size_t i = 0; (tier = nw_tier(i)) != NULL; i++) {
        job j;
        job_open(&j, r, tier);
        const size_t width = (size_t)r->n_rep * r->d_head;
        nw_guarded want = nw_guard_new(((r->n_queries - 1) * j.a.ldo + width) * sizeof(float));
        nw_attn b = j.a;
        b.out = (float *)(void *)want.data;
        ref->attend(&b);
        tier->attend(&j.a);
        const double e = (r->d_head + 8) * U * j.max_qk * (double)j.a.scale;
        const double bound = (2 * e + 0x1p-8 + (64 + MAX_PAGES) * U) * j.max_v;
        for (uint32_t q = 0; q < r->n_queries; q++) {
            for (size_t d = 0; d < width; d++) {
                const size_t at = q * j.a.ldo + d;
                if (!(fabs((double)(j.a.out[at] - b.out[at])) <= bound)) {
                    fail_msg("%s query %u [%zu]: %.9g, reference %.9g, bound %.3g", tier->tier, q,
                             d, (double)j.a.out[at], (double)b.out[at], bound);
                }
            }
        }
        nw_guard_free(&want);
        job_close(&j);
    }
}

/* A query has the same bits alone, and in spans cut anywhere. */
static void same_bits(void **state)
{
    const struct row *r = *state;
    const nw_kernels *tier = NULL;

    for (size_t i = 0; (tier = nw_tier(i)) != NULL; i++) {
        job j;
        job_open(&j, r, tier);
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

/* Every tier encodes the bytes of plain C (the reference), page clearing and old tails included. */
static void same_pages(void **state)
{
    const struct row *r = *state;
    const nw_kernels *ref = nw_kernels_by_name("ref");
    const nw_kernels *tier = NULL;

    for (size_t i = 0; (tier = nw_tier(i)) != NULL; i++) {
        job a;
        job b;
        job_open(&a, r, tier);
        job_open(&b, r, ref);
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
        struct row r = {"", NW_KV_F32, NW_KV_F32, 2, 1, 1, 1, 0, 0};
        static const float k[2] = {1, 0};
        static const float v[2][2] = {{2, 4}, {4, 16}};
        job j;
        job_open(&j, &r, tier);
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

int main(void)
{
    const struct CMUnitTest single[] = {cmocka_unit_test(two_keys)};

    return NW_RUN_TABLE("against_reference", rows, against_reference) +
           NW_RUN_TABLE("same_bits", rows, same_bits) +
           NW_RUN_TABLE("same_pages", rows, same_pages) +
           cmocka_run_group_tests_name("by_hand", single, NULL, NULL);
}
