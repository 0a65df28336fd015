/* The uniform view: sources are opened by kind, their tensors matched to roles, and everything an
 * engine relies on is checked before the caller sees any of it. See checkpoint.h.
 *
 *   file or folder -> source (gguf | safetensors + config | llama2.c) -> role slots -> checks -> list
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/checkpoint.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "model/arch.h"
#include "model/checkpoint_parts.h"

#define NAMES_SHOWN 5
#define SHOW        96

const char *nw_ckpt_kind_name(nw_ckpt_kind kind)
{
    static const char *const names[] = {"gguf", "hf", "llama2.c"};
    return names[kind];
}

static nw_naming naming(const nw_checkpoint *c)
{
    return c->kind == NW_CKPT_GGUF ? NW_NAMING_GGUF : NW_NAMING_HF;
}

static bool starts_with(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

static bool ends_with(const char *s, const char *suffix)
{
    const size_t n = strlen(s);
    const size_t k = strlen(suffix);
    return n >= k && strcmp(s + n - k, suffix) == 0;
}

const char *nw_ckpt_plain_name(const nw_checkpoint *c, const char *name,
                               char buf[NW_CKPT_NAME_BYTES])
{
    static const char *const wraps[][2] = {
        {"language_model.model.", "model."},
        {"model.language_model.", "model."},
        {"language_model.lm_head.", "lm_head."},
    };

    for (size_t i = 0; c->kind == NW_CKPT_HF && i < NW_COUNT(wraps); i++) {
        if (starts_with(name, wraps[i][0])) {
            (void)snprintf(buf, NW_CKPT_NAME_BYTES, "%s%s", wraps[i][1],
                           name + strlen(wraps[i][0]));
            return buf;
        }
    }
    return name;
}

/* Tensors that text generation does without: tables derived from the config, other modalities, scales
 * of four-bit activations. */
static bool may_ignore(const nw_checkpoint *c, const char *name)
{
    static const char *const prefixes[] = {"vision_tower.", "multi_modal_projector.",
                                           "model.vision_tower.", "model.multi_modal_projector."};
    bool known = strcmp(name, "rope_freqs.weight") == 0 ||
                 ends_with(name, ".rotary_emb.inv_freq") ||
                 (c->kind == NW_CKPT_GGUF && ends_with(name, ".input_scale"));

    for (size_t i = 0; i < NW_COUNT(prefixes); i++) {
        known = known || (c->kind == NW_CKPT_HF && starts_with(name, prefixes[i]));
    }
    return known;
}

/* A tensor of a layer past the last one (multi-token prediction heads are stored so). */
static bool beyond_layers(const nw_checkpoint *c, const char *name)
{
    const char *prefix = c->kind == NW_CKPT_GGUF ? "blk." : "model.layers.";

    return starts_with(name, prefix) && name[strlen(prefix)] >= '0' &&
           name[strlen(prefix)] <= '9' &&
           strtoul(name + strlen(prefix), NULL, 10) >= c->config.n_layers;
}

static nw_status wrong_shape(const nw_checkpoint *c, const nw_ckpt_source *s, uint32_t rows,
                             uint32_t cols, bool vector, nw_error *err)
{
    char shown[SHOW];
    char found[160] = "";
    char want[48];
    size_t n = 0;

    for (uint32_t d = 0; d < s->n_dims; d++) {
        n += (size_t)snprintf(found + n, sizeof found - n, "%s%" PRIu64, d > 0 ? ", " : "",
                              s->dims[d]);
        n = n < sizeof found ? n : sizeof found - 1;
    }
    if (vector) {
        (void)snprintf(want, sizeof want, "%" PRIu32, cols);
    } else {
        (void)snprintf(want, sizeof want, "%" PRIu32 ", %" PRIu32, rows, cols);
    }
    return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' has shape [%s], the config asks for [%s]",
                   nw_checkpoint_file(c, s->file),
                   nw_name_show(s->name, strlen(s->name), shown, sizeof shown), found, want);
}

/* What the file's conventions differ in from Hugging Face's, for this tensor. */
static void set_conventions(const nw_checkpoint *c, nw_ckpt_tensor *t)
{
    const nw_arch *a = nw_arch_get(c->config.arch);
    const bool pairs = c->kind == NW_CKPT_LLAMA2C || (c->kind == NW_CKPT_GGUF && a->gguf_pairs_qk);

    if (pairs && (t->role == NW_ROLE_Q || t->role == NW_ROLE_K)) {
        t->pair_half = c->config.d_head / 2;
    }
    if (c->kind == NW_CKPT_GGUF && nw_role_is_norm(t->role)) {
        t->offset = a->gguf_norm_offset;
    }
}

static nw_status fill_slot(nw_checkpoint *c, const nw_ckpt_source *s, nw_role role, int32_t layer,
                           nw_error *err)
{
    nw_ckpt_tensor *t = &c->slots[nw_ckpt_slot(role, layer)];
    const bool vector = nw_role_is_vector(role);
    uint32_t rows = 0;
    uint32_t cols = 0;

    nw_role_shape(&c->config, role, &rows, &cols);
    const bool fits = vector ? s->n_dims == 1 && s->dims[0] == cols
                             : s->n_dims == 2 && s->dims[0] == rows && s->dims[1] == cols;
    if (!fits) {
        return wrong_shape(c, s, rows, cols, vector, err);
    }
    *t = (nw_ckpt_tensor){.name = s->name,
                          .source = s->name,
                          .role = role,
                          .layer = layer,
                          .format = s->format,
                          .n_rows = rows,
                          .n_cols = cols,
                          .scale = 1,
                          .data = s->data,
                          .file = s->file};
    if (!nw_format_bytes(nw_format_get(s->format), cols, &t->row_bytes)) {
        char shown[SHOW];
        return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s': rows of %" PRIu32 " are no whole blocks",
                       nw_checkpoint_file(c, s->file),
                       nw_name_show(s->name, strlen(s->name), shown, sizeof shown), cols);
    }
    t->n_bytes = (uint64_t)t->row_bytes * rows;
    set_conventions(c, t);
    return NW_OK;
}

/* The tensor that "blk.0.attn_q.scale" belongs to, blk.0.attn_q.weight; NULL for another name. */
static nw_ckpt_tensor *scaled_tensor(const nw_checkpoint *c, const char *name)
{
    const int stem = (int)(strlen(name) - strlen("scale"));
    char weight[NW_CKPT_NAME_BYTES];
    nw_role role = NW_ROLE_EMBED;
    int32_t layer = -1;

    if (c->kind != NW_CKPT_GGUF || !ends_with(name, ".scale")) {
        return NULL;
    }
    (void)snprintf(weight, sizeof weight, "%.*sweight", stem, name);
    return nw_arch_match(nw_arch_get(c->config.arch), NW_NAMING_GGUF, weight, &role, &layer) &&
                   layer < (int32_t)c->config.n_layers
               ? &c->slots[nw_ckpt_slot(role, layer)]
               : NULL;
}

/* Once all tensors have their places. */
static nw_status apply_scales(nw_checkpoint *c, nw_error *err)
{
    for (size_t i = 0; i < nw_ckpt_n_sources(c); i++) {
        const nw_ckpt_source s = nw_ckpt_source_at(c, i);
        nw_ckpt_tensor *t = scaled_tensor(c, s.name);
        if (t == NULL || t->name == NULL) {
            continue;
        }
        if (s.format == NW_FMT_F32 && s.n_dims == 1 && s.dims[0] == 1) {
            nw_format_get(NW_FMT_F32)->decode(s.data, &t->scale, 1);
        }
        if (s.format != NW_FMT_F32 || s.n_dims != 1 || s.dims[0] != 1 || !isfinite(t->scale)) {
            return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' is not one finite F32 number",
                           nw_checkpoint_file(c, s.file), s.name);
        }
    }
    return NW_OK;
}

static nw_status place_plain(nw_checkpoint *c, const nw_ckpt_source *s, const char *name,
                             nw_error *err)
{
    char shown[SHOW];
    const nw_arch *a = nw_arch_get(c->config.arch);
    nw_role role = NW_ROLE_EMBED;
    int32_t layer = -1;
    const bool known = nw_arch_match(a, naming(c), name, &role, &layer);

    if (known && layer < (int32_t)c->config.n_layers && !(role == NW_ROLE_HEAD && c->config.tied)) {
        if (c->slots[nw_ckpt_slot(role, layer)].name != NULL) {
            return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' is there under two names",
                           nw_checkpoint_file(c, s->file), name);
        }
        return fill_slot(c, s, role, layer, err);
    }
    if (!known && scaled_tensor(c, name) != NULL) {
        return NW_OK;
    }
    if (!known && !may_ignore(c, name) && !beyond_layers(c, name)) {
        return nw_fail(err, NW_E_UNSUPPORTED, "%s: tensor '%s' has no place in architecture %s",
                       nw_checkpoint_file(c, s->file),
                       nw_name_show(s->name, strlen(s->name), shown, sizeof shown), a->gguf_name);
    }
    if (!may_ignore(c, name) && c->n_warned++ == 0) {
        c->first_unused = s->name;
    }
    c->n_ignored++;
    return NW_OK;
}

static nw_status place(nw_checkpoint *c, const nw_ckpt_source *s, nw_error *err)
{
    char buf[NW_CKPT_NAME_BYTES];
    const char *name = nw_ckpt_plain_name(c, s->name, buf);
    bool placed = false;
    const nw_status st = nw_ckpt_place_quant(c, s, name, &placed, err);

    return st != NW_OK || placed ? st : place_plain(c, s, name, err);
}

/* One line, however many there are. */
static void warn_unused(const nw_checkpoint *c)
{
    char shown[SHOW];

    if (c->n_warned > 0) {
        nw_log(NW_LOG_WARN,
               "%s: %zu tensor%s no part of the %" PRIu32 " layers (or of a tied head) and not "
               "used; the first: '%s'",
               c->path, c->n_warned, c->n_warned == 1 ? " is" : "s are", c->config.n_layers,
               nw_name_show(c->first_unused, strlen(c->first_unused), shown, sizeof shown));
    }
}

/* Is this role to be filled in every layer (or once)? */
static bool wanted(const nw_checkpoint *c, nw_role role)
{
    return nw_arch_tensor_name(nw_arch_get(c->config.arch), role, NW_NAMING_HF) != NULL &&
           !(role == NW_ROLE_HEAD && c->config.tied);
}

/* Counts what is missing and lists the first names, in the spelling of the file. */
static nw_status check_complete(const nw_checkpoint *c, nw_error *err)
{
    char text[NAMES_SHOWN * NW_CKPT_NAME_BYTES] = "";
    size_t used = 0;
    size_t n_missing = 0;

    for (size_t i = 0; i < c->n_slots; i++) {
        const bool global = i < NW_CKPT_GLOBAL_ROLES;
        const size_t in_layers = global ? 0 : i - NW_CKPT_GLOBAL_ROLES;
        const nw_role role =
            (nw_role)(global ? i : NW_CKPT_GLOBAL_ROLES + in_layers % NW_CKPT_LAYER_ROLES);
        const int32_t layer = global ? -1 : (int32_t)(in_layers / NW_CKPT_LAYER_ROLES);
        char name[NW_CKPT_NAME_BYTES];

        if (c->slots[i].name != NULL || !wanted(c, role) ||
            !nw_arch_full_name(nw_arch_get(c->config.arch), role, layer, naming(c), name,
                               sizeof name)) {
            continue;
        }
        if (n_missing++ < NAMES_SHOWN) {
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used > 0 ? ", " : "",
                                     name);
        }
    }
    if (n_missing == 0) {
        return NW_OK;
    }
    return nw_fail(err, NW_E_FORMAT, "%s: %zu tensor%s missing: %s%s", c->path, n_missing,
                   n_missing == 1 ? " is" : "s are", text, n_missing > NAMES_SHOWN ? ", ..." : "");
}

static void list_role(nw_checkpoint *c, nw_role role, int32_t layer)
{
    const nw_ckpt_tensor *t = &c->slots[nw_ckpt_slot(role, layer)];

    if (t->name != NULL) {
        c->list[c->n_list++] = t;
    }
}

static void make_list(nw_checkpoint *c)
{
    list_role(c, NW_ROLE_EMBED, -1);
    for (int32_t layer = 0; layer < (int32_t)c->config.n_layers; layer++) {
        for (int role = NW_ROLE_ATTN_NORM; role < NW_ROLE_COUNT; role++) {
            list_role(c, (nw_role)role, layer);
        }
    }
    list_role(c, NW_ROLE_OUT_NORM, -1);
    list_role(c, NW_ROLE_HEAD, -1);
}

/* HF names for tensors whose file calls them otherwise. */
static bool name_tensors(nw_checkpoint *c)
{
    const nw_arch *a = nw_arch_get(c->config.arch);
    size_t dup = 0;

    for (size_t i = 0; i < c->n_list; i++) {
        char name[NW_CKPT_NAME_BYTES];
        if (!nw_arch_full_name(a, c->list[i]->role, c->list[i]->layer, NW_NAMING_HF, name,
                               sizeof name) ||
            !nw_names_add(&c->names, name, strlen(name))) {
            return false;
        }
    }
    if (!nw_names_seal(&c->names, &dup)) {
        return false;
    }
    for (size_t i = 0; i < c->n_list; i++) {
        c->slots[c->list[i] - c->slots].name = nw_names_at(&c->names, i);
    }
    return true;
}

static nw_status build(nw_checkpoint *c, nw_error *err)
{
    nw_status st = NW_OK;

    c->n_slots =
        NW_CKPT_GLOBAL_ROLES + NW_CKPT_LAYER_ROLES * c->config.n_layers; /* n_layers was checked */
    c->slots = calloc(c->n_slots, sizeof *c->slots);
    c->list = calloc(c->n_slots, sizeof *c->list);
    if (c->slots == NULL || c->list == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu tensors", c->path, c->n_slots);
    }
    for (size_t i = 0; i < nw_ckpt_n_sources(c) && st == NW_OK; i++) {
        const nw_ckpt_source s = nw_ckpt_source_at(c, i);
        st = place(c, &s, err);
    }
    if (st == NW_OK) {
        st = check_complete(c, err);
    }
    if (st == NW_OK) {
        st = nw_ckpt_check_kv(c, err);
    }
    if (st == NW_OK) {
        st = nw_ckpt_check_quant(c, err);
    }
    if (st == NW_OK) {
        st = apply_scales(c, err);
    }
    if (st == NW_OK) {
        warn_unused(c);
        make_list(c);
        st = name_tensors(c) ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory for names", c->path);
    }
    return st;
}

/* A folder, or a file of one: the config lies beside the weights. */
static nw_status open_hf(nw_checkpoint *c, nw_error *err)
{
    const char *slash = strrchr(c->path, '/');
    const bool dir = nw_file_is_dir(c->path);
    char *folder = dir             ? strdup(c->path)
                   : slash == NULL ? strdup(".")
                                   : strndup(c->path, (size_t)(slash - c->path) + 1);

    if (folder == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a path", c->path);
    }
    c->kind = NW_CKPT_HF;
    nw_status st = nw_config_load(folder, &c->config, err);
    if (st == NW_OK) {
        st = nw_hfq_config_load(folder, &c->quant, err);
    }
    if (st == NW_OK) {
        st = nw_st_open(c->path, &c->st, err);
    }
    free(folder);
    return st;
}

static nw_status open_source(nw_checkpoint *c, nw_error *err)
{
    if (nw_file_is_dir(c->path) || ends_with(c->path, ".safetensors") ||
        ends_with(c->path, ".safetensors.index.json")) {
        return open_hf(c, err);
    }
    nw_status st = nw_file_map(c->path, &c->file, err);
    if (st != NW_OK) {
        return st;
    }
    if (c->file.size >= 4 && memcmp(c->file.data, "GGUF", 4) == 0) {
        nw_file_unmap(&c->file);
        c->kind = NW_CKPT_GGUF;
        st = nw_gguf_open(c->path, &c->gguf, err);
        return st == NW_OK ? nw_config_from_gguf(c->gguf, &c->config, err) : st;
    }
    c->kind = NW_CKPT_LLAMA2C;
    st = nw_llama2c_read(c->path, c->file.data, c->file.size, &c->llama2c, err);
    c->config = c->llama2c.config;
    return st;
}

nw_status nw_checkpoint_open(const char *path, nw_checkpoint **out, nw_error *err)
{
    nw_checkpoint *c = calloc(1, sizeof *c);

    if (c == NULL || (c->path = strdup(path)) == NULL) {
        free(c);
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a checkpoint", path);
    }
    nw_status st = open_source(c, err);
    if (st == NW_OK) {
        st = build(c, err);
    }
    if (st != NW_OK) {
        nw_checkpoint_close(c);
        return st;
    }
    *out = c;
    return NW_OK;
}

void nw_checkpoint_close(nw_checkpoint *c)
{
    if (c == NULL) {
        return;
    }
    nw_gguf_close(c->gguf);
    nw_st_close(c->st);
    nw_llama2c_release(&c->llama2c);
    nw_file_unmap(&c->file);
    nw_names_release(&c->names);
    free(c->matrices);
    free(c->kv);
    free(c->slots);
    free(c->list);
    free(c->path);
    free(c);
}

nw_ckpt_kind nw_checkpoint_kind(const nw_checkpoint *c)
{
    return c->kind;
}

const char *nw_checkpoint_path(const nw_checkpoint *c)
{
    return c->path;
}

const nw_gguf *nw_checkpoint_gguf(const nw_checkpoint *c)
{
    return c->gguf;
}

const nw_model_config *nw_checkpoint_config(const nw_checkpoint *c)
{
    return &c->config;
}

size_t nw_checkpoint_n_tensors(const nw_checkpoint *c)
{
    return c->n_list;
}

const nw_ckpt_tensor *nw_checkpoint_at(const nw_checkpoint *c, size_t i)
{
    assert(i < c->n_list);
    return c->list[i];
}

const nw_ckpt_tensor *nw_checkpoint_find(const nw_checkpoint *c, nw_role role, int32_t layer)
{
    const bool global = role < NW_ROLE_ATTN_NORM;

    if (!global && (layer < 0 || layer >= (int32_t)c->config.n_layers)) {
        return NULL;
    }
    const nw_ckpt_tensor *t = &c->slots[nw_ckpt_slot(role, layer)];
    return t->name != NULL ? t : NULL;
}

size_t nw_checkpoint_n_ignored(const nw_checkpoint *c)
{
    return c->n_ignored;
}
