/* The quantize driver: see quantize.h. A tensor passes in blocks of panels; the panels of a block
 * are packed on all threads, each from its own 16 rows alone, then hashed and written in order. The
 * error of each panel is kept apart and added in order, so that no figure depends on the threads.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/quantize.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/source_note.h"
#include "artifact/writer.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/progress.h"
#include "base/signal.h"
#include "quant/input_cache.h"
#include "quant/lossless.h"

/* Packed bytes held at one time; large enough for every thread to have several panels. */
#define BLOCK_BYTES ((size_t)8 << 20)

typedef struct {
    const nw_quantize_options *options;
    nw_checkpoint *ckpt;
    nw_recipe *recipe;
    nw_recipe_choice *choices; /* in writing order: matrices, then vectors */
    size_t n;
    nw_pool *pool;
    nw_artifact_writer *writer;
    nw_input_cache inputs;
    json_t *report; /* of the matrices that a method other than rtn made; part of the manifest */
    nw_progress progress;
    uint64_t n_done, n_params;
} driver;

/* A block of panels of one tensor; item of the pool: a panel of the block. */
typedef struct {
    const nw_checkpoint *ckpt;
    const nw_recipe_choice *choice;
    nw_method_job method;
    uint32_t panel0; /* first of the block */
    size_t panel_bytes, scratch_bytes;
    uint8_t *out;            /* [block panels][panel_bytes] */
    nw_output_error *output; /* [block panels] */
    nw_tensor_error *errors; /* [block panels] */
    float *rows;             /* [n_threads][17][n_cols]: 16 rows and a decoded one */
    uint8_t *scratch;        /* [n_threads][scratch_bytes] */
    atomic_int status;       /* the first failure, an nw_status */
    nw_error error;
} block_job;

static void job_fail(block_job *job, const nw_error *err)
{
    int none = NW_OK;

    if (atomic_compare_exchange_strong(&job->status, &none, (int)err->code)) {
        job->error = *err;
    }
}

static nw_status read_rows(const block_job *job, uint32_t row0, uint32_t n_rows, float *rows,
                           nw_error *err)
{
    const nw_ckpt_tensor *t = job->choice->tensor;
    const nw_status st = nw_checkpoint_read_f32(job->ckpt, t, row0, n_rows, rows, err);

    for (size_t i = 0; st == NW_OK && i < (size_t)n_rows * t->n_cols; i++) {
        if (!isfinite(rows[i])) {
            return nw_fail(err, NW_E_FORMAT,
                           "tensor '%s' has a value that is not finite in row %zu, column %zu",
                           t->name, row0 + i / t->n_cols, i % t->n_cols);
        }
    }
    return st;
}

/* False with the error set. */
static bool pack_panel(block_job *job, size_t item, const float *rows, uint32_t row0,
                       uint32_t n_rows, void *scratch, nw_error *err)
{
    const nw_recipe_choice *ch = job->choice;
    uint8_t *panel = job->out + item * job->panel_bytes;
    uint32_t bad_row = 0;

    if (ch->type.kind == NW_PANEL_BF16_12) {
        if (!nw_lossless_pack_panel(ch->type, ch->exponents, rows, n_rows, ch->tensor->n_cols,
                                    scratch, panel)) {
            (void)nw_fail(err, NW_E_IO, "tensor '%s' changed while it was read", ch->tensor->name);
            return false;
        }
        return true;
    }
    if (!nw_method_pack_panel(&job->method, rows, n_rows, panel, scratch, &job->output[item],
                              &bad_row)) {
        (void)nw_fail(err, NW_E_RANGE, "tensor '%s' row %u: values too large for an FP16 scale",
                      ch->tensor->name, (unsigned)(row0 + bad_row));
        return false;
    }
    return true;
}

static void quantize_panel(void *ctx, size_t item, unsigned worker)
{
    block_job *job = ctx;
    const nw_ckpt_tensor *t = job->choice->tensor;
    const nw_panel_type type = job->choice->type;
    const uint32_t row0 = (job->panel0 + (uint32_t)item) * NW_PANEL_ROWS;
    const uint32_t left = t->n_rows - row0;
    const uint32_t n_rows = left < NW_PANEL_ROWS ? left : NW_PANEL_ROWS;
    float *rows = job->rows + (size_t)worker * (NW_PANEL_ROWS + 1) * t->n_cols;
    float *decoded = rows + (size_t)NW_PANEL_ROWS * t->n_cols;
    const uint8_t *panel = job->out + item * job->panel_bytes;
    nw_error err = {0};

    if (read_rows(job, row0, n_rows, rows, &err) != NW_OK ||
        !pack_panel(job, item, rows, row0, n_rows, job->scratch + worker * job->scratch_bytes,
                    &err)) {
        job_fail(job, &err);
        return;
    }
    job->errors[item] = (nw_tensor_error){0};
    for (uint32_t r = 0; r < n_rows; r++) {
        nw_panel_unpack_row(type, panel, t->n_cols, r, decoded);
        nw_tensor_error_measure(&job->errors[item], rows + (size_t)r * t->n_cols, decoded,
                                t->n_cols);
    }
}

static nw_status job_open(const driver *d, const nw_recipe_choice *choice, const nw_hessian *h,
                          block_job *job, uint32_t *block, nw_error *err)
{
    const nw_ckpt_tensor *t = choice->tensor;
    const size_t n_threads = nw_pool_threads(d->pool);
    const uint32_t n_panels = nw_panel_count(t->n_rows);

    *job = (block_job){.ckpt = d->ckpt,
                       .choice = choice,
                       .method = {.method = choice->method,
                                  .type = choice->type,
                                  .rule = nw_recipe_scale_rule(d->recipe),
                                  .h = h,
                                  .n_cols = t->n_cols}};
    job->scratch_bytes = choice->type.kind == NW_PANEL_BF16_12
                             ? (size_t)NW_PANEL_ROWS * t->n_cols * sizeof(uint16_t)
                             : nw_method_scratch_bytes(&job->method);
    job->scratch_bytes = (job->scratch_bytes + 63) / 64 * 64;
    if (!nw_panel_bytes(choice->type, t->n_cols, &job->panel_bytes)) {
        return nw_fail(err, NW_E_RANGE, "tensor '%s': %u columns are too many", t->name,
                       (unsigned)t->n_cols);
    }
    const size_t fit = BLOCK_BYTES / job->panel_bytes;
    const size_t least = 4 * n_threads;
    const size_t want = fit > least ? fit : least;
    *block = want < n_panels ? (uint32_t)want : n_panels;
    job->out = calloc(*block, job->panel_bytes);
    job->errors = calloc(*block, sizeof *job->errors);
    job->output = calloc(*block, sizeof *job->output);
    job->rows = calloc(n_threads * (NW_PANEL_ROWS + 1), t->n_cols * sizeof *job->rows);
    job->scratch = calloc(n_threads, job->scratch_bytes + 1);
    if (job->out == NULL || job->errors == NULL || job->output == NULL || job->rows == NULL ||
        job->scratch == NULL) {
        return nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory for a block of %u panels", t->name,
                       (unsigned)*block);
    }
    return NW_OK;
}

static void job_close(block_job *job)
{
    free(job->out);
    free(job->errors);
    free(job->output);
    free(job->rows);
    free(job->scratch);
}

static nw_status run_block(driver *d, block_job *job, uint32_t n, nw_tensor_error *sum,
                           nw_output_error *output, nw_error *err)
{
    const nw_ckpt_tensor *t = job->choice->tensor;

    nw_pool_run(d->pool, n, quantize_panel, job);
    if (atomic_load(&job->status) != NW_OK) {
        *err = job->error;
        return err->code;
    }
    for (uint32_t i = 0; i < n; i++) {
        nw_tensor_error_add(sum, &job->errors[i]);
        output->err += job->output[i].err;
        output->power += job->output[i].power;
    }
    d->n_done += (uint64_t)n * NW_PANEL_ROWS * t->n_cols;
    return nw_artifact_writer_add(d->writer, job->out, n * job->panel_bytes, err);
}

/* What the method met: a line of the manifest for each matrix it made. */
static nw_status report_matrix(driver *d, const nw_recipe_choice *choice, const nw_hessian *h,
                               const nw_output_error *output, nw_error *err)
{
    const bool fell = nw_method_needs_factor(choice->method) && h->u == NULL;
    const nw_method used = fell ? NW_METHOD_IMATRIX : choice->method;

    if (choice->method == NW_METHOD_RTN) {
        return NW_OK;
    }
    json_t *row =
        json_pack("{s:s, s:s}", "name", choice->tensor->name, "method", nw_method_name(used));
    if (h != NULL) {
        const double db = output->err > 0 ? 10 * log10(output->power / output->err) : 0;
        (void)json_object_set_new(row, "output_sqnr_db", json_real(db));
        (void)json_object_set_new(row, "n_dead", json_integer((json_int_t)h->n_dead));
    }
    if (nw_method_needs_factor(choice->method)) {
        (void)json_object_set_new(row, "damp", json_real(h->damp));
    }
    if (fell || (h != NULL && h->n_tries > 1)) {
        nw_log(NW_LOG_WARN, "%s: Hessian not positive definite, damping raised to %g%s",
               choice->tensor->name, h->damp, fell ? ": no factor, rounded to nearest" : "");
    }
    return json_array_append_new(d->report, row) == 0
               ? NW_OK
               : nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory for its report",
                         choice->tensor->name);
}

static nw_status write_matrix(driver *d, const nw_recipe_choice *choice, nw_error *err)
{
    const uint32_t n_panels = nw_panel_count(choice->tensor->n_rows);
    const nw_hessian *h = NULL;
    nw_tensor_error sum = {0};
    nw_output_error output = {0};
    block_job job = {0};
    uint32_t block = 0;
    nw_status st =
        nw_input_cache_get(&d->inputs, choice, nw_checkpoint_config(d->ckpt)->tied, &h, err);

    st = st == NW_OK ? job_open(d, choice, h, &job, &block, err) : st;

    for (uint32_t p = 0; st == NW_OK && p < n_panels; p += block) {
        job.panel0 = p;
        st = run_block(d, &job, n_panels - p < block ? n_panels - p : block, &sum, &output, err);
        if (st == NW_OK && nw_stop_requested()) {
            st = nw_fail(err, NW_E_CANCELLED, "stopped at tensor '%s'; nothing was left behind",
                         choice->tensor->name);
        }
        if (d->options->show_progress) {
            nw_progress_step(&d->progress, d->n_done < d->n_params ? d->n_done : d->n_params - 1);
        }
    }
    job_close(&job);
    st = st == NW_OK ? report_matrix(d, choice, h, &output, err) : st;
    return st == NW_OK ? nw_artifact_writer_end_tensor(d->writer, &sum, err) : st;
}

static nw_status write_vector(driver *d, const nw_recipe_choice *choice, nw_error *err)
{
    const nw_ckpt_tensor *t = choice->tensor;
    const block_job view = {.ckpt = d->ckpt, .choice = choice};
    float *v = calloc(t->n_cols, sizeof *v);
    nw_tensor_error e = {0};
    nw_status st = NW_OK;

    if (v == NULL) {
        return nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory", t->name);
    }
    st = read_rows(&view, 0, 1, v, err);
    if (st == NW_OK) {
        nw_tensor_error_measure(&e, v, v, t->n_cols);
        st = nw_artifact_writer_add(d->writer, v, t->n_cols * sizeof *v, err);
    }
    free(v);
    return st == NW_OK ? nw_artifact_writer_end_tensor(d->writer, &e, err) : st;
}

/* Matrices first: their sizes are multiples of 64 bytes, those of vectors are not. The embedding
 * stays first among them, and a tied one is in the list once. */
static nw_status order_choices(driver *d, nw_error *err)
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

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* The rules of all layouts in use, each once. */
static char *rule_text(const driver *d)
{
    nw_buf b;

    nw_buf_init(&b, 4096);
    (void)nw_buf_puts(&b, "");
    for (size_t i = 0; i < d->n; i++) {
        const nw_recipe_choice *ch = &d->choices[i];
        const char *text = nw_method_text(ch->method, ch->type, nw_recipe_scale_rule(d->recipe));
        if (ch->targeted && text[0] != '\0' && (b.len == 0 || strstr(b.data, text) == NULL)) {
            (void)nw_buf_printf(&b, "%s%s", b.len > 0 ? "; " : "", text);
        }
    }
    if (b.failed) {
        nw_buf_release(&b);
        return NULL;
    }
    char *out = b.len > 0 ? nw_buf_take(&b) : strdup("");
    nw_buf_release(&b);
    return out;
}

static bool fill_tensors(const driver *d, nw_manifest *m)
{
    m->tensors = calloc(d->n + 1, sizeof *m->tensors);
    if (m->tensors == NULL) {
        return false;
    }
    m->n_tensors = d->n;
    for (size_t i = 0; i < d->n; i++) {
        const nw_recipe_choice *ch = &d->choices[i];
        m->tensors[i] = (nw_manifest_tensor){.name = strdup(ch->tensor->name),
                                             .role = ch->tensor->role,
                                             .layer = ch->tensor->layer,
                                             .targeted = ch->targeted,
                                             .is_vector = ch->is_vector,
                                             .type = ch->type,
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
static void note_methods(driver *d, json_t *recipe)
{
    if (d->inputs.stats != NULL) {
        const json_t *m = nw_stats_manifest(d->inputs.stats);
        (void)json_object_set_new(
            recipe, "calibration",
            json_pack("{s:s, s:O, s:O, s:O}", "hash", nw_stats_hash(d->inputs.stats), "data",
                      json_object_get(m, "data"), "n_samples", json_object_get(m, "n_samples"),
                      "n_tokens", json_object_get(m, "n_tokens")));
    }
    (void)json_object_set(recipe, "matrices", d->report);
}

static nw_status fill_manifest(driver *d, nw_manifest *m, nw_error *err)
{
    nw_status st = nw_source_note(d->ckpt, &m->note, err);

    if (st == NW_OK) {
        st = nw_checkpoint_digest(d->ckpt, &m->source, err);
    }
    if (st != NW_OK) {
        return st;
    }
    m->version = NW_MANIFEST_VERSION;
    m->tool_version = strdup("narrow " NW_VERSION);
    m->source_name = strdup(base_name(d->options->source));
    m->recipe_name = strdup(nw_recipe_name(d->recipe));
    m->scale_rule = rule_text(d);
    m->a8 = nw_recipe_a8(d->recipe);
    m->recipe = nw_recipe_json(d->recipe, d->choices, d->n);
    note_methods(d, m->recipe);
    if (m->tool_version == NULL || m->source_name == NULL || m->recipe_name == NULL ||
        m->scale_rule == NULL || m->recipe == NULL || !fill_tensors(d, m)) {
        return nw_fail(err, NW_E_NOMEM, "no memory for a manifest of %zu tensors", d->n);
    }
    return NW_OK;
}

/* Everything that can be wrong without reading weights is found here. */
static nw_status open_all(driver *d, nw_error *err)
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
    st = st == NW_OK ? nw_recipe_set_calibration(d->recipe, o->calibration, err) : st;
    if (st == NW_OK) {
        st = nw_source_open(o->source, o->out, &d->ckpt, err);
    }
    if (st == NW_OK) {
        st = nw_recipe_resolve(d->recipe, d->ckpt, &d->choices, &d->n, o->mistakes, err);
    }
    if (st == NW_OK) {
        st = nw_input_cache_open(&d->inputs, d->recipe, d->choices, d->n,
                                 nw_checkpoint_config(d->ckpt), err);
    }
    if (st == NW_OK) {
        st = order_choices(d, err);
    }
    if (st == NW_OK && o->on_resolved != NULL &&
        !o->on_resolved(o->on_resolved_ctx, d->choices, d->n)) {
        st = nw_fail(err, NW_E_CANCELLED, "nothing was written");
    }
    if (st == NW_OK) {
        st = nw_pool_open(o->n_threads, &d->pool, err);
    }
    for (size_t i = 0; st == NW_OK && i < d->n; i++) {
        d->n_params += (uint64_t)d->choices[i].tensor->n_rows * d->choices[i].tensor->n_cols;
    }
    return st;
}

/* The layouts that depend on all values of a tensor. */
static nw_status plan_lossless(driver *d, nw_error *err)
{
    nw_status st = NW_OK;

    for (size_t i = 0; st == NW_OK && i < d->n; i++) {
        nw_recipe_choice *ch = &d->choices[i];
        if (ch->type.kind == NW_PANEL_BF16_12) {
            st = nw_lossless_plan(d->ckpt, ch->tensor, d->pool, ch->exponents, &ch->type, err);
        }
        if (st == NW_OK && nw_stop_requested()) {
            st = nw_fail(err, NW_E_CANCELLED, "stopped at tensor '%s'; nothing was left behind",
                         ch->tensor->name);
        }
    }
    return st;
}

static nw_status open_writer(driver *d, nw_error *err)
{
    const nw_artifact_target target = {.path = d->options->out,
                                       .replace = d->options->replace,
                                       .no_tokenizer = d->options->no_tokenizer,
                                       .source = d->ckpt};
    nw_manifest m = {0};
    nw_status st = fill_manifest(d, &m, err);

    if (st == NW_OK) {
        st = nw_artifact_writer_open(&target, &m, &d->writer, err);
    }
    nw_manifest_release(&m);
    return st;
}

static nw_status write_all(driver *d, nw_error *err)
{
    nw_status st = NW_OK;

    if (d->options->show_progress) {
        nw_progress_begin(&d->progress, "quantize", "weights", d->n_params);
    }
    for (size_t i = 0; st == NW_OK && i < d->n; i++) {
        const nw_recipe_choice *ch = &d->choices[i];
        st = ch->is_vector ? write_vector(d, ch, err) : write_matrix(d, ch, err);
    }
    if (st == NW_OK && d->options->show_progress) {
        nw_progress_step(&d->progress, d->n_params);
    }
    return st == NW_OK ? nw_artifact_writer_commit(d->writer, err) : st;
}

nw_status nw_quantize(const nw_quantize_options *o, nw_manifest *summary, nw_error *err)
{
    driver d = {.options = o, .report = json_array()};
    nw_status st =
        d.report != NULL ? open_all(&d, err) : nw_fail(err, NW_E_NOMEM, "%s: no memory", o->source);

    if (st == NW_OK) {
        st = plan_lossless(&d, err);
    }
    if (st == NW_OK) {
        st = open_writer(&d, err);
    }
    if (st == NW_OK) {
        st = write_all(&d, err);
    }
    if (st == NW_OK && summary != NULL) {
        *summary = nw_artifact_writer_take_manifest(d.writer);
    }
    nw_artifact_writer_close(d.writer);
    nw_input_cache_close(&d.inputs);
    json_decref(d.report);
    nw_pool_close(d.pool);
    nw_recipe_close(d.recipe);
    nw_checkpoint_close(d.ckpt);
    free(d.choices);
    return st;
}
