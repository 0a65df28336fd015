/* Writes AutoAWQ's "gemm" folder (4 bits with zero points) and GPTQ v1 (4 and 8 bits, symmetric, columns in
 * order). Both keep a matrix with its inputs first, and scales as F16, which panels of groups hold exactly.
 * Bytes and keys: docs/formats.md.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/export_parts.h"
#include "formats/block_parts.h"
#include "formats/words.h"

#define WORD 4U /* bytes */

typedef struct {
    const nw_export_job *job;
    bool awq;
    nw_export_parts parts;
    nw_panel_type type; /* of the first matrix of codes; both formats have one width and group */
    bool has_type;
    json_t *ignored;
} plan;

static size_t row_words(const nw_export_part *p)
{
    return nw_bits_words(p->tensor->n_rows, p->bits) * WORD;
}

static uint32_t group_of(const nw_export_tensor *t)
{
    return nw_panel_scale_cols(t->type, t->n_cols);
}

/* Codes from 0 on. */
static unsigned code(const nw_export_part *p, const nw_export_row *r, uint32_t c)
{
    return (uint8_t)r->codes[c] ^ (p->bits == 8 ? 0x80U : 0U);
}

static void awq_codes(const nw_export_part *p, uint32_t row, const nw_export_row *r, uint8_t *bytes)
{
    for (uint32_t c = 0; c < p->tensor->n_cols; c++) {
        nw_bits_put(bytes + c * row_words(p), nw_awq_at(row), 4, code(p, r, c));
    }
}

static void awq_zeros(const nw_export_part *p, uint32_t row, const nw_export_row *r, uint8_t *bytes)
{
    for (uint64_t g = 0; g < p->dims[0]; g++) {
        nw_bits_put(bytes + g * row_words(p), nw_awq_at(row), 4, (uint8_t)r->zeros[g]);
    }
}

static void gptq_codes(const nw_export_part *p, uint32_t row, const nw_export_row *r,
                       uint8_t *bytes)
{
    const uint32_t per_word = 32U / p->bits;
    const size_t n_rows = p->tensor->n_rows;

    for (uint32_t c = 0; c < p->tensor->n_cols; c++) {
        nw_bits_put(bytes + (c / per_word * n_rows + row) * WORD, c % per_word, p->bits,
                    code(p, r, c));
    }
}

/* v1: less one. */
static void gptq_zeros(const nw_export_part *p, uint32_t row, const nw_export_row *r,
                       uint8_t *bytes)
{
    (void)r;
    for (uint64_t g = 0; g < p->dims[0]; g++) {
        nw_bits_put(bytes + g * row_words(p), row, p->bits, (1U << (p->bits - 1)) - 1U);
    }
}

static void gptq_order(const nw_export_part *p, uint32_t row, const nw_export_row *r,
                       uint8_t *bytes)
{
    (void)r;
    for (uint32_t c = 0; row == 0 && c < p->tensor->n_cols; c++) {
        nw_put32(bytes + (size_t)c * WORD, c / group_of(p->tensor));
    }
}

static bool add(plan *p, const nw_export_tensor *t, const char *suffix, nw_format_id format,
                uint64_t rows, uint64_t cols, nw_export_put_fn put, nw_error *err)
{
    nw_export_part *part = nw_export_part_add(&p->parts, t, suffix, err);

    if (part == NULL) {
        return false;
    }
    part->format = format;
    part->n_dims = cols > 0 ? 2 : 1;
    part->dims[0] = rows;
    part->dims[1] = cols;
    part->put = put;
    part->bits = nw_panel_code_bits(t->type);
    part->scale_format = NW_FMT_F16;
    part->groups_first = true;
    return true;
}

static nw_status add_parts(plan *p, const nw_export_tensor *t, nw_error *err)
{
    const unsigned bits = nw_panel_code_bits(t->type);
    const size_t words = nw_bits_words(t->n_rows, bits);
    const uint32_t n_groups = nw_panel_scales(t->type, t->n_cols);
    const size_t first = p->parts.n;
    bool fit = true;
    const nw_status st = nw_export_scales_fit(t, NW_FMT_F16, &fit, err);

    if (st != NW_OK) {
        return st;
    }
    if (!fit && p->job->no_fallback) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "tensor '%s': its scales are no F16 numbers (--no-fallback forbids rounding "
                       "them)",
                       t->name);
    }
    const bool ok =
        p->awq ? add(p, t, "qweight", NW_FMT_I32, t->n_cols, words, awq_codes, err) &&
                     add(p, t, "qzeros", NW_FMT_I32, n_groups, words, awq_zeros, err) &&
                     add(p, t, "scales", NW_FMT_F16, n_groups, t->n_rows, nw_put_scales, err)
               : add(p, t, "qweight", NW_FMT_I32, nw_bits_words(t->n_cols, bits), t->n_rows,
                     gptq_codes, err) &&
                     add(p, t, "qzeros", NW_FMT_I32, n_groups, words, gptq_zeros, err) &&
                     add(p, t, "scales", NW_FMT_F16, n_groups, t->n_rows, nw_put_scales, err) &&
                     add(p, t, "g_idx", NW_FMT_I32, t->n_cols, 0, gptq_order, err);
    if (!ok) {
        return err->code;
    }
    p->parts.items[first].to = p->awq ? "awq int4" : bits == 4 ? "gptq int4" : "gptq int8";
    p->parts.items[first].fallback =
        fit ? NULL : "its scales are no F16 numbers and were rounded to them";
    return NW_OK;
}

/* Why the format cannot have this matrix; NULL: it can. */
static const char *lacks(const plan *p, const nw_export_tensor *t)
{
    const nw_panel_type type = t->type;
    const bool int4 = type.kind == NW_PANEL_INT4;
    const bool int8 = type.kind == NW_PANEL_INT8;

    if (t->role == NW_ROLE_EMBED || t->role == NW_ROLE_HEAD) {
        return "readers keep embeddings and heads wide; written as F16";
    }
    if (type.min || type.two_level || !(int4 || (int8 && !p->awq))) {
        return p->awq ? "AWQ has INT4 with zero points alone; written as F16"
                      : "GPTQ has INT4 and INT8 without zero points alone; written as F16";
    }
    if (type.zero_point && !p->awq) {
        return "GPTQ v1 has no zero points that all readers take; written as F16";
    }
    if (t->n_rows % 8 != 0 || t->n_cols % 8 != 0 || t->n_cols % group_of(t) != 0) {
        return "its rows and columns are no whole words and groups; written as F16";
    }
    return NULL;
}

/* The group_size that stands for all matrices; -1: a row, also of one scale a tensor, which rows repeat. */
static int group_size(nw_panel_type t)
{
    const bool row = t.span >= NW_SPAN_TENSOR || t.group == 0;
    return row ? -1 : (int)(t.span > 0 ? t.span : t.group);
}

static bool same_shape(nw_panel_type a, nw_panel_type b)
{
    return a.kind == b.kind && group_size(a) == group_size(b);
}

static nw_status take_tensor(plan *p, const nw_export_tensor *t, nw_error *err)
{
    const bool codes = nw_export_has_codes(t);
    const char *why = codes ? lacks(p, t) : NULL;
    const nw_format_id wide = p->job->has_dtype ? p->job->dtype : NW_FMT_F16;
    char names[2][32];

    if (why != NULL && p->job->no_fallback) {
        return nw_fail(err, NW_E_UNSUPPORTED, "tensor '%s': %s", t->name, why);
    }
    if (!codes || why != NULL) {
        if (!t->is_vector && t->role != NW_ROLE_EMBED && t->role != NW_ROLE_HEAD) {
            (void)json_array_append_new(p->ignored, json_stringn(t->name, nw_export_module(t)));
        }
        return nw_export_part_dense(&p->parts, t, wide, why, err);
    }
    if (p->has_type && !same_shape(p->type, t->type)) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "tensor '%s' is %s, others are %s: %s has one width and group for all",
                       t->name, nw_panel_name(t->type, names[0]), nw_panel_name(p->type, names[1]),
                       p->awq ? "awq" : "gptq");
    }
    p->type = t->type;
    p->has_type = true;
    return add_parts(p, t, err);
}

/* Two matrices that readers fuse: both of codes, or neither. */
static bool fusable(const void *ctx, const nw_export_tensor *a, const nw_export_tensor *b)
{
    const bool x = nw_export_has_codes(a) && lacks(ctx, a) == NULL;
    const bool y = nw_export_has_codes(b) && lacks(ctx, b) == NULL;

    return x == y;
}

static json_t *config_json(const plan *p)
{
    const int bits = (int)nw_panel_code_bits(p->type);
    const int group = group_size(p->type);

    if (p->awq) {
        return json_pack("{s:s, s:i, s:i, s:b, s:s, s:O}", "quant_method", "awq", "bits", bits,
                         "group_size", group, "zero_point", 1, "version", "gemm",
                         "modules_to_not_convert", p->ignored);
    }
    return json_pack("{s:s, s:i, s:i, s:b, s:b, s:s, s:b, s:f, s:b}", "quant_method", "gptq",
                     "bits", bits, "group_size", group, "sym", 1, "desc_act", 0,
                     "checkpoint_format", "gptq", "lm_head", 0, "damp_percent", 0.01,
                     "true_sequential", 1);
}

static nw_status write_words(const nw_export_job *job, bool awq, nw_error *err)
{
    plan p = {.job = job, .awq = awq, .ignored = json_pack("[s]", "lm_head")};
    const char *dtype = !job->has_dtype || job->dtype == NW_FMT_F16 ? "float16"
                        : job->dtype == NW_FMT_BF16                 ? "bfloat16"
                                                                    : "float32";
    nw_status st = p.ignored != NULL
                       ? nw_export_check_fused(job->source, fusable, &p, "scheme", err)
                       : nw_fail(err, NW_E_NOMEM, "no memory for a list of names");

    for (size_t i = 0; st == NW_OK && i < nw_export_n_tensors(job->source); i++) {
        st = take_tensor(&p, nw_export_at(job->source, i), err);
    }
    if (st == NW_OK && !p.has_type) {
        st = nw_fail(err, NW_E_UNSUPPORTED, "%s: no matrix has codes that %s holds",
                     nw_export_path(job->source), awq ? "awq" : "gptq");
    }
    if (st == NW_OK && json_array_size(p.ignored) > 1 && !awq) {
        st = nw_fail(err, NW_E_UNSUPPORTED,
                     "%s: some matrices have no codes that gptq holds, and readers take it for all "
                     "matrices; the first is '%s'",
                     nw_export_path(job->source), json_string_value(json_array_get(p.ignored, 1)));
    }
    if (st == NW_OK) {
        st = nw_export_parts_write(job, &p.parts, dtype, config_json(&p), err);
    }
    json_decref(p.ignored);
    nw_export_parts_release(&p.parts);
    return st;
}

nw_status nw_awq_export(const nw_export_job *job, nw_error *err)
{
    return write_words(job, true, err);
}

nw_status nw_gptq_export(const nw_export_job *job, nw_error *err)
{
    return write_words(job, false, err);
}
