/* Quantized matrices of Hugging Face folders: bytes written out by hand here, one matrix a format, give
 * the numbers that the formats' definitions give; a twin with its nibbles or zero points in another
 * order does not; what is not understood is refused by name.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/words.h"
#include "hf_quant_file.h"

#define ROWS  8
#define COLS  32
#define GROUP 16

/* The matrix all files here hold: code (3 r + 5 c) % 16, zero point (r + g) % 15 + 1, scale 2^-(r % 3)
 * for even groups and half of it for odd ones. */
static unsigned code_of(unsigned r, unsigned c)
{
    return (3 * r + 5 * c) % 16;
}

static unsigned zero_of(unsigned r, unsigned g)
{
    return (r + g) % 15 + 1;
}

static float scale_of(unsigned r, unsigned g)
{
    return ldexpf(1, -(int)(r % 3) - (int)(g % 2));
}

/* compressed-tensors: words along the columns; zero points in words along the rows. */
static void ct_int4(file *f, bool twin)
{
    uint8_t codes[ROWS * COLS / 2] = {0};
    uint8_t zeros[COLS / GROUP * 4] = {0};
    uint16_t scales[ROWS * COLS / GROUP];
    const int64_t shape[2] = {ROWS, COLS};

    for (unsigned r = 0; r < ROWS; r++) {
        for (unsigned c = 0; c < COLS; c++) {
            nw_bits_put(codes + r * COLS / 2, twin ? c ^ 1U : c, 4, code_of(r, c));
        }
        for (unsigned g = 0; g < COLS / GROUP; g++) {
            nw_bits_put(zeros + (size_t)g * 4, r, 4, zero_of(r, g));
            scales[r * COLS / GROUP + g] = (uint16_t)((127 - r % 3 - g % 2) << 7); /* BF16 */
        }
    }
    add(f, "weight_packed", "I32", "[8,4]", codes, sizeof codes);
    add(f, "weight_scale", "BF16", "[8,2]", scales, sizeof scales);
    add(f, "weight_shape", "I64", "[2]", shape, sizeof shape);
    add(f, "weight_zero_point", "I32", "[1,2]", zeros, sizeof zeros);
}

/* F16 scales [groups][rows] of AWQ and GPTQ. */
static void scales_down(file *f)
{
    uint16_t scales[COLS / GROUP * ROWS];

    for (unsigned g = 0; g < COLS / GROUP; g++) {
        for (unsigned r = 0; r < ROWS; r++) {
            scales[g * ROWS + r] = (uint16_t)((15 - r % 3 - g % 2) << 10);
        }
    }
    add(f, "scales", "F16", "[2,8]", scales, sizeof scales);
}

static void awq(file *f, bool twin)
{
    static const uint8_t order[8] = {0, 2, 4, 6, 1, 3, 5, 7}; /* column of nibble i */
    uint8_t codes[COLS * 4] = {0};
    uint8_t zeros[COLS / GROUP * 4] = {0};

    for (unsigned c = 0; c < COLS; c++) {
        for (unsigned i = 0; i < 8; i++) {
            nw_bits_put(codes + (size_t)c * 4, i, 4, code_of(twin ? i : order[i], c));
        }
    }
    for (unsigned g = 0; g < COLS / GROUP; g++) {
        for (unsigned i = 0; i < 8; i++) {
            nw_bits_put(zeros + (size_t)g * 4, i, 4, zero_of(order[i], g));
        }
    }
    add(f, "qweight", "I32", "[32,1]", codes, sizeof codes);
    add(f, "qzeros", "I32", "[2,1]", zeros, sizeof zeros);
    scales_down(f);
}

/* v1 stores zero points less one; g_idx says the order when `reorder`. */
static void gptq(file *f, unsigned less, bool reorder)
{
    uint8_t codes[COLS / 8 * ROWS * 4] = {0};
    uint8_t zeros[COLS / GROUP * 4] = {0};
    int32_t g_idx[COLS];

    for (unsigned c = 0; c < COLS; c++) {
        g_idx[c] = (int32_t)(reorder ? c % 2 : c / GROUP);
        for (unsigned r = 0; r < ROWS; r++) {
            nw_bits_put(codes + ((size_t)c / 8 * ROWS + r) * 4, c % 8, 4, code_of(r, c));
        }
    }
    for (unsigned g = 0; g < COLS / GROUP; g++) {
        for (unsigned r = 0; r < ROWS; r++) {
            nw_bits_put(zeros + (size_t)g * 4, r, 4, zero_of(r, g) - less);
        }
    }
    add(f, "qweight", "I32", "[4,8]", codes, sizeof codes);
    add(f, "qzeros", "I32", "[2,1]", zeros, sizeof zeros);
    scales_down(f);
    add(f, "g_idx", "I32", "[32]", g_idx, sizeof g_idx);
}

#define CT_INT4                                                                                    \
    "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"g\":{" \
    "\"weights\":{\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\",\"group_size\":16}}}}}"
#define CT_INT(bits, strategy)                                                                     \
    "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"g\":{" \
    "\"weights\":{\"num_bits\":" bits ",\"type\":\"int\",\"strategy\":\"" strategy                 \
    "\",\"symmetric\":false}}}}}"
#define AWQ                                                                            \
    "{\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":16," \
    "\"version\":\"GEMM\"}}"
#define GPTQ(format)                                                                    \
    "{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":16," \
    "\"checkpoint_format\":\"" format "\"}}"

/* How many values of the matrix the file gets wrong. */
static unsigned n_wrong(file *f, const char *config_text, bool reorder, const char *name)
{
    const nw_hfq_config c = config(config_text);
    nw_hfq_matrix m = {0};
    nw_error err = {0};
    uint8_t codes[COLS];
    float row[COLS];
    char buf[32];
    nw_buf whole;
    unsigned n = 0;
    nw_safetensors *s = finish(f, &whole);

    if (nw_hfq_bind(s, &c, "m", 1, ROWS, COLS, &m, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
    assert_non_null(m.codes);
    assert_string_equal(nw_hfq_name(&m, buf), name);
    for (unsigned r = 0; r < ROWS; r++) {
        nw_hfq_row(&m, r, codes, row);
        for (unsigned k = 0; k < COLS; k++) {
            const unsigned g = reorder ? k % 2 : k / GROUP;
            const int q = (int)code_of(r, k) - (int)zero_of(r, g);
            n += row[k] != scale_of(r, g) * (float)q;
        }
    }
    nw_st_close(s);
    nw_buf_release(&whole);
    return n;
}

static void integers_are_read(void **state)
{
    file f = start();

    (void)state;
    ct_int4(&f, false);
    assert_int_equal(n_wrong(&f, CT_INT4, false, "ct-int4-g16-zp"), 0);
    f = start();
    awq(&f, false);
    assert_int_equal(n_wrong(&f, AWQ, false, "awq-int4-g16-zp"), 0);
}

/* Report D8: what v1 stores less one, v2 stores as it is, and the order of columns is followed. */
static void d8_zero_points_of_both_versions_of_gptq(void **state)
{
    file f = start();

    (void)state;
    gptq(&f, 1, false);
    assert_int_equal(n_wrong(&f, GPTQ("gptq"), false, "gptq-int4-g16-zp"), 0);
    f = start();
    gptq(&f, 0, false);
    assert_int_equal(n_wrong(&f, GPTQ("gptq_v2"), false, "gptq-int4-g16-zp"), 0);
    f = start();
    gptq(&f, 1, true);
    assert_int_equal(n_wrong(&f, GPTQ("gptq"), true, "gptq-int4-g16-zp-order"), 0);
}

/* int-quantized with zero points, plain bytes of a row each, and pack-quantized with one scale a tensor, whose
 * zero point is a byte too. */
static void zero_points_in_bytes_are_read(void **state)
{
    int8_t codes[ROWS * COLS];
    int8_t zeros[ROWS];
    uint8_t packed[ROWS * COLS / 2] = {0};
    uint16_t scales[ROWS];
    const uint16_t one = 0x3F00; /* 0.5 */
    const int8_t zero = -3;
    uint8_t row_codes[COLS];
    float row[COLS];
    char name[32];

    (void)state;
    for (unsigned r = 0; r < ROWS; r++) {
        scales[r] = (uint16_t)((127 - r % 3) << 7);
        zeros[r] = (int8_t)(37 * (int)r - 120);
        for (unsigned c = 0; c < COLS; c++) {
            codes[r * COLS + c] = (int8_t)(int)(91 * r + 13 * c);
            nw_bits_put(packed + r * COLS / 2, c, 4, code_of(r, c));
        }
    }
    for (int tensor = 0; tensor < 2; tensor++) {
        file f = start();
        nw_hfq_matrix m = {0};
        nw_error err = {0};
        nw_buf whole;
        const nw_hfq_config c = config(tensor ? CT_INT("4", "tensor") : CT_INT("8", "channel"));
        if (tensor) {
            add(&f, "weight_packed", "I32", "[8,4]", packed, sizeof packed);
            add(&f, "weight_scale", "BF16", "[1]", &one, sizeof one);
            add(&f, "weight_zero_point", "I8", "[1]", &zero, sizeof zero);
        } else {
            add(&f, "weight", "I8", "[8,32]", codes, sizeof codes);
            add(&f, "weight_scale", "BF16", "[8,1]", scales, sizeof scales);
            add(&f, "weight_zero_point", "I8", "[8,1]", zeros, sizeof zeros);
        }
        nw_safetensors *s = finish(&f, &whole);
        if (nw_hfq_bind(s, &c, "m", 1, ROWS, COLS, &m, &err) != NW_OK) {
            fail_msg("%s", err.message);
        }
        assert_string_equal(nw_hfq_name(&m, name), tensor ? "ct-int4-tensor-zp" : "ct-int8-zp");
        for (unsigned r = 0; r < ROWS; r++) {
            nw_hfq_row(&m, r, row_codes, row);
            for (unsigned k = 0; k < COLS; k++) {
                const float want = tensor
                                       ? 0.5F * (float)((int)code_of(r, k) - 8 - zero)
                                       : scale_of(r, 0) * (float)(codes[r * COLS + k] - zeros[r]);
                assert_true(row[k] == want);
            }
        }
        nw_st_close(s);
        nw_buf_release(&whole);
    }
}

/* What the checks above would miss if they could not fail. */
static void twins_are_wrong(void **state)
{
    file f = start();

    (void)state;
    ct_int4(&f, true);
    assert_true(n_wrong(&f, CT_INT4, false, "ct-int4-g16-zp") > 200);
    f = start();
    awq(&f, true);
    assert_true(n_wrong(&f, AWQ, false, "awq-int4-g16-zp") > 150);
    f = start();
    gptq(&f, 0, false); /* zero points of v2 in a file that says v1 */
    assert_true(n_wrong(&f, GPTQ("gptq"), false, "gptq-int4-g16-zp") > 200);
}

static void floats_are_read(void **state)
{
    /* row 0: codes 0x00 .. 0x1F, global 4 and scales 1 and 0.5 (E4M3) for 16 columns each */
    static const float e2m1[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    const nw_hfq_config c = config(
        "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":{}}}");
    const float global = 4;
    const uint8_t scales[2] = {0x38, 0x30};
    uint8_t codes[16];
    uint8_t got[COLS];
    float row[COLS];
    file f = start();
    nw_hfq_matrix m = {0};
    nw_error err = {0};
    nw_buf whole;

    (void)state;
    for (unsigned i = 0; i < 16; i++) {
        codes[i] = (uint8_t)((2 * i) % 16 | (2 * i + 1) % 16 << 4);
    }
    add(&f, "weight_packed", "U8", "[1,16]", codes, sizeof codes);
    add(&f, "weight_scale", "F8_E4M3", "[1,2]", scales, sizeof scales);
    add(&f, "weight_global_scale", "F32", "[1]", &global, sizeof global);
    nw_safetensors *s = finish(&f, &whole);
    assert_int_equal(nw_hfq_bind(s, &c, "m", 1, 1, COLS, &m, &err), NW_OK);
    assert_non_null(m.codes);
    nw_hfq_row(&m, 0, got, row);
    for (unsigned i = 0; i < COLS; i++) {
        const float want = e2m1[i % 8] * (i % 16 < 8 ? 1.0F : -1.0F) * (i < 16 ? 0.25F : 0.125F);
        assert_true(row[i] == want);
    }
    nw_st_close(s);
    nw_buf_release(&whole);
}

/* A group of column 2 does not exist. */
static void a_group_out_of_range_is_refused(void **state)
{
    const nw_hfq_config c = config(GPTQ("gptq"));
    nw_hfq_matrix m = {0};
    nw_error err = {0};
    nw_buf whole;
    file f = start();

    (void)state;
    gptq(&f, 1, false);
    ((uint8_t *)f.data.data)[f.data.len - (COLS - 2) * 4U] = 7;
    nw_safetensors *s = finish(&f, &whole);
    assert_int_equal(nw_hfq_bind(s, &c, "m", 1, ROWS, COLS, &m, &err), NW_E_RANGE);
    assert_non_null(strstr(err.message, "m.g_idx: column 2 is of group 7, there are 2"));
    nw_st_close(s);
    nw_buf_release(&whole);
}

static void refuse(file *f, const char *config_text, const char *why)
{
    const nw_hfq_config c = config(config_text);
    nw_hfq_matrix m = {0};
    nw_error err = {0};
    nw_buf whole;
    nw_safetensors *s = finish(f, &whole);

    assert_int_not_equal(nw_hfq_bind(s, &c, "m", 1, ROWS, COLS, &m, &err), NW_OK);
    if (strstr(err.message, why) == NULL) {
        fail_msg("'%s' is not in: %s", why, err.message);
    }
    nw_st_close(s);
    nw_buf_release(&whole);
}

/* A part that the config asks for and the file lacks, and one that would change values unread. */
static void parts_must_fit_the_config(void **state)
{
    static const uint8_t plain[ROWS * COLS] = {0};
    static const uint8_t words[COLS * 4] = {0};
    file f = start();

    (void)state;
    add(&f, "qweight", "I32", "[32,1]", words, sizeof words);
    scales_down(&f);
    refuse(&f,
           "{\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":16,"
           "\"zero_point\":true}}",
           "'m' has no qzeros");
    f = start();
    awq(&f, false);
    add(&f, "g_idx", "I32", "[32]", words, sizeof words);
    refuse(&f, AWQ, "m.g_idx");
    f = start();
    add(&f, "weight", "F8_E4M3", "[8,32]", plain, sizeof plain);
    add(&f, "weight_scale", "F32", "[8,1]", plain, ROWS * sizeof(float));
    add(&f, "weight_zero_point", "I8", "[8,1]", plain, ROWS);
    refuse(&f,
           "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":"
           "{\"g\":{\"weights\":{\"num_bits\":8,\"type\":\"float\",\"strategy\":\"channel\"}}}}}",
           "m.weight_zero_point");
    f = start();
    add(&f, "weight_packed", "I32", "[8,4]", plain, ROWS * COLS / 2);
    add(&f, "weight_scale", "BF16", "[8,2]", plain, ROWS * 2 * 2);
    refuse(&f,
           "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":"
           "{\"g\":{\"weights\":{\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\","
           "\"group_size\":16,\"symmetric\":false}}}}}",
           "'m' has no weight_zero_point");
}

static struct refusal {
    const char *name, *config, *message;
} refusals[] = {
    {"another_method", "{\"quant_method\":\"bitsandbytes\"}", "'bitsandbytes' is not read"},
    {"awq_gemv", "{\"quant_method\":\"awq\",\"bits\":4,\"version\":\"gemv\"}", "version 'gemv'"},
    {"awq_8_bits", "{\"quant_method\":\"awq\",\"bits\":8}", "awq of 8 bits"},
    {"gptq_3_bits", "{\"quant_method\":\"gptq\",\"bits\":3}", "gptq of 3 bits"},
    {"gptq_marlin", "{\"quant_method\":\"gptq\",\"bits\":4,\"checkpoint_format\":\"marlin\"}",
     "checkpoint_format 'marlin'"},
    {"group_size_0", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":0}",
     "group_size is 0, it must be"},
    {"rotations",
     "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{},\"transform_config\":"
     "{\"config_groups\":{\"u\":{}}}}",
     "transform_config"},
    {"sparsity",
     "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{},\"sparsity_config\":"
     "{\"format\":\"sparse-24-bitmask\"}}",
     "sparsity_config"},
    {"fp8_of_another_type", "{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}", "fmt 'e5m2'"},
    {"fp8_blocks_of_three_sizes", "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128,1]}",
     "weight_block_size"},
    {"no_groups", "{\"quant_method\":\"compressed-tensors\"}", "config_groups"},
    {"block_without_sizes",
     "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"g\":{\"weights\":{\"num_bits\":"
     "8,"
     "\"type\":\"float\",\"strategy\":\"block\"}}}}",
     "block_structure"},
    {"no_object", "[1]", "quantization_config is no object"},
};

static void is_refused(void **state)
{
    const struct refusal *r = *state;
    nw_hfq_config c = {0};
    nw_error err = {0};
    json_t *q = NULL;

    assert_int_equal(nw_json_parse("q", r->config, strlen(r->config), &q, &err), NW_OK);
    json_t *root = json_pack("{s:o}", "quantization_config", q);
    assert_int_not_equal(nw_hfq_config_parse("config.json", root, &c, &err), NW_OK);
    assert_int_equal(c.method, NW_HFQ_NONE);
    if (strstr(err.message, r->message) == NULL) {
        fail_msg("%s", err.message);
    }
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_read),
        cmocka_unit_test(d8_zero_points_of_both_versions_of_gptq),
        cmocka_unit_test(zero_points_in_bytes_are_read),
        cmocka_unit_test(twins_are_wrong),
        cmocka_unit_test(floats_are_read),
        cmocka_unit_test(a_group_out_of_range_is_refused),
        cmocka_unit_test(parts_must_fit_the_config),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed + NW_RUN_TABLE("refused", refusals, is_refused);
}
