/* Wide columns and static scales: see input_plan.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/input_plan.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/inputs.h"
#include "base/file.h"
#include "base/log.h"
#include "formats/fp4.h"
#include "formats/fp8.h"
#include "formats/half.h"
#include "model/safetensors.h"

#define NAME_BYTES 64

static bool is_integer(nw_panel_type t)
{
    return t.kind == NW_PANEL_INT8 || t.kind == NW_PANEL_INT4;
}

static bool is_int8_rows(nw_panel_type t)
{
    return t.kind == NW_PANEL_INT8 && t.group == 0;
}

static bool is_fp8(nw_panel_type t)
{
    return t.kind == NW_PANEL_FP8_E4M3;
}

static bool is_nvfp4(nw_panel_type t)
{
    return t.kind == NW_PANEL_NVFP4;
}

/* Whether all matrices that read the input have a layout of the kind. */
static bool all_readers(const nw_recipe_choice *choices, size_t n, int32_t layer, nw_input input,
                        bool (*is_kind)(nw_panel_type))
{
    size_t n_readers = 0;

    for (size_t i = 0; i < n; i++) {
        nw_input reads = NW_INPUT_COUNT;
        if (choices[i].tensor->layer != layer || choices[i].is_vector ||
            !nw_input_of_role(choices[i].tensor->role, false, &reads) || reads != input) {
            continue;
        }
        if (!is_kind(choices[i].type)) {
            return false;
        }
        n_readers++;
    }
    return n_readers > 0;
}

/* All readers have codes whose inputs may have one scale under the rule. */
static bool takes_scale(const nw_recipe *r, const nw_recipe_choice *choices, size_t n,
                        int32_t layer, nw_input input)
{
    const nw_act_rule act = nw_recipe_act(r);

    return nw_recipe_static_scales(r) && all_readers(choices, n, layer, input,
                                                     act == NW_ACT_RULE_FP8     ? is_fp8
                                                     : act == NW_ACT_RULE_NVFP4 ? is_nvfp4
                                                                                : is_int8_rows);
}

/* NVFP4's is a divisor: the largest local scale, most / 6, becomes E4M3's largest number. It must be there,
 * whatever calibration saw. 0: none. */
static float fixed_scale(nw_act_rule act, float most)
{
    if (!(most > 0)) {
        return act == NW_ACT_RULE_NVFP4 ? 1 : 0;
    }
    return act == NW_ACT_RULE_NVFP4   ? fminf(NW_E4M3_MAX * NW_E2M1_MAX / most, FLT_MAX)
           : act == NW_ACT_RULE_FP8   ? most / NW_E4M3_MAX
           : act == NW_ACT_RULE_A8_CT ? most / 127.5F
                                      : most / 127;
}

static nw_status plan_input(const nw_recipe *r, const nw_input_stats *s, bool with_scale,
                            nw_input_plan *p, nw_planned_input *in, nw_error *err)
{
    const float limit = nw_recipe_outliers(r);
    float most = 0;

    in->wide = nw_arena_array(&p->arena, s->n_cols, sizeof *in->wide);
    if (in->wide == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for a list of %u columns", s->n_cols);
    }
    for (uint32_t c = 0; c < s->n_cols; c++) {
        if (limit > 0 && s->absmax[c] > limit) {
            in->wide[in->n_wide++] = c;
        } else {
            most = fmaxf(most, s->absmax[c]);
        }
    }
    p->n_wide += in->n_wide;
    in->scale = with_scale ? fixed_scale(nw_recipe_act(r), most) : 0;
    return NW_OK;
}

static nw_status plan_all(const nw_recipe *r, const nw_recipe_choice *choices, size_t n,
                          const nw_stats *stats, const nw_transform *transform, nw_input_plan *p,
                          nw_error *err)
{
    nw_status st = NW_OK;

    for (uint32_t l = 0; st == NW_OK && l < p->n_layers; l++) {
        for (int i = 0; st == NW_OK && i < NW_INPUT_HEAD; i++) {
            const nw_input input = (nw_input)i;
            const bool with_scale = takes_scale(r, choices, n, (int32_t)l, input);
            nw_input_stats s = {0};
            if (!with_scale && !(nw_recipe_outliers(r) > 0 &&
                                 all_readers(choices, n, (int32_t)l, input, is_integer))) {
                continue;
            }
            st = nw_stats_load(stats, (int32_t)l, input, &s, err);
            if (st == NW_OK && transform != NULL) {
                st = nw_transform_stats(transform, (int32_t)l, input, &s, err);
            }
            if (st == NW_OK) {
                st = plan_input(r, &s, with_scale, p, &p->inputs[l * NW_INPUT_HEAD + (uint32_t)i],
                                err);
            }
            nw_input_stats_release(&s);
        }
    }
    return st;
}

/* Whether a matrix of codes reads the input; layer -1: the head's. */
static bool is_rounded(const nw_recipe_choice *choices, size_t n, bool tied, int32_t layer,
                       nw_input input)
{
    bool found = false;

    for (size_t i = 0; !found && i < n; i++) {
        nw_input reads = NW_INPUT_COUNT;
        found = choices[i].tensor->layer == layer && nw_panel_code_bits(choices[i].type) <= 8 &&
                nw_input_of_role(choices[i].tensor->role, tied, &reads) && reads == input;
    }
    return found;
}

/* Says how many inputs have no static scale, though the recipe asks for them. */
static void warn_dynamic(const nw_recipe *r, const nw_recipe_choice *choices, size_t n, bool tied,
                         const nw_input_plan *p)
{
    const nw_act_rule act = nw_recipe_act(r);
    size_t n_rounded = is_rounded(choices, n, tied, -1, NW_INPUT_HEAD) ? 1 : 0;
    size_t n_dynamic = n_rounded;

    for (uint32_t l = 0; l < p->n_layers; l++) {
        for (uint32_t i = 0; i < NW_INPUT_HEAD; i++) {
            const bool rounded = is_rounded(choices, n, tied, (int32_t)l, (nw_input)i);
            n_rounded += rounded;
            n_dynamic += rounded && !(p->inputs[l * NW_INPUT_HEAD + i].scale > 0);
        }
    }
    if (n_dynamic > 0) {
        nw_log(NW_LOG_WARN,
               "activation_scale: static: %zu of %zu inputs got none and keep a scale a token: one "
               "scale wants an input of a layer that only %s matrices read, and that was not all "
               "zeros in calibration",
               n_dynamic, n_rounded, act == NW_ACT_RULE_FP8 ? "fp8-e4m3" : "int8");
    }
}

nw_status nw_input_plan_make(const nw_recipe *r, const nw_checkpoint *c,
                             const nw_recipe_choice *choices, size_t n, const nw_stats *stats,
                             const nw_transform *transform, nw_input_plan *out, nw_error *err)
{
    const nw_model_config *config = nw_checkpoint_config(c);

    *out = (nw_input_plan){.n_layers = config->n_layers};
    if (!(nw_recipe_outliers(r) > 0) && !nw_recipe_static_scales(r)) {
        return NW_OK;
    }
    out->inputs =
        nw_arena_array(&out->arena, (size_t)out->n_layers * NW_INPUT_HEAD, sizeof *out->inputs);
    if (out->inputs == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for the inputs of %u layers", out->n_layers);
    }
    const nw_status st = plan_all(r, choices, n, stats, transform, out, err);
    if (st == NW_OK && nw_recipe_static_scales(r)) {
        warn_dynamic(r, choices, n, config->tied, out);
    }
    return st;
}

void nw_input_plan_release(nw_input_plan *p)
{
    nw_arena_release(&p->arena);
    *p = (nw_input_plan){0};
}

const nw_planned_input *nw_input_plan_of(const nw_input_plan *p, nw_role role, int32_t layer)
{
    nw_input input = NW_INPUT_COUNT;

    if (p->inputs == NULL || layer < 0 || !nw_input_of_role(role, false, &input)) {
        return NULL;
    }
    const nw_planned_input *in = &p->inputs[(size_t)layer * NW_INPUT_HEAD + (size_t)input];
    return in->n_wide > 0 || in->scale > 0 ? in : NULL;
}

void nw_input_plan_clear_rows(const nw_planned_input *in, uint32_t n_rows, uint32_t n_cols,
                              float *rows)
{
    for (uint32_t r = 0; in != NULL && r < n_rows; r++) {
        for (uint32_t i = 0; i < in->n_wide; i++) {
            rows[(size_t)r * n_cols + in->wide[i]] = 0;
        }
    }
}

void nw_input_plan_clear_stats(const nw_planned_input *in, nw_input_stats *s)
{
    for (uint32_t i = 0; in != NULL && i < in->n_wide; i++) {
        const size_t c = in->wide[i];
        for (size_t k = 0; k < s->n_cols; k++) {
            s->moments[c * s->n_cols + k] = s->moments[k * s->n_cols + c] = 0;
        }
        s->absmax[c] = s->mean_abs[c] = s->mean_sq[c] = 0;
    }
}

/* ---- inputs.safetensors ---- */

typedef struct {
    const nw_input_plan *plan;
    const nw_kv_plan *kv;
    const nw_checkpoint *ckpt;
    nw_st_decl *decls;
    char (*names)[NAME_BYTES];
    size_t n;
    nw_st_writer *writer; /* NULL: declaring */
} file_walk;

/* Name of the next tensor; its declaration when declaring. */
static const char *next(file_walk *w, nw_role role, int32_t layer, const char *part,
                        nw_format_id format, uint64_t n)
{
    char *name = w->names[w->n];

    (void)snprintf(name, NAME_BYTES, "layers.%d.%s.%s", (int)layer, nw_role_name(role), part);
    if (w->writer == NULL) {
        w->decls[w->n] = (nw_st_decl){.name = name, .format = format, .n_dims = 1, .dims = {n}};
    }
    w->n++;
    return name;
}

/* The wide columns of 16 rows to one BF16 panel. */
static void pack_wide(const nw_planned_input *in, const float *rows, uint32_t n_rows,
                      uint32_t n_cols, uint16_t *half, uint8_t *panel)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t i = 0; i < in->n_wide; i++) {
            half[(size_t)r * in->n_wide + i] =
                nw_bf16_from_f32(rows[(size_t)r * n_cols + in->wide[i]]);
        }
    }
    nw_panel_pack_bf16(half, in->n_wide, n_rows, in->n_wide, panel);
}

static nw_status write_panels(const file_walk *w, const nw_ckpt_tensor *t,
                              const nw_planned_input *in, size_t panel_bytes, const char *name,
                              nw_error *err)
{
    float *rows = calloc(NW_PANEL_ROWS, t->n_cols * sizeof *rows);
    uint16_t *half = calloc(NW_PANEL_ROWS, in->n_wide * sizeof *half);
    uint8_t *panel = malloc(panel_bytes);
    nw_status st =
        rows != NULL && half != NULL && panel != NULL
            ? NW_OK
            : nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory for its wide columns", t->name);

    for (uint32_t r = 0; st == NW_OK && r < t->n_rows; r += NW_PANEL_ROWS) {
        const uint32_t n = t->n_rows - r < NW_PANEL_ROWS ? t->n_rows - r : NW_PANEL_ROWS;
        st = nw_checkpoint_read_f32(w->ckpt, t, r, n, rows, err);
        if (st == NW_OK) {
            pack_wide(in, rows, n, t->n_cols, half, panel);
            st = nw_st_writer_write(w->writer, name, panel, panel_bytes, err);
        }
    }
    free(rows);
    free(half);
    free(panel);
    return st;
}

/* All panels of the model: they come first, so that each begins at a multiple of 64 bytes. */
static nw_status walk_panels(file_walk *w, nw_error *err)
{
    const nw_panel_type type = {.kind = NW_PANEL_BF16};
    nw_status st = NW_OK;

    for (size_t i = 0; st == NW_OK && i < nw_checkpoint_n_tensors(w->ckpt); i++) {
        const nw_ckpt_tensor *t = nw_checkpoint_at(w->ckpt, i);
        const nw_planned_input *in = nw_input_plan_of(w->plan, t->role, t->layer);
        size_t panel_bytes = 0;
        if (in == NULL || in->n_wide == 0 || !nw_panel_bytes(type, in->n_wide, &panel_bytes)) {
            continue;
        }
        const char *name = next(w, t->role, t->layer, "panels", NW_FMT_U8,
                                panel_bytes * nw_panel_count(t->n_rows));
        st = w->writer != NULL ? write_panels(w, t, in, panel_bytes, name, err) : NW_OK;
    }
    return st;
}

static nw_status walk_list(file_walk *w, nw_role reader, int32_t layer, const nw_planned_input *in,
                           nw_error *err)
{
    nw_status st = NW_OK;

    if (in->n_wide > 0) {
        const char *name = next(w, reader, layer, "wide", NW_FMT_F32, in->n_wide);
        for (uint32_t i = 0; st == NW_OK && w->writer != NULL && i < in->n_wide; i++) {
            const float c = (float)in->wide[i];
            st = nw_st_writer_write(w->writer, name, &c, sizeof c, err);
        }
    }
    if (st == NW_OK && in->scale > 0) {
        const char *name = next(w, reader, layer, "scale", NW_FMT_F32, 1);
        if (w->writer != NULL) {
            st = nw_st_writer_write(w->writer, name, &in->scale, sizeof in->scale, err);
        }
    }
    return st;
}

/* What is planned for keys and values of all layers. */
static nw_status walk_kv(file_walk *w, nw_error *err)
{
    const nw_kv_plan *kv = w->kv;
    const struct {
        nw_role role;
        const char *part;
        const float *all;
        uint32_t n;
    } rows[] = {{NW_ROLE_K, "scale", kv->k_scale, kv->n_scales},
                {NW_ROLE_V, "scale", kv->v_scale, kv->n_scales},
                {NW_ROLE_K, "mean", kv->k_mean, kv->n_channels},
                {NW_ROLE_K, "factor", kv->k_factor, kv->n_channels}};
    nw_status st = NW_OK;

    for (size_t i = 0; st == NW_OK && i < NW_COUNT(rows) * kv->n_layers; i++) {
        const size_t r = i % NW_COUNT(rows);
        const int32_t layer = (int32_t)(i / NW_COUNT(rows));
        const char *name = next(w, rows[r].role, layer, rows[r].part, NW_FMT_F32, rows[r].n);
        if (w->writer != NULL) {
            st = nw_st_writer_write(w->writer, name, rows[r].all + (size_t)layer * rows[r].n,
                                    rows[r].n * sizeof(float), err);
        }
    }
    return st;
}

static nw_status walk_file(file_walk *w, nw_error *err)
{
    nw_status st = NW_OK;

    w->n = 0;
    st = walk_panels(w, err);
    for (size_t i = 0; st == NW_OK && i < nw_checkpoint_n_tensors(w->ckpt); i++) {
        const nw_ckpt_tensor *t = nw_checkpoint_at(w->ckpt, i);
        const nw_planned_input *in = nw_input_plan_of(w->plan, t->role, t->layer);
        nw_role reader = NW_ROLE_COUNT;
        if (in != NULL && nw_input_reader(t->role, &reader) && reader == t->role) {
            st = walk_list(w, reader, t->layer, in, err);
        }
    }
    return st == NW_OK ? walk_kv(w, err) : st;
}

nw_status nw_input_plan_write(const nw_input_plan *p, const nw_kv_plan *kv, const nw_checkpoint *c,
                              const char *dir, nw_digest *hash, uint64_t *n_bytes, nw_error *err)
{
    const size_t most = 2 * nw_checkpoint_n_tensors(c) + 4 * (size_t)kv->n_layers + 1;
    char *path = nw_path_join(dir, NW_INPUTS_FILE);
    nw_st_decl *decls = calloc(most, sizeof *decls);
    char(*names)[NAME_BYTES] = calloc(most, sizeof *names);
    file_walk w = {.plan = p, .kv = kv, .ckpt = c, .decls = decls, .names = names};
    nw_file f = {0};
    nw_status st = NW_OK;

    st = path != NULL && decls != NULL && names != NULL
             ? walk_file(&w, err)
             : nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu tensors", dir, most);
    st = st == NW_OK ? nw_st_writer_open(path, w.decls, w.n, NULL, 64, &w.writer, err) : st;
    st = st == NW_OK ? walk_file(&w, err) : st;
    st = st == NW_OK ? nw_st_writer_commit(w.writer, err) : st;
    nw_st_writer_close(w.writer);
    st = st == NW_OK ? nw_digest_file(path, hash, err) : st;
    st = st == NW_OK ? nw_file_map(path, &f, err) : st;
    *n_bytes = f.size;
    nw_file_unmap(&f);
    free(decls);
    free(names);
    free(path);
    return st;
}
