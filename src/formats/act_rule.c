/* The rules for activations that are applied to values: see act_rule.h. Divisions are by the scale, as
 * the reference does: a product with its reciprocal rounds otherwise at ties.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/act_rule.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "formats/fp4.h"
#include "formats/fp8.h"

#define FP8_GROUP   128U
#define NVFP4_GROUP 16U
/* What the reference puts in place of a scale that rounds to 0. */
#define NVFP4_LEAST 0.125F

static const char *const names[] = {"a16", "a8", "a8-ct", "fp8", "fp8-g128", "nvfp4"};
_Static_assert(NW_COUNT(names) == NW_ACT_RULE_COUNT, "a name for every rule");

const char *nw_act_rule_name(nw_act_rule rule)
{
    return names[rule];
}

bool nw_act_rule_parse(const char *name, nw_act_rule *out)
{
    for (size_t i = 0; i < NW_COUNT(names); i++) {
        if (strcmp(names[i], name) == 0) {
            *out = (nw_act_rule)i;
            return true;
        }
    }
    return false;
}

static bool is_int8(nw_act_rule rule)
{
    return rule == NW_ACT_RULE_A8 || rule == NW_ACT_RULE_A8_CT;
}

bool nw_act_rule_shares(nw_act_rule a, nw_act_rule b)
{
    return a == b || (is_int8(a) && is_int8(b));
}

void nw_act_fixed_join(nw_act_fixed *to, const nw_act_fixed *f)
{
    const double steps[] = {(double)to->scale, (double)f->scale};
    const double lo[] = {steps[0] * (-128 - to->zero), steps[1] * (-128 - f->zero)};
    const double hi[] = {steps[0] * (127 - to->zero), steps[1] * (127 - f->zero)};

    if (to->zero == f->zero || !(to->scale > 0)) { /* ranges about the same point: one holds both */
        *to = f->scale > to->scale ? *f : *to;
        return;
    }
    const double low = fmin(lo[0], lo[1]);
    const double scale = (fmax(hi[0], hi[1]) - low) / 255;
    to->scale = (float)scale;
    to->zero = (int32_t)fmax(-128, fmin(127, nearbyint(-128 - low / scale)));
}

/* The largest |x|; a NaN stays: nothing is above it. */
static float absmax(const float *x, size_t n)
{
    float top = 0;

    for (size_t i = 0; i < n; i++) {
        const float a = fabsf(x[i]);
        top = a > top || isnan(a) ? a : top;
    }
    return top;
}

/* Under the scale, with the zero point. */
static void round_int8(float scale, float zero, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float q = nearbyintf(fminf(fmaxf(x[i] / scale + zero, -128.0F), 127.0F));
        x[i] = (isnan(x[i] + scale) ? NAN : q - zero) * scale;
    }
}

static void round_fp8(float scale, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = scale * nw_e4m3_to_f32(nw_e4m3_from_f32(x[i] / scale));
    }
}

static void round_fp4(float scale, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = isnan(x[i] + scale) ? NAN : scale * nw_e2m1_to_f32(nw_e2m1_from_f32(x[i] / scale));
    }
}

/* The local scale of a group under the input's divisor. */
static float nvfp4_scale(float divisor, float top)
{
    const float local = nw_e4m3_to_f32(nw_e4m3_from_f32(divisor * (top / NW_E2M1_MAX)));

    return (local == 0 ? NVFP4_LEAST : local) / divisor;
}

/* The values that share one scale of their own. */
static void round_group(nw_act_rule rule, float divisor, float *x, size_t n)
{
    const float top = absmax(x, n);

    if (top == 0) {
        return;
    }
    const bool ok = isfinite(top);
    if (rule == NW_ACT_RULE_NVFP4) {
        round_fp4(ok ? nvfp4_scale(divisor, top) : NAN, x, n);
    } else if (is_int8(rule)) {
        round_int8(ok ? top / (rule == NW_ACT_RULE_A8 ? 127.0F : 127.5F) : NAN, 0, x, n);
    } else {
        round_fp8(ok ? top / NW_E4M3_MAX : NAN, x, n);
    }
}

void nw_act_rule_round(nw_act_rule rule, const nw_act_fixed *fixed, float *x, size_t n)
{
    const bool given = fixed != NULL && fixed->scale > 0;
    const size_t group = rule == NW_ACT_RULE_NVFP4      ? NVFP4_GROUP
                         : rule == NW_ACT_RULE_FP8_G128 ? FP8_GROUP
                                                        : n;

    assert(rule != NW_ACT_RULE_A16 && (given || rule != NW_ACT_RULE_NVFP4));
    if (given && is_int8(rule)) {
        round_int8(fixed->scale, (float)fixed->zero, x, n);
    } else if (given && rule == NW_ACT_RULE_FP8) {
        round_fp8(fixed->scale, x, n);
    } else {
        for (size_t i = 0; i < n; i += group) {
            round_group(rule, given ? fixed->scale : 1, x + i, n - i < group ? n - i : group);
        }
    }
}
