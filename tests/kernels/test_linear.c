/* linear of every tier against the reference, for every panel type: shapes with tails of 1..17 rows
 * and odd columns, 1..40 tokens, corners of the code range, unreadable pages behind every buffer;
 * and the same bits for a token alone or in a batch, and for split ranges of panels.
 *
 * Bound. Both sides take the same packed activations a and weights w, so they differ by rounding
 * alone. The reference adds in double. A tier adds n products in f32, each add and each product
 * rounded once (u = 2^-24), then scales: |error| <= (n + 8) u sum|w a|, to first order. With int8
 * activations the sums are exact integers: what remains is the conversion, the products of scales
 * and one f32 add a group, (groups + 8) u sum|w a|; the reference's decode of w is inside the 8.
 * vdpbf16ps reads subnormal BF16 as 0 and flushes sums: at most 2^-126 (|a| + 1) more a column.
 * SPDX-License-Identifier: Apache-2.0 */
#include "guard.h"
#include "table.h"

#define U 0x1p-24

typedef enum { NORMAL, CORNERS, TINY } content;

static struct row {
    const char *name;
    const char *type;
    bool a8;
    content content;
} rows[] = {
    {"f32", "f32", false, NORMAL},
    {"bf16", "bf16", false, NORMAL},
    {"int8_a16", "int8", false, NORMAL},
    {"int8_a8", "int8", true, NORMAL},
    {"int4_g32_a16", "int4-g32", false, NORMAL},
    {"int4_g64_a16", "int4-g64", false, NORMAL},
    {"int4_g128_a16", "int4-g128", false, NORMAL},
    {"int4_g32_zp_a16", "int4-g32-zp", false, NORMAL},
    {"int4_g64_zp_a16", "int4-g64-zp", false, NORMAL},
    {"int4_g128_zp_a16", "int4-g128-zp", false, NORMAL},
    {"int4_g32_a8", "int4-g32", true, NORMAL},
    {"int4_g64_a8", "int4-g64", true, NORMAL},
    {"int4_g128_a8", "int4-g128", true, NORMAL},
    {"int4_g32_zp_a8", "int4-g32-zp", true, NORMAL},
    {"int4_g64_zp_a8", "int4-g64-zp", true, NORMAL},
    {"int4_g128_zp_a8", "int4-g128-zp", true, NORMAL},
    /* codes at both ends of their range, activations at +-absmax */
    {"corners_int8_a16", "int8", false, CORNERS},
    {"corners_int8_a8", "int8", true, CORNERS},
    {"corners_int4_a16", "int4-g64", false, CORNERS},
    {"corners_int4_a8", "int4-g32", true, CORNERS},
    {"corners_int4_zp_a16", "int4-g32-zp", false, CORNERS},
    {"corners_int4_zp_a8", "int4-g128-zp", true, CORNERS},
    /* scales that are subnormal where they are stored */
    {"tiny_scales_int8_a16", "int8", false, TINY},
    {"tiny_scales_int8_a8", "int8", true, TINY},
    {"tiny_scales_int4_a16", "int4-g32", false, TINY},
    {"tiny_scales_int4_zp_a8", "int4-g64-zp", true, TINY},
    {"tiny_weights_bf16", "bf16", false, TINY},
};

typedef struct {
    uint32_t n_rows, n_cols, n_tokens;
} shape;

static const shape shapes[] = {
    {1, 1, 1},    {2, 2, 2},    {3, 3, 3},     {4, 5, 4},    {5, 31, 5},    {6, 32, 6},
    {7, 33, 7},   {8, 63, 8},   {9, 64, 9},    {10, 65, 10}, {11, 100, 11}, {12, 127, 12},
    {13, 128, 1}, {14, 129, 2}, {15, 191, 13}, {16, 192, 1}, {17, 256, 6},  {33, 300, 1},
    {64, 64, 24}, {70, 64, 25}, {129, 130, 1}, {144, 65, 7}, {48, 577, 40},
};

typedef struct {
    shape s;
    nw_panel_type type;
    nw_guarded w, x, act, y, want;
    size_t ldx, ldy;
    nw_weight weight;
    nw_act a;
} job;

static int8_t code8(content c, nw_rng *rng)
{
    const int full = (int)nw_rng_below(rng, 256) - 128;
    return (int8_t)(c == CORNERS ? (full < 0 ? -128 : 127) : full);
}

static uint8_t code4(content c, nw_rng *rng)
{
    const unsigned full = (unsigned)nw_rng_below(rng, 16);
    return (uint8_t)(c == CORNERS ? (full < 8 ? 0 : 15) : full);
}

static void panel_int4(const job *j, content c, uint8_t *panel, uint32_t n, nw_rng *rng)
{
    const uint32_t groups = nw_panel_groups(j->type, j->s.n_cols);
    uint8_t codes[16][1024];
    uint16_t scales[16][32];
    uint8_t zeros[16][32];

    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t k = 0; k < j->s.n_cols; k++) {
            codes[r][k] = code4(c, rng);
        }
        for (uint32_t g = 0; g < groups; g++) {
            /* fp16: subnormal below 0x400, and around 0.01 from 0x2000 on */
            const uint64_t half = nw_rng_below(rng, 0x3FF);
            scales[r][g] = (uint16_t)(c == TINY ? half + 1 : 0x2000 + half);
            zeros[r][g] = code4(c, rng);
        }
    }
    nw_panel_pack_int4(j->type, codes[0], 1024, scales[0], j->type.zero_point ? zeros[0] : NULL, 32,
                       n, j->s.n_cols, panel);
}

static void panel_other(const job *j, content c, uint8_t *panel, uint32_t n, nw_rng *rng)
{
    const float unit = c == TINY ? 0x1p-135F : 0.02F;
    float f[16][1024];
    uint16_t h[16][1024];
    int8_t i[16][1024];
    float scales[16];

    for (uint32_t r = 0; r < n; r++) {
        scales[r] = unit * (1 + (float)nw_rng_unit(rng));
        for (uint32_t k = 0; k < j->s.n_cols; k++) {
            f[r][k] = unit * (float)nw_rng_normal(rng);
            h[r][k] = nw_bf16_from_f32(f[r][k]);
            i[r][k] = code8(c, rng);
        }
    }
    if (j->type.kind == NW_PANEL_F32) {
        nw_panel_pack_f32(f[0], 1024, n, j->s.n_cols, panel);
    } else if (j->type.kind == NW_PANEL_BF16) {
        nw_panel_pack_bf16(h[0], 1024, n, j->s.n_cols, panel);
    } else {
        nw_panel_pack_int8(i[0], 1024, scales, n, j->s.n_cols, panel);
    }
}

static void job_open(job *j, const struct row *r, shape s, const nw_kernels *tier)
{
    nw_rng rng = nw_rng_seed(s.n_rows * 1000003U + s.n_cols * 101U + s.n_tokens);
    size_t panel = 0;

    *j = (job){.s = s, .ldx = s.n_cols + 3, .ldy = s.n_rows + 5};
    assert_true(nw_panel_parse(r->type, &j->type));
    assert_true(nw_panel_bytes(j->type, s.n_cols, &panel));
    j->w = nw_guard_new(panel * nw_panel_count(s.n_rows));
    for (uint32_t p = 0; p < nw_panel_count(s.n_rows); p++) {
        const uint32_t left = s.n_rows - p * 16;
        const uint32_t n = left < 16 ? left : 16;
        (j->type.kind == NW_PANEL_INT4 ? panel_int4 : panel_other)(j, r->content,
                                                                   j->w.data + p * panel, n, &rng);
    }
    j->weight = (nw_weight){j->type, j->w.data, s.n_rows, s.n_cols};
    /* the last row ends at the guard, so rows start at any multiple of 4 bytes */
    j->x = nw_guard_new(((s.n_tokens - 1) * j->ldx + s.n_cols) * sizeof(float));
    float *x = (float *)(void *)j->x.data;
    for (uint32_t t = 0; t < s.n_tokens; t++) {
        for (uint32_t k = 0; k < s.n_cols; k++) {
            const double v = nw_rng_normal(&rng);
            x[t * j->ldx + k] = (float)(r->content == CORNERS ? copysign(1 + t, v) : v);
        }
    }
    const nw_act_kind kind = tier->act_kind(j->type, r->a8);
    j->act = nw_guard_new(nw_act_bytes(kind, s.n_tokens, s.n_cols));
    tier->act_pack(kind, x, j->ldx, 0, s.n_tokens, s.n_cols, j->act.data);
    j->a = (nw_act){kind, s.n_tokens, s.n_cols, j->act.data};
    j->y = nw_guard_new(((s.n_tokens - 1) * j->ldy + s.n_rows) * sizeof(float));
    j->want = nw_guard_new(((s.n_tokens - 1) * j->ldy + s.n_rows) * sizeof(float));
}

static void job_close(job *j)
{
    nw_guard_free(&j->w);
    nw_guard_free(&j->x);
    nw_guard_free(&j->act);
    nw_guard_free(&j->y);
    nw_guard_free(&j->want);
}

/* The value of column k of token t as the packed row holds it. */
static double act_at(const nw_act *a, uint32_t t, uint32_t k)
{
    const uint8_t *row = (const uint8_t *)a->data + t * nw_act_stride(a->kind, a->n_cols);
    float f = 0;
    uint16_t h = 0;

    if (a->kind == NW_ACT_F32) {
        memcpy(&f, row + k * sizeof f, sizeof f);
        return (double)f;
    }
    if (a->kind == NW_ACT_BF16) {
        memcpy(&h, row + k * sizeof h, sizeof h);
        return (double)nw_bf16_to_f32(h);
    }
    /* codes end the row: they are the last padded columns of it, see kernels.h */
    const size_t padded = (a->n_cols + NW_ACT_COLS - 1) / NW_ACT_COLS * NW_ACT_COLS;
    const size_t sums = (padded / 32 * 4 + 63) / 64 * 64;
    memcpy(&f, row, sizeof f);
    return (double)f * (int8_t)row[64 + sums + k];
}

/* sum|w a| over a row, and what reading subnormals as 0 may lose of it. */
static double magnitude(const job *j, uint32_t t, const float *w, double *flushed)
{
    double sum = 0;

    *flushed = 0;
    for (uint32_t k = 0; k < j->s.n_cols; k++) {
        const double a = fabs(act_at(&j->a, t, k));
        sum += fabs((double)w[k]) * a;
        *flushed += j->type.kind == NW_PANEL_BF16 ? 0x1p-126 * (a + 1) : 0;
    }
    return sum;
}

static void compare(const job *j, const nw_kernels *tier)
{
    const float *y = (const float *)(const void *)j->y.data;
    const float *want = (const float *)(const void *)j->want.data;
    const double adds = j->a.kind != NW_ACT_INT8        ? j->s.n_cols
                        : j->type.kind == NW_PANEL_INT4 ? nw_panel_groups(j->type, j->s.n_cols)
                                                        : 1;
    float w[1024];

    for (uint32_t r = 0; r < j->s.n_rows; r++) {
        nw_panel_unpack_row(j->type, j->w.data, j->s.n_cols, r, w);
        for (uint32_t t = 0; t < j->s.n_tokens; t++) {
            const size_t at = t * j->ldy + r;
            double flushed = 0;
            const double sum = magnitude(j, t, w, &flushed);
            /* 2^-140: results that are themselves subnormal */
            const double bound = (adds + 8) * U * sum + flushed + 0x1p-140;
            if (!(fabs((double)y[at] - (double)want[at]) <= bound)) {
                fail_msg("%s %ux%u token %u of %u row %u: %.9g, reference %.9g, bound %.3g",
                         tier->tier, j->s.n_rows, j->s.n_cols, t, j->s.n_tokens, r, (double)y[at],
                         (double)want[at], bound);
            }
        }
    }
}

/* Bytes between the rows of y keep their 0xA5. */
static void untouched(const job *j)
{
    const float *y = (const float *)(const void *)j->y.data;
    uint32_t mark = 0;
    memset(&mark, 0xA5, sizeof mark);
    for (uint32_t t = 0; t + 1 < j->s.n_tokens; t++) {
        for (size_t k = j->s.n_rows; k < j->ldy; k++) {
            assert_int_equal(nw_f32_bits(y[t * j->ldy + k]), mark);
        }
    }
}

static void against_reference(void **state)
{
    const struct row *r = *state;
    const nw_kernels *ref = nw_kernels_by_name("ref");
    const nw_kernels *tier = NULL;

    for (size_t i = 0; (tier = nw_tier(i)) != NULL; i++) {
        for (size_t k = 0; k < NW_COUNT(shapes); k++) {
            job j;
            job_open(&j, r, shapes[k], tier);
            const uint32_t panels = nw_panel_count(j.s.n_rows);
            ref->linear(&j.weight, &j.a, 0, panels, (float *)(void *)j.want.data, j.ldy);
            tier->linear(&j.weight, &j.a, 0, panels, (float *)(void *)j.y.data, j.ldy);
            compare(&j, tier);
            untouched(&j);
            job_close(&j);
        }
    }
}

/* Each token alone, and panels in two ranges, give the bits of the whole. */
static void same_bits(void **state)
{
    const struct row *r = *state;
    const nw_kernels *tier = NULL;

    for (size_t i = 0; (tier = nw_tier(i)) != NULL; i++) {
        for (size_t k = 0; k < NW_COUNT(shapes); k++) {
            job j;
            job_open(&j, r, shapes[k], tier);
            const uint32_t panels = nw_panel_count(j.s.n_rows);
            float *y = (float *)(void *)j.y.data;
            float *other = (float *)(void *)j.want.data;
            const size_t bytes = ((j.s.n_tokens - 1) * j.ldy + j.s.n_rows) * sizeof *y;
            tier->linear(&j.weight, &j.a, 0, panels, y, j.ldy);
            for (uint32_t t = 0; t < j.s.n_tokens; t++) {
                nw_act one = j.a;
                one.n_tokens = 1;
                one.data = j.act.data + t * nw_act_stride(j.a.kind, j.s.n_cols);
                tier->linear(&j.weight, &one, 0, panels, other + t * j.ldy, j.ldy);
            }
            assert_memory_equal(y, other, bytes);
            for (uint32_t cut = 0; cut <= panels; cut++) {
                memset(other, 0xA5, bytes);
                tier->linear(&j.weight, &j.a, cut, panels, other, j.ldy);
                tier->linear(&j.weight, &j.a, 0, cut, other, j.ldy);
                assert_memory_equal(y, other, bytes);
            }
            job_close(&j);
        }
    }
}

int main(void)
{
    return NW_RUN_TABLE("against_reference", rows, against_reference) +
           NW_RUN_TABLE("same_bits", rows, same_bits);
}
