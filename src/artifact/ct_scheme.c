/* See ct_scheme.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/ct_scheme.h"

#include <string.h>

#include "model/hf_quant.h"

/* Scales of the input, for rules that may have any. */
static void set_fixed(const nw_export_source *source, const nw_export_tensor *t, nw_ct_scheme *s)
{
    const nw_act_fixed *f = s->act == NW_ACT_RULE_A16 || s->act == NW_ACT_RULE_FP8_G128
                                ? NULL
                                : nw_export_fixed(source, t);

    s->act_fixed = f != NULL;
}

bool nw_ct_act_zeros(const nw_export_source *source)
{
    const nw_act_rule act = nw_export_act(source);
    bool any = false;

    for (size_t i = 0; !any && i < nw_export_n_tensors(source); i++) {
        const nw_act_fixed *f = nw_export_fixed(source, nw_export_at(source, i));
        any = f != NULL && f->zero != 0;
    }
    return any && (act == NW_ACT_RULE_A8 || act == NW_ACT_RULE_A8_CT);
}

bool nw_ct_block_scheme_of(const nw_export_source *source, const nw_export_tensor *t,
                           uint32_t block, nw_ct_scheme *out)
{
    const nw_hfq_matrix *stored = nw_block_stored(t);
    const nw_act_rule act = nw_export_act(source);

    if (t->is_vector || t->layer < 0 ||
        (stored == NULL && (block == 0 || nw_export_has_codes(t) || t->n_cols % block != 0))) {
        return false;
    }
    *out = (nw_ct_scheme){.format = "float-quantized",
                          .type = "float",
                          .strategy = "block",
                          .bits = 8,
                          .symmetric = true,
                          .block_rows = stored != NULL ? stored->scale_rows : block,
                          .block_cols = stored != NULL ? stored->scale_cols : block,
                          .act = stored != NULL ? act : NW_ACT_RULE_FP8_G128};
    if (stored != NULL) {
        set_fixed(source, t, out);
    }
    return true;
}

static bool whole_groups(nw_panel_type p, uint32_t n_cols)
{
    return n_cols % nw_panel_scale_cols(p, n_cols) == 0;
}

/* The group_size of what has one. */
static uint32_t group_size(nw_panel_type p)
{
    return p.span >= NW_SPAN_TENSOR ? 0 : p.span > 0 ? p.span : p.group;
}

/* What the format has no place for. */
static const char *lacks(nw_panel_type p, uint32_t n_cols)
{
    return p.min                      ? "it has no minima; written as BF16"
           : p.two_level              ? "it has no scales of scales; written as BF16"
           : !whole_groups(p, n_cols) ? "its groups must divide the columns; written as BF16"
                                      : "it has no such codes; written as BF16";
}

bool nw_ct_scheme_of(const nw_export_source *source, const nw_export_tensor *t, nw_ct_scheme *out,
                     const char **why)
{
    const nw_panel_type p = t->type;
    const nw_act_rule act = nw_export_act(source);
    nw_ct_scheme s = {
        .type = "int", .bits = 4, .group = group_size(p), .symmetric = true, .act = act};

    *why = lacks(p, t->n_cols);
    s.strategy = s.group > 0 ? "group" : p.span == NW_SPAN_TENSOR ? "tensor" : "channel";
    s.format = "pack-quantized";
    switch (p.kind) {
    case NW_PANEL_INT4:
        s.symmetric = !p.zero_point;
        break;
    case NW_PANEL_INT8:
        s.bits = 8;
        s.symmetric = !p.zero_point;
        s.format = p.group == 0 && act != NW_ACT_RULE_A16 ? "int-quantized" : s.format;
        break;
    case NW_PANEL_FP8_E4M3:
        s.bits = 8;
        s.type = "float";
        s.format = "float-quantized";
        break;
    case NW_PANEL_NVFP4:
    case NW_PANEL_MXFP4:
        s.type = "float";
        /* no reader joins FP4 weights with other activations */
        s.act = p.kind == NW_PANEL_NVFP4 && act == NW_ACT_RULE_NVFP4 ? act : NW_ACT_RULE_A16;
        s.strategy = p.kind == NW_PANEL_NVFP4 ? "tensor_group" : "group";
        s.format = p.kind == NW_PANEL_NVFP4 ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized";
        s.scale_dtype = p.kind == NW_PANEL_NVFP4 ? "torch.float8_e4m3fn" : "torch.uint8";
        break;
    case NW_PANEL_F32:
    case NW_PANEL_BF16:
    case NW_PANEL_FP8_E5M2:
    case NW_PANEL_BF16_12:
    case NW_PANEL_KINDS:
        return false;
    }
    set_fixed(source, t, &s);
    *out = s;
    return !p.min && !p.two_level && whole_groups(p, t->n_cols);
}

bool nw_ct_same_scheme(const nw_ct_scheme *a, const nw_ct_scheme *b)
{
    return strcmp(a->format, b->format) == 0 && strcmp(a->type, b->type) == 0 &&
           strcmp(a->strategy, b->strategy) == 0 && a->bits == b->bits && a->group == b->group &&
           a->symmetric == b->symmetric && a->block_rows == b->block_rows &&
           a->block_cols == b->block_cols && a->act == b->act && a->act_fixed == b->act_fixed &&
           a->act_zeros == b->act_zeros;
}

/* ---- quantization_config ---- */
json_t *nw_ct_args_json(unsigned bits, const char *type, bool symmetric, const char *strategy,
                        uint32_t group, bool dynamic)
{
    json_t *o =
        json_pack("{s:i, s:s, s:b, s:s, s:n, s:b, s:n, s:n, s:{}}", "num_bits", (int)bits, "type",
                  type, "symmetric", (int)symmetric, "strategy", strategy, "block_structure",
                  "dynamic", (int)dynamic, "actorder", "observer", "observer_kwargs");

    (void)json_object_set_new(o, "group_size",
                              group > 0 ? json_integer((json_int_t)group) : json_null());
    return o;
}

static void set_dtypes(json_t *args, const char *dtype)
{
    (void)json_object_set_new(args, "scale_dtype", json_string(dtype));
    (void)json_object_set_new(args, "zp_dtype", json_string(dtype));
}

static json_t *acts_json(const nw_ct_scheme *s)
{
    const bool is_int = s->act == NW_ACT_RULE_A8 || s->act == NW_ACT_RULE_A8_CT;
    json_t *o = NULL;

    if (s->act == NW_ACT_RULE_A16) {
        return json_null();
    }
    if (s->act == NW_ACT_RULE_NVFP4) {
        o = nw_ct_args_json(4, "float", true, "tensor_group", 16, false);
        (void)json_object_set_new(o, "dynamic", json_string("local"));
        set_dtypes(o, "torch.float8_e4m3fn");
        return o;
    }
    if (s->act == NW_ACT_RULE_FP8_G128) {
        return nw_ct_args_json(8, "float", true, "group", 128, true);
    }
    return nw_ct_args_json(8, is_int ? "int" : "float", !s->act_zeros,
                           s->act_fixed ? "tensor" : "token", 0, !s->act_fixed);
}

json_t *nw_ct_group_json(const nw_ct_scheme *s, json_t *targets)
{
    json_t *weights = nw_ct_args_json(s->bits, s->type, s->symmetric, s->strategy, s->group, false);
    json_t *acts = acts_json(s);

    if (s->block_rows > 0) {
        (void)json_object_set_new(weights, "block_structure",
                                  json_pack("[i, i]", (int)s->block_rows, (int)s->block_cols));
    }
    if (s->scale_dtype != NULL) {
        set_dtypes(weights, s->scale_dtype);
    }
    return json_pack("{s:O, s:o, s:o, s:n, s:s}", "targets", targets, "weights", weights,
                     "input_activations", acts, "output_activations", "format", s->format);
}
