/* The quantize driver: see quantize.h. A tensor passes in blocks of panels; the panels of a block
 * are packed on all threads, each from its own 16 rows alone, then hashed and written in order. The
 * error of each panel is kept apart and added in order, so that no figure depends on the threads.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/quantize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/panel_block.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signal.h"
#include "formats/block_parts.h"
#include "formats/panel_rows.h"
#include "quant/lossless.h"
#include "quant/preflight.h"
#include "quant/quantize_parts.h"

/* Panels of one tensor; item of the pool: a panel of the block. */
typedef struct {
    const nw_checkpoint *ckpt;
    const nw_recipe_choice *choice;
    const nw_planned_input *input; /* NULL: nothing is kept wide */
    nw_method_job method;
    nw_panel_block panels;   /* its `out`: of two blocks, by turns, the one */
    uint8_t *behind;         /* that is filled and the one that is written */
    nw_output_error *output; /* [panels of a block] */
} block_job;

static nw_status read_rows(const block_job *job, uint32_t row0, uint32_t n_rows, float *rows,
                           nw_error *err)
{
    const nw_ckpt_tensor *t = job->choice->tensor;
    const nw_status st = nw_checkpoint_read_f32(job->ckpt, t, row0, n_rows, rows, err);

    if (st == NW_OK && !nw_rows_finite(rows, (size_t)n_rows * t->n_cols)) {
        size_t i = 0;
        while (isfinite(rows[i])) {
            i++;
        }
        return nw_fail(err, NW_E_FORMAT,
                       "tensor '%s' has a value that is not finite in row %zu, column %zu", t->name,
                       row0 + i / t->n_cols, i % t->n_cols);
    }
    nw_input_plan_clear_rows(job->input, st == NW_OK ? n_rows : 0, t->n_cols, rows);
    return st;
}

/* *decodable: the panel as memory will hold it. False with the error set. */
static bool pack_panel(block_job *job, size_t item, const nw_panel_place *p,
                       const uint8_t **decodable, nw_error *err)
{
    const nw_recipe_choice *ch = job->choice;
    const uint32_t n_cols = ch->tensor->n_cols;
    uint32_t bad_row = 0;

    if (ch->packed != NULL) {
        if (!nw_lossless_pack_stored(ch->packed, job->panels.panel0 + (uint32_t)item, p->rows,
                                     p->n_rows, n_cols, p->scratch, p->panel, decodable)) {
            (void)nw_fail(err, NW_E_IO, "tensor '%s' changed while it was read", ch->tensor->name);
            return false;
        }
        return true;
    }
    *decodable = p->panel;
    if (ch->type.kind == NW_PANEL_BF16_12) {
        if (!nw_lossless_pack_panel(ch->type, p->rows, p->n_rows, n_cols, (void *)p->scratch,
                                    p->panel)) {
            (void)nw_fail(err, NW_E_IO, "tensor '%s' changed while it was read", ch->tensor->name);
            return false;
        }
        return true;
    }
    if (!nw_method_pack_panel(&job->method, p->rows, p->n_rows, p->panel, p->scratch,
                              &job->output[item], &bad_row)) {
        (void)nw_fail(err, NW_E_RANGE, "tensor '%s' row %u: values too large for an FP16 scale",
                      ch->tensor->name, (unsigned)(p->row0 + bad_row));
        return false;
    }
    return true;
}

static void quantize_panel(void *ctx, size_t item, unsigned worker)
{
    block_job *job = ctx;
    const nw_panel_place p = nw_panel_block_place(&job->panels, item, worker);
    const uint8_t *panel = NULL;
    nw_error err = {0};

    if (read_rows(job, p.row0, p.n_rows, p.rows, &err) != NW_OK ||
        !pack_panel(job, item, &p, &panel, &err)) {
        nw_panel_block_fail(&job->panels, &err);
        return;
    }
    nw_panel_block_measure(&job->panels, item, &p, panel);
}

/* Of one panel. */
static size_t scratch_bytes(const nw_recipe_choice *choice, const nw_method_job *method)
{
    const uint32_t n_cols = choice->tensor->n_cols;

    if (choice->packed != NULL) {
        return nw_packed_scratch_bytes(choice->packed, n_cols);
    }
    return choice->type.kind == NW_PANEL_BF16_12 ? (size_t)NW_PANEL_ROWS * n_cols * sizeof(uint16_t)
                                                 : nw_method_scratch_bytes(method);
}

static nw_status job_open(const nw_quantize_driver *d, const nw_recipe_choice *choice,
                          const nw_hessian *h, block_job *job, nw_error *err)
{
    const nw_ckpt_tensor *t = choice->tensor;
    const size_t n_threads = nw_pool_threads(d->pool);
    nw_panel_block *b = &job->panels;

    *job = (block_job){
        .ckpt = d->ckpt,
        .choice = choice,
        .input = nw_input_plan_of(&d->plan, t->role, t->layer),
        .method = {.method = choice->method,
                   .type = choice->type,
                   .block = choice->block,
                   .scales = nw_recipe_scales(d->recipe),
                   .h = h,
                   .n_cols = t->n_cols},
        .panels = {
            .name = t->name, .type = choice->type, .n_rows = t->n_rows, .n_cols = t->n_cols}};
    job->method.scales.absmax = choice->absmax;
    job->method.scales.scale = choice->scale;
    job->method.scales.zero = choice->zero;
    b->scratch_bytes = scratch_bytes(choice, &job->method);
    if (choice->packed != NULL) {
        b->panel_bytes = choice->packed->bound;
    } else if (!nw_panel_bytes(choice->type, t->n_cols, &b->panel_bytes)) {
        return nw_fail(err, NW_E_RANGE, "tensor '%s': %u columns are too many", t->name,
                       (unsigned)t->n_cols);
    }
    const size_t fit = NW_QUANTIZE_BLOCK / b->panel_bytes;
    const size_t least = 4 * n_threads;
    if (nw_panel_block_open(b, n_threads, fit > least ? fit : least, err) != NW_OK) {
        return err->code;
    }
    job->behind = calloc(b->n_panels, b->panel_bytes);
    job->output = calloc(b->n_panels, sizeof *job->output);
    return job->behind != NULL && job->output != NULL
               ? NW_OK
               : nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory for a block of %u panels",
                         t->name, (unsigned)b->n_panels);
}

static void job_close(block_job *job)
{
    nw_panel_block_close(&job->panels);
    free(job->behind);
    free(job->output);
}

/* Bytes of the first n panels of the block, which then lie one behind the other: packed ones are shorter
 * than their places. */
static size_t close_up(const block_job *job, uint32_t n)
{
    const nw_packed_plan *packed = job->choice->packed;
    const nw_panel_block *b = &job->panels;
    size_t at = 0;

    if (packed == NULL) {
        return n * b->panel_bytes;
    }
    for (uint32_t i = 0; i < n; i++) {
        memmove(b->out + at, b->out + i * b->panel_bytes, packed->sizes[b->panel0 + i]);
        at += packed->sizes[b->panel0 + i];
    }
    return at;
}

static nw_status run_block(nw_quantize_driver *d, block_job *job, uint32_t n, nw_tensor_error *sum,
                           nw_output_error *output, nw_error *err)
{
    const nw_ckpt_tensor *t = job->choice->tensor;

    nw_pool_run(d->pool, n, quantize_panel, job);
    if (nw_panel_block_check(&job->panels, err) != NW_OK) {
        return err->code;
    }
    for (uint32_t i = 0; i < n; i++) {
        nw_tensor_error_add(sum, &job->panels.errors[i]);
        output->err += job->output[i].err;
        output->power += job->output[i].power;
    }
    d->n_done += (uint64_t)n * NW_PANEL_ROWS * t->n_cols;
    const size_t n_bytes = close_up(job, n);
    const nw_status st = nw_artifact_writer_hand(d->writer, job->panels.out, n_bytes, err);
    uint8_t *filled = job->panels.out;
    job->panels.out = job->behind;
    job->behind = filled;
    return st;
}

/* What stands before the panels of a packed tensor, and the zeros behind them. */
static nw_status write_packed_frame(nw_quantize_driver *d, const nw_recipe_choice *ch, bool end,
                                    nw_error *err)
{
    static const uint8_t zeros[64];
    const nw_packed_plan *p = ch->packed;
    const uint32_t n_panels = nw_panel_count(ch->tensor->n_rows);
    uint64_t sum = sizeof p->head + (uint64_t)n_panels * sizeof *p->sizes;

    if (end) {
        for (uint32_t i = 0; i < n_panels; i++) {
            sum += p->sizes[i];
        }
        return nw_artifact_writer_add(d->writer, zeros, (size_t)(p->n_bytes - sum), err);
    }
    nw_status st = nw_artifact_writer_add(d->writer, &p->head, sizeof p->head, err);
    for (uint32_t i = 0; st == NW_OK && i < n_panels; i++) {
        uint8_t le[4];
        nw_put32(le, p->sizes[i]);
        st = nw_artifact_writer_add(d->writer, le, sizeof le, err);
    }
    return st;
}

/* What the method met: a line of the manifest for each matrix it made; *note is that line, borrowed,
 * or NULL. */
static nw_status report_matrix(nw_quantize_driver *d, const nw_recipe_choice *choice,
                               const nw_hessian *h, const nw_output_error *output,
                               const json_t **note, nw_error *err)
{
    const bool fell = nw_method_needs_factor(choice->method) && h->u == NULL;
    const nw_method used = fell ? NW_METHOD_IMATRIX : choice->method;

    if (fell && d->options->no_fallback) {
        return nw_fail(err, NW_E_RANGE,
                       "tensor '%s': method %s finds no factor, its Hessian is not positive "
                       "definite at any damping (--no-fallback)",
                       choice->tensor->name, nw_method_name(choice->method));
    }
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
    if (fell) {
        (void)json_object_set_new(row, "asked", json_string(nw_method_name(choice->method)));
    }
    if (nw_method_needs_factor(choice->method)) {
        (void)json_object_set_new(row, "damp", json_real(h->damp));
    }
    if (fell || (h != NULL && h->n_tries > 1)) {
        nw_log(NW_LOG_WARN, "%s: Hessian not positive definite, damping raised to %g%s",
               choice->tensor->name, h->damp, fell ? ": no factor, rounded to nearest" : "");
    }
    *note = row;
    return json_array_append_new(d->report, row) == 0
               ? NW_OK
               : nw_fail(err, NW_E_NOMEM, "tensor '%s': no memory for its report",
                         choice->tensor->name);
}

/* The block of panels that comes next, of this tensor or of the one behind it. */
static void look_ahead(const nw_quantize_driver *d, const nw_recipe_choice *choice, uint32_t panel,
                       uint32_t n_panels)
{
    if (panel < nw_panel_count(choice->tensor->n_rows)) {
        nw_checkpoint_ahead(choice->tensor, panel * NW_PANEL_ROWS, n_panels * NW_PANEL_ROWS);
    } else if (choice + 1 < d->choices + d->n) {
        nw_checkpoint_ahead(choice[1].tensor, 0, n_panels * NW_PANEL_ROWS);
    }
}

/* All panels of an open job, a block at a time; in the end nothing of the job's memory is in use. */
static nw_status write_panels(nw_quantize_driver *d, block_job *job, nw_tensor_error *sum,
                              nw_output_error *output, nw_error *err)
{
    const nw_recipe_choice *choice = job->choice;
    const uint32_t n_panels = nw_panel_count(choice->tensor->n_rows);
    const uint32_t block = job->panels.n_panels;
    nw_error late = {.code = NW_OK};
    nw_status st = NW_OK;

    for (uint32_t p = 0; st == NW_OK && p < n_panels; p += block) {
        job->panels.panel0 = p;
        look_ahead(d, choice, p + block, block);
        st = run_block(d, job, n_panels - p < block ? n_panels - p : block, sum, output, err);
        if (st == NW_OK && nw_stop_requested()) {
            st = nw_fail(err, NW_E_CANCELLED, "stopped at tensor '%s'", choice->tensor->name);
        }
        if (d->options->show_progress) {
            nw_progress_step(&d->progress, d->n_done < d->n_params ? d->n_done : d->n_params - 1);
        }
    }
    if (nw_artifact_writer_settle(d->writer, &late) != NW_OK && st == NW_OK) {
        *err = late;
        st = late.code;
    }
    nw_source_digest_used(d->source, choice->tensor);
    return st;
}

static nw_status write_matrix(nw_quantize_driver *d, const nw_recipe_choice *choice, nw_error *err)
{
    const nw_hessian *h = NULL;
    nw_tensor_error sum = {0};
    nw_output_error output = {0};
    const json_t *note = NULL;
    block_job job = {0};
    nw_status st =
        nw_input_cache_get(&d->inputs, choice, nw_checkpoint_config(d->ckpt)->tied, &h, err);

    st = st == NW_OK ? job_open(d, choice, h, &job, err) : st;
    if (st == NW_OK && choice->packed != NULL) {
        st = write_packed_frame(d, choice, false, err);
    }
    st = st == NW_OK ? write_panels(d, &job, &sum, &output, err) : st;
    job_close(&job);
    if (st == NW_OK && choice->packed != NULL) {
        st = write_packed_frame(d, choice, true, err);
    }
    st = st == NW_OK ? report_matrix(d, choice, h, &output, &note, err) : st;
    return st == NW_OK ? nw_artifact_writer_end_tensor(d->writer, &sum, note, err) : st;
}

static nw_status write_vector(nw_quantize_driver *d, const nw_recipe_choice *choice, nw_error *err)
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
    nw_source_digest_used(d->source, t);
    free(v);
    return st == NW_OK ? nw_artifact_writer_end_tensor(d->writer, &e, NULL, err) : st;
}

/* What an earlier run of the same command finished is counted as done, and what was said of it taken
 * over. Returns how many tensors that are. */
static size_t take_up(nw_quantize_driver *d)
{
    const size_t n_done = nw_artifact_writer_n_done(d->writer);

    for (size_t i = 0; i < n_done; i++) {
        const nw_ckpt_tensor *t = d->choices[i].tensor;
        const json_t *note = nw_artifact_writer_note(d->writer, i);
        d->n_done += (uint64_t)t->n_rows * t->n_cols;
        nw_source_digest_used(d->source, t);
        if (note != NULL) {
            (void)json_array_append(d->report, (json_t *)(uintptr_t)note);
        }
    }
    if (d->options->n_taken_up != NULL) {
        *d->options->n_taken_up = n_done;
    }
    if (n_done > 0) {
        nw_log(NW_LOG_INFO, "goes on behind %zu of %zu tensors that stand already", n_done, d->n);
    }
    return n_done;
}

/* A run that was stopped leaves what it finished to the next one, as one that was killed does. What fails
 * otherwise leaves what an earlier run finished; and, where the hash behind all tensors failed, its own.
 * Without a journal, which the last step of a commit removes, nobody can go on. */
static bool is_kept(const nw_quantize_driver *d, nw_status st)
{
    const size_t n_done = d->writer != NULL ? nw_artifact_writer_n_done(d->writer) : 0;
    char *journal = NULL;

    if (n_done == 0 || st == NW_OK || d->source_changed ||
        (st != NW_E_CANCELLED && d->n_found == 0 && !d->hash_failed)) {
        return false;
    }
    journal = nw_path_join(nw_artifact_writer_dir(d->writer), NW_ARTIFACT_JOURNAL);
    const bool stands = journal != NULL && nw_file_exists(journal);
    free(journal);
    return stands;
}

static void close_writer(nw_quantize_driver *d, nw_status st, nw_error *err)
{
    char where[512];

    if (!is_kept(d, st)) {
        nw_artifact_writer_close(d->writer);
        return;
    }
    const size_t n = strlen(err->message);
    const size_t n_done = nw_artifact_writer_n_done(d->writer);
    nw_artifact_writer_keep(d->writer, where, sizeof where);
    (void)snprintf(err->message + n, sizeof err->message - n,
                   "; %zu of %zu tensors stand in %s, and the same command goes on from there",
                   n_done, d->n, where);
}

/* The hash of the source, which must still be the one that was opened. */
static nw_status end_source(nw_quantize_driver *d, nw_error *err)
{
    nw_digest hash = {0};
    nw_digest stamp = {0};
    nw_status st = nw_source_digest_end(d->source, &hash, err);

    st = st == NW_OK ? nw_checkpoint_stamp(d->ckpt, &stamp, err) : st;
    d->hash_failed = st != NW_OK;
    if (st == NW_OK && strcmp(stamp.hex, d->stamp.hex) != 0) {
        d->source_changed = true;
        st = nw_fail(err, NW_E_IO, "%s: a file of it was replaced while it was quantized",
                     d->options->source);
    }
    if (st == NW_OK) {
        nw_artifact_writer_source(d->writer, &hash);
    }
    return st;
}

static nw_status write_all(nw_quantize_driver *d, nw_error *err)
{
    nw_status st = NW_OK;

    if (d->options->show_progress) {
        nw_progress_begin(&d->progress, "quantize", "weights", d->n_params);
    }
    const size_t n_done = take_up(d);
    for (size_t i = n_done; st == NW_OK && i < d->n; i++) {
        const nw_recipe_choice *ch = &d->choices[i];
        st = ch->is_vector ? write_vector(d, ch, err) : write_matrix(d, ch, err);
    }
    if (st == NW_OK && d->options->show_progress) {
        nw_progress_step(&d->progress, d->n_params);
    }
    st = st == NW_OK ? end_source(d, err) : st;
    return st == NW_OK ? nw_artifact_writer_commit(d->writer, err) : st;
}

nw_status nw_quantize(const nw_quantize_options *o, nw_manifest *summary, nw_error *err)
{
    nw_quantize_driver d = {.options = o, .report = json_array()};
    nw_status st = d.report != NULL ? nw_quantize_open(&d, err)
                                    : nw_fail(err, NW_E_NOMEM, "%s: no memory", o->source);

    if (st == NW_OK) {
        st = write_all(&d, err);
    }
    if (st == NW_OK && summary != NULL) {
        *summary = nw_artifact_writer_take_manifest(d.writer);
    }
    nw_source_digest_close(d.source);
    nw_source_pages_close(d.pages);
    close_writer(&d, st, err);
    nw_input_cache_close(&d.inputs);
    json_decref(d.report);
    nw_pool_close(d.pool);
    nw_recipe_close(d.recipe);
    nw_checkpoint_close(d.ckpt);
    nw_transform_free(d.transform);
    json_decref(d.channel_scales);
    nw_input_plan_release(&d.plan);
    nw_kv_plan_release(&d.kv);
    for (size_t i = 0; d.choices != NULL && i < d.n; i++) {
        nw_packed_plan_free(d.choices[i].packed);
    }
    free(d.choices);
    return st;
}
