/* What quantization_config says of the inputs of quantized matrices, and the numbers that fix them; and
 * folders of quant_method "fp8", where both stand in their own way.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>

#include "hf_quant_file.h"

#define ROWS 8
#define COLS 32

static struct act_row {
    const char *name, *input;
    nw_act_rule act;
    bool fixed, zeros, note;
} acts[] = {
    {"none", "null", NW_ACT_RULE_A16, false, false, false},
    {"int8_token", "{\"num_bits\":8,\"type\":\"int\",\"strategy\":\"token\",\"dynamic\":true}",
     NW_ACT_RULE_A8, false, false, false},
    {"fp8_token", "{\"num_bits\":8,\"type\":\"float\",\"strategy\":\"token\",\"dynamic\":true}",
     NW_ACT_RULE_FP8, false, false, false},
    {"fp8_static", "{\"num_bits\":8,\"type\":\"float\",\"strategy\":\"tensor\",\"dynamic\":false}",
     NW_ACT_RULE_FP8, true, false, false},
    {"int8_static", "{\"num_bits\":8,\"type\":\"int\",\"strategy\":\"tensor\",\"dynamic\":false}",
     NW_ACT_RULE_A8, true, false, false},
    {"int8_static_with_zero_points",
     "{\"num_bits\":8,\"type\":\"int\",\"strategy\":\"tensor\",\"dynamic\":false,"
     "\"symmetric\":false}",
     NW_ACT_RULE_A8_CT, true, true, false},
    {"fp8_of_128_columns",
     "{\"num_bits\":8,\"type\":\"float\",\"strategy\":\"group\",\"group_size\":128,\"dynamic\":"
     "true}",
     NW_ACT_RULE_FP8_G128, false, false, false},
    {"fp8_of_64_columns",
     "{\"num_bits\":8,\"type\":\"float\",\"strategy\":\"group\",\"group_size\":64,\"dynamic\":"
     "true}",
     NW_ACT_RULE_A16, false, false, true},
    {"fp8_static_with_zero_points",
     "{\"num_bits\":8,\"type\":\"float\",\"strategy\":\"tensor\",\"dynamic\":false,"
     "\"symmetric\":false}",
     NW_ACT_RULE_A16, false, false, true},
    {"fp4_local",
     "{\"num_bits\":4,\"type\":\"float\",\"strategy\":\"tensor_group\",\"group_size\":16,"
     "\"dynamic\":\"local\"}",
     NW_ACT_RULE_NVFP4, true, false, false},
    {"fp4_by_token",
     "{\"num_bits\":4,\"type\":\"float\",\"strategy\":\"group\",\"group_size\":32,\"dynamic\":"
     "true}",
     NW_ACT_RULE_A16, false, false, true},
    {"int8_token_with_zero_points",
     "{\"num_bits\":8,\"type\":\"int\",\"strategy\":\"token\",\"dynamic\":true,"
     "\"symmetric\":false}",
     NW_ACT_RULE_A16, false, false, true},
};

static void activations_are_told(void **state)
{
    const struct act_row *r = *state;
    char text[512];

    (void)snprintf(
        text, sizeof text,
        "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":"
        "{\"g\":{\"weights\":{\"num_bits\":8,\"type\":\"int\",\"strategy\":\"channel\"},"
        "\"input_activations\":%s}}}}",
        r->input);
    const nw_hfq_config c = config(text);
    assert_int_equal(c.act, r->act);
    assert_int_equal(c.act_note != NULL, r->note);
    assert_int_equal(c.act_fixed, r->fixed);
    assert_int_equal(c.act_zeros, r->zeros);
}

/* Folders of quant_method "fp8": codes and scales of blocks of 4 x 16, or one of the tensor. */
static struct fp8_row {
    const char *name, *config; /* keys beside quant_method */
    const char *scale_name, *scale_shape;
    unsigned rows, cols; /* that share a scale */
    const char *shown;
    const char *input_name; /* NULL: none */
    nw_act_rule act;
    bool note;
} fp8[] = {
    {"blocks", "\"weight_block_size\":[4,16]", "weight_scale_inv", "[2,2]", 4, 16, "hf-fp8-4x16",
     NULL, NW_ACT_RULE_A16, true},
    {"blocks_of_128", "\"activation_scheme\":\"dynamic\",\"weight_block_size\":[128,128]",
     "weight_scale_inv", "[1,1]", ROWS, COLS, "hf-fp8-tensor", NULL, NW_ACT_RULE_FP8_G128, false},
    {"powers_of_two", "\"scale_fmt\":\"ue8m0\",\"weight_block_size\":[128,128]", "weight_scale_inv",
     "[1,1]", ROWS, COLS, "hf-fp8-tensor", NULL, NW_ACT_RULE_A16, true},
    {"tensor", "\"weight_block_size\":null", "weight_scale_inv", "[]", ROWS, COLS, "hf-fp8-tensor",
     NULL, NW_ACT_RULE_FP8, false},
    {"tensor_static", "\"activation_scheme\":\"static\"", "weight_scale", "[1]", ROWS, COLS,
     "hf-fp8-tensor", "input_scale", NW_ACT_RULE_FP8, false},
    {"tensor_static_as_mistral_has_it", "\"activation_scheme\":\"static\"", "weight_scale_inv",
     "[]", ROWS, COLS, "hf-fp8-tensor", "activation_scale", NW_ACT_RULE_FP8, false},
};

static void fp8_folders_are_read(void **state)
{
    const struct fp8_row *r = *state;
    const unsigned across = COLS / (r->cols < COLS ? r->cols : COLS);
    const unsigned n_scales = across * (ROWS / r->rows);
    const float scales[4] = {0.5F, 2, 0.25F, 8};
    const float input = 0.125F;
    uint8_t codes[ROWS * COLS];
    uint8_t got[COLS];
    float row[COLS];
    char text[256];
    char name[32];
    nw_hfq_matrix m = {0};
    nw_error err = {0};
    nw_buf whole;
    file f = start();

    for (unsigned i = 0; i < ROWS * COLS; i++) {
        codes[i] = (uint8_t)(0x38 + i % 16); /* 1 to 3.75 */
    }
    (void)snprintf(text, sizeof text,
                   "{\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",%s}}",
                   r->config);
    const nw_hfq_config c = config(text);
    assert_int_equal(c.act, r->act);
    assert_int_equal(c.act_note != NULL, r->note);
    assert_int_equal(c.act_fixed, r->input_name != NULL);
    add(&f, "weight", "F8_E4M3", "[8,32]", codes, sizeof codes);
    add(&f, r->scale_name, "F32", r->scale_shape, scales, n_scales * sizeof *scales);
    if (r->input_name != NULL) {
        add(&f, r->input_name, "F32", "[]", &input, sizeof input);
    }
    nw_safetensors *s = finish(&f, &whole);
    if (nw_hfq_bind(s, &c, "m", 1, ROWS, COLS, &m, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
    assert_string_equal(nw_hfq_name(&m, name), r->shown);
    assert_true(m.act.scale == (r->input_name != NULL ? input : 0));
    for (unsigned y = 0; y < ROWS; y++) {
        nw_hfq_row(&m, y, got, row);
        for (unsigned x = 0; x < COLS; x++) {
            const unsigned code = (y * COLS + x) % 16;
            const float value = ldexpf(1 + (float)(code % 8) / 8, (int)(code / 8));
            assert_true(row[x] == value * scales[y / r->rows * across + x / r->cols]);
        }
    }
    nw_st_close(s);
    nw_buf_release(&whole);
}

/* What is fixed of the input of an INT8 matrix: the parts that stand beside it. */
static struct fixed_row {
    const char *name;
    const char *scale_type, *scale_shape, *zero_type; /* NULL: absent */
    float scale;
    int8_t zero;
    const char *message; /* NULL: is read */
} fixed[] = {
    {"scale_and_zero_point", "F32", "[1]", "I8", 0.25F, -7, NULL},
    {"no_scale", NULL, NULL, "I8", 0.25F, 0, "has no input_scale"},
    {"no_zero_point", "F32", "[1]", NULL, 0.25F, 0, "has no input_zero_point"},
    {"two_scales", "BF16", "[2]", "I8", 0.25F, 0, "one number"},
    {"scale_of_bytes", "U8", "[4]", "I8", 0.25F, 0, "one number"},
    {"zero_scale", "F32", "[1]", "I8", 0, 0, "positive, finite scale"},
    {"negative_scale", "F32", "[1]", "I8", -1, 0, "positive, finite scale"},
    {"denormal_scale", "F32", "[1]", "I8", 0x1p-128F, 0, "positive, finite scale"},
    {"infinite_scale", "F32", "[1]", "I8", INFINITY, 0, "positive, finite scale"},
    {"zero_point_of_16_bits", "F32", "[1]", "BF16", 0.25F, 0, "one number"},
};

/* A group of fixed scales beside one by the token, as when a head has no scale: both are rounded, each in
 * its way; only what the file has is fixed. */
static void fixed_and_dynamic_inputs_stand_side_by_side(void **state)
{
#define GROUP_OF(more)                                                         \
    "{\"weights\":{\"num_bits\":8,\"type\":\"int\",\"strategy\":\"channel\"}," \
    "\"input_activations\":{\"num_bits\":8,\"type\":\"int\"," more "}}"
    static const char text[] =
        "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":"
        "{\"a\":" GROUP_OF("\"strategy\":\"tensor\",\"dynamic\":false") ",\"b\":" GROUP_OF(
            "\"strategy\":\"token\",\"dynamic\":true") "}}}";
#undef GROUP_OF
    const nw_hfq_config c = config(text);
    const uint8_t codes[ROWS * COLS] = {0};
    const float scales[ROWS] = {1, 1, 1, 1, 1, 1, 1, 1};
    const float input = 0.25F;

    (void)state;
    assert_null(c.act_note);
    assert_int_equal(c.act, NW_ACT_RULE_A8);
    for (int with = 0; with < 2; with++) {
        file f = start();
        nw_buf whole;
        nw_hfq_matrix m = {0};
        nw_error err = {0};
        add(&f, "weight", "I8", "[8,32]", codes, sizeof codes);
        add(&f, "weight_scale", "F32", "[8,1]", scales, sizeof scales);
        if (with == 1) {
            add(&f, "input_scale", "F32", "[1]", &input, sizeof input);
        }
        nw_safetensors *s = finish(&f, &whole);
        assert_int_equal(nw_hfq_bind(s, &c, "m", 1, ROWS, COLS, &m, &err), NW_OK);
        assert_true(m.act.scale == (with == 1 ? input : 0));
        nw_st_close(s);
        nw_buf_release(&whole);
    }
}

static void fixed_inputs_are_read(void **state)
{
    static const char text[] =
        "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":"
        "{\"g\":{\"weights\":{\"num_bits\":8,\"type\":\"int\",\"strategy\":\"channel\"},"
        "\"input_activations\":{\"num_bits\":8,\"type\":\"int\",\"strategy\":\"tensor\","
        "\"dynamic\":false,\"symmetric\":false}}}}}";
    const struct fixed_row *r = *state;
    const nw_hfq_config c = config(text);
    uint8_t codes[ROWS * COLS] = {0};
    float scales[ROWS] = {1, 1, 1, 1, 1, 1, 1, 1};
    file f = start();
    nw_buf whole;
    nw_hfq_matrix m = {0};
    nw_error err = {0};

    add(&f, "weight", "I8", "[8,32]", codes, sizeof codes);
    add(&f, "weight_scale", "F32", "[8,1]", scales, sizeof scales);
    if (r->scale_type != NULL) {
        add(&f, "input_scale", r->scale_type, r->scale_shape, &r->scale, sizeof r->scale);
    }
    if (r->zero_type != NULL) {
        const size_t n = strcmp(r->zero_type, "I8") == 0 ? 1 : 2;
        const int8_t zero[2] = {r->zero, 0};
        add(&f, "input_zero_point", r->zero_type, n == 1 ? "[1]" : "[1,1]", zero, n);
    }
    nw_safetensors *s = finish(&f, &whole);
    const nw_status st = nw_hfq_bind(s, &c, "m", 1, ROWS, COLS, &m, &err);
    if (r->message == NULL) {
        assert_int_equal(st, NW_OK);
        assert_true(m.act.scale == r->scale);
        assert_int_equal(m.act.zero, r->zero);
    } else {
        assert_int_not_equal(st, NW_OK);
        assert_null(m.codes);
        if (strstr(err.message, r->message) == NULL) {
            fail_msg("%s", err.message);
        }
    }
    nw_st_close(s);
    nw_buf_release(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_and_dynamic_inputs_stand_side_by_side),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed + NW_RUN_TABLE("activations", acts, activations_are_told) +
           NW_RUN_TABLE("fp8", fp8, fp8_folders_are_read) +
           NW_RUN_TABLE("fixed", fixed, fixed_inputs_are_read);
}
