/* The first half of the quantize driver: opens and checks everything, plans the layouts that depend on
 * values, and begins the artifact.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "artifact/folder.h"
#include "artifact/source_note.h"
#include "base/room.h"
#include "base/signal.h"
#include "model/tokenizer.h"
#include "quant/block_method.h"
#include "quant/lossless.h"
#include "quant/preflight.h"
#include "quant/quantize_parts.h"
#include "quant/tensor_scale.h"

/* Matrices first: their sizes are multiples of 64 bytes, those of vectors are not. The embedding
 * stays first among them, and a tied one is in the list once. */
static nw_status order_choices(nw_quantize_driver *d, nw_error *err)
{
    nw_recipe_choice *sorted = calloc(d->n + 1, sizeof *sorted);
    size_t k = 0;

    if (sorted == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu tensors", d->n);
    }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < d->n; i++) {
            if (d->choices[i].is_vector == (pass == 1)) {
                sorted[k++] = d->choices[i];
            }
        }
    }
    free(d->choices);
    d->choices = sorted;
    return NW_OK;
}

static nw_status open_recipe(nw_quantize_driver *d, nw_error *err)
{
    const nw_quantize_options *o = d->options;
    nw_status st = nw_recipe_open(o->recipe, &d->recipe, err);

    if (st == NW_OK && o->method != NULL) {
        nw_method m = NW_METHOD_RTN;
        if (!nw_method_parse(o->method, &m)) {
            return nw_fail(err, NW_E_USAGE, "unknown method '%s'", o->method);
        }
        nw_recipe_set_method(d->recipe, m);
    }
    if (st == NW_OK && o->bf16_scales) {
        nw_recipe_set_bf16_scales(d->recipe);
    }
    st = st == NW_OK ? nw_recipe_set_kv(d->recipe, o->kv, err) : st;
    return st == NW_OK ? nw_recipe_set_calibration(d->recipe, o->calibration, err) : st;
}

static nw_status check_tokenizer(const nw_quantize_driver *d, nw_error *err)
{
    nw_tokenizer *tok = NULL;
    const nw_status st = d->options->no_tokenizer
                             ? NW_OK
                             : nw_tokenizer_open(nw_checkpoint_path(d->ckpt), &tok, err);

    nw_tokenizer_close(tok);
    return st == NW_OK ? st : nw_context(err, "tokenizer (--no-tokenizer does without one)");
}

static uint64_t memory_left(const nw_quantize_options *o)
{
    return o->memory_bytes > 0 ? o->memory_bytes : nw_room_memory();
}

/* The recipe against the model, and the room that the result takes. */
static void check_fit(nw_quantize_driver *d, nw_preflight *p, nw_error *err)
{
    const nw_quantize_options *o = d->options;

    if (!nw_preflight_check(
            p, nw_recipe_resolve(d->recipe, d->ckpt, &d->choices, &d->n, o->mistakes, err), err)) {
        return;
    }
    (void)nw_preflight_check(p,
                             nw_input_cache_open(&d->inputs, d->recipe, d->choices, d->n,
                                                 nw_checkpoint_config(d->ckpt), err),
                             err);
    (void)nw_preflight_check(
        p, nw_kv_plan_make(d->recipe, nw_checkpoint_config(d->ckpt), &d->kv, err), err);
    if (o->no_fallback) {
        (void)nw_preflight_check(p, nw_preflight_no_fallback(d->choices, d->n, err), err);
    }
    const nw_quantize_need need = nw_preflight_need(d->choices, d->n, nw_pool_threads(d->pool));
    const uint64_t disk = o->disk_bytes > 0 ? o->disk_bytes : nw_room_disk(o->out);
    (void)nw_preflight_check(
        p, nw_preflight_disk(o->out, need.disk, nw_folder_left_bytes(o->out), disk, err), err);
    (void)nw_preflight_check(p, nw_preflight_memory(need.memory, memory_left(o), err), err);
}

/* Stamped before anything is taken out of it. */
static nw_status open_source(nw_quantize_driver *d, nw_error *err)
{
    const nw_quantize_options *o = d->options;
    const nw_status st = nw_source_open(o->source, o->out, &d->ckpt, err);

    return st == NW_OK ? nw_checkpoint_stamp(d->ckpt, &d->stamp, err) : st;
}

/* Everything that can be wrong without reading weights is found here, and told together. */
static nw_status check_all(nw_quantize_driver *d, nw_error *err)
{
    const nw_quantize_options *o = d->options;
    nw_preflight p;

    nw_preflight_init(&p);
    const bool recipe = nw_preflight_check(&p, open_recipe(d, err), err);
    const bool source = nw_preflight_check(&p, open_source(d, err), err);
    if (o->on_resolved == NULL) {
        (void)nw_preflight_check(&p, nw_folder_check(o->out, o->replace, err), err);
    }
    if (source) {
        (void)nw_preflight_check(&p, check_tokenizer(d, err), err);
    }
    if (source && recipe &&
        nw_preflight_check(&p, nw_transform_open(d->recipe, d->ckpt, &d->transform, err), err)) {
        check_fit(d, &p, err);
    }
    return nw_preflight_end(&p, o->mistakes, err);
}

static nw_status open_all(nw_quantize_driver *d, nw_error *err)
{
    const nw_quantize_options *o = d->options;
    nw_status st = nw_pool_open(o->n_threads, &d->pool, err);

    st = st == NW_OK ? check_all(d, err) : st;
    st = st == NW_OK ? order_choices(d, err) : st;
    if (st == NW_OK && d->kv.format[0] == '\0') {
        nw_kv_warn_left_out(d->ckpt, o->source);
    }
    if (st == NW_OK && o->on_resolved != NULL &&
        !o->on_resolved(o->on_resolved_ctx, d->choices, d->n)) {
        st = nw_fail(err, NW_E_CANCELLED, "nothing was written");
    }
    for (size_t i = 0; st == NW_OK && i < d->n; i++) {
        d->n_params += (uint64_t)d->choices[i].tensor->n_rows * d->choices[i].tensor->n_cols;
    }
    return st;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* The rules of all layouts in use, each once. */
static char *rule_text(const nw_quantize_driver *d)
{
    nw_buf b;

    nw_buf_init(&b, 4096);
    (void)nw_buf_puts(&b, "");
    for (size_t i = 0; i < d->n; i++) {
        const nw_recipe_choice *ch = &d->choices[i];
        const nw_scale_rule rule = nw_recipe_scales(d->recipe).rule;
        const char *text = ch->block != NW_FMT_F32 && nw_block_encodes(ch->method)
                               ? nw_block_text(ch->method, rule)
                               : nw_method_text(ch->method, ch->type, rule);
        if (ch->targeted && text[0] != '\0' && (b.len == 0 || strstr(b.data, text) == NULL)) {
            (void)nw_buf_printf(&b, "%s%s", b.len > 0 ? "; " : "", text);
        }
    }
    if (b.len > 0 && nw_recipe_scales(d->recipe).bf16) {
        (void)nw_buf_puts(&b, "; INT4 and INT8 scales are BF16 values");
    }
    if (b.failed) {
        nw_buf_release(&b);
        return NULL;
    }
    char *out = b.len > 0 ? nw_buf_take(&b) : strdup("");
    nw_buf_release(&b);
    return out;
}

static bool fill_tensors(const nw_quantize_driver *d, nw_manifest *m)
{
    m->tensors = calloc(d->n + 1, sizeof *m->tensors);
    if (m->tensors == NULL) {
        return false;
    }
    m->n_tensors = d->n;
    for (size_t i = 0; i < d->n; i++) {
        const nw_recipe_choice *ch = &d->choices[i];
        m->tensors[i] =
            (nw_manifest_tensor){.name = strdup(ch->tensor->name),
                                 .role = ch->tensor->role,
                                 .layer = ch->tensor->layer,
                                 .targeted = ch->targeted,
                                 .is_vector = ch->is_vector,
                                 .type = ch->type,
                                 .n_bytes = ch->packed != NULL ? ch->packed->n_bytes : 0,
                                 .n_rows = ch->tensor->n_rows,
                                 .n_cols = ch->tensor->n_cols};
        if (m->tensors[i].name == NULL) {
            return false;
        }
    }
    return true;
}

/* Statistics and, as it grows, the report of the matrices: kept where the recipe is, which the
 * writer seals when all is written. */
static void note_methods(nw_quantize_driver *d, json_t *recipe)
{
    if (d->inputs.stats != NULL) {
        const json_t *m = nw_stats_manifest(d->inputs.stats);
        (void)json_object_set_new(
            recipe, "calibration",
            json_pack("{s:s, s:O, s:O, s:O}", "hash", nw_stats_hash(d->inputs.stats), "data",
                      json_object_get(m, "data"), "n_samples", json_object_get(m, "n_samples"),
                      "n_tokens", json_object_get(m, "n_tokens")));
    }
    if (d->kv.n_layers > 0) {
        (void)json_object_set_new(recipe, "kv_calibration",
                                  json_pack("{s:s}", "hash", d->kv.stats.hex));
    }
    if (json_array_size(d->channel_scales) > 0) {
        (void)json_object_set(recipe, "channel_scales", d->channel_scales);
    }
    if (d->plan.inputs != NULL) {
        (void)json_object_set_new(recipe, "n_wide_columns",
                                  json_integer((json_int_t)d->plan.n_wide));
    }
    (void)json_object_set(recipe, "matrices", d->report);
}

/* What stands in place of what the recipe says, where --no-fallback would have refused: a list only
 * where there is something. */
static void note_substituted(const nw_quantize_driver *d, json_t *recipe)
{
    json_t *list = json_array();
    char type[32];

    for (size_t i = 0; i < d->n; i++) {
        const nw_recipe_choice *ch = &d->choices[i];
        if (ch->widened) {
            (void)json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", ch->tensor->name,
                                                        "asked", "bf16-12", "used", "bf16"));
        } else if (ch->asked_block != ch->block) {
            (void)json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", ch->tensor->name,
                                                        "asked", nw_block_name(ch->asked_block),
                                                        "used", nw_block_name(ch->block)));
        } else if (ch->asked != ch->method) {
            (void)json_array_append_new(
                list, json_pack("{s:s, s:s, s:s}", "name", ch->tensor->name, "asked",
                                nw_method_name(ch->asked), "used",
                                nw_method_text(ch->method, ch->type,
                                               nw_recipe_scales(d->recipe).rule)[0] != '\0'
                                    ? nw_method_name(ch->method)
                                    : nw_panel_name(ch->type, type)));
        }
    }
    if (json_array_size(list) > 0) {
        (void)json_object_set(recipe, "substituted", list);
    }
    json_decref(list);
}

static nw_status fill_manifest(nw_quantize_driver *d, nw_manifest *m, nw_error *err)
{
    nw_status st = nw_source_note(d->ckpt, &m->note, err);

    if (st != NW_OK) {
        return st;
    }
    m->version = NW_MANIFEST_VERSION;
    m->tool_version = strdup("narrow " NW_VERSION);
    m->source_name = strdup(base_name(d->options->source));
    m->recipe_name = strdup(nw_recipe_name(d->recipe));
    m->scale_rule = rule_text(d);
    m->act = nw_recipe_act(d->recipe);
    memcpy(m->kv, d->kv.format, sizeof m->kv);
    m->hadamard_down = (nw_recipe_transforms(d->recipe) & NW_TRANSFORM_ROTATE_DOWN) != 0;
    m->recipe = nw_recipe_json(d->recipe, d->choices, d->n);
    note_methods(d, m->recipe);
    note_substituted(d, m->recipe);
    if (m->tool_version == NULL || m->source_name == NULL || m->recipe_name == NULL ||
        m->scale_rule == NULL || m->recipe == NULL || !fill_tensors(d, m)) {
        return nw_fail(err, NW_E_NOMEM, "no memory for a manifest of %zu tensors", d->n);
    }
    return NW_OK;
}

/* From here on weights and statistics are those of the transformed model. */
static nw_status search_transform(nw_quantize_driver *d, nw_error *err)
{
    d->inputs.transform = d->transform;
    d->channel_scales = json_array();
    nw_status st = d->transform == NULL
                       ? NW_OK
                       : nw_transform_search(d->recipe, d->ckpt, d->choices, d->n, d->inputs.stats,
                                             d->pool, d->transform, d->channel_scales, err);
    if (st == NW_OK) {
        st = nw_input_plan_make(d->recipe, d->ckpt, d->choices, d->n, d->inputs.stats, d->transform,
                                &d->plan, err);
        d->inputs.plan = &d->plan;
    }
    return st;
}

/* What is kept wide of the inputs stands in a file of its own. */
static nw_status write_inputs(nw_quantize_driver *d, nw_error *err)
{
    nw_digest hash = {0};
    uint64_t n_bytes = 0;
    nw_status st = NW_OK;

    if (d->plan.inputs != NULL || d->kv.n_layers > 0) {
        st = nw_input_plan_write(&d->plan, &d->kv, d->ckpt, nw_artifact_writer_dir(d->writer),
                                 &hash, &n_bytes, err);
        if (st == NW_OK) {
            nw_artifact_writer_inputs(d->writer, &hash, n_bytes);
        }
    }
    return st;
}

/* A packed tensor is bit-exact on the disk either way: only what it is in memory differs. */
static nw_status plan_lossless(nw_quantize_driver *d, nw_recipe_choice *ch, nw_error *err)
{
    const bool packed = ch->type.packed;
    nw_status st = nw_lossless_plan(d->ckpt, ch->tensor, d->pool, &ch->type, err);

    ch->widened = !packed && ch->type.kind == NW_PANEL_BF16;
    if (st == NW_OK && packed) {
        st = nw_lossless_plan_packed(d->ckpt, ch->tensor, d->pool, ch->type, &ch->packed, err);
        ch->type.packed = true;
    }
    return st;
}

/* The layouts that depend on all values of a tensor. */
static nw_status plan_tensors(nw_quantize_driver *d, nw_error *err)
{
    const nw_scales scales = nw_recipe_scales(d->recipe);
    nw_status st = nw_tensor_scale_plan(d->ckpt, &scales, d->choices, d->n, d->pool, err);

    for (size_t i = 0; st == NW_OK && i < d->n; i++) {
        nw_recipe_choice *ch = &d->choices[i];
        if (ch->type.kind == NW_PANEL_BF16_12) {
            st = plan_lossless(d, ch, err);
        }
        if (st == NW_OK && ch->widened && d->options->no_fallback) {
            st = nw_fail(err, NW_E_RANGE,
                         "tensor '%s': its exponents are too many for bf16-12 (--no-fallback)",
                         ch->tensor->name);
        }
        if (st == NW_OK && nw_stop_requested()) {
            st = nw_fail(err, NW_E_CANCELLED, "stopped at tensor '%s'", ch->tensor->name);
        }
    }
    return st;
}

static void lay(void *source, nw_sha256 *h, const void *bytes, size_t n)
{
    nw_source_digest_lay(source, h, bytes, n);
}

static void collect(void *source)
{
    nw_source_digest_collect(source);
}

static nw_status open_writer(nw_quantize_driver *d, nw_error *err)
{
    const nw_artifact_target target = {.path = d->options->out,
                                       .replace = d->options->replace,
                                       .no_tokenizer = d->options->no_tokenizer,
                                       .source = d->ckpt,
                                       .source_is = d->stamp.hex};
    nw_manifest m = {0};
    nw_status st = fill_manifest(d, &m, err);

    if (st == NW_OK) {
        st = nw_artifact_writer_open(&target, &m, &d->writer, err);
    }
    if (st == NW_OK) {
        d->n_found = nw_artifact_writer_n_done(d->writer);
        st = nw_source_pages_open(d->ckpt, d->choices, d->n, memory_left(d->options), &d->pages,
                                  err);
    }
    if (st == NW_OK) {
        st = nw_source_digest_start(d->ckpt, d->pages, &d->source, err);
    }
    if (st == NW_OK) {
        nw_artifact_writer_hasher(
            d->writer, (nw_artifact_hasher){.lay = lay, .collect = collect, .ctx = d->source});
    }
    nw_manifest_release(&m);
    return st;
}

nw_status nw_quantize_open(nw_quantize_driver *d, nw_error *err)
{
    nw_status st = open_all(d, err);

    st = st == NW_OK ? search_transform(d, err) : st;
    st = st == NW_OK ? plan_tensors(d, err) : st;
    st = st == NW_OK ? open_writer(d, err) : st;
    return st == NW_OK ? write_inputs(d, err) : st;
}
