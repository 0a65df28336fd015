/* linear of every tier against the reference, for every panel type: shapes with tails of 1..17 rows
 * and odd columns, 1..131 tokens, corners of the code range, unreadable pages behind every buffer;
 * and the same bits for a token alone or in a batch, for split ranges of panels, and for bf16-12 as
 * for bf16.
 *
 * Bound. Both sides take the same packed activations a and weights w, so they differ by rounding
 * alone. The reference adds in double. A tier adds n products in f32, each add and each product
 * rounded once (u = 2^-24), then scales: |error| <= (n + 8) u sum|w a|, to first order. With groups
 * there are two more roundings a group. Where a row and group has an offset o (a minimum, or scale *
 * zero point) a tier may sum scale * code and o apart: |scale * code| + |o| <= |w| + 2 |o| then stands
 * for |w|. With int8 or int16 activations the sums of codes are exact integers: what remains for each
 * group is its sum's own rounding, the product of the scales and the add, (3 groups + 8) u with the
 * activations' groups of 128 where there are no others; the reference's decode of w is inside the 8.
 * vdpbf16ps reads subnormal BF16 as 0 and flushes sums: at most 2^-126 (|a| + 1) more a column.
 * SPDX-License-Identifier: Apache-2.0 */
#include "guard.h"
#include "kernels/act.h"
#include "random_matrix.h"
#include "table.h"

#define U    0x1p-24
#define MOST 3328u /* columns of any shape */

static struct row {
    const char *name;
    const char *type;
    bool a8;
    nw_content content;
} rows[] = {
    {"f32", "f32", false, NW_NORMAL},
    {"bf16", "bf16", false, NW_NORMAL},
    {"bf16-12", "bf16-12", false, NW_NORMAL},
    {"int8 a16", "int8", false, NW_NORMAL},
    {"int8 a8", "int8", true, NW_NORMAL},
    {"int8-g16 a16", "int8-g16", false, NW_NORMAL},
    {"int8-g16 a8", "int8-g16", true, NW_NORMAL},
    {"int8-g32 a16", "int8-g32", false, NW_NORMAL},
    {"int8-g32 a8", "int8-g32", true, NW_NORMAL},
    {"int8-g64 a16", "int8-g64", false, NW_NORMAL},
    {"int8-g64 a8", "int8-g64", true, NW_NORMAL},
    {"int8-g128 a16", "int8-g128", false, NW_NORMAL},
    {"int8-g128 a8", "int8-g128", true, NW_NORMAL},
    {"int8-g16-min a16", "int8-g16-min", false, NW_NORMAL},
    {"int8-g16-min a8", "int8-g16-min", true, NW_NORMAL},
    {"int8-g32-min a16", "int8-g32-min", false, NW_NORMAL},
    {"int8-g32-min a8", "int8-g32-min", true, NW_NORMAL},
    {"int8-g64-min a16", "int8-g64-min", false, NW_NORMAL},
    {"int8-g64-min a8", "int8-g64-min", true, NW_NORMAL},
    {"int8-g128-min a16", "int8-g128-min", false, NW_NORMAL},
    {"int8-g128-min a8", "int8-g128-min", true, NW_NORMAL},
    {"int8-g16-k a16", "int8-g16-k", false, NW_NORMAL},
    {"int8-g16-k a8", "int8-g16-k", true, NW_NORMAL},
    {"int8-g32-k a16", "int8-g32-k", false, NW_NORMAL},
    {"int8-g32-k a8", "int8-g32-k", true, NW_NORMAL},
    {"int4-g32 a16", "int4-g32", false, NW_NORMAL},
    {"int4-g32 a8", "int4-g32", true, NW_NORMAL},
    {"int4-g64 a16", "int4-g64", false, NW_NORMAL},
    {"int4-g64 a8", "int4-g64", true, NW_NORMAL},
    {"int4-g128 a16", "int4-g128", false, NW_NORMAL},
    {"int4-g128 a8", "int4-g128", true, NW_NORMAL},
    {"int4-g32-zp a16", "int4-g32-zp", false, NW_NORMAL},
    {"int4-g32-zp a8", "int4-g32-zp", true, NW_NORMAL},
    {"int4-g64-zp a16", "int4-g64-zp", false, NW_NORMAL},
    {"int4-g64-zp a8", "int4-g64-zp", true, NW_NORMAL},
    {"int4-g128-zp a16", "int4-g128-zp", false, NW_NORMAL},
    {"int4-g128-zp a8", "int4-g128-zp", true, NW_NORMAL},
    {"int4-g16 a16", "int4-g16", false, NW_NORMAL},
    {"int4-g16 a8", "int4-g16", true, NW_NORMAL},
    {"int4-g16-zp a16", "int4-g16-zp", false, NW_NORMAL},
    {"int4-g16-zp a8", "int4-g16-zp", true, NW_NORMAL},
    {"int4-g16-min a16", "int4-g16-min", false, NW_NORMAL},
    {"int4-g16-min a8", "int4-g16-min", true, NW_NORMAL},
    {"int4-row-g64-zp a16", "int4-row-g64-zp", false, NW_NORMAL},
    {"int4-row-g64-zp a8", "int4-row-g64-zp", true, NW_NORMAL},
    {"int4-tensor a8", "int4-tensor", true, NW_NORMAL},
    {"int4-g256 a16", "int4-g256", false, NW_NORMAL},
    {"int8-g16-zp a16", "int8-g16-zp", false, NW_NORMAL},
    {"int8-g16-zp a8", "int8-g16-zp", true, NW_NORMAL},
    {"int8-g32-zp a16", "int8-g32-zp", false, NW_NORMAL},
    {"int8-g32-zp a8", "int8-g32-zp", true, NW_NORMAL},
    {"int8-g64-zp a16", "int8-g64-zp", false, NW_NORMAL},
    {"int8-g64-zp a8", "int8-g64-zp", true, NW_NORMAL},
    {"int8-g128-zp a16", "int8-g128-zp", false, NW_NORMAL},
    {"int8-g128-zp a8", "int8-g128-zp", true, NW_NORMAL},
    {"int8-g256-zp a8", "int8-g256-zp", true, NW_NORMAL},
    {"int8-row-zp a16", "int8-row-zp", false, NW_NORMAL},
    {"int4-g32-min a16", "int4-g32-min", false, NW_NORMAL},
    {"int4-g32-min a8", "int4-g32-min", true, NW_NORMAL},
    {"int4-g64-min a16", "int4-g64-min", false, NW_NORMAL},
    {"int4-g64-min a8", "int4-g64-min", true, NW_NORMAL},
    {"int4-g128-min a16", "int4-g128-min", false, NW_NORMAL},
    {"int4-g128-min a8", "int4-g128-min", true, NW_NORMAL},
    {"int4-g32-k a16", "int4-g32-k", false, NW_NORMAL},
    {"int4-g32-k a8", "int4-g32-k", true, NW_NORMAL},
    {"fp8-e4m3", "fp8-e4m3", false, NW_NORMAL},
    {"fp8-e5m2", "fp8-e5m2", false, NW_NORMAL},
    {"nvfp4 a16", "nvfp4", false, NW_NORMAL},
    {"nvfp4 a8", "nvfp4", true, NW_NORMAL},
    {"mxfp4 a16", "mxfp4", false, NW_NORMAL},
    {"mxfp4 a8", "mxfp4", true, NW_NORMAL},
    /* codes at both ends of their range, activations at +-absmax */
    {"corners int8 a16", "int8", false, NW_CORNERS},
    {"corners int8 a8", "int8", true, NW_CORNERS},
    {"corners int8-g16 a16", "int8-g16", false, NW_CORNERS},
    {"corners int8-g16 a8", "int8-g16", true, NW_CORNERS},
    {"corners int8-g128-min a16", "int8-g128-min", false, NW_CORNERS},
    {"corners int8-g128-min a8", "int8-g128-min", true, NW_CORNERS},
    {"corners int4-g32 a16", "int4-g32", false, NW_CORNERS},
    {"corners int4-g32 a8", "int4-g32", true, NW_CORNERS},
    {"corners int4-g64 a16", "int4-g64", false, NW_CORNERS},
    {"corners int4-g64 a8", "int4-g64", true, NW_CORNERS},
    {"corners int4-g32-zp a16", "int4-g32-zp", false, NW_CORNERS},
    {"corners int4-g32-zp a8", "int4-g32-zp", true, NW_CORNERS},
    {"corners int4-g128-zp a16", "int4-g128-zp", false, NW_CORNERS},
    {"corners int4-g128-zp a8", "int4-g128-zp", true, NW_CORNERS},
    {"corners int4-g16-zp a16", "int4-g16-zp", false, NW_CORNERS},
    {"corners int4-g16 a8", "int4-g16", true, NW_CORNERS},
    {"corners int8-g16-zp a16", "int8-g16-zp", false, NW_CORNERS},
    {"corners int8-g128-zp a8", "int8-g128-zp", true, NW_CORNERS},
    {"tiny int4-g16-zp a16", "int4-g16-zp", false, NW_TINY},
    {"tiny int8-g32-zp a8", "int8-g32-zp", true, NW_TINY},
    {"corners int4-g64-min a16", "int4-g64-min", false, NW_CORNERS},
    {"corners int4-g64-min a8", "int4-g64-min", true, NW_CORNERS},
    {"corners int4-g32-k a16", "int4-g32-k", false, NW_CORNERS},
    {"corners int4-g32-k a8", "int4-g32-k", true, NW_CORNERS},
    {"corners nvfp4 a16", "nvfp4", false, NW_CORNERS},
    {"corners nvfp4 a8", "nvfp4", true, NW_CORNERS},
    {"corners mxfp4 a16", "mxfp4", false, NW_CORNERS},
    {"corners mxfp4 a8", "mxfp4", true, NW_CORNERS},
    {"corners fp8-e4m3", "fp8-e4m3", false, NW_CORNERS},
    {"corners fp8-e5m2", "fp8-e5m2", false, NW_CORNERS},
    /* scales that are subnormal where they are stored */
    {"tiny int8 a16", "int8", false, NW_TINY},
    {"tiny int8 a8", "int8", true, NW_TINY},
    {"tiny int8-g32 a16", "int8-g32", false, NW_TINY},
    {"tiny int8-g32 a8", "int8-g32", true, NW_TINY},
    {"tiny int8-g16-k a16", "int8-g16-k", false, NW_TINY},
    {"tiny int8-g16-k a8", "int8-g16-k", true, NW_TINY},
    {"tiny int4-g32 a16", "int4-g32", false, NW_TINY},
    {"tiny int4-g32 a8", "int4-g32", true, NW_TINY},
    {"tiny int4-g64-zp a16", "int4-g64-zp", false, NW_TINY},
    {"tiny int4-g64-zp a8", "int4-g64-zp", true, NW_TINY},
    {"tiny int4-g128-min a16", "int4-g128-min", false, NW_TINY},
    {"tiny int4-g128-min a8", "int4-g128-min", true, NW_TINY},
    {"tiny nvfp4 a16", "nvfp4", false, NW_TINY},
    {"tiny nvfp4 a8", "nvfp4", true, NW_TINY},
    {"tiny mxfp4 a16", "mxfp4", false, NW_TINY},
    {"tiny mxfp4 a8", "mxfp4", true, NW_TINY},
    {"tiny bf16", "bf16", false, NW_TINY},
    {"tiny bf16-12", "bf16-12", false, NW_TINY},
    {"tiny fp8-e4m3", "fp8-e4m3", false, NW_TINY},
    {"tiny fp8-e5m2", "fp8-e5m2", false, NW_TINY},
    {"wild bf16", "bf16", false, NW_WILD},
    {"wild bf16-12", "bf16-12", false, NW_WILD},
    /* the largest sums: codes of a row at one end, activations at +absmax, -absmax or low bytes of -128 */
    {"full int8 a16", "int8", false, NW_FULL},
    {"full int8 a8", "int8", true, NW_FULL},
    {"full int8-g16 a16", "int8-g16", false, NW_FULL},
    {"full int8-g128 a8", "int8-g128", true, NW_FULL},
    {"full int8-g32-k a8", "int8-g32-k", true, NW_FULL},
    {"full int8-g16-zp a16", "int8-g16-zp", false, NW_FULL},
    {"full int8-g128-zp a8", "int8-g128-zp", true, NW_FULL},
    {"full int4-g16 a16", "int4-g16", false, NW_FULL},
    {"full int4-g16 a8", "int4-g16", true, NW_FULL},
    {"full int4-g16-zp a8", "int4-g16-zp", true, NW_FULL},
    {"full int4-g32 a16", "int4-g32", false, NW_FULL},
    {"full int4-g32 a8", "int4-g32", true, NW_FULL},
    {"full int4-g64 a16", "int4-g64", false, NW_FULL},
    {"full int4-g64 a8", "int4-g64", true, NW_FULL},
    {"full int4-g128 a16", "int4-g128", false, NW_FULL},
    {"full int4-g128 a8", "int4-g128", true, NW_FULL},
    {"full int4-g32-zp a16", "int4-g32-zp", false, NW_FULL},
    {"full int4-g32-zp a8", "int4-g32-zp", true, NW_FULL},
    {"full int4-g128-zp a8", "int4-g128-zp", true, NW_FULL},
    {"full int4-g64-min a16", "int4-g64-min", false, NW_FULL},
    {"full int4-g64-min a8", "int4-g64-min", true, NW_FULL},
    {"full int4-g128-min a8", "int4-g128-min", true, NW_FULL},
    {"full int4-g32-k a16", "int4-g32-k", false, NW_FULL},
    {"full int4-g32-k a8", "int4-g32-k", true, NW_FULL},
    {"full nvfp4 a16", "nvfp4", false, NW_FULL},
    {"full nvfp4 a8", "nvfp4", true, NW_FULL},
    {"full mxfp4 a16", "mxfp4", false, NW_FULL},
    {"full mxfp4 a8", "mxfp4", true, NW_FULL},
};

typedef struct {
    uint32_t n_rows, n_cols, n_tokens;
} shape;

static const shape shapes[] = {
    {1, 1, 1},    {2, 2, 2},    {3, 3, 3},     {4, 5, 4},     {5, 31, 5},    {6, 32, 6},
    {7, 33, 7},   {8, 63, 8},   {9, 64, 9},    {10, 65, 10},  {11, 100, 11}, {12, 127, 12},
    {13, 128, 1}, {14, 129, 2}, {15, 191, 13}, {16, 192, 1},  {17, 256, 6},  {33, 300, 1},
    {64, 64, 24}, {70, 64, 25}, {129, 130, 1}, {144, 65, 13}, {48, 577, 40}, {80, 3072, 1},
    {33, 513, 3}, {83, 259, 7}, {33, 65, 70},  {17, 65, 131},
};

typedef struct {
    shape s;
    nw_panel_type type;
    nw_guarded w, x, act, y, want;
    size_t ldx, ldy, n_y; /* n_y: floats of y */
    nw_weight weight;
    nw_act a;
    nw_guarded known; /* activations that `want` is of */
    nw_act_kind known_kind;
} job;

/* The -k layouts have whole blocks of 256 columns. */
static uint32_t cols_for(nw_panel_type type, uint32_t n_cols)
{
    return type.two_level ? NW_PANEL_K_COLS * (1 + n_cols / NW_PANEL_K_COLS) : n_cols;
}

static void make_weights(job *j, nw_content content)
{
    const uint32_t panels = nw_panel_count(j->s.n_rows);
    const nw_random_matrix m =
        nw_random_matrix_of(j->type, content, j->s.n_rows, j->s.n_cols,
                            j->s.n_rows * 1009U + j->s.n_cols * 101U + j->s.n_tokens);
    size_t panel = 0;

    j->type = m.type;
    assert_true(nw_panel_bytes(j->type, j->s.n_cols, &panel));
    j->w = nw_guard_new(panel * panels);
    for (uint32_t p = 0; p < panels; p++) {
        nw_random_panel(&m, p, j->w.data + p * panel);
    }
    j->weight = (nw_weight){j->type, j->w.data, j->s.n_rows, j->s.n_cols};
}

/* Activation k of a token whose sums are the largest. As INT16 the third kind has codes of 127 * 256 - 128
 * beside one of 32639 each 128 columns. */
static float full(uint32_t t, uint32_t k)
{
    const float low = k % NW_ACT_COLS == 0 ? 32639.0F : 32384.0F;
    return t % 3 == 0 ? 32639.0F : t % 3 == 1 ? -32639.0F : low;
}

static void job_open(job *j, const struct row *r, shape s)
{
    nw_rng rng = nw_rng_seed(s.n_rows * 1000003U + s.n_cols * 101U + s.n_tokens);
    nw_panel_type type = {0};

    assert_true(nw_panel_parse(r->type, &type));
    s.n_cols = cols_for(type, s.n_cols);
    *j = (job){.s = s, .type = type, .ldx = s.n_cols + 3, .ldy = s.n_rows + 5};
    make_weights(j, r->content);
    /* the last row ends at the guard, so rows start at any multiple of 4 bytes */
    j->x = nw_guard_new(((s.n_tokens - 1) * j->ldx + s.n_cols) * sizeof(float));
    float *x = (float *)(void *)j->x.data;
    for (uint32_t t = 0; t < s.n_tokens; t++) {
        for (uint32_t k = 0; k < s.n_cols; k++) {
            const double v = nw_rng_normal(&rng);
            x[t * j->ldx + k] = r->content == NW_FULL
                                    ? full(t, k)
                                    : (float)(r->content == NW_CORNERS ? copysign(1 + t, v) : v);
        }
    }
    j->n_y = (s.n_tokens - 1) * j->ldy + s.n_rows;
    j->y = nw_guard_new(j->n_y * sizeof(float));
    j->want = nw_guard_new(j->n_y * sizeof(float));
}

static void release(nw_guarded *g)
{
    if (g->map != NULL) {
        nw_guard_free(g);
        g->map = NULL;
    }
}

/* The activations as a tier packs them, and a result that is not written yet. */
static void job_pack(job *j, const struct row *r, const nw_kernels *tier)
{
    const nw_act_kind kind = tier->act_kind(j->type, r->a8);

    release(&j->act);
    j->act = nw_guard_new(nw_act_bytes(kind, j->s.n_tokens, j->s.n_cols));
    tier->act_pack(kind, (const float *)(const void *)j->x.data, j->ldx, 0, j->s.n_tokens,
                   j->s.n_cols, j->act.data);
    j->a = (nw_act){kind, j->s.n_tokens, j->s.n_cols, j->act.data};
    memset(j->y.data, 0xA5, j->n_y * sizeof(float));
}

/* `want` of the reference, which tiers that pack the same bytes share. */
static void job_want(job *j)
{
    const size_t bytes = nw_act_bytes(j->a.kind, j->s.n_tokens, j->s.n_cols);

    if (j->known.map != NULL && j->known_kind == j->a.kind &&
        memcmp(j->known.data, j->act.data, bytes) == 0) {
        return;
    }
    release(&j->known);
    j->known = nw_guard_new(bytes);
    j->known_kind = j->a.kind;
    memcpy(j->known.data, j->act.data, bytes);
    nw_kernels_by_name("ref")->linear(&j->weight, &j->a, 0, nw_panel_count(j->s.n_rows),
                                      (float *)(void *)j->want.data, j->ldy);
}

static void job_close(job *j)
{
    release(&j->w);
    release(&j->x);
    release(&j->act);
    release(&j->known);
    release(&j->y);
    release(&j->want);
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
    const uint8_t *codes = row + nw_act_codes_at(a->kind, a->n_cols) + k;
    if (a->kind == NW_ACT_INT8) {
        memcpy(&f, row, sizeof f);
        return (double)f * (int8_t)codes[0];
    }
    memcpy(&f, row + k / NW_ACT_COLS * sizeof f, sizeof f);
    return (double)f * ((int8_t)codes[0] * 256 + (int8_t)codes[nw_act_cols(a->n_cols)]);
}

/* What may be summed apart from scale * code for each column of a row: 0 for most types. */
static void offsets_of(const job *j, uint32_t row, float *offsets)
{
    int8_t codes[MOST];
    int8_t zeros[MOST / 16];
    float scales[MOST / 16];
    float mins[MOST / 16];

    memset(offsets, 0, j->s.n_cols * sizeof *offsets);
    if (!j->type.min && !j->type.zero_point) {
        return;
    }
    nw_panel_codes_row(j->type, j->w.data, j->s.n_cols, row, codes, scales, zeros);
    nw_panel_mins_row(j->type, j->w.data, j->s.n_cols, row, mins);
    for (uint32_t k = 0; k < j->s.n_cols; k++) {
        const uint32_t g = k / j->type.group;
        offsets[k] = j->type.min ? mins[g] : scales[g] * (float)zeros[g];
    }
}

/* |a| of each token's columns, and after them their sum. */
static double *sizes_of(const job *j)
{
    const size_t n = j->s.n_cols + 1;
    double *size = malloc(j->s.n_tokens * n * sizeof *size);

    assert_non_null(size);
    for (uint32_t t = 0; t < j->s.n_tokens; t++) {
        size[t * n + j->s.n_cols] = 0;
        for (uint32_t k = 0; k < j->s.n_cols; k++) {
            size[t * n + k] = fabs(act_at(&j->a, t, k));
            size[t * n + j->s.n_cols] += size[t * n + k];
        }
    }
    return size;
}

/* How far a result may be off: sum (|w| + 2 |o|) |a|, and what reading subnormals as 0 may lose of it; 2^-140: results
 * that are themselves subnormal. */
static double bound_of(const job *j, const double *weight, const double *size)
{
    const uint32_t groups = nw_panel_groups(j->type, j->s.n_cols) + j->s.n_cols / NW_ACT_COLS;
    const bool exact = j->a.kind == NW_ACT_INT8 || j->a.kind == NW_ACT_INT16;
    const double adds = (exact ? 0 : j->s.n_cols) + 3.0 * groups + 8;
    const double flushed = j->a.kind == NW_ACT_BF16 ? size[j->s.n_cols] + j->s.n_cols : 0;
    double sum = 0;

    for (uint32_t k = 0; k < j->s.n_cols; k++) {
        sum += weight[k] * size[k];
    }
    return adds * U * sum + flushed * 0x1p-126 + 0x1p-140;
}

static void compare(const job *j, const nw_kernels *tier)
{
    const float *y = (const float *)(const void *)j->y.data;
    const float *want = (const float *)(const void *)j->want.data;
    double *size = sizes_of(j);
    float w[MOST];
    float offsets[MOST];
    double weight[MOST];

    for (uint32_t r = 0; r < j->s.n_rows; r++) {
        nw_panel_unpack_row(j->type, j->w.data, j->s.n_cols, r, w);
        offsets_of(j, r, offsets);
        for (uint32_t k = 0; k < j->s.n_cols; k++) {
            weight[k] = fabs((double)w[k]) + 2 * fabs((double)offsets[k]);
        }
        for (uint32_t t = 0; t < j->s.n_tokens; t++) {
            const size_t at = t * j->ldy + r;
            const double bound = bound_of(j, weight, size + t * (j->s.n_cols + (size_t)1));
            if (!(fabs((double)y[at] - (double)want[at]) <= bound)) {
                fail_msg("%s %ux%u token %u of %u row %u: %.9g, reference %.9g, bound %.3g",
                         tier->tier, j->s.n_rows, j->s.n_cols, t, j->s.n_tokens, r, (double)y[at],
                         (double)want[at], bound);
            }
        }
    }
    free(size);
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
    const nw_kernels *tier = NULL;

    for (size_t k = 0; k < NW_COUNT(shapes); k++) {
        job j;
        job_open(&j, r, shapes[k]);
        for (size_t i = 0; (tier = nw_tier(i)) != NULL; i++) {
            job_pack(&j, r, tier);
            job_want(&j);
            tier->linear(&j.weight, &j.a, 0, nw_panel_count(j.s.n_rows), (float *)(void *)j.y.data,
                         j.ldy);
            compare(&j, tier);
            untouched(&j);
        }
        job_close(&j);
    }
}

/* Each token alone, and panels in two ranges, give the bits of the whole. */
static void same_bits_of(job *j, const nw_kernels *tier)
{
    const uint32_t panels = nw_panel_count(j->s.n_rows);
    const size_t bytes = j->n_y * sizeof(float);
    float *y = (float *)(void *)j->y.data;
    float *other = (float *)(void *)j->want.data;

    tier->linear(&j->weight, &j->a, 0, panels, y, j->ldy);
    memset(other, 0xA5, bytes);
    for (uint32_t t = 0; t < j->s.n_tokens; t++) {
        nw_act one = j->a;
        one.n_tokens = 1;
        one.data = j->act.data + t * nw_act_stride(j->a.kind, j->s.n_cols);
        tier->linear(&j->weight, &one, 0, panels, other + t * j->ldy, j->ldy);
    }
    assert_memory_equal(y, other, bytes);
    for (uint32_t cut = 0; cut <= panels; cut += cut < 2 ? 1 : 3) {
        memset(other, 0xA5, bytes);
        tier->linear(&j->weight, &j->a, cut, panels, other, j->ldy);
        tier->linear(&j->weight, &j->a, 0, cut, other, j->ldy);
        assert_memory_equal(y, other, bytes);
    }
}

static void same_bits(void **state)
{
    const struct row *r = *state;
    const nw_kernels *tier = NULL;

    for (size_t k = 0; k < NW_COUNT(shapes); k++) {
        job j;
        job_open(&j, r, shapes[k]);
        for (size_t i = 0; (tier = nw_tier(i)) != NULL; i++) {
            job_pack(&j, r, tier);
            same_bits_of(&j, tier);
        }
        job_close(&j);
    }
}

/* The lossless 12-bit form of bf16 gives the bits of bf16: values with rare exponents among them. */
static struct row lossless[] = {{"normal", "bf16", false, NW_NORMAL},
                                {"wild exponents", "bf16", false, NW_WILD},
                                {"subnormal", "bf16", false, NW_TINY}};

static void same_bits_as_bf16(void **state)
{
    const struct row *r = *state;
    const nw_kernels *tier = NULL;
    uint32_t n_escapes = 0;

    for (size_t k = 0; k < NW_COUNT(shapes); k++) {
        job j;
        job packed; /* in 12 bits */
        job_open(&j, r, shapes[k]);
        job_open(&packed, r, shapes[k]);
        release(&packed.w);
        packed.type = (nw_panel_type){.kind = NW_PANEL_BF16_12};
        make_weights(&packed, r->content);
        n_escapes += packed.type.escapes;
        for (size_t i = 0; (tier = nw_tier(i)) != NULL; i++) {
            const uint32_t panels = nw_panel_count(j.s.n_rows);
            job_pack(&j, r, tier);
            memset(j.want.data, 0xA5, j.n_y * sizeof(float));
            tier->linear(&j.weight, &j.a, 0, panels, (float *)(void *)j.y.data, j.ldy);
            tier->linear(&packed.weight, &j.a, 0, panels, (float *)(void *)j.want.data, j.ldy);
            assert_memory_equal(j.y.data, j.want.data, j.n_y * sizeof(float));
        }
        job_close(&j);
        job_close(&packed);
    }
    assert_true(r->content != NW_WILD || n_escapes > 0);
}

int main(void)
{
    return NW_RUN_TABLE("against_reference", rows, against_reference) +
           NW_RUN_TABLE("same_bits", rows, same_bits) +
           NW_RUN_TABLE("same_bits_as_bf16", lossless, same_bits_as_bf16);
}
