/* The table of export formats, and the driver that makes a folder of one: see export.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact.h"
#include "artifact/export_parts.h"
#include "artifact/folder.h"
#include "artifact/gguf_write.h"
#include "artifact/hf_files.h"
#include "artifact/native_write.h"
#include "artifact/source_note.h"
#include "base/file.h"

static const nw_export_format formats[] = {
    {.name = "gguf", .write = nw_gguf_export, .help = "model.gguf, as llama.cpp loads it"},
    {.name = "compressed-tensors",
     .write = nw_ct_export,
     .help = "safetensors as vLLM and transformers load them",
     .bf16_scales = true,
     .kv_scales = true,
     .activations = true},
    {.name = "fp8-block",
     .write = nw_fp8_block_export,
     .help = "compressed-tensors, wide matrices rounded to E4M3 in blocks of 128 x 128",
     .kv_scales = true,
     .activations = true},
    {.name = "awq", .write = nw_awq_export, .help = "AutoAWQ's layout: INT4 with zero points"},
    {.name = "gptq", .write = nw_gptq_export, .help = "GPTQ v1: INT4 and INT8, symmetric"},
    {.name = "hf",
     .write = nw_hf_export,
     .help = "safetensors of the decoded values, as transformers loads them",
     .drops_fixed = true},
    {.name = "native",
     .write = nw_native_export,
     .help = "an artifact that narrow maps, codes as in the source",
     .activations = true},
};

const nw_export_format *nw_export_format_at(size_t i)
{
    return i < NW_COUNT(formats) ? &formats[i] : NULL;
}

nw_status nw_export_format_find(const char *name, const char *own, const nw_export_format **out,
                                nw_error *err)
{
    char known[256] = "";
    size_t n = 0;

    for (size_t i = 0; i < NW_COUNT(formats); i++) {
        if (strcmp(formats[i].name, own) == 0) {
            continue;
        }
        if (strcmp(formats[i].name, name) == 0) {
            *out = &formats[i];
            return NW_OK;
        }
        n += (size_t)snprintf(known + n, sizeof known - n, ", %s", formats[i].name);
        n = n < sizeof known ? n : sizeof known - 1;
    }
    return nw_fail(err, NW_E_USAGE, "unknown format '%s'; known are %s%s", name, own, known);
}

/* ---- decoded values ---- */
nw_status nw_hf_export(const nw_export_job *job, nw_error *err)
{
    const nw_format_id dtype = job->has_dtype ? job->dtype : NW_FMT_BF16;
    nw_export_parts parts = {0};
    nw_status st = NW_OK;

    for (size_t i = 0; st == NW_OK && i < nw_export_n_tensors(job->source); i++) {
        st = nw_export_part_dense(&parts, nw_export_at(job->source, i), dtype, NULL, err);
    }
    if (st == NW_OK) {
        st = nw_export_parts_write(job, &parts, nw_export_torch_dtype(dtype), NULL, err);
    }
    nw_export_parts_release(&parts);
    return st;
}

/* ---- small files ---- */
nw_status nw_export_hf_files(const nw_export_job *job, nw_error *err)
{
    const nw_checkpoint *ckpt = nw_export_checkpoint(job->source);
    bool has_generation = false;
    bool has_tokenizer = false;

    if (ckpt != NULL) {
        return nw_hf_files_write(ckpt, job->dir, "bfloat16", !job->no_tokenizer, err);
    }
    return nw_hf_files_copy(nw_export_path(job->source), job->dir, !job->no_tokenizer,
                            &has_generation, &has_tokenizer, err);
}

/* ---- driver ---- */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* narrow.json: what later stages must know about these weights. No time and no path stand in it. */
static nw_status write_narrow_json(const nw_export_options *o, const nw_export_source *s,
                                   const char *dir, const nw_export_report *r, nw_error *err)
{
    const nw_checkpoint *ckpt = nw_export_checkpoint(s);
    const nw_manifest *m = nw_export_manifest(s);
    nw_digest digest = {{0}};
    nw_status st = NW_OK;

    if (ckpt != NULL) {
        st = nw_checkpoint_digest(ckpt, &digest, err);
    }
    if (st != NW_OK) {
        return st;
    }
    json_t *source =
        json_pack("{s:s, s:s, s:s}", "name", m != NULL ? m->source_name : base_name(o->source),
                  "kind", m != NULL ? "native" : nw_ckpt_kind_name(nw_checkpoint_kind(ckpt)),
                  "sha256", m != NULL ? m->hash.hex : digest.hex);
    json_t *doc =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o}", "format", "narrow-exported", "tool",
                  "narrow " NW_VERSION, "written_as", o->format->name, "note", r->note, "recipe",
                  nw_export_recipe(s), "source", source, "loss", nw_loss_json(&r->loss));
    return nw_hf_json_write(dir, "narrow.json", doc, err);
}

/* Matrices whose input has a fixed scale. */
static size_t n_fixed(const nw_export_source *s)
{
    size_t n = 0;

    for (size_t i = 0; i < nw_export_n_tensors(s); i++) {
        n += nw_export_fixed(s, nw_export_at(s, i)) != NULL;
    }
    return n;
}

/* An artifact's fixed scales are part of what it computes; a format that has no place for them would be
 * another model. */
static nw_status check_inputs(const nw_export_options *o, const nw_export_source *s, nw_error *err)
{
    const bool has_place = o->format->activations || o->format->drops_fixed;

    if (!has_place && nw_export_checkpoint(s) == NULL && n_fixed(s) > 0) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "%s: it has fixed scales of activations, which %s does not say", o->source,
                       o->format->name);
    }
    return NW_OK;
}

/* What the source says beside its weights and the format has no place for. */
static nw_status note_dropped(const nw_export_options *o, const nw_export_source *s, nw_loss *loss,
                              nw_error *err)
{
    const nw_act_rule act = nw_export_act(s);
    char what[128];

    if (!o->format->activations && act != NW_ACT_RULE_A16) {
        nw_source_say_activations(act, n_fixed(s), what);
        if (nw_loss_drop(loss, what, err) != NW_OK) {
            return err->code;
        }
    }
    return nw_export_note_kv(s, o->format->kv_scales, loss, err);
}

static nw_status run(const nw_export_options *o, const nw_export_source *s, nw_folder *folder,
                     nw_export_report *r, nw_error *err)
{
    nw_pool *pool = NULL;
    nw_status st = nw_folder_open(folder, o->out, o->replace, err);

    if (st == NW_OK) {
        st = nw_pool_open(o->n_threads, &pool, err);
    }
    if (st == NW_OK) {
        const nw_export_job job = {.source = s,
                                   .dir = folder->tmp,
                                   .no_tokenizer = o->no_tokenizer,
                                   .no_fallback = o->no_fallback,
                                   .has_dtype = o->has_dtype,
                                   .dtype = o->dtype,
                                   .shard_bytes = o->shard_bytes,
                                   .pool = pool,
                                   .progress = o->show_progress ? o->format->name : NULL,
                                   .loss = &r->loss,
                                   .n_bytes = &r->n_bytes};
        st = note_dropped(o, s, &r->loss, err);
        st = st == NW_OK ? o->format->write(&job, err) : st;
    }
    nw_pool_close(pool);
    if (st == NW_OK) {
        r->note = strdup(nw_export_note(s));
        st = r->note != NULL ? write_narrow_json(o, s, folder->tmp, r, err)
                             : nw_fail(err, NW_E_NOMEM, "%s: no memory for a note", o->out);
    }
    return st == NW_OK ? nw_folder_commit(folder, err) : st;
}

nw_status nw_export(const nw_export_options *o, nw_export_report *report, nw_error *err)
{
    nw_export_source *s = NULL;
    nw_folder folder = {0};
    nw_export_report r = {0};
    nw_status st = NW_OK;

    if (nw_folder_holds(o->out, o->source)) {
        return nw_fail(err, NW_E_USAGE, "%s: the result would take the place of its source",
                       o->out);
    }
    st = nw_export_source_open(o->source, &s, err);
    if (st == NW_OK) {
        st = check_inputs(o, s, err);
    }
    if (st == NW_OK) {
        st = run(o, s, &folder, &r, err);
    }
    nw_folder_close(&folder);
    nw_export_source_close(s);
    if (st == NW_OK) {
        *report = r;
    } else {
        nw_export_report_release(&r);
    }
    return st;
}

void nw_export_report_release(nw_export_report *r)
{
    free(r->note);
    nw_loss_release(&r->loss);
    *r = (nw_export_report){0};
}
