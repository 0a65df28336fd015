/* Writes compressed-tensors, the folder that vLLM and transformers load: which scheme each layout becomes,
 * and the tensors of it. Bytes and keys: docs/formats.md.
 *
 *   int4-gG, int8-gG, also with -zp   pack-quantized, groups       int8, INT8 activations  int-quantized
 *   int8 (16-bit activations), int4-row, int8-row-zp, ..-tensor..   pack-quantized, a scale a row or tensor
 *   fp8-e4m3                       float-quantized
 *   nvfp4                          nvfp4-pack-quantized            mxfp4                   mxfp4-pack-quantized
 *   E4M3 in blocks, as the file or `fp8-block` has it              float-quantized, block
 *
 * Activations: by token; with the input's own scale (and zero point) where one is fixed; FP8 by 128 columns;
 * NVFP4 under the input's global scale.
 *
 * Readers take scales of packed integers as BF16 numbers: others are rounded, and the loss report says so.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/ct_scheme.h"
#include "formats/block_parts.h"
#include "formats/words.h"
#include "model/hf_quant.h"

#define MAX_SCHEMES 64

typedef struct {
    const nw_export_job *job;
    nw_export_parts parts;
    nw_ct_scheme schemes[MAX_SCHEMES];
    json_t *targets[MAX_SCHEMES]; /* names of the modules */
    size_t n_schemes;
    json_t *ignored;
    size_t n_unrounded; /* matrices whose scheme leaves out what is asked for of their inputs */
    uint32_t
        block; /* wide matrices are rounded to E4M3 in blocks of this side; 0: they stay wide */
    bool act_zeros; /* fixed inputs have zero points */
} plan;

/* ---- the parts of a matrix ---- */
static void put_packed(const nw_export_part *p, uint32_t row, const nw_export_row *r,
                       uint8_t *bytes)
{
    const size_t line = nw_bits_words(p->tensor->n_cols, p->bits) * 4;
    const unsigned turn = p->bits == 8 ? 0x80U : 0; /* from 0 on */

    for (uint32_t c = 0; c < p->tensor->n_cols; c++) {
        nw_bits_put(bytes + row * line, c, p->bits, (uint8_t)r->codes[c] ^ turn);
    }
}

/* Two a byte, the even column in the low half. */
static void put_fp4(const nw_export_part *p, uint32_t row, const nw_export_row *r, uint8_t *bytes)
{
    const uint32_t n_cols = p->tensor->n_cols;

    for (uint32_t c = 0; c < n_cols; c++) {
        nw_bits_put(bytes + (size_t)row * (n_cols / 2), c, 4, (uint8_t)r->codes[c] & 15U);
    }
}

/* Words along the rows. */
static void put_zeros(const nw_export_part *p, uint32_t row, const nw_export_row *r, uint8_t *bytes)
{
    const size_t n_groups = nw_panel_scales(p->tensor->type, p->tensor->n_cols);
    const uint32_t per_word = 32U / p->bits;
    const unsigned turn = p->bits == 8 ? 0x80U : 0; /* from 0 on */

    for (size_t g = 0; g < n_groups; g++) {
        nw_bits_put(bytes + (row / per_word * n_groups + g) * 4, row % per_word, p->bits,
                    (uint8_t)r->zeros[g] ^ turn);
    }
}

/* One scale a tensor: the format leaves its zero point as it is. */
static void put_zero(const nw_export_part *p, uint32_t row, const nw_export_row *r, uint8_t *bytes)
{
    const int from = p->bits == 8 ? 0 : 8;

    if (row == 0) {
        bytes[0] = (uint8_t)((r->zeros[0] - from) & 0xFF);
    }
}

static void put_shape(const nw_export_part *p, uint32_t row, const nw_export_row *r, uint8_t *bytes)
{
    (void)r;
    if (row == 0) {
        nw_put32(bytes, p->tensor->n_rows);
        nw_put32(bytes + 8, p->tensor->n_cols);
    }
}

static void put_global(const nw_export_part *p, uint32_t row, const nw_export_row *r,
                       uint8_t *bytes)
{
    (void)r;
    if (row == 0) {
        nw_put32(bytes, nw_f32_bits(p->global));
    }
}

static void put_input_scale(const nw_export_part *p, uint32_t row, const nw_export_row *r,
                            uint8_t *bytes)
{
    (void)r;
    if (row == 0) {
        nw_put32(bytes, nw_f32_bits(p->act.scale));
    }
}

static void put_input_zero(const nw_export_part *p, uint32_t row, const nw_export_row *r,
                           uint8_t *bytes)
{
    (void)r;
    if (row == 0) {
        bytes[0] = (uint8_t)(p->act.zero & 0xFF);
    }
}

/* A part with its shape; NULL with the error set. */
static nw_export_part *add(plan *p, const nw_export_tensor *t, const char *suffix,
                           nw_format_id format, uint64_t rows, uint64_t cols, nw_export_put_fn put,
                           nw_error *err)
{
    nw_export_part *part = nw_export_part_add(&p->parts, t, suffix, err);

    if (part != NULL) {
        part->format = format;
        part->n_dims = cols > 0 ? 2 : 1;
        part->dims[0] = rows;
        part->dims[1] = cols;
        part->put = put;
    }
    return part;
}

/* The divisor whose reciprocal is the tensor scale, or the nearest there is. */
static float divisor_of(float scale)
{
    const float g = 1 / scale;
    const float near[] = {g, nextafterf(g, 0), nextafterf(g, INFINITY)};

    for (size_t i = 0; i < NW_COUNT(near); i++) {
        if (1 / near[i] == scale) {
            return near[i];
        }
    }
    return g;
}

/* The one tensor scale of all panels. */
static nw_status global_of(const nw_export_tensor *t, float *global, nw_error *err)
{
    const float scale = nw_export_tensor_scale(t, 0);

    *global = 1;
    if (t->type.kind != NW_PANEL_NVFP4) {
        return NW_OK;
    }
    for (uint32_t r = NW_PANEL_ROWS; r < t->n_rows; r += NW_PANEL_ROWS) {
        if (nw_export_tensor_scale(t, r) != scale) {
            return nw_fail(err, NW_E_UNSUPPORTED,
                           "tensor '%s': rows have different tensor scales (%g and %g), "
                           "compressed-tensors keeps one",
                           t->name, (double)scale, (double)nw_export_tensor_scale(t, r));
        }
    }
    *global = t->ckpt != NULL && t->ckpt->quant != NULL ? t->ckpt->quant->global /* as it stood */
                                                        : divisor_of(scale);
    if (!isfinite(*global) || !(*global > 0)) {
        return nw_fail(err, NW_E_RANGE, "tensor '%s': a tensor scale of %g has no divisor", t->name,
                       (double)scale);
    }
    return NW_OK;
}

/* What the scales are written as, and what is to be said of it. */
static nw_status scale_format_of(const plan *p, const nw_export_tensor *t, const nw_ct_scheme *s,
                                 nw_format_id *format, const char **fallback, nw_error *err)
{
    bool fit = true;

    *fallback = NULL;
    if (s->scale_dtype != NULL) {
        *format = t->type.kind == NW_PANEL_NVFP4 ? NW_FMT_F8_E4M3 : NW_FMT_F8_E8M0;
        return NW_OK;
    }
    *format = NW_FMT_BF16;
    const nw_status st = nw_export_scales_fit(t, NW_FMT_BF16, &fit, err);
    if (st == NW_OK && !fit && strcmp(s->format, "pack-quantized") == 0) {
        *fallback = "its scales are no BF16 numbers and were rounded to them (scale_dtype: bf16 in "
                    "the recipe avoids it)";
    } else if (st == NW_OK && !fit) {
        *format = NW_FMT_F32; /* readers keep these as F32 */
    }
    if (*fallback != NULL && p->job->no_fallback) {
        return nw_fail(err, NW_E_UNSUPPORTED, "tensor '%s': %s (--no-fallback forbids it)", t->name,
                       *fallback);
    }
    return st;
}

static const char *loss_name(const nw_ct_scheme *s)
{
    return s->scale_dtype != NULL ? s->format
           : s->bits == 4         ? "compressed-tensors int4"
           : s->type[0] == 'f'    ? "compressed-tensors fp8"
                                  : "compressed-tensors int8";
}

static nw_export_part *add_codes(plan *p, const nw_export_tensor *t, const nw_ct_scheme *s,
                                 nw_error *err)
{
    if (strcmp(s->format, "pack-quantized") == 0) {
        return add(p, t, "weight_packed", NW_FMT_I32, t->n_rows, nw_bits_words(t->n_cols, s->bits),
                   put_packed, err);
    }
    if (s->bits == 4) {
        return add(p, t, "weight_packed", NW_FMT_U8, t->n_rows, t->n_cols / 2, put_fp4, err);
    }
    return add(p, t, "weight", s->type[0] == 'f' ? NW_FMT_F8_E4M3 : NW_FMT_I8, t->n_rows, t->n_cols,
               nw_put_codes, err);
}

/* What is fixed of the input. */
static bool add_input(plan *p, const nw_export_tensor *t, const nw_ct_scheme *s, nw_error *err)
{
    const char *name = s->act == NW_ACT_RULE_NVFP4 ? "input_global_scale" : "input_scale";

    if (!s->act_fixed) {
        return true;
    }
    const nw_act_fixed fixed = *nw_export_fixed(p->job->source, t);
    nw_export_part *part = add(p, t, name, NW_FMT_F32, 1, 0, put_input_scale, err);
    if (part != NULL) {
        part->act = fixed;
    }
    if (part != NULL && s->act_zeros) {
        part = add(p, t, "input_zero_point", NW_FMT_I8, 1, 0, put_input_zero, err);
        if (part != NULL) {
            part->act = fixed;
        }
    }
    return part != NULL;
}

/* E4M3 in blocks, which are made of values. */
static nw_status add_blocks(plan *p, const nw_export_tensor *t, const nw_ct_scheme *s,
                            nw_error *err)
{
    nw_block_scales *b = nw_export_parts_blocks(&p->parts, err);
    bool fit = true;

    if (b == NULL || nw_block_scales_of(p->job->source, t, s->block_rows, b, err) != NW_OK) {
        return err->code;
    }
    for (size_t i = 0; i < (size_t)b->n_down * b->n_across; i++) {
        fit = fit && nw_export_rounded(b->scales[i], NW_FMT_BF16) == b->scales[i];
    }
    const size_t first = p->parts.n;
    const nw_format_id format = fit ? NW_FMT_BF16 : NW_FMT_F32;
    const bool ok = add(p, t, "weight", NW_FMT_F8_E4M3, t->n_rows, t->n_cols, NULL, err) != NULL &&
                    add(p, t, "weight_scale", format, b->n_down, b->n_across, NULL, err) != NULL;
    for (size_t i = first; ok && i < p->parts.n; i++) {
        p->parts.items[i].blocks = b;
        p->parts.items[i].scale_format = format;
        p->parts.items[i].put_values = i == first ? nw_put_block_codes : nw_put_block_scales;
    }
    if (ok) {
        p->parts.items[first].to = "compressed-tensors fp8 blocks";
    }
    return ok && add_input(p, t, s, err) ? NW_OK : err->code;
}

/* Codes, scales, and what else the format keeps of the matrix. */
static bool add_weight(plan *p, const nw_export_tensor *t, const nw_ct_scheme *s,
                       nw_format_id scale_format, nw_error *err)
{
    const uint32_t n_groups = nw_panel_scales(t->type, t->n_cols);
    const bool one = t->type.span == NW_SPAN_TENSOR;
    const nw_format_id stored = scale_format == NW_FMT_F8_E8M0 ? NW_FMT_U8 : scale_format;
    bool ok =
        add_codes(p, t, s, err) != NULL && add(p, t, "weight_scale", stored, one ? 1 : t->n_rows,
                                               one ? 0 : n_groups, nw_put_scales, err) != NULL;

    if (ok && strcmp(s->format, "pack-quantized") == 0) {
        ok = add(p, t, "weight_shape", NW_FMT_I64, 2, 0, put_shape, err) != NULL;
    }
    if (ok && !s->symmetric) {
        ok = one ? add(p, t, "weight_zero_point", NW_FMT_I8, 1, 0, put_zero, err) != NULL
                 : add(p, t, "weight_zero_point", NW_FMT_I32, nw_bits_words(t->n_rows, s->bits),
                       n_groups, put_zeros, err) != NULL;
    }
    if (ok && t->type.kind == NW_PANEL_NVFP4) {
        ok = add(p, t, "weight_global_scale", NW_FMT_F32, 1, 0, put_global, err) != NULL;
    }
    return ok;
}

static nw_status add_parts(plan *p, const nw_export_tensor *t, const nw_ct_scheme *s, nw_error *err)
{
    nw_format_id scale_format = NW_FMT_BF16;
    const char *fallback = NULL;
    float global = 1;
    nw_status st = global_of(t, &global, err);

    st = st == NW_OK ? scale_format_of(p, t, s, &scale_format, &fallback, err) : st;
    if (st != NW_OK) {
        return st;
    }
    const size_t first = p->parts.n;
    bool ok = add_weight(p, t, s, scale_format, err);
    for (size_t i = first; ok && i < p->parts.n; i++) {
        p->parts.items[i].bits = s->bits;
        p->parts.items[i].scale_format = scale_format;
        p->parts.items[i].scale_rows = t->type.span == NW_SPAN_TENSOR ? 1 : t->n_rows;
        p->parts.items[i].global = global;
    }
    ok = ok && add_input(p, t, s, err);
    if (ok) {
        p->parts.items[first].to = loss_name(s);
        p->parts.items[first].fallback = fallback;
    }
    return ok ? NW_OK : err->code;
}

/* ---- the plan ---- */
static nw_status take_scheme(plan *p, const nw_export_tensor *t, const nw_ct_scheme *s,
                             nw_error *err)
{
    size_t i = 0;

    while (i < p->n_schemes && !nw_ct_same_scheme(&p->schemes[i], s)) {
        i++;
    }
    if (i == MAX_SCHEMES) {
        return nw_fail(err, NW_E_UNSUPPORTED, "more than %d kinds of quantized matrices",
                       MAX_SCHEMES);
    }
    if (i == p->n_schemes) {
        p->schemes[p->n_schemes] = *s;
        p->targets[p->n_schemes++] = json_array();
    }
    (void)json_array_append_new(p->targets[i], json_stringn(t->name, nw_export_module(t)));
    p->n_unrounded += s->act != nw_export_act(p->job->source) && s->act == NW_ACT_RULE_A16;
    return s->block_rows > 0 ? add_blocks(p, t, s, err) : add_parts(p, t, s, err);
}

/* What is not quantized is written in the type that the source has it in; BF16 of an artifact and of what
 * was quantized. */
static nw_format_id wide_of(const nw_export_job *job)
{
    const nw_export_tensor *e = nw_export_find(job->source, NW_ROLE_EMBED, -1);
    const bool wide = e != NULL && e->ckpt != NULL && e->ckpt->quant == NULL &&
                      (e->format == NW_FMT_F32 || e->format == NW_FMT_F16);

    return job->has_dtype ? job->dtype : wide ? e->format : NW_FMT_BF16;
}

/* False for what stays wide; *why then says what stood in the way, NULL where nothing did. */
static bool scheme_for(const plan *p, const nw_export_tensor *t, nw_ct_scheme *s, const char **why)
{
    *why = NULL;
    if (nw_ct_block_scheme_of(p->job->source, t, p->block, s)) {
        s->act_zeros = s->act_fixed && p->act_zeros;
        return true;
    }
    if (!nw_export_has_codes(t)) {
        *why = p->block > 0 && !t->is_vector && t->layer >= 0
                   ? "its columns are no whole blocks; written as BF16"
                   : NULL;
        return false;
    }
    if (t->role == NW_ROLE_EMBED) {
        *why = "readers keep embeddings wide; written as BF16";
        return false;
    }
    const bool has = nw_ct_scheme_of(p->job->source, t, s, why);
    s->act_zeros = has && s->act_fixed && p->act_zeros;
    return has;
}

static nw_status take_tensor(plan *p, const nw_export_tensor *t, nw_error *err)
{
    const nw_export_job *job = p->job;
    const char *why = NULL;
    nw_ct_scheme s = {0};

    if (scheme_for(p, t, &s, &why)) {
        return take_scheme(p, t, &s, err);
    }
    if (why != NULL && job->no_fallback) {
        return nw_fail(err, NW_E_UNSUPPORTED, "tensor '%s': compressed-tensors: %s", t->name, why);
    }
    if (!t->is_vector && t->role != NW_ROLE_EMBED && t->role != NW_ROLE_HEAD) {
        (void)json_array_append_new(p->ignored, json_stringn(t->name, nw_export_module(t)));
    }
    return nw_export_part_dense(&p->parts, t, wide_of(job), why, err);
}

/* Two matrices that readers fuse. */
static bool fusable(const void *ctx, const nw_export_tensor *a, const nw_export_tensor *b)
{
    const char *why = NULL;
    nw_ct_scheme x = {0};
    nw_ct_scheme y = {0};
    const bool has_x = scheme_for(ctx, a, &x, &why);
    const bool has_y = scheme_for(ctx, b, &y, &why);

    return has_x == has_y && (!has_x || nw_ct_same_scheme(&x, &y));
}

static bool same_tensor_scale(const void *ctx, const nw_export_tensor *a, const nw_export_tensor *b)
{
    (void)ctx;
    return a->type.kind != NW_PANEL_NVFP4 || b->type.kind != NW_PANEL_NVFP4 ||
           nw_export_tensor_scale(a, 0) == nw_export_tensor_scale(b, 0);
}

/* ---- quantization_config ---- */
/* E4M3 with one scale a layer, or one a kv head; null: none. */
static json_t *kv_json(const nw_export_source *s)
{
    const uint32_t n = nw_export_n_kv_scales(s);

    return n == 0 ? json_null()
                  : nw_ct_args_json(8, "float", true, n > 1 ? "attn_head" : "tensor", 0, false);
}

/* One group takes all "Linear" that are not ignored; several name their modules. */
static json_t *config_json(const plan *p)
{
    json_t *groups = json_object();
    json_t *linear = json_pack("[s]", "Linear");
    bool mixed = false;
    char key[32];

    for (size_t i = 0; i < p->n_schemes; i++) {
        (void)snprintf(key, sizeof key, "group_%zu", i);
        (void)json_object_set_new(
            groups, key,
            nw_ct_group_json(&p->schemes[i], p->n_schemes == 1 ? linear : p->targets[i]));
        mixed = mixed || strcmp(p->schemes[i].format, p->schemes[0].format) != 0;
    }
    json_decref(linear);
    const char *format = p->n_schemes == 0 ? "dense"
                         : mixed           ? "mixed-precision"
                                           : p->schemes[0].format;

    return json_pack("{s:s, s:s, s:s, s:n, s:o, s:O, s:o}", "quant_method", "compressed-tensors",
                     "format", format, "quantization_status", "compressed",
                     "global_compression_ratio", "kv_cache_scheme", kv_json(p->job->source),
                     "ignore", p->ignored, "config_groups", groups);
}

static nw_status note_unrounded(const plan *p, nw_error *err)
{
    char what[128];

    if (p->n_unrounded == 0) {
        return NW_OK;
    }
    (void)snprintf(what, sizeof what, "rounding of activations (%s) of %zu matrices in FP4",
                   nw_act_rule_name(nw_export_act(p->job->source)), p->n_unrounded);
    return nw_loss_drop(p->job->loss, what, err);
}

static nw_status make_plan(plan *p, nw_error *err)
{
    const nw_export_source *s = p->job->source;
    const nw_export_tensor *head = nw_export_find(s, NW_ROLE_HEAD, -1);
    const char *why = NULL;
    nw_ct_scheme ignored = {0};
    nw_status st = nw_export_check_fused(s, fusable, p, "scheme", err);

    if (st == NW_OK) {
        st = nw_export_check_fused(s, same_tensor_scale, NULL, "tensor scale", err);
    }
    /* a tied head is a module too, which "Linear" would name */
    if (head == NULL || !nw_export_has_codes(head) || !nw_ct_scheme_of(s, head, &ignored, &why)) {
        (void)json_array_append_new(p->ignored, json_string("lm_head"));
    }
    for (size_t i = 0; st == NW_OK && i < nw_export_n_tensors(s); i++) {
        st = take_tensor(p, nw_export_at(s, i), err);
    }
    st = st == NW_OK ? nw_export_parts_kv(&p->parts, s, err) : st;
    st = st == NW_OK ? note_unrounded(p, err) : st;
    if (st == NW_OK && p->n_schemes == 0 && nw_export_n_kv_scales(s) == 0) {
        st = nw_fail(err, NW_E_UNSUPPORTED, "%s: no matrix has codes that compressed-tensors holds",
                     nw_export_path(s));
    }
    return st;
}

static nw_status export(const nw_export_job *job, uint32_t block, nw_error *err)
{
    plan p = {.job = job,
              .ignored = json_array(),
              .block = block,
              .act_zeros = nw_ct_act_zeros(job->source)};
    nw_status st = p.ignored != NULL ? make_plan(&p, err)
                                     : nw_fail(err, NW_E_NOMEM, "no memory for a list of names");

    if (st == NW_OK) {
        st = nw_export_parts_write(job, &p.parts, nw_export_torch_dtype(wide_of(job)),
                                   config_json(&p), err);
    }
    for (size_t i = 0; i < p.n_schemes; i++) {
        json_decref(p.targets[i]);
    }
    json_decref(p.ignored);
    nw_export_parts_release(&p.parts);
    return st;
}

nw_status nw_ct_export(const nw_export_job *job, nw_error *err)
{
    return export(job, 0, err);
}

nw_status nw_fp8_block_export(const nw_export_job *job, nw_error *err)
{
    return export(job, 128, err);
}
