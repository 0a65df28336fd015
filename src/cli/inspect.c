/* Collects the facts of `narrow inspect`: see inspect.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact.h"
#include "artifact/inputs.h"
#include "base/file.h"
#include "model/hf_quant.h"
#include "model/safetensors.h"
#include "model/tokenizer.h"

double nw_inspect_bits(uint64_t n_bytes, uint64_t n_params)
{
    return n_params > 0 ? 8.0 * (double)n_bytes / (double)n_params : 0;
}

void nw_inspection_release(nw_inspection *m)
{
    for (size_t i = 0; i < m->n_tensors; i++) {
        free(m->tensors[i].name);
        free(m->tensors[i].source);
    }
    free(m->tensors);
    free(m->formats);
    *m = (nw_inspection){0};
}

static nw_status no_memory(const nw_inspection *m, nw_error *err)
{
    return nw_fail(err, NW_E_NOMEM, "%s: no memory for the list of its tensors", m->path);
}

/* Room for n tensors and as many formats. */
static bool reserve(nw_inspection *m, size_t n)
{
    m->tensors = calloc(n + 1, sizeof *m->tensors);
    m->formats = calloc(n + 1, sizeof *m->formats);
    return m->tensors != NULL && m->formats != NULL;
}

/* Adds the tensor at the end, whose fields are set, to the sums; false without its name. */
static bool count(nw_inspection *m)
{
    const nw_inspect_tensor *t = &m->tensors[m->n_tensors++];
    const uint64_t n_params = (uint64_t)t->n_rows * t->n_cols;
    size_t i = 0;

    while (i < m->n_formats && strcmp(m->formats[i].format, t->format) != 0) {
        i++;
    }
    m->n_formats += i == m->n_formats ? 1 : 0;
    m->formats[i].format = t->format;
    m->formats[i].n_tensors++;
    m->formats[i].n_params += n_params;
    m->formats[i].n_bytes += t->n_bytes;
    m->n_params += n_params;
    m->n_bytes += t->n_bytes;
    return t->name != NULL;
}

static nw_status file_size(const char *path, uint64_t *sum, nw_error *err)
{
    nw_file f = {0};
    const nw_status st = nw_file_map(path, &f, err);

    if (st == NW_OK) {
        *sum += f.size;
        nw_file_unmap(&f);
    }
    return st;
}

static nw_status collect_tensors(const nw_checkpoint *c, nw_inspection *m, nw_error *err)
{
    if (!reserve(m, nw_checkpoint_n_tensors(c))) {
        return no_memory(m, err);
    }
    for (size_t i = 0; i < nw_checkpoint_n_tensors(c); i++) {
        const nw_ckpt_tensor *t = nw_checkpoint_at(c, i);
        nw_inspect_tensor *to = &m->tensors[i];
        *to = (nw_inspect_tensor){.name = strdup(t->name),
                                  .role = t->role,
                                  .layer = t->layer,
                                  .n_rows = t->n_rows,
                                  .n_cols = t->n_cols,
                                  .n_bytes = t->n_bytes};
        to->source = strcmp(t->source, t->name) != 0 ? strdup(t->source) : NULL;
        (void)nw_ckpt_format_name(t, to->format);
        if (!count(m)) {
            return no_memory(m, err);
        }
    }
    return NW_OK;
}

/* "fp8, one scale a kv head"; n: scales of a layer. */
static void say_kv(nw_inspection *m, const char *format, uint32_t n)
{
    (void)snprintf(m->kv, sizeof m->kv, "%.40s%s", format,
                   n > 1    ? ", one scale a kv head"
                   : n == 1 ? ", one scale a layer"
                            : "");
}

static void say_act(nw_inspection *m, nw_act_rule act, size_t n_fixed)
{
    if (act != NW_ACT_RULE_A16 && n_fixed > 0) {
        (void)snprintf(m->act, sizeof m->act, "%s, fixed scales of %zu matrices",
                       nw_act_rule_name(act), n_fixed);
    } else if (act != NW_ACT_RULE_A16) {
        (void)snprintf(m->act, sizeof m->act, "%s", nw_act_rule_name(act));
    }
}

/* What the file says of inputs, keys and values. */
static void collect_rules(const nw_checkpoint *c, nw_inspection *m)
{
    const uint32_t n = nw_checkpoint_n_kv_scales(c);
    size_t n_fixed = 0;

    for (size_t i = 0; i < nw_checkpoint_n_tensors(c); i++) {
        const nw_hfq_matrix *q = nw_checkpoint_at(c, i)->quant;
        n_fixed += q != NULL && q->act.scale > 0;
    }
    say_act(m, nw_checkpoint_act(c), n_fixed);
    if (nw_checkpoint_kv_scheme(c)) {
        say_kv(m, n > 0 ? "fp8" : "fp8, uncalibrated", n);
    }
}

static nw_status inspect_checkpoint(const char *path, nw_inspection *m, nw_error *err)
{
    nw_checkpoint *c = NULL;
    nw_status st = nw_checkpoint_open(path, &c, err);

    if (st != NW_OK) {
        return st;
    }
    m->kind = nw_ckpt_kind_name(nw_checkpoint_kind(c));
    m->config = *nw_checkpoint_config(c);
    m->n_ignored = nw_checkpoint_n_ignored(c);
    m->n_files = nw_checkpoint_n_files(c);
    st = collect_tensors(c, m, err);
    collect_rules(c, m);
    for (uint32_t i = 0; i < m->n_files && st == NW_OK; i++) {
        st = file_size(nw_checkpoint_file(c, i), &m->file_bytes, err);
    }
    if (st == NW_OK) {
        st = nw_checkpoint_digest(c, &m->hash, err);
    }
    nw_checkpoint_close(c);
    return st;
}

static nw_status collect_manifest(const nw_manifest *from, nw_inspection *m, nw_error *err)
{
    if (!reserve(m, from->n_tensors)) {
        return no_memory(m, err);
    }
    for (size_t i = 0; i < from->n_tensors; i++) {
        const nw_manifest_tensor *t = &from->tensors[i];
        nw_inspect_tensor *to = &m->tensors[i];
        *to = (nw_inspect_tensor){.name = strdup(t->name),
                                  .role = t->role,
                                  .layer = t->layer,
                                  .n_rows = t->n_rows,
                                  .n_cols = t->n_cols,
                                  .n_bytes = t->n_bytes};
        if (t->is_vector) {
            (void)snprintf(to->format, sizeof to->format, "f32 vector");
        } else {
            (void)nw_panel_name(t->type, to->format);
        }
        if (!count(m)) {
            return no_memory(m, err);
        }
    }
    m->hash = from->hash;
    say_act(m, from->act, 0);
    say_kv(m, from->kv, 0);
    (void)snprintf(m->recipe, sizeof m->recipe, "%s", from->recipe_name);
    (void)snprintf(m->note, sizeof m->note, "%s", from->note);
    return NW_OK;
}

/* What is fixed of inputs, keys and values: names and shapes in inputs.safetensors (artifact/inputs.h). */
static nw_status collect_inputs(const char *path, const nw_manifest *from, nw_inspection *m,
                                nw_error *err)
{
    nw_safetensors *file = NULL;
    size_t n_fixed = 0;
    char name[64];

    if (nw_st_open(path, &file, err) != NW_OK) {
        return err->code;
    }
    for (size_t i = 0; i < m->n_tensors; i++) {
        nw_role reader = NW_ROLE_EMBED;
        if (nw_input_reader(m->tensors[i].role, &reader)) {
            (void)snprintf(name, sizeof name, "layers.%d.%s.scale", (int)m->tensors[i].layer,
                           nw_role_name(reader));
            n_fixed += nw_st_find(file, name) != NULL;
        }
    }
    const nw_st_tensor *kv = nw_st_find(file, "layers.0.k.scale");
    say_act(m, from->act, n_fixed);
    say_kv(m, from->kv, kv != NULL ? (uint32_t)kv->n_elems : 0);
    nw_st_close(file);
    return NW_OK;
}

/* The folder's manifest and config; its weights are not read. */
static nw_status inspect_artifact(const char *path, nw_inspection *m, nw_error *err)
{
    nw_manifest manifest = {0};
    char *json = nw_path_join(path, "manifest.json");
    char *weights = nw_path_join(path, "model.safetensors");
    char *inputs = nw_path_join(path, NW_INPUTS_FILE);
    nw_status st = json != NULL && weights != NULL && inputs != NULL ? NW_OK : no_memory(m, err);

    m->kind = "artifact";
    m->n_files = 1;
    if (st == NW_OK) {
        st = nw_manifest_load(json, &manifest, err);
    }
    if (st == NW_OK) {
        st = collect_manifest(&manifest, m, err);
    }
    if (st == NW_OK && manifest.inputs.hex[0] != '\0') {
        st = collect_inputs(inputs, &manifest, m, err);
    }
    if (st == NW_OK) {
        st = nw_config_load(path, &m->config, err);
    }
    if (st == NW_OK) {
        st = file_size(weights, &m->file_bytes, err);
    }
    nw_manifest_release(&manifest);
    free(json);
    free(weights);
    free(inputs);
    return st;
}

/* A model without a tokenizer is worth looking at too. */
static void inspect_tokenizer(nw_inspection *m)
{
    nw_tokenizer *tok = NULL;
    nw_error err = {0};

    if (nw_tokenizer_open(m->path, &tok, &err) != NW_OK) {
        (void)snprintf(m->tokenizer_why, sizeof m->tokenizer_why, "%s", err.message);
        return;
    }
    (void)snprintf(m->tokenizer, sizeof m->tokenizer, "%s", nw_tokenizer_kind(tok));
    m->n_tokens = nw_tokenizer_size(tok);
    m->has_template = nw_tokenizer_chat_template(tok) != NULL;
    nw_tokenizer_close(tok);
}

nw_status nw_inspect(const char *path, nw_inspection *out, nw_error *err)
{
    nw_inspection m = {.path = path};
    const nw_status st = nw_artifact_is_native(path) ? inspect_artifact(path, &m, err)
                                                     : inspect_checkpoint(path, &m, err);

    if (st != NW_OK) {
        nw_inspection_release(&m);
        return st;
    }
    inspect_tokenizer(&m);
    *out = m;
    return NW_OK;
}
