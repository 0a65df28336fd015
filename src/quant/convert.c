/* The convert driver: see convert.h. With --off-grid the rescaled model is first written in F32 into
 * a scratch folder beside the result, held to the source's logits, and removed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/convert.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/folder.h"
#include "artifact/hf_files.h"
#include "artifact/source_note.h"
#include "base/log.h"
#include "base/pool.h"
#include "quant/hf_writer.h"
#include "quant/kv_plan.h"
#include "quant/logits_probe.h"
#include "quant/offgrid.h"

typedef struct {
    const nw_convert_options *options;
    nw_checkpoint *ckpt;
    nw_transform *factors;
    nw_pool *pool;
    nw_folder out, scratch;
    nw_digest source;
    nw_convert_report report;
} driver;

static const char *torch_dtype(nw_format_id dtype)
{
    return dtype == NW_FMT_F32 ? "float32" : "bfloat16";
}

/* Gathers the loss report. The first worst tensor stays named on a tie. */
static void on_tensor(void *ctx, const nw_ckpt_tensor *t, const nw_tensor_error *e)
{
    nw_convert_report *r = ctx;
    const double sqnr = nw_tensor_error_sqnr_db(e);

    r->n_tensors++;
    r->n_params += e->n;
    if (isinf(sqnr)) {
        r->n_exact++;
        return;
    }
    r->max_abs_err = fmax(r->max_abs_err, e->max_abs_err);
    if (r->worst_name == NULL || sqnr < r->worst_sqnr_db) {
        free(r->worst_name);
        r->worst_name = strdup(t->name);
        r->worst_sqnr_db = sqnr;
    }
}

/* A whole model folder: config, tokenizer, weights. */
static nw_status write_model(driver *d, const char *dir, nw_format_id dtype, bool scratch,
                             nw_error *err)
{
    const nw_convert_options *o = d->options;
    const nw_hf_job job = {.ckpt = d->ckpt,
                           .dtype = dtype,
                           .dir = dir,
                           .shard_bytes =
                               o->shard_bytes > 0 ? o->shard_bytes : NW_CONVERT_SHARD_BYTES,
                           .pool = d->pool,
                           .progress = !o->show_progress ? NULL
                                       : scratch         ? "convert (f32, to check)"
                                                         : "convert"};
    size_t n_shards = 0;
    nw_status st =
        nw_hf_files_write(d->ckpt, dir, torch_dtype(dtype), !scratch && !o->no_tokenizer, err);

    if (st == NW_OK) {
        st = nw_hf_write(&job, scratch ? NULL : on_tensor, scratch ? NULL : &d->report, &n_shards,
                         err);
    }
    if (st == NW_OK && !scratch) {
        d->report.n_shards = n_shards;
        d->report.n_bytes = d->report.n_params * nw_format_get(dtype)->block_bytes;
    }
    return st;
}

static nw_status write_scratch(driver *d, nw_error *err)
{
    const size_t n = strlen(d->out.path) + sizeof "-f32";
    char *path = calloc(1, n);
    nw_status st = NW_OK;

    if (path == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a name", d->out.path);
    }
    (void)snprintf(path, n, "%s-f32", d->out.path);
    st = nw_folder_open(&d->scratch, path, false, err);
    if (st == NW_OK) {
        st = write_model(d, d->scratch.tmp, NW_FMT_F32, true, err);
    }
    free(path);
    return st;
}

/* Source against the rescaled F32 weights, which must agree, and against what was written. */
static nw_status check_logits(driver *d, nw_error *err)
{
    nw_convert_report *r = &d->report;
    nw_logits_probe *probe = NULL;
    double mean = 0;
    nw_status st = nw_logits_probe_open(d->options->source, !d->options->no_tokenizer,
                                        d->options->n_threads, &probe, err);

    if (st == NW_OK) {
        st = write_scratch(d, err);
    }
    if (st == NW_OK) {
        st = nw_logits_probe_compare(probe, d->scratch.tmp, &r->max_kl_f32, &mean, err);
    }
    nw_folder_close(&d->scratch);
    if (st == NW_OK && !(r->max_kl_f32 < NW_CONVERT_MAX_KL_F32)) {
        st =
            nw_fail(err, NW_E_RANGE,
                    "%s: rescaled weights in F32 are %.3g nats from the source, at most %g allowed",
                    d->options->source, r->max_kl_f32, NW_CONVERT_MAX_KL_F32);
    }
    if (st == NW_OK) {
        st = nw_logits_probe_compare(probe, d->out.tmp, &r->max_kl_out, &r->mean_kl_out, err);
    }
    if (st == NW_OK) {
        r->logits_checked = true;
        r->n_positions = nw_logits_probe_positions(probe);
    }
    nw_logits_probe_close(probe);
    return st;
}

json_t *nw_convert_report_json(const nw_convert_report *r)
{
    json_t *doc = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:s?}", "note",
                            r->note != NULL ? r->note : "", "n_tensors", (json_int_t)r->n_tensors,
                            "n_exact", (json_int_t)r->n_exact, "n_shards", (json_int_t)r->n_shards,
                            "n_params", (json_int_t)r->n_params, "n_bytes", (json_int_t)r->n_bytes,
                            "max_abs_err", r->max_abs_err, "worst_tensor", r->worst_name);

    if (json_array_size(r->dropped) > 0) {
        (void)json_object_set(doc, "dropped", r->dropped);
    }
    if (r->worst_name != NULL) {
        (void)json_object_set_new(doc, "worst_sqnr_db", json_real(r->worst_sqnr_db));
    }
    if (r->logits_checked) {
        (void)json_object_set_new(doc, "logits",
                                  json_pack("{s:f, s:f, s:f, s:I}", "max_kl_f32", r->max_kl_f32,
                                            "max_kl_written", r->max_kl_out, "mean_kl_written",
                                            r->mean_kl_out, "n_positions",
                                            (json_int_t)r->n_positions));
    }
    return doc;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* narrow.json: what later stages must know about these weights. No time and no path stand in it. */
static nw_status write_narrow_json(const driver *d, nw_error *err)
{
    const nw_convert_options *o = d->options;
    json_t *doc = json_pack(
        "{s:s, s:s, s:s, s:s, s:{s:s, s:s, s:s, s:o}, s:o}", "format", "narrow-converted", "tool",
        "narrow " NW_VERSION, "note", d->report.note, "dtype", nw_format_get(o->dtype)->name,
        "source", "name", base_name(o->source), "kind",
        nw_ckpt_kind_name(nw_checkpoint_kind(d->ckpt)), "sha256", d->source.hex, "formats",
        nw_source_formats(d->ckpt), "loss", nw_convert_report_json(&d->report));

    if (doc != NULL && o->off_grid) {
        (void)json_object_set_new(
            doc, "off_grid",
            json_pack("{s:I, s:[f,f]}", "seed", (json_int_t)o->seed, "factors", 0.8, 1.25));
    }
    return nw_hf_json_write(d->out.tmp, "narrow.json", doc, err);
}

/* The source's own note, or which published bits these weights were made from. */
static nw_status make_note(driver *d, nw_error *err)
{
    char *from = NULL;
    char text[128];
    nw_status st = nw_source_note(d->ckpt, &from, err);

    if (st != NW_OK) {
        return st;
    }
    if (nw_source_bits(d->ckpt) > 0) {
        (void)snprintf(text, sizeof text, "%s %s", nw_format_get(d->options->dtype)->name, from);
        free(from);
        from = strdup(text);
    }
    d->report.note = from;
    d->report.dropped = nw_source_dropped(d->ckpt);
    return from != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "no memory for a note");
}

static nw_status open_all(driver *d, nw_error *err)
{
    const nw_convert_options *o = d->options;
    nw_status st = nw_source_open(o->source, o->out, &d->ckpt, err);

    if (st == NW_OK) {
        st = make_note(d, err);
    }
    if (st == NW_OK) {
        nw_kv_warn_left_out(d->ckpt, o->source);
    }
    if (st == NW_OK && o->off_grid) {
        st = nw_offgrid_new(nw_checkpoint_config(d->ckpt), o->seed, &d->factors, err);
    }
    if (st == NW_OK && o->off_grid) {
        nw_checkpoint_set_edit(d->ckpt, (nw_ckpt_edit){nw_transform_edit, d->factors});
    }
    if (st == NW_OK) {
        st = nw_folder_open(&d->out, o->out, o->replace, err);
    }
    if (st == NW_OK) {
        st = nw_pool_open(o->n_threads, &d->pool, err);
    }
    return st == NW_OK ? nw_checkpoint_digest(d->ckpt, &d->source, err) : st;
}

nw_status nw_convert(const nw_convert_options *o, nw_convert_report *report, nw_error *err)
{
    driver d = {.options = o};
    nw_status st = open_all(&d, err);

    if (st == NW_OK) {
        st = write_model(&d, d.out.tmp, o->dtype, false, err);
    }
    if (st == NW_OK && o->off_grid && !o->no_check) {
        st = check_logits(&d, err);
    }
    if (st == NW_OK) {
        st = write_narrow_json(&d, err);
    }
    if (st == NW_OK) {
        st = nw_folder_commit(&d.out, err);
    }
    nw_folder_close(&d.scratch);
    nw_folder_close(&d.out);
    nw_pool_close(d.pool);
    nw_checkpoint_close(d.ckpt);
    nw_transform_free(d.factors);
    if (st == NW_OK) {
        *report = d.report;
    } else {
        nw_convert_report_release(&d.report);
    }
    return st;
}

void nw_convert_report_release(nw_convert_report *r)
{
    free(r->note);
    free(r->worst_name);
    json_decref(r->dropped);
    *r = (nw_convert_report){0};
}
