/* Finds the tensors of a quantized matrix and holds their types and shapes to the config's: see
 * hf_quant.h. Nothing is read past what safetensors.c has checked to lie in the file.
 * SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/block_parts.h"
#include "formats/words.h"
#include "model/hf_quant.h"
#include "model/names.h"

#define MAX_NAME 256
#define SHOW     96

/* What bind looks at, one matrix. */
typedef struct {
    const nw_safetensors *s;
    const nw_hfq_config *c;
    const char *module;
    int n_module;
    uint32_t n_rows, n_cols;
    nw_error *err;
} binder;

static const nw_st_tensor *part(const binder *b, const char *suffix)
{
    char name[MAX_NAME];
    const int n = snprintf(name, sizeof name, "%.*s.%s", b->n_module, b->module, suffix);

    return n > 0 && (size_t)n < sizeof name ? nw_st_find(b->s, name) : NULL;
}

size_t nw_hfq_stem(const char *tensor)
{
    static const char *const suffixes[] = {"weight_packed",
                                           "weight_scale",
                                           "weight_scale_inv",
                                           "activation_scale",
                                           "weight_shape",
                                           "weight_zero_point",
                                           "weight_g_idx",
                                           "weight_global_scale",
                                           "input_global_scale",
                                           "input_scale",
                                           "qweight",
                                           "input_zero_point",
                                           "qzeros",
                                           "scales",
                                           "g_idx"};
    const char *dot = strrchr(tensor, '.');

    for (size_t i = 0; dot != NULL && i < NW_COUNT(suffixes); i++) {
        if (strcmp(dot + 1, suffixes[i]) == 0) {
            return (size_t)(dot - tensor);
        }
    }
    return 0;
}

static nw_status missing(const binder *b, const char *suffix)
{
    char shown[SHOW];

    return nw_fail(b->err, NW_E_FORMAT, "%s: quantized matrix '%s' has no %s", nw_st_path(b->s, 0),
                   nw_name_show(b->module, (size_t)b->n_module, shown, sizeof shown), suffix);
}

static nw_status wrong(const binder *b, const nw_st_tensor *t, const char *want)
{
    char shown[SHOW];

    return nw_fail(
        b->err, NW_E_FORMAT,
        "%s: tensor '%s' is %s of %" PRIu64 " values in %" PRIu32
        " dimensions; %s is expected for %" PRIu32 " x %" PRIu32,
        nw_st_path(b->s, t->file), nw_name_show(t->name, strlen(t->name), shown, sizeof shown),
        nw_format_get(t->format)->name, t->n_elems, t->n_dims, want, b->n_rows, b->n_cols);
}

static bool is_2d(const nw_st_tensor *t, nw_format_id format, uint64_t rows, uint64_t cols)
{
    return t != NULL && t->format == format && t->n_dims == 2 && t->dims[0] == rows &&
           t->dims[1] == cols;
}

static bool is_real(nw_format_id f)
{
    return f == NW_FMT_F32 || f == NW_FMT_F16 || f == NW_FMT_BF16;
}

static bool is_power(nw_format_id f)
{
    return f == NW_FMT_U8 || f == NW_FMT_F8_E8M0;
}

static uint32_t ceil_div(uint32_t n, uint32_t d)
{
    return n / d + (n % d != 0);
}

/* Do the scales have the shape of this group of the config? One number may come in any shape, and a
 * column of them in one dimension. Sets the matrix's blocks. */
static bool takes_scales(const binder *b, const nw_hfq_group *g, const nw_st_tensor *t,
                         nw_hfq_matrix *m)
{
    const uint32_t rows = g->scale_rows > 0 ? g->scale_rows : b->n_rows;
    const uint32_t cols = g->scale_cols > 0 ? g->scale_cols : b->n_cols;
    const uint32_t n_down = ceil_div(b->n_rows, rows);
    const uint32_t n_groups = ceil_div(b->n_cols, cols);
    const bool flat = t->n_dims <= 1 && n_groups == 1;

    if (t->n_elems != (uint64_t)n_down * n_groups ||
        !(flat || (t->n_dims == 2 && t->dims[0] == n_down && t->dims[1] == n_groups))) {
        return false;
    }
    m->scale_rows = rows;
    m->scale_cols = cols;
    m->n_groups = n_groups;
    return true;
}

static void take_scales(const nw_st_tensor *t, nw_hfq_matrix *m)
{
    m->scales = t->data;
    m->scale_format = t->format;
    m->n_bytes += t->n_bytes;
}

/* Zero points that all say the middle are as good as none. */
static void drop_plain_zeros(nw_hfq_matrix *m)
{
    const uint8_t half = (uint8_t)(1U << (m->bits - 1));

    for (uint32_t r = 0; m->zeros != NULL && r < m->n_rows; r++) {
        for (uint32_t g = 0; g < m->n_groups; g++) {
            if (nw_hfq_zero(m, r, g) != half) {
                return;
            }
        }
    }
    m->zeros = NULL;
}

/* The group of each column; in order it is dropped. */
static nw_status bind_g_idx(const binder *b, const char *suffix, nw_hfq_matrix *m)
{
    const nw_st_tensor *t = part(b, suffix);
    bool in_order = true;

    if (t == NULL) {
        return NW_OK;
    }
    if (t->format != NW_FMT_I32 || t->n_dims != 1 || t->n_elems != b->n_cols) {
        return wrong(b, t, "I32 [columns]");
    }
    for (uint32_t c = 0; c < b->n_cols; c++) {
        const uint32_t g = nw_le32(t->data + (size_t)c * 4);
        if (g >= m->n_groups) {
            return nw_fail(
                b->err, NW_E_RANGE,
                "%s: %.*s.%s: column %" PRIu32 " is of group %" PRIu32 ", there are %" PRIu32,
                nw_st_path(b->s, t->file), b->n_module, b->module, suffix, c, g, m->n_groups);
        }
        in_order = in_order && g == c / m->scale_cols;
    }
    m->g_idx = in_order ? NULL : t->data;
    m->n_bytes += t->n_bytes;
    return NW_OK;
}

static nw_status bind_ct_zeros(const binder *b, nw_hfq_matrix *m)
{
    const nw_st_tensor *t = part(b, "weight_zero_point");

    if (t == NULL) {
        return NW_OK;
    }
    /* packed ones alone, and not for one scale a tensor */
    const uint32_t rows = ceil_div(b->n_rows, m->scale_rows);
    m->zero_bytes = m->layout == NW_HFQ_BYTES || (rows == 1 && t->format == NW_FMT_I8);
    const bool flat = t->format == NW_FMT_I8 && t->n_dims <= 1 && m->n_groups == 1 &&
                      t->n_elems == rows && m->zero_bytes;
    if (!flat && !is_2d(t, m->zero_bytes ? NW_FMT_I8 : NW_FMT_I32,
                        m->zero_bytes ? rows : nw_bits_words(rows, m->bits), m->n_groups)) {
        return wrong(b, t,
                     m->zero_bytes ? "I8 [rows, groups]"
                                   : "I32 [words along the rows, groups] beside packed integers");
    }
    m->zeros = t->data;
    m->n_bytes += t->n_bytes;
    drop_plain_zeros(m);
    return NW_OK;
}

/* [rows, columns], where the file says it once more. */
static nw_status check_shape(const binder *b)
{
    const nw_st_tensor *t = part(b, "weight_shape");

    if (t == NULL) {
        return NW_OK;
    }
    if (t->format != NW_FMT_I64 || t->n_elems != 2 || nw_le32(t->data) != b->n_rows ||
        nw_le32(t->data + 4) != 0 || nw_le32(t->data + 8) != b->n_cols ||
        nw_le32(t->data + 12) != 0) {
        return wrong(b, t, "I64 with just these two sizes");
    }
    return NW_OK;
}

/* What the config says there must be. */
static nw_status demand(const binder *b, bool zeros, const char *zeros_name, bool order,
                        const char *order_name)
{
    if (zeros && part(b, zeros_name) == NULL) {
        return missing(b, zeros_name);
    }
    return order && part(b, order_name) == NULL ? missing(b, order_name) : NW_OK;
}

/* The group of the config that fits both the codes' width and the scales' shape. */
static nw_status pick_group(const binder *b, const nw_st_tensor *codes, const nw_st_tensor *scales,
                            nw_hfq_matrix *m)
{
    const bool packed = m->layout == NW_HFQ_WORDS;
    char shown[SHOW];

    for (size_t i = 0; i < b->c->n_groups; i++) {
        const nw_hfq_group *g = &b->c->groups[i];
        const bool width = packed ? g->bits == 2 || g->bits == 4 || g->bits == 8
                                  : g->bits == 8 || (m->layout == NW_HFQ_BYTES && g->bits < 8);
        const bool is_float = m->layout == NW_HFQ_E4M3;
        if (g->is_float == is_float && width &&
            (!packed || is_2d(codes, NW_FMT_I32, b->n_rows, nw_bits_words(b->n_cols, g->bits))) &&
            takes_scales(b, g, scales, m)) {
            m->bits = packed ? g->bits : 8;
            return demand(b, g->zeros, "weight_zero_point", g->order, "weight_g_idx");
        }
    }
    return nw_fail(b->err, NW_E_UNSUPPORTED,
                   "%s: no group of quantization_config describes '%s' with its codes and scales "
                   "(packed integers of 2, 4 and 8 bits are read)",
                   nw_st_path(b->s, codes->file),
                   nw_name_show(codes->name, strlen(codes->name), shown, sizeof shown));
}

/* What changes the values of floats and is not done for them. */
static nw_status refuse_parts(const binder *b)
{
    static const char *const parts[] = {"weight_g_idx", "weight_zero_point", "g_idx"};

    for (size_t i = 0; i < NW_COUNT(parts); i++) {
        const nw_st_tensor *t = part(b, parts[i]);
        if (t != NULL) {
            return wrong(b, t, "nothing: it is not read beside such codes");
        }
    }
    return NW_OK;
}

static nw_status bind_fp4(const binder *b, const nw_st_tensor *codes, const nw_st_tensor *scales,
                          nw_hfq_matrix *m)
{
    const nw_st_tensor *global = part(b, "weight_global_scale");

    if (refuse_parts(b) != NW_OK) {
        return b->err->code;
    }
    m->bits = 4;
    m->scale_rows = 1;
    m->scale_cols = global != NULL ? 16 : 32;
    m->n_groups = b->n_cols / m->scale_cols;
    if (b->n_cols % m->scale_cols != 0 || !is_2d(codes, NW_FMT_U8, b->n_rows, b->n_cols / 2)) {
        return wrong(b, codes, "U8 [rows, columns / 2] of whole groups");
    }
    if (global == NULL) {
        return is_power(scales->format) && is_2d(scales, scales->format, b->n_rows, m->n_groups)
                   ? NW_OK
                   : wrong(b, scales, "U8 [rows, columns / 32]");
    }
    if (!is_2d(scales, NW_FMT_F8_E4M3, b->n_rows, m->n_groups)) {
        return wrong(b, scales, "F8_E4M3 [rows, columns / 16]");
    }
    if (global->format != NW_FMT_F32 || global->n_elems != 1) {
        return wrong(b, global, "one F32 number");
    }
    nw_format_get(NW_FMT_F32)->decode(global->data, &m->global, 1);
    m->n_bytes += global->n_bytes;
    if (!isfinite(m->global) || m->global <= 0) {
        return wrong(b, global, "a positive, finite divisor");
    }
    return NW_OK;
}

static nw_status bind_e4m3(const binder *b, const nw_st_tensor *codes, const nw_st_tensor *scales,
                           nw_hfq_matrix *m)
{
    if (refuse_parts(b) != NW_OK) {
        return b->err->code;
    }
    if (!is_2d(codes, NW_FMT_F8_E4M3, b->n_rows, b->n_cols)) {
        return wrong(b, codes, "F8_E4M3 [rows, columns]");
    }
    if (!is_power(scales->format)) {
        return is_real(scales->format) ? pick_group(b, codes, scales, m)
                                       : wrong(b, scales, "F32, F16 or BF16");
    }
    m->bits = 8;
    m->scale_rows = 1;
    m->scale_cols = 32;
    m->n_groups = b->n_cols / 32;
    return b->n_cols % 32 == 0 && is_2d(scales, scales->format, b->n_rows, m->n_groups)
               ? NW_OK
               : wrong(b, scales, "U8 [rows, columns / 32]");
}

static nw_status bind_ct_int(const binder *b, const nw_st_tensor *codes, const nw_st_tensor *scales,
                             nw_hfq_matrix *m)
{
    if (m->layout == NW_HFQ_BYTES && !is_2d(codes, NW_FMT_I8, b->n_rows, b->n_cols)) {
        return wrong(b, codes, "I8 [rows, columns]");
    }
    if (!is_real(scales->format)) {
        return wrong(b, scales, "F32, F16 or BF16");
    }
    nw_status st = pick_group(b, codes, scales, m);
    if (st == NW_OK) {
        st = bind_ct_zeros(b, m);
    }
    return st == NW_OK ? bind_g_idx(b, "weight_g_idx", m) : st;
}

/* A factor in either name. */
static const nw_st_tensor *scales_of(const binder *b)
{
    const nw_st_tensor *t = part(b, "weight_scale");

    return t == NULL && b->c->method == NW_HFQ_FP8 ? part(b, "weight_scale_inv") : t;
}

static nw_status bind_ct(const binder *b, nw_hfq_matrix *m, bool *found)
{
    const nw_st_tensor *packed = part(b, "weight_packed");
    const nw_st_tensor *plain = part(b, "weight");
    const nw_st_tensor *codes = packed != NULL ? packed : plain;
    const nw_st_tensor *scales = scales_of(b);

    if (codes == NULL ||
        (packed == NULL && codes->format != NW_FMT_I8 && codes->format != NW_FMT_F8_E4M3)) {
        return NW_OK;
    }
    if (scales == NULL) {
        return missing(b, "weight_scale");
    }
    m->codes = codes->data;
    m->n_bytes = codes->n_bytes;
    m->stem = b->c->method == NW_HFQ_FP8 ? "hf" : "ct";
    take_scales(scales, m);
    m->layout = packed == NULL ? (codes->format == NW_FMT_I8 ? NW_HFQ_BYTES : NW_HFQ_E4M3)
                : codes->format == NW_FMT_U8 ? NW_HFQ_E2M1
                                             : NW_HFQ_WORDS;
    nw_status st = check_shape(b);
    if (st == NW_OK) {
        st = m->layout == NW_HFQ_E2M1   ? bind_fp4(b, codes, scales, m)
             : m->layout == NW_HFQ_E4M3 ? bind_e4m3(b, codes, scales, m)
                                        : bind_ct_int(b, codes, scales, m);
    }
    *found = st == NW_OK;
    return st;
}

/* One number of a part that the config says is there. */
static nw_status input_number(const binder *b, const char *suffix, bool whole, float *out)
{
    const nw_st_tensor *t = part(b, suffix);

    if (t == NULL) {
        return missing(b, suffix);
    }
    if (t->n_elems != 1 || !(whole ? t->format == NW_FMT_I8 : is_real(t->format))) {
        return wrong(b, t, whole ? "one number of I8" : "one number of F32, F16 or BF16");
    }
    if (whole) {
        *out = (float)(int8_t)t->data[0];
    } else {
        nw_format_get(t->format)->decode(t->data, out, 1);
    }
    return NW_OK;
}

/* What the scale of the input is called. */
static const char *input_suffix(const binder *b)
{
    if (b->c->act == NW_ACT_RULE_NVFP4) {
        return "input_global_scale";
    }
    return b->c->method == NW_HFQ_FP8 && part(b, "activation_scale") != NULL ? "activation_scale"
                                                                             : "input_scale";
}

/* What the file fixes of the matrix's input. */
static nw_status bind_input(const binder *b, nw_hfq_matrix *m)
{
    const char *suffix = input_suffix(b);
    float zero = 0;

    if (!b->c->act_fixed || (b->c->act_mixed && part(b, suffix) == NULL)) {
        return NW_OK;
    }
    nw_status st = input_number(b, suffix, false, &m->act.scale);

    if (st == NW_OK && b->c->act_zeros &&
        !(b->c->act_mixed && part(b, "input_zero_point") == NULL)) {
        st = input_number(b, "input_zero_point", true, &zero);
    }
    if (st != NW_OK) {
        return st;
    }
    if (!isfinite(m->act.scale) || !(m->act.scale >= FLT_MIN)) { /* its inverse is finite then */
        return wrong(b, part(b, suffix), "a positive, finite scale of 2^-126 or more");
    }
    m->act.zero = (int32_t)zero;
    return NW_OK;
}

/* The tensors of AWQ and GPTQ, all stored with the inputs first. */
typedef struct {
    const nw_st_tensor *codes, *zeros, *scales;
} words_parts;

static nw_status check_words(const binder *b, const nw_hfq_matrix *m, const words_parts *p)
{
    const bool awq = m->layout == NW_HFQ_GEMM;
    const size_t along_rows = nw_bits_words(b->n_rows, m->bits);
    const size_t along_cols = nw_bits_words(b->n_cols, m->bits);

    if (p->scales == NULL || (p->zeros == NULL && !awq)) {
        return missing(b, p->scales == NULL ? "scales" : "qzeros");
    }
    if (awq && (b->n_rows % 8 != 0 || !is_2d(p->codes, NW_FMT_I32, b->n_cols, along_rows))) {
        return wrong(b, p->codes, "I32 [columns, words along the rows]");
    }
    if (!awq && !is_2d(p->codes, NW_FMT_I32, along_cols, b->n_rows)) {
        return wrong(b, p->codes, "I32 [words along the columns, rows]");
    }
    if (!is_real(p->scales->format) ||
        !is_2d(p->scales, p->scales->format, m->n_groups, b->n_rows)) {
        return wrong(b, p->scales, "F16 [groups, rows]");
    }
    if (p->zeros != NULL && !is_2d(p->zeros, NW_FMT_I32, m->n_groups, along_rows)) {
        return wrong(b, p->zeros, "I32 [groups, words along the rows]");
    }
    return NW_OK;
}

static nw_status bind_words(const binder *b, nw_hfq_matrix *m, bool *found)
{
    const bool awq = b->c->method == NW_HFQ_AWQ;
    const nw_hfq_group *g = &b->c->groups[0];
    const words_parts p = {part(b, "qweight"), part(b, "qzeros"), part(b, "scales")};

    if (p.codes == NULL) {
        return NW_OK;
    }
    m->stem = awq ? "awq" : "gptq";
    m->layout = awq ? NW_HFQ_GEMM : NW_HFQ_DOWN;
    m->bits = g->bits;
    m->scale_rows = 1;
    m->scale_cols = g->scale_cols > 0 ? g->scale_cols : b->n_cols;
    m->n_groups = ceil_div(b->n_cols, m->scale_cols);
    m->groups_first = true;
    m->zero_less_one = b->c->zero_less_one;
    nw_status st = check_words(b, m, &p);
    if (st == NW_OK) {
        st = demand(b, g->zeros, "qzeros", g->order, "g_idx");
    }
    if (st != NW_OK) {
        return st;
    }
    m->codes = p.codes->data;
    m->n_bytes = p.codes->n_bytes;
    if (p.zeros != NULL) {
        m->zeros = p.zeros->data;
        m->n_bytes += p.zeros->n_bytes;
    }
    take_scales(p.scales, m);
    drop_plain_zeros(m);
    *found = true;
    return awq ? refuse_parts(b) : bind_g_idx(b, "g_idx", m);
}

nw_status nw_hfq_bind(const nw_safetensors *s, const nw_hfq_config *c, const char *module,
                      size_t n_module, uint32_t n_rows, uint32_t n_cols, nw_hfq_matrix *out,
                      nw_error *err)
{
    const binder b = {s, c, module, (int)n_module, n_rows, n_cols, err};
    nw_hfq_matrix m = {.n_rows = n_rows, .n_cols = n_cols, .global = 1};
    bool found = false;

    *out = (nw_hfq_matrix){.codes = NULL};
    if (c->method == NW_HFQ_NONE || n_module >= MAX_NAME) {
        return NW_OK;
    }
    nw_status st = c->method == NW_HFQ_CT || c->method == NW_HFQ_FP8 ? bind_ct(&b, &m, &found)
                                                                     : bind_words(&b, &m, &found);
    if (st == NW_OK && found) {
        st = bind_input(&b, &m);
    }
    if (st == NW_OK && found) {
        *out = m;
    }
    return st;
}
