/* Activation packing and the element-wise ops of every tier: against the reference, or against
 * plain C where bits must agree, at lengths 1..40 and some of real models, with an unreadable page
 * behind every buffer.
 * SPDX-License-Identifier: Apache-2.0 */
#include "guard.h"
#include "kernels/act.h"
#include "table.h"

#define U 0x1p-24

static const uint32_t lengths[] = {1,  2,  3,  4,  5,  7,  8,  9,  15, 16, 17,  23,  24,
                                   25, 31, 32, 33, 39, 40, 47, 48, 64, 65, 576, 1536};

typedef struct {
    nw_guarded mem;
    float *x;
    uint32_t n;
} vec;

static vec vec_new(uint32_t n, uint64_t seed, double size)
{
    vec v = {.mem = nw_guard_new(n * sizeof(float)), .n = n};
    nw_rng rng = nw_rng_seed(seed);

    v.x = (float *)(void *)v.mem.data;
    for (uint32_t i = 0; i < n; i++) {
        v.x[i] = (float)(size * nw_rng_normal(&rng));
    }
    return v;
}

static void near_all(const char *op, const nw_kernels *tier, const vec *got, const vec *want,
                     const double *bound)
{
    for (uint32_t i = 0; i < want->n; i++) {
        const double d = fabs((double)got->x[i] - (double)want->x[i]);
        if (!(d <= bound[i])) {
            fail_msg("%s %s n=%u [%u]: %.9g, reference %.9g, bound %.3g", tier->tier, op, want->n,
                     i, (double)got->x[i], (double)want->x[i], bound[i]);
        }
    }
}

/* ---- packing ---- */

static struct pack_row {
    const char *name;
    nw_act_kind kind;
    double size;
    float special; /* put in the middle of token 1, or 0 */
} pack_rows[] = {
    {"f32", NW_ACT_F32, 1, 0},
    {"bf16", NW_ACT_BF16, 1, 0},
    {"int8", NW_ACT_INT8, 1, 0},
    {"int16", NW_ACT_INT16, 1, 0},
    {"int16_large", NW_ACT_INT16, 1e30, 0},
    {"int16_small", NW_ACT_INT16, 1e-29, 0},
    {"int16_below_the_floor", NW_ACT_INT16, 1e-33, 0},
    {"int16_nan", NW_ACT_INT16, 1, NAN},
    {"int8_large", NW_ACT_INT8, 1e30, 0},
    {"int8_small", NW_ACT_INT8, 1e-29, 0},
    {"int8_below_the_floor", NW_ACT_INT8, 1e-33, 0},
    {"int8_zero", NW_ACT_INT8, 0, 0},
    {"int8_inf", NW_ACT_INT8, 1, INFINITY},
    {"int8_nan", NW_ACT_INT8, 1, NAN},
};

/* Three tokens, packed by ranges, have the bytes of plain C. Padding is compared as well. */
static void packing(void **state)
{
    const struct pack_row *r = *state;
    const nw_kernels *tier = NULL;

    for (size_t i = 0; (tier = nw_tier(i)) != NULL; i++) {
        for (size_t k = 0; k < NW_COUNT(lengths); k++) {
            const uint32_t n = lengths[k];
            const size_t bytes = nw_act_bytes(r->kind, 3, n);
            vec x = vec_new(3 * n, n, r->size);
            nw_guarded got = nw_guard_new(bytes);
            nw_guarded want = nw_guard_new(bytes);
            if (r->special != 0) {
                x.x[n + n / 2] = r->special;
            }
            nw_act_pack_plain(r->kind, x.x, n, 0, 3, n, want.data);
            tier->act_pack(r->kind, x.x, n, 1, 3, n, got.data);
            tier->act_pack(r->kind, x.x, n, 0, 1, n, got.data);
            assert_memory_equal(got.data, want.data, bytes);
            nw_guard_free(&x.mem);
            nw_guard_free(&got);
            nw_guard_free(&want);
        }
    }
}

/* By hand: codes, scale and sums of a short token. absmax 2 -> scale 2 / 127. */
static void int8_by_hand(void **state)
{
    static const float x[5] = {2, -1, 0.5F, 0, -2};
    static const int8_t want[5] = {127, -64 /* 63.5 to even */, 32 /* 31.75 */, 0, -127};
    _Alignas(64) uint8_t row[1024];
    nw_act_head head;
    int32_t sum = 0;

    (void)state;
    assert_true(nw_act_bytes(NW_ACT_INT8, 1, 5) <= sizeof row);
    nw_act_pack_plain(NW_ACT_INT8, x, 5, 0, 1, 5, row);
    memcpy(&head, row, sizeof head);
    memcpy(&sum, row + nw_act_sums_at(NW_ACT_INT8, 5), sizeof sum);
    assert_true(head.scale == 2.0F / 127);
    assert_int_equal(head.sum, -32);
    assert_int_equal(sum, -32);
    assert_memory_equal(row + nw_act_codes_at(NW_ACT_INT8, 5), want, sizeof want);
}

/* The sums behind bf16 values are of what was packed: 2^-8 is lost beside 1, and halves meet first. */
static void bf16_sums_by_hand(void **state)
{
    float x[17] = {0};
    _Alignas(64) uint8_t row[1024];
    float sums[3];

    (void)state;
    x[0] = 0x1p24F; /* with x[8] first: 0; after x[1] it would swallow it */
    x[8] = -0x1p24F;
    x[1] = 1 + 0x1p-9F;
    x[16] = 3;
    assert_true(nw_act_bytes(NW_ACT_BF16, 1, 17) <= sizeof row);
    nw_act_pack_plain(NW_ACT_BF16, x, 17, 0, 1, 17, row);
    memcpy(sums, row + nw_act_sums_at(NW_ACT_BF16, 17), sizeof sums);
    assert_true(sums[0] == 1 && sums[1] == 3 && sums[2] == 0);
}

/* A NaN among the activations of a token makes all its outputs NaN, and no other token's. */
static void nan_spreads_to_its_token_only(void **state)
{
    const nw_kernels *tier = NULL;
    static const float w[16] = {1, 2, 3};
    static const int8_t codes[16] = {1, -2, 3};
    (void)state;

    for (size_t i = 0; (tier = nw_tier(i)) != NULL; i++) {
        for (int a8 = 0; a8 < 2; a8++) {
            _Alignas(64) uint8_t panel[1024];
            _Alignas(64) uint8_t act[4096];
            const float x[6] = {1, 2, 3, 1, NAN, 3};
            float y[2] = {0};
            const nw_weight m = {{.kind = a8 ? NW_PANEL_INT8 : NW_PANEL_F32}, panel, 1, 3};
            const nw_act_kind kind = tier->act_kind(m.type, a8);
            const nw_act a = {kind, 2, 3, act};
            const float one = 1;
            if (a8) {
                nw_panel_pack_int8(codes, 16, &one, 1, 3, panel);
            } else {
                nw_panel_pack_f32(w, 16, 1, 3, panel);
            }
            assert_true(nw_act_bytes(kind, 2, 3) <= sizeof act);
            tier->act_pack(kind, x, 3, 0, 2, 3, act);
            tier->linear(&m, &a, 0, 1, y, 1);
            assert_true(isfinite(y[0]));
            assert_true(isnan(y[1]));
        }
    }
}

/* ---- element-wise ---- */

typedef enum { RMSNORM, ROPE, SILU, GELU, ADD, SOFTCAP } op_id;

static struct op_row {
    const char *name;
    op_id op;
    double size;
} op_rows[] = {
    {"rmsnorm", RMSNORM, 1},
    {"rmsnorm_small", RMSNORM, 1e-4},
    {"rope", ROPE, 3},
    {"silu_mul", SILU, 3},
    {"silu_mul_large", SILU, 60},
    {"gelu_tanh_mul", GELU, 2},
    {"gelu_tanh_mul_large", GELU, 30},
    {"add", ADD, 5},
    {"softcap", SOFTCAP, 40},
    {"softcap_large", SOFTCAP, 4000},
};

/* Runs an op in place on a (b: gain, up, cos | sin). */
static void run_op(const nw_kernels *tier, op_id op, vec *a, const vec *b)
{
    switch (op) {
    case RMSNORM:
        tier->rmsnorm(a->x, b->x, a->n, 1e-5F, a->x);
        return;
    case ROPE:
        tier->rope(a->x, 1, a->n, b->x, b->x + a->n / 2);
        return;
    case SILU:
        tier->silu_mul(a->x, b->x, a->n, a->x);
        return;
    case GELU:
        tier->gelu_tanh_mul(a->x, b->x, a->n, a->x);
        return;
    case ADD:
        tier->add(b->x, a->n, a->x);
        return;
    case SOFTCAP:
        tier->softcap(a->x, a->n, 30);
        return;
    }
}

/* Bounds, to first order, u = 2^-24; the reference rounds once.
 *   rmsnorm   a sum of n squares in f32 and a root: (n + 6) u relative
 *   rope      two products, one add: 3 u (|a| + |b|), with |cos|, |sin| <= |b entry|
 *   silu      the exponent carries |g| 2u, exp2 is good to 2^-23, 4 roundings: (2|g| + 8) u
 *   gelu      the same with |2 u(g)| <= 1.6 |g| + 0.08 |g|^3 for the exponent, 4 roundings of it;
 *             where that is beyond 100 the factor is exact or under 2^-127
 *   softcap   tanh to 4 u absolute plus |z| 2u of the exponent's slope (<= 1), times cap
 * e^-x overflows from 2^128 on, where the exact result is under 2^-127 |g up|: `flushed`. */
static double bound_of(op_id op, const vec *before, const vec *b, const vec *want, uint32_t i)
{
    const double g = fabs((double)before->x[i]);
    const double y = fabs((double)want->x[i]);
    const uint32_t half = before->n / 2;
    const double flushed = 0x1p-127 * (g + 1) * (fabs((double)b->x[i]) + 1);
    double arg = 0;

    switch (op) {
    case RMSNORM:
        return (before->n + 6) * U * y;
    case ROPE:
        arg = (g + fabs((double)before->x[(i + half) % (2 * half)]));
        return 3 * U * arg * (fabs((double)b->x[i % half]) + fabs((double)b->x[half + i % half]));
    case SILU:
        return (2 * g + 8) * U * y + flushed;
    case GELU:
        arg = fmin(1.6 * g + 0.08 * g * g * g, 100);
        return (4 * arg + 8) * U * y + flushed;
    case ADD:
        return U * y;
    case SOFTCAP:
        return 30 * U * (6 + 2);
    }
    return 0;
}

static void elementwise(void **state)
{
    const struct op_row *r = *state;
    const nw_kernels *ref = nw_kernels_by_name("ref");
    const nw_kernels *tier = NULL;
    static double bound[1536];

    for (size_t i = 0; (tier = nw_tier(i)) != NULL; i++) {
        for (size_t k = 0; k < NW_COUNT(lengths); k++) {
            const uint32_t n = r->op == ROPE ? lengths[k] * 2 % 2000 : lengths[k];
            vec before = vec_new(n, n, r->size);
            vec got = vec_new(n, n, r->size);
            vec want = vec_new(n, n, r->size);
            vec b = vec_new(n, n + 1, 1);
            run_op(tier, r->op, &got, &b);
            run_op(ref, r->op, &want, &b);
            for (uint32_t j = 0; j < n; j++) {
                bound[j] = bound_of(r->op, &before, &b, &want, j);
            }
            near_all(r->name, tier, &got, &want, bound);
            nw_guard_free(&before.mem);
            nw_guard_free(&got.mem);
            nw_guard_free(&want.mem);
            nw_guard_free(&b.mem);
        }
    }
}

/* Values by hand, for the reference and every tier: 1e-6 is loose on purpose, these catch a wrong
 * formula. silu(1) = 0.731059, gelu_tanh(1) = 0.841192, 30 tanh(1) = 22.847825. */
static void known_values(void **state)
{
    const nw_kernels *tier = NULL;
    (void)state;

    for (size_t i = 0; (tier = nw_tier(i)) != NULL; i++) {
        const float two = 2;
        const float one = 1;
        const float cs[2] = {0, 1}; /* cos, sin of a quarter turn */
        float y = 0;
        float x[4] = {3, 4, 0, 0};
        const float gain[4] = {1, 2, 1, 1};
        tier->silu_mul(&one, &two, 1, &y);
        assert_true(fabs((double)y - 2 * 0.7310586) < 1e-6);
        tier->gelu_tanh_mul(&one, &two, 1, &y);
        assert_true(fabs((double)y - 2 * 0.8411920) < 1e-6);
        y = 30;
        tier->softcap(&y, 1, 30);
        assert_true(fabs((double)y - 22.847825) < 1e-5);
        tier->rope(x, 1, 2, &cs[0], &cs[1]); /* (3, 4) -> (-4, 3) */
        assert_true(x[0] == -4 && x[1] == 3);
        tier->rmsnorm(x, gain, 4, 0, x); /* rms 2.5 */
        assert_true(fabs((double)x[0] + 1.6) < 1e-6 && fabs((double)x[1] - 2.4) < 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest single[] = {
        cmocka_unit_test(int8_by_hand),
        cmocka_unit_test(bf16_sums_by_hand),
        cmocka_unit_test(nan_spreads_to_its_token_only),
        cmocka_unit_test(known_values),
    };
    return NW_RUN_TABLE("packing", pack_rows, packing) +
           NW_RUN_TABLE("elementwise", op_rows, elementwise) +
           cmocka_run_group_tests_name("single", single, NULL, NULL);
}
