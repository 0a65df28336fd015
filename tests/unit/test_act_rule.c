/* Rules for activations against numbers worked out by hand: scales of a token, of 128 and of 16 columns, and
 * fixed ones with zero points; ties, limits, zeros, and what is not finite.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "formats/act_rule.h"
#include "table.h"

#define N 5

static struct row {
    const char *name;
    nw_act_rule rule;
    nw_act_fixed fixed;
    float x[N], want[N];
} rows[] = {
    {"a8", NW_ACT_RULE_A8, {0, 0}, {127, 63.5F, -2.4F, 0, -126.6F}, {127, 64, -2, 0, -127}},
    /* the scale is 2: 255 is at 127.5, which is held to 127; 3 and 5 at ties */
    {"a8_ct", NW_ACT_RULE_A8_CT, {0, 0}, {255, 3, 5, -1.2F, 0}, {254, 4, 4, -2, 0}},
    /* on the other side the tie goes to -128 */
    {"a8_ct_negative", NW_ACT_RULE_A8_CT, {0, 0}, {-255, 3, 7, 0.9F, 0}, {-256, 4, 8, 0, 0}},
    /* E4M3 between 16 and 32 is by 2; 17 and 19 at ties; below 2^-6 by 2^-9 */
    {"fp8", NW_ACT_RULE_FP8, {0, 0}, {448, 17, 19, -27, 0.003F}, {448, 16, 20, -28, 0.00390625F}},
    {"fp8_scaled", NW_ACT_RULE_FP8, {0, 0}, {-224, 8.5F, 0, 0, 0}, {-224, 8, 0, 0, 0}},
    {"fp8_fixed", NW_ACT_RULE_FP8, {0.5F, 0}, {300, 8.5F, -300, 0, 1}, {224, 8, -224, 0, 1}},
    {"int8_fixed",
     NW_ACT_RULE_A8_CT,
     {0.5F, 0},
     {100, -100, 0.25F, 0.75F, 1},
     {63.5F, -64, 0, 1, 1}},
    /* code = x / 0.5 - 120 held to -128 .. 127 */
    {"int8_zero_point",
     NW_ACT_RULE_A8_CT,
     {0.5F, -120},
     {100, -10, 0, 0.75F, 130},
     {100, -4, 0, 1, 123.5F}},
    /* absmax 6 under the divisor 1: local scale 1; ties of E2M1 to the even code */
    {"nvfp4", NW_ACT_RULE_NVFP4, {1, 0}, {6, 0.25F, -2.5F, 5, 0.75F}, {6, 0, -2, 4, 1}},
    /* divisor 2: the local scale is 2 * 3 / 6 = 1, in all 0.5 */
    {"nvfp4_divisor", NW_ACT_RULE_NVFP4, {2, 0}, {3, 0.3F, -1.3F, 0, 0}, {3, 0.25F, -1.5F, 0, 0}},
    /* a local scale that E4M3 rounds to 0 becomes 0.125 */
    {"nvfp4_tiny", NW_ACT_RULE_NVFP4, {1, 0}, {0.004F, 0, 0, 0, 0}, {0, 0, 0, 0, 0}},
    {"zeros", NW_ACT_RULE_FP8, {0, 0}, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}},
    {"nan_is_everywhere", NW_ACT_RULE_A8, {0, 0}, {1, NAN, 0, 1, 2}, {NAN, NAN, NAN, NAN, NAN}},
    {"inf_is_everywhere",
     NW_ACT_RULE_NVFP4,
     {1, 0},
     {1, INFINITY, 1, 1, 2},
     {NAN, NAN, NAN, NAN, NAN}},
    {"nan_under_a_fixed_scale", NW_ACT_RULE_A8_CT, {1, 3}, {1, NAN, 0, 1, 2}, {1, NAN, 0, 1, 2}},
};

static void values_are_rounded(void **state)
{
    const struct row *r = *state;
    float x[N];

    memcpy(x, r->x, sizeof x);
    nw_act_rule_round(r->rule, &r->fixed, x, N);
    for (size_t i = 0; i < N; i++) {
        if (!(x[i] == r->want[i] || (isnan(x[i]) && isnan(r->want[i])))) {
            fail_msg("value %zu is %g, not %g", i, (double)x[i], (double)r->want[i]);
        }
    }
}

/* Each group has its own scale, the last one with what is left. */
static void groups_do_not_meet(void **state)
{
    float x[300] = {0};

    (void)state;
    x[0] = 448;
    x[1] = 17;
    x[128] = 44.8F; /* scale 0.1 */
    x[129] = 1.7F;
    x[299] = 4.48F;
    x[298] = 0.17F;
    nw_act_rule_round(NW_ACT_RULE_FP8_G128, NULL, x, 300);
    assert_true(x[0] == 448 && x[1] == 16);
    assert_float_equal(x[128], 44.8F, 1e-5);
    assert_float_equal(x[129], 1.6F, 0.2F + 1e-5F); /* 16 or 18 tenths: 1.7 / 0.1 is no exact tie */
    assert_float_equal(x[299], 4.48F, 1e-6);
    assert_true(fabsf(x[298]) > 0.15F);
    memset(x, 0, sizeof x);
    x[0] = 6;
    x[16] = 0.6F;
    x[17] = 0.2F;
    nw_act_rule_round(NW_ACT_RULE_NVFP4, &(nw_act_fixed){448, 0}, x, 20);
    assert_true(x[0] == 6);
    assert_float_equal(x[16], 0.6F, 0.6F / 16); /* its scale of 44.8 is 44 in E4M3 */
    assert_true(x[17] > 0.15F && x[17] < 0.25F);
}

static void names_and_kin(void **state)
{
    nw_act_rule rule = NW_ACT_RULE_COUNT;

    (void)state;
    for (int i = 0; i < NW_ACT_RULE_COUNT; i++) {
        assert_true(nw_act_rule_parse(nw_act_rule_name((nw_act_rule)i), &rule));
        assert_int_equal(rule, i);
        assert_non_null(strstr(NW_ACT_RULE_NAMES, nw_act_rule_name(rule)));
    }
    assert_false(nw_act_rule_parse("a4", &rule));
    assert_true(nw_act_rule_shares(NW_ACT_RULE_A8, NW_ACT_RULE_A8_CT));
    assert_false(nw_act_rule_shares(NW_ACT_RULE_FP8, NW_ACT_RULE_FP8_G128));
    assert_false(nw_act_rule_shares(NW_ACT_RULE_A8, NW_ACT_RULE_FP8));
}

/* Two matrices read one input: what holds both. */
static struct join_row {
    const char *name;
    nw_act_fixed a, b, want;
} joins[] = {
    {"first", {0, 0}, {0.5F, 3}, {0.5F, 3}},
    {"the_same", {0.5F, 3}, {0.5F, 3}, {0.5F, 3}},
    {"larger_scale", {0.5F, 0}, {0.75F, 0}, {0.75F, 0}},
    {"larger_scale_about_the_same_point", {0.5F, -20}, {0.25F, -20}, {0.5F, -20}},
    /* [0, 255] and [-127, 128], steps of 1: [-127, 255] in 255 steps of 382 / 255 */
    {"ranges", {1, -128}, {1, -1}, {382 / 255.0F, -43}},
    /* a range within the other: the wider one, though its scale is no larger than needed */
    {"one_within_the_other", {1, -128}, {0.5F, -100}, {1.0549020F, -115}},
    {"scales_alone_would_lose_the_low_end", {0.5F, 127}, {1, -128}, {1.5F, -43}},
};

static void ranges_are_joined(void **state)
{
    const struct join_row *r = *state;

    for (int turn = 0; turn < 2; turn++) {
        nw_act_fixed got = turn == 0 ? r->a : r->b;
        nw_act_fixed_join(&got, turn == 0 ? &r->b : &r->a);
        assert_float_equal(got.scale, r->want.scale, 1e-6);
        assert_int_equal(got.zero, r->want.zero);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_do_not_meet),
        cmocka_unit_test(names_and_kin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) +
           NW_RUN_TABLE("rounds", rows, values_are_rounded) +
           NW_RUN_TABLE("joins", joins, ranges_are_joined);
}
