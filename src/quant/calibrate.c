/* The walk over the layers: see calibrate.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/calibrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact.h"
#include "artifact/folder.h"
#include "base/file.h"
#include "base/progress.h"
#include "base/signal.h"
#include "engine/engine.h"
#include "model/config.h"
#include "quant/kv_stats.h"
#include "quant/stats_folder.h"

typedef struct {
    const nw_calibrate_options *o;
    nw_engine *engine;
    const nw_model_config *config;
    nw_digest model_hash;
    nw_samples samples;
    nw_pool *pool;
    nw_folder folder;
    char *hidden_path;
    FILE *hidden; /* residual stream of all samples, [n_tokens][d_model] F32 */
    float *x;     /* of one sample: [n_ctx][d_model] */
    nw_input_stats stats[NW_INPUT_COUNT];
    nw_kv_stats kv;
    nw_error tap_error; /* code NW_OK while all is well */
    json_t *manifest;
    nw_progress progress;
    uint64_t n_done;
} walk;

/* ---- the file of residuals ---- */

static nw_status move_sample(walk *w, size_t i, bool write, nw_error *err)
{
    const size_t d = w->config->d_model;
    const size_t n = w->samples.first[i + 1] - w->samples.first[i];
    const off_t at = (off_t)(w->samples.first[i] * d * sizeof(float));

    const bool ok = fseeko(w->hidden, at, SEEK_SET) == 0 &&
                    (write ? fwrite(w->x, d * sizeof(float), n, w->hidden)
                           : fread(w->x, d * sizeof(float), n, w->hidden)) == n;
    return ok ? NW_OK
              : nw_fail(err, NW_E_IO, "%s: cannot %s the residuals of sample %zu", w->hidden_path,
                        write ? "write" : "read", i);
}

static nw_status embed_samples(walk *w, nw_error *err)
{
    const nw_artifact *a = nw_engine_artifact(w->engine);
    const uint32_t d = w->config->d_model;
    nw_status st = NW_OK;

    for (size_t i = 0; st == NW_OK && i < w->samples.n; i++) {
        for (size_t t = w->samples.first[i]; t < w->samples.first[i + 1]; t++) {
            float *x = w->x + (t - w->samples.first[i]) * d;
            nw_artifact_embed_row(a, (uint32_t)w->samples.ids[t], x);
            for (uint32_t c = 0; c < d; c++) {
                x[c] *= w->config->embed_scale;
            }
        }
        st = move_sample(w, i, true, err);
    }
    return st;
}

/* ---- one layer ---- */

static void take_input(void *ctx, int role, uint32_t layer, const float *x, uint32_t n_tokens,
                       uint32_t n_cols)
{
    walk *w = ctx;
    nw_input input = NW_INPUT_COUNT;

    if (w->tap_error.code == NW_OK && (role == NW_ROLE_K || role == NW_ROLE_V)) {
        if (nw_kv_stats_add(&w->kv, layer, role == NW_ROLE_V, x, n_tokens, &w->tap_error) !=
            NW_OK) {
            (void)nw_context(&w->tap_error, "as they are kept");
        }
        return;
    }
    if (w->tap_error.code != NW_OK || !nw_input_of_role((nw_role)role, false, &input)) {
        return;
    }
    if (w->stats[input].n_cols != n_cols) {
        (void)nw_fail(&w->tap_error, NW_E_RANGE, "%s has %u channels, not %u", nw_input_name(input),
                      n_cols, w->stats[input].n_cols);
        return;
    }
    if (nw_input_stats_add(&w->stats[input], w->pool, x, n_tokens, &w->tap_error) != NW_OK) {
        (void)nw_context(&w->tap_error, "%s", nw_input_name(input));
    }
}

static nw_status run_sample(walk *w, uint32_t layer, size_t i, nw_error *err)
{
    const size_t first = w->samples.first[i];
    const uint32_t n = (uint32_t)(w->samples.first[i + 1] - first);
    nw_status st = move_sample(w, i, false, err);

    if (st == NW_OK) {
        st = nw_engine_layer(w->engine, layer, w->samples.ids + first, n, w->x, take_input, w, err);
    }
    if (st == NW_OK && w->tap_error.code != NW_OK) {
        *err = w->tap_error;
        st = nw_context(err, "layer %u, sample %zu", layer, i);
    }
    w->n_done += n;
    if (w->o->show_progress) {
        nw_progress_step(&w->progress, w->n_done);
    }
    if (st == NW_OK && nw_stop_requested()) {
        st = nw_fail(err, NW_E_CANCELLED, "stopped at layer %u; nothing was left behind", layer);
    }
    return st == NW_OK ? move_sample(w, i, true, err) : st;
}

static void release_stats(walk *w)
{
    for (int i = 0; i < NW_INPUT_COUNT; i++) {
        nw_input_stats_release(&w->stats[i]);
    }
}

/* Finishes and writes the inputs [from, to). */
static nw_status write_stats(walk *w, int32_t layer, int from, int to, nw_error *err)
{
    nw_stats_entry entries[NW_INPUT_COUNT];
    size_t n = 0;

    for (int i = from; i < to; i++) {
        nw_input_stats_finish(&w->stats[i]);
        entries[n++] = (nw_stats_entry){.input = (nw_input)i, .stats = &w->stats[i]};
    }
    return nw_stats_write(w->folder.tmp, layer, entries, n, w->manifest, err);
}

static nw_status run_layer(walk *w, uint32_t layer, nw_error *err)
{
    nw_status st = NW_OK;

    for (int i = 0; st == NW_OK && i < NW_INPUT_HEAD; i++) {
        st = nw_input_stats_init(&w->stats[i], nw_input_cols(w->config, (nw_input)i), err);
    }
    for (size_t i = 0; st == NW_OK && i < w->samples.n; i++) {
        st = run_sample(w, layer, i, err);
    }
    st = st == NW_OK ? write_stats(w, (int32_t)layer, 0, NW_INPUT_HEAD, err) : st;
    release_stats(w);
    return st;
}

/* ---- the head's input: the normed residual after the last layer ---- */

static void norm_row(float *x, const float *gain, uint32_t n, float eps)
{
    double sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    const float scale = (float)(1 / sqrt(sum / n + (double)eps));
    for (uint32_t i = 0; i < n; i++) {
        x[i] = x[i] * scale * gain[i];
    }
}

static nw_status run_head(walk *w, nw_error *err)
{
    const uint32_t d = w->config->d_model;
    const float *gain =
        nw_artifact_get_vector(nw_engine_artifact(w->engine), NW_ROLE_OUT_NORM, -1, NULL);
    nw_input_stats *s = &w->stats[NW_INPUT_HEAD];
    nw_status st = nw_input_stats_init(s, d, err);

    for (size_t i = 0; st == NW_OK && i < w->samples.n; i++) {
        const uint32_t n = (uint32_t)(w->samples.first[i + 1] - w->samples.first[i]);
        st = move_sample(w, i, false, err);
        for (uint32_t t = 0; st == NW_OK && t < n; t++) {
            norm_row(w->x + (size_t)t * d, gain, d, w->config->norm_eps);
        }
        st = st == NW_OK ? nw_input_stats_add(s, w->pool, w->x, n, err) : st;
    }
    st = st == NW_OK ? write_stats(w, -1, NW_INPUT_HEAD, NW_INPUT_COUNT, err) : st;
    release_stats(w);
    return st;
}

/* ---- the whole ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* The digest of the weights that the model came from: an artifact keeps its source's. */
static nw_status model_digest(const char *path, nw_digest *out, nw_error *err)
{
    nw_checkpoint *c = NULL;
    nw_manifest m = {0};
    nw_status st = NW_OK;

    if (nw_artifact_is_native(path)) {
        char *file = nw_path_join(path, "manifest.json");
        st = file == NULL ? nw_fail(err, NW_E_NOMEM, "%s: no memory", path)
                          : nw_manifest_load(file, &m, err);
        *out = m.source;
        nw_manifest_release(&m);
        free(file);
        return st;
    }
    st = nw_checkpoint_open(path, &c, err);
    st = st == NW_OK ? nw_checkpoint_digest(c, out, err) : st;
    nw_checkpoint_close(c);
    return st;
}

static nw_status make_manifest(walk *w, nw_error *err)
{
    const nw_sample_options *o = &w->o->sample;
    const nw_samples *s = &w->samples;

    w->manifest = json_pack(
        "{s:s, s:i, s:s, s:{s:s, s:s}, s:{s:s, s:s, s:s?, s:I, s:I, s:I}, s:I, s:I, s:s, s:o}",
        "format", "narrow-calibration", "version", 1, "tool", "narrow " NW_VERSION, "model", "name",
        base_name(w->o->model), "sha256", w->model_hash.hex, "data", "name",
        base_name(o->log != NULL ? o->log : o->text), "sha256", s->data_hash.hex, "stratify",
        o->stratify, "seed", (json_int_t)o->seed, "samples", (json_int_t)o->n_samples, "n_ctx",
        (json_int_t)o->n_ctx, "n_samples", (json_int_t)s->n, "n_tokens", (json_int_t)s->first[s->n],
        "ids_sha256", s->ids_hash.hex, "strata", nw_samples_coverage(s));
    return w->manifest != NULL
               ? NW_OK
               : nw_fail(err, NW_E_NOMEM, "no memory for the manifest of %zu samples", s->n);
}

static nw_status open_engine(walk *w, nw_error *err)
{
    nw_engine_options eo = nw_engine_options_default();

    nw_engine_kv_plain(&eo);
    eo.n_threads = w->o->n_threads;
    eo.act = 0;
    eo.max_seqs = 1;
    eo.n_ctx = w->o->sample.n_ctx;
    eo.max_step_tokens = w->o->sample.n_ctx;
    if (nw_engine_open(w->o->model, &eo, &w->engine, err) != NW_OK) {
        return err->code;
    }
    w->config = nw_engine_config(w->engine);
    return nw_pool_open(nw_engine_get_facts(w->engine)->n_threads, &w->pool, err);
}

static nw_status open_files(walk *w, nw_error *err)
{
    const size_t row = w->config->d_model * sizeof *w->x;
    nw_status st = nw_folder_open(&w->folder, w->o->out, w->o->replace, err);

    if (st != NW_OK) {
        return st;
    }
    w->x = calloc(w->o->sample.n_ctx, row);
    w->hidden_path = nw_path_join(w->folder.tmp, "residuals.f32");
    if (w->x == NULL || w->hidden_path == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for samples of %u tokens", w->o->sample.n_ctx);
    }
    w->hidden = fopen(w->hidden_path, "w+b");
    return w->hidden != NULL ? NW_OK : nw_fail(err, NW_E_IO, "%s: cannot be made", w->hidden_path);
}

/* The work file must be gone before the folder gets its name. */
static nw_status drop_hidden(walk *w, nw_error *err)
{
    FILE *fp = w->hidden;

    w->hidden = NULL;
    if (fp != NULL && fclose(fp) == 0 && remove(w->hidden_path) == 0) {
        return NW_OK;
    }
    return nw_fail(err, NW_E_IO, "%s: cannot be removed", w->hidden_path);
}

static nw_status write_kv(walk *w, nw_error *err)
{
    nw_kv_stats_finish(&w->kv);
    return nw_kv_stats_write(&w->kv, w->folder.tmp, w->manifest, err);
}

static nw_status run(walk *w, nw_error *err)
{
    const uint64_t n_tokens = w->samples.first[w->samples.n];
    nw_status st = make_manifest(w, err);

    st = st == NW_OK ? open_files(w, err) : st;
    st = st == NW_OK ? nw_kv_stats_init(&w->kv, w->config, err) : st;
    st = st == NW_OK ? embed_samples(w, err) : st;
    if (st == NW_OK && w->o->show_progress) {
        nw_progress_begin(&w->progress, "calibrate", "tokens", n_tokens * w->config->n_layers);
    }
    for (uint32_t layer = 0; st == NW_OK && layer < w->config->n_layers; layer++) {
        st = run_layer(w, layer, err);
    }
    st = st == NW_OK ? run_head(w, err) : st;
    st = st == NW_OK ? write_kv(w, err) : st;
    st = st == NW_OK ? drop_hidden(w, err) : st;
    st = st == NW_OK ? nw_stats_seal(w->folder.tmp, w->manifest, err) : st;
    return st == NW_OK ? nw_folder_commit(&w->folder, err) : st;
}

nw_status nw_calibrate(const nw_calibrate_options *o, json_t **manifest, nw_error *err)
{
    walk w = {.o = o};
    nw_status st = open_engine(&w, err);

    if (st == NW_OK) {
        st = nw_samples_draw(nw_engine_tokenizer(w.engine), &o->sample, &w.samples, err);
    }
    st = st == NW_OK ? model_digest(o->model, &w.model_hash, err) : st;
    st = st == NW_OK ? run(&w, err) : st;
    if (st == NW_OK && manifest != NULL) {
        *manifest = json_incref(w.manifest);
    }
    if (w.hidden != NULL) {
        (void)fclose(w.hidden);
    }
    nw_folder_close(&w.folder);
    free(w.hidden_path);
    free(w.x);
    json_decref(w.manifest);
    nw_kv_stats_release(&w.kv);
    nw_samples_release(&w.samples);
    nw_pool_close(w.pool);
    nw_engine_close(w.engine);
    return st;
}
