/* The plan of a GGUF file: for each tensor its name, its type and how its rows come about. Nothing is
 * written before all of it is known, so that what cannot be written is told at once.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/gguf_write_parts.h"
#include "formats/unpack_blocks.h"
#include "model/arch.h"

/* ---- the type of a matrix ---- */
typedef struct {
    const nw_export_tensor *tensor;
    nw_code_set *sets; /* [n threads] */
    int8_t *codes;     /* [n threads][n_cols] */
    uint8_t *scratch;  /* [n threads][scratch_bytes] */
    size_t scratch_bytes;
} scan_job;

static void scan_panel(void *ctx, size_t item, unsigned worker)
{
    scan_job *job = ctx;
    const nw_export_tensor *t = job->tensor;
    const uint32_t row0 = (uint32_t)item * NW_PANEL_ROWS;
    const uint32_t left = t->n_rows - row0;

    for (uint32_t r = 0; r < (left < NW_PANEL_ROWS ? left : NW_PANEL_ROWS); r++) {
        const uint8_t *panels = NULL;
        uint32_t at = 0;
        nw_error err = {0};
        if (nw_export_panel(t, row0 + r, job->scratch + worker * job->scratch_bytes, &panels, &at,
                            &err) != NW_OK) {
            return; /* told by name when the row is written */
        }
        nw_code_set_add_row(&job->sets[worker], t->type, panels, t->n_cols, at,
                            job->codes + (size_t)worker * t->n_cols);
    }
}

/* Which codes the tensor uses. */
static nw_status scan(const nw_export_job *job, const nw_export_tensor *t, nw_code_set *set,
                      nw_error *err)
{
    const unsigned n = job->pool != NULL ? nw_pool_threads(job->pool) : 1;
    scan_job s = {.tensor = t,
                  .sets = calloc(n, sizeof *s.sets),
                  .codes = calloc((size_t)n * t->n_cols, sizeof *s.codes),
                  .scratch_bytes = (nw_export_scratch_bytes(t) + 63) / 64 * 64};
    nw_status st = NW_OK;

    *set = (nw_code_set){.wider = false};
    s.scratch = calloc(n, s.scratch_bytes + 64);
    if (s.sets == NULL || s.codes == NULL || s.scratch == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory to read its codes", t->name);
    } else if (nw_unpack_needs_codes(t->type)) {
        nw_pool_run(job->pool, nw_panel_count(t->n_rows), scan_panel, &s);
        for (unsigned i = 0; i < n; i++) {
            nw_code_set_join(set, &s.sets[i]);
        }
    }
    free(s.sets);
    free(s.codes);
    free(s.scratch);
    return st;
}

/* One tensor scale for all: GGUF has room for one a tensor. */
static bool one_scale(const nw_export_tensor *t)
{
    const float first = nw_export_tensor_scale(t, 0);
    bool same = isfinite(first) != 0;

    for (uint32_t r = 0; same && r < t->n_rows; r += NW_PANEL_ROWS) {
        const float scale = nw_export_tensor_scale(t, r);
        same = !(scale < first) && !(scale > first);
    }
    return same;
}

static void fall_back(nw_gguf_item *item, const char *why)
{
    item->format = NW_FMT_BF16;
    item->fallback = why;
}

/* llama.cpp's graphs of some architectures multiply by NVFP4 codes of the feed-forward as if their
 * tensor scale were 1: values some thousand times too large, and no number in the end. */
static bool scale_is_lost(const nw_export_job *job, const nw_export_tensor *t)
{
    const nw_arch *a = nw_arch_get(nw_export_config(job->source)->arch);
    const float scale = nw_export_tensor_scale(t, 0);

    return t->type.kind == NW_PANEL_NVFP4 && a->gguf_no_ffn_scales && (scale < 1 || scale > 1) &&
           (t->role == NW_ROLE_GATE || t->role == NW_ROLE_UP || t->role == NW_ROLE_DOWN);
}

static nw_status type_of_panels(const nw_export_job *job, nw_gguf_item *item, nw_error *err)
{
    const nw_export_tensor *t = item->tensor;
    nw_code_set set;

    if (t->ckpt != NULL && !nw_export_has_codes(t)) { /* codes that no panel holds: values */
        item->format = t->type.kind == NW_PANEL_BF16 ? NW_FMT_BF16 : NW_FMT_F32;
        return NW_OK;
    }
    const nw_status st = scan(job, t, &set, err);

    if (st != NW_OK) {
        return st;
    }
    if (t->type.kind == NW_PANEL_NVFP4 && !one_scale(t)) {
        fall_back(item, "its panels have several tensor scales, GGUF keeps one; written as BF16");
    } else if (scale_is_lost(job, t)) {
        fall_back(item, "llama.cpp leaves out the tensor scale of NVFP4 here; written as BF16");
    } else if (nw_unpack_format(t->type, t->n_cols, &set, &item->format)) {
        item->unpack = true;
        item->scale = nw_export_tensor_scale(t, 0);
    } else if (t->type.kind == NW_PANEL_FP8_E4M3 || t->type.kind == NW_PANEL_FP8_E5M2) {
        fall_back(item, "GGUF has no FP8; written as BF16");
    } else if (t->n_cols % 32 != 0) {
        fall_back(item, "its columns are no multiple of a block; written as BF16");
    } else {
        fall_back(item, "no block type holds its codes; written as BF16");
    }
    return NW_OK;
}

static bool is_wide(nw_format_id f)
{
    return f == NW_FMT_F32 || f == NW_FMT_F16 || f == NW_FMT_BF16;
}

static nw_status type_of_checkpoint(const nw_export_job *job, nw_gguf_item *item, nw_error *err)
{
    const nw_export_tensor *t = item->tensor;
    const nw_format *f = nw_format_get(t->format);

    if (t->is_vector) {
        /* bytes of a GGUF source; values of every other */
        item->raw = nw_checkpoint_kind(nw_export_checkpoint(job->source)) == NW_CKPT_GGUF;
        item->format = item->raw ? t->format : NW_FMT_F32;
        return NW_OK;
    }
    item->format = t->format;
    item->scale = t->ckpt->scale;
    item->raw = f->ggml_type >= 0 && f->st_dtype == NULL;
    if (is_wide(t->format)) {
        item->format = job->has_dtype ? job->dtype : t->format;
        item->raw = item->format == t->format;
    } else if (t->format == NW_FMT_F8_E4M3 || t->format == NW_FMT_F8_E5M2) {
        item->format = NW_FMT_BF16; /* holds every value of both */
    } else if (!item->raw) {
        return nw_fail(err, NW_E_UNSUPPORTED, "tensor '%s' of format %s cannot stand in GGUF",
                       t->name, f->name);
    }
    return NW_OK;
}

static nw_status plan_tensor(const nw_export_job *job, const nw_export_tensor *t,
                             nw_gguf_item *item, nw_error *err)
{
    const nw_model_config *c = nw_export_config(job->source);
    const nw_arch *a = nw_arch_get(c->arch);
    nw_status st = NW_OK;

    *item = (nw_gguf_item){.tensor = t, .format = NW_FMT_F32, .scale = 1};
    if (!nw_arch_full_name(a, t->role, t->layer, NW_NAMING_GGUF, item->name, sizeof item->name)) {
        return nw_fail(err, NW_E_UNSUPPORTED, "tensor '%s' has no name of at most 63 bytes in GGUF",
                       t->name);
    }
    if (a->gguf_pairs_qk && (t->role == NW_ROLE_Q || t->role == NW_ROLE_K)) {
        item->pair_half = c->d_head / 2;
    }
    if (t->ckpt != NULL && t->ckpt->quant == NULL) {
        st = type_of_checkpoint(job, item, err);
    } else if (!t->is_vector) {
        st = type_of_panels(job, item, err);
    }
    if (st == NW_OK && nw_role_is_norm(t->role) && !item->raw) {
        item->offset = -a->gguf_norm_offset;
    }
    if (st == NW_OK && item->fallback != NULL && job->no_fallback) {
        st = nw_fail(err, NW_E_UNSUPPORTED, "tensor '%s': %s (--no-fallback forbids it)", t->name,
                     item->fallback);
    }
    return st;
}

/* ---- tensors that no role has ---- */

/* NVFP4's tensor scale: "blk.0.attn_q.scale". */
static bool plan_scale(const nw_gguf_item *of, nw_gguf_item *item)
{
    const size_t stem = strlen(of->name) - strlen("weight");

    *item = (nw_gguf_item){.format = NW_FMT_F32, .scale = 1, .n_values = 1};
    memcpy(item->name, of->name, stem); /* "scale" is shorter than "weight" */
    memcpy(item->name + stem, "scale", sizeof "scale");
    item->values = calloc(1, sizeof *item->values);
    if (item->values != NULL) {
        item->values[0] = of->scale;
    }
    return item->values != NULL;
}

static bool plan_rope_freqs(const nw_model_config *c, nw_gguf_item *item)
{
    *item = (nw_gguf_item){
        .name = "rope_freqs.weight", .format = NW_FMT_F32, .scale = 1, .n_values = c->d_head / 2};
    item->values = calloc((size_t)item->n_values + 1, sizeof *item->values);
    for (uint32_t i = 0; item->values != NULL && i < item->n_values; i++) {
        item->values[i] = nw_gguf_rope_freq(c, i);
    }
    return item->values != NULL;
}

static bool has_item(const nw_gguf_plan *plan, const char *name)
{
    bool found = false;

    for (size_t i = 0; i < plan->n; i++) {
        found = found || strcmp(plan->items[i].name, name) == 0;
    }
    return found;
}

/* Tensors of a GGUF source that no role has and its readers want: frequency factors. */
static void plan_extras(const nw_gguf *g, nw_gguf_plan *plan)
{
    const nw_gguf_tensor *t = nw_gguf_tensor_find(g, "rope_freqs.weight");

    if (t != NULL && t->n_dims == 1 && !has_item(plan, t->name)) {
        nw_gguf_item *item = &plan->items[plan->n++];
        *item = (nw_gguf_item){.extra = t, .format = t->format, .scale = 1};
        (void)snprintf(item->name, sizeof item->name, "%s", t->name);
    }
}

static nw_status plan_added(const nw_export_job *job, nw_gguf_plan *plan, nw_error *err)
{
    const nw_model_config *c = nw_export_config(job->source);
    const nw_checkpoint *ckpt = nw_export_checkpoint(job->source);
    const nw_gguf *g = ckpt != NULL ? nw_checkpoint_gguf(ckpt) : NULL;
    const size_t n = plan->n;
    bool ok = true;

    for (size_t i = 0; ok && i < n; i++) {
        const float scale = plan->items[i].scale;
        if (scale < 1 || scale > 1) {
            ok = plan_scale(&plan->items[i], &plan->items[plan->n++]);
        }
    }
    if (g != NULL) {
        plan_extras(g, plan);
    } else if (ok && c->rope_scaling.kind == NW_ROPE_SCALE_LLAMA3) {
        ok = plan_rope_freqs(c, &plan->items[plan->n++]);
    }
    return ok ? NW_OK : nw_fail(err, NW_E_NOMEM, "no memory for scales");
}

nw_status nw_gguf_plan_make(const nw_export_job *job, nw_gguf_plan *plan, nw_error *err)
{
    const size_t n = nw_export_n_tensors(job->source);
    nw_status st = NW_OK;

    *plan = (nw_gguf_plan){.items = calloc(2 * n + 2, sizeof *plan->items)};
    if (plan->items == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu tensors", n);
    }
    for (size_t i = 0; st == NW_OK && i < n; i++) {
        st = plan_tensor(job, nw_export_at(job->source, i), &plan->items[plan->n++], err);
    }
    return st == NW_OK ? plan_added(job, plan, err) : st;
}

void nw_gguf_plan_release(nw_gguf_plan *plan)
{
    for (size_t i = 0; i < plan->n; i++) {
        free(plan->items[i].values);
    }
    free(plan->items);
    *plan = (nw_gguf_plan){0};
}

/* llama_ftype by the type that most weights have. */
uint32_t nw_gguf_plan_file_type(const nw_gguf_plan *plan)
{
    static const struct {
        nw_format_id format;
        uint32_t file_type;
    } types[] = {{NW_FMT_F32, 0},    {NW_FMT_F16, 1},   {NW_FMT_Q4_0, 2},    {NW_FMT_Q4_1, 3},
                 {NW_FMT_Q8_0, 7},   {NW_FMT_Q5_0, 8},  {NW_FMT_Q5_1, 9},    {NW_FMT_Q4_K, 15},
                 {NW_FMT_Q5_K, 17},  {NW_FMT_Q6_K, 18}, {NW_FMT_IQ4_NL, 25}, {NW_FMT_BF16, 32},
                 {NW_FMT_MXFP4, 38}, {NW_FMT_NVFP4, 39}};
    uint64_t most = 0;
    uint32_t best = 0;

    for (size_t k = 0; k < NW_COUNT(types); k++) {
        uint64_t n = 0;
        for (size_t i = 0; i < plan->n; i++) {
            const nw_export_tensor *t = plan->items[i].tensor;
            const bool counts =
                t != NULL && t->layer >= 0 && plan->items[i].format == types[k].format;
            n += counts ? (uint64_t)t->n_rows * t->n_cols : 0;
        }
        if (n > most) {
            most = n;
            best = types[k].file_type;
        }
    }
    return best;
}

uint32_t nw_gguf_item_row(const nw_gguf_item *item, uint32_t row)
{
    if (item->pair_half == 0) {
        return row;
    }
    const uint32_t in_head = row % (2 * item->pair_half);
    return row - in_head + in_head % 2 * item->pair_half + in_head / 2;
}
