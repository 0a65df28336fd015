/* Holds a native artifact to its manifest, tensor by tensor: what was written is read back with the
 * reference decoder, so that a file of zeros, a wrong shape or a flipped bit has a name.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/inputs.h"
#include "base/file.h"
#include "base/pool.h"
#include "base/signal.h"
#include "formats/bf16_stored.h"
#include "formats/panel_rows.h"
#include "model/safetensors.h"

/* Sums are taken over the same values as when writing, not always in the same order: they differ by
 * rounding of a sum of n doubles, far below this. */
#define REL_TOLERANCE 1e-9

#define TOGETHER 4 /* tensors of an item: their hashes go side by side, two at a time */

typedef struct {
    bool ok;
    char why[192];
} finding;

typedef struct {
    const char *path;
    nw_manifest manifest;
    nw_safetensors *st;
    nw_checkpoint *source; /* may be NULL */
    nw_verify_fn report;
    void *ctx;
    finding *findings; /* one a tensor of the manifest */
    size_t n_bad;
    char first[256]; /* name and problem of the first bad tensor */
} verifier;

static bool problem(char *buf, size_t n, const char *fmt, ...) NW_PRINTF(3, 4);

/* Writes a sentence and returns false. */
static bool problem(char *buf, size_t n, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(buf, n, fmt, args);
    va_end(args);
    return false;
}

static bool close_to(double a, double b)
{
    return fabs(a - b) <= REL_TOLERANCE * fmax(fabs(a), fabs(b));
}

static bool check_size(const nw_manifest_tensor *t, const nw_st_tensor *st, char *why, size_t n)
{
    if (st == NULL) {
        return problem(why, n, "missing from model.safetensors");
    }
    if (st->n_bytes != t->n_bytes || st->format != (t->is_vector ? NW_FMT_F32 : NW_FMT_U8)) {
        return problem(why, n, "%zu bytes of %s, the manifest says %llu", st->n_bytes,
                       nw_format_get(st->format)->name, (unsigned long long)t->n_bytes);
    }
    return true;
}

static bool check_hash(const nw_manifest_tensor *t, const nw_digest *found, char *why, size_t n)
{
    if (strcmp(found->hex, t->sha256.hex) != 0) {
        return problem(why, n, "its bytes have sha256 %.12s, the manifest says %.12s", found->hex,
                       t->sha256.hex);
    }
    return true;
}

/* Rows of a tensor, in order. A packed one is transcoded panel by panel. */
typedef struct {
    const nw_manifest_tensor *t;
    const uint8_t *data;
    nw_bf16_stored stored;
    uint8_t *panel;
    void *scratch;
} row_source;

static bool open_rows(row_source *s, const nw_manifest_tensor *t, const uint8_t *data, char *why,
                      size_t n)
{
    nw_panel_type want = t->type;
    size_t panel_bytes = 0;

    *s = (row_source){.t = t, .data = data};
    if (t->is_vector || !t->type.packed) {
        return true;
    }
    want.packed = false;
    if (!nw_bf16_stored_open(&s->stored, data, (size_t)t->n_bytes, t->n_rows, t->n_cols) ||
        s->stored.type.kind != want.kind || s->stored.type.escapes != want.escapes ||
        !nw_panel_bytes(want, t->n_cols, &panel_bytes)) {
        return problem(why, n, "its head does not fit its type");
    }
    s->panel = calloc(1, panel_bytes);
    s->scratch = calloc(1, nw_bf16_packed_scratch(t->n_cols));
    return s->panel != NULL && s->scratch != NULL
               ? true
               : problem(why, n, "no memory for a panel of %u columns", (unsigned)t->n_cols);
}

static void close_rows(row_source *s)
{
    nw_bf16_stored_close(&s->stored);
    free(s->panel);
    free(s->scratch);
}

/* Panel `item` as memory holds it. */
static bool find_panel(row_source *s, uint32_t item, nw_panel_rows *p, char *why, size_t n)
{
    const nw_manifest_tensor *t = s->t;
    size_t panel_bytes = 0;

    if (t->type.packed && !nw_bf16_stored_panel(&s->stored, item, s->panel, s->scratch)) {
        return problem(why, n, "panel %u does not decode", (unsigned)item);
    }
    if (t->type.packed) {
        p->type = s->stored.type;
        p->panel = s->panel;
    } else if (nw_panel_bytes(t->type, t->n_cols, &panel_bytes)) {
        p->panel = s->data + item * panel_bytes;
    } else {
        return problem(why, n, "%u columns are too many", (unsigned)t->n_cols);
    }
    return true;
}

/* Adds rows [row0, row0 + p->n_rows) to the sums; without a panel p->out holds them. */
static bool add_rows(const verifier *v, const nw_ckpt_tensor *st, uint32_t row0,
                     const nw_panel_rows *p, float *src, nw_tensor_error *e, char *why, size_t n)
{
    const size_t n_values = (size_t)p->n_rows * p->n_cols;
    nw_error err = {0};
    size_t i = 0;

    if (st != NULL && nw_checkpoint_read_f32(v->source, st, row0, p->n_rows, src, &err) != NW_OK) {
        return problem(why, n, "%s", err.message);
    }
    const nw_row_error sums = p->panel != NULL
                                  ? nw_panel_error(p, st != NULL ? src : NULL)
                                  : nw_row_error_of(st != NULL ? src : p->out, p->out, n_values);
    if (isfinite(sums.sum_out_sq)) {
        nw_tensor_error_add_rows(e, &sums, n_values);
        return true;
    }
    if (p->panel != NULL) {
        nw_panel_unpack_rows(p);
    }
    while (isfinite(p->out[i])) {
        i++;
    }
    return problem(why, n, "row %zu column %zu decodes to a value that is not finite",
                   row0 + i / p->n_cols, i % p->n_cols);
}

/* Adds up the error against the source, or against the decoded values themselves without one; rows and
 * src have room for a panel. */
static bool sum_values(const verifier *v, row_source *source, float *rows, float *src,
                       nw_tensor_error *e, char *why, size_t n)
{
    const nw_manifest_tensor *t = source->t;
    const nw_ckpt_tensor *st =
        v->source == NULL ? NULL : nw_checkpoint_find(v->source, t->role, t->layer);
    nw_panel_rows p = {
        .type = t->type, .n_rows = 1, .n_cols = t->n_cols, .out = rows, .ld = t->n_cols};

    if (v->source != NULL && (st == NULL || st->n_rows != t->n_rows || st->n_cols != t->n_cols)) {
        return problem(why, n, "the source has no such tensor of this shape");
    }
    if (t->is_vector) {
        memcpy(rows, source->data, (size_t)t->n_cols * sizeof *rows);
        return add_rows(v, st, 0, &p, src, e, why, n);
    }
    for (uint32_t r = 0; r < t->n_rows; r += NW_PANEL_ROWS) {
        const uint32_t left = t->n_rows - r;
        p.n_rows = left < NW_PANEL_ROWS ? left : NW_PANEL_ROWS;
        if (!find_panel(source, r / NW_PANEL_ROWS, &p, why, n) ||
            !add_rows(v, st, r, &p, src, e, why, n)) {
            return false;
        }
    }
    return true;
}

static bool check_sums(const verifier *v, const nw_manifest_tensor *t, const nw_tensor_error *e,
                       char *why, size_t n)
{
    const double count = fmax(1, (double)e->n);
    const double share = (double)e->n_nonzero / count;
    const double rms = sqrt(e->sum_out_sq / count);
    const double sqnr = nw_tensor_error_sqnr_db(e);

    if (!close_to(share, t->nonzero_share)) {
        return problem(why, n, "%.4f of its values are not zero, the manifest says %.4f", share,
                       t->nonzero_share);
    }
    if (!close_to(rms, t->rms)) {
        return problem(why, n, "its rms is %.9g, the manifest says %.9g", rms, t->rms);
    }
    if (v->source == NULL) {
        return true;
    }
    if (isinf(sqnr) != isinf(t->sqnr_db) || (isfinite(sqnr) && !close_to(sqnr, t->sqnr_db))) {
        return problem(why, n, "SQNR %.4f dB against the source, the manifest says %.4f", sqnr,
                       t->sqnr_db);
    }
    if (!close_to(e->max_abs_err, t->max_abs_err)) {
        return problem(why, n, "largest error %.9g against the source, the manifest says %.9g",
                       e->max_abs_err, t->max_abs_err);
    }
    return true;
}

static bool check_values(const verifier *v, const nw_manifest_tensor *t, const uint8_t *data,
                         char *why, size_t n)
{
    float *row = calloc(NW_PANEL_ROWS, t->n_cols * sizeof *row);
    float *src = calloc(v->source != NULL ? NW_PANEL_ROWS : 1, t->n_cols * sizeof *src);
    nw_tensor_error e = {0};
    row_source rows = {0};
    bool ok = false;

    if (row == NULL || src == NULL) {
        ok = problem(why, n, "no memory for 16 rows of %u values", (unsigned)t->n_cols);
    } else {
        ok = open_rows(&rows, t, data, why, n) && sum_values(v, &rows, row, src, &e, why, n) &&
             check_sums(v, t, &e, why, n);
    }
    close_rows(&rows);
    free(row);
    free(src);
    return ok;
}

/* Item of the pool: some tensors that follow each other, hashed together; each one's finding is kept for the
 * report in manifest order. */
static void check_tensors(void *ctx, size_t item, unsigned worker)
{
    verifier *v = ctx;
    const size_t first = item * TOGETHER;
    const size_t left = v->manifest.n_tensors - first;
    const size_t n = left < TOGETHER ? left : TOGETHER;
    const nw_manifest_tensor *t = v->manifest.tensors + first;
    finding *f = v->findings + first;
    const nw_st_tensor *st[TOGETHER] = {0};
    nw_byte_span spans[TOGETHER] = {0};
    nw_digest found[TOGETHER] = {0};
    nw_error err = {0};

    (void)worker;
    if (nw_stop_requested()) {
        return; /* check_all says so */
    }
    for (size_t i = 0; i < n; i++) {
        st[i] = nw_st_find(v->st, t[i].name);
        f[i].ok = check_size(&t[i], st[i], f[i].why, sizeof f[i].why);
        if (f[i].ok) {
            spans[i] = (nw_byte_span){st[i]->data, st[i]->n_bytes};
        }
    }
    const bool hashed = nw_digest_spans(spans, n, found, &err) == NW_OK;
    for (size_t i = 0; i < n; i++) {
        if (!hashed && f[i].ok) {
            f[i].ok = problem(f[i].why, sizeof f[i].why, "%s", err.message);
        }
        f[i].ok = f[i].ok && check_hash(&t[i], &found[i], f[i].why, sizeof f[i].why) &&
                  check_values(v, &t[i], st[i]->data, f[i].why, sizeof f[i].why);
    }
}

static void report_findings(verifier *v)
{
    for (size_t i = 0; i < v->manifest.n_tensors; i++) {
        const nw_manifest_tensor *t = &v->manifest.tensors[i];
        const finding *f = &v->findings[i];
        if (!f->ok && v->n_bad++ == 0) {
            (void)snprintf(v->first, sizeof v->first, "'%.60s': %s", t->name, f->why);
        }
        if (v->report != NULL) {
            v->report(v->ctx, t, f->ok ? NULL : f->why);
        }
    }
}

static nw_status check_all(verifier *v, nw_error *err)
{
    nw_pool *pool = NULL;
    nw_status st = NW_OK;

    v->findings = calloc(v->manifest.n_tensors, sizeof *v->findings);
    if (v->findings == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu findings", v->path,
                       v->manifest.n_tensors);
    }
    st = nw_pool_open(0, &pool, err);
    if (st == NW_OK) {
        nw_pool_run(pool, (v->manifest.n_tensors + TOGETHER - 1) / TOGETHER, check_tensors, v);
        st = nw_stop_requested() ? nw_fail(err, NW_E_CANCELLED, "%s: stopped", v->path) : NW_OK;
    }
    if (st == NW_OK) {
        report_findings(v);
    }
    nw_pool_close(pool);
    return st;
}

/* The hash of inputs.safetensors; its contents are looked at when the artifact is opened. */
static nw_status check_inputs(const verifier *v, nw_error *err)
{
    char *path = nw_path_join(v->path, NW_INPUTS_FILE);
    nw_digest found = {0};
    nw_status st = NW_OK;

    if (path == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory", v->path);
    } else if (v->manifest.inputs.hex[0] != '\0') {
        st = nw_digest_file(path, &found, err);
        if (st == NW_OK && strcmp(found.hex, v->manifest.inputs.hex) != 0) {
            st = nw_fail(err, NW_E_FORMAT, "%s: sha256 %.12s, the manifest says %.12s", path,
                         found.hex, v->manifest.inputs.hex);
        }
    }
    free(path);
    return st;
}

static nw_status open_parts(verifier *v, const char *source, nw_error *err)
{
    char *manifest = nw_path_join(v->path, "manifest.json");
    nw_status st = manifest != NULL ? nw_manifest_load(manifest, &v->manifest, err)
                                    : nw_fail(err, NW_E_NOMEM, "%s: no memory", v->path);

    free(manifest);
    if (st == NW_OK) {
        st = nw_st_open(v->path, &v->st, err);
    }
    if (st == NW_OK) {
        st = check_inputs(v, err);
    }
    if (st == NW_OK && source != NULL &&
        (json_object_get(v->manifest.recipe, "transform") != NULL ||
         json_object_get(v->manifest.recipe, "outliers") != NULL)) {
        st = nw_fail(err, NW_E_UNSUPPORTED,
                     "%s: its recipe transforms the weights or keeps columns apart before they are "
                     "quantized: they cannot be held to those of the source",
                     v->path);
    }
    if (st == NW_OK && source != NULL) {
        st = nw_checkpoint_open(source, &v->source, err);
    }
    return st;
}

/* The engine's own door: config, completeness, shapes, alignment. */
static nw_status open_whole(const char *path, nw_error *err)
{
    nw_artifact *a = NULL;
    const nw_status st = nw_artifact_open(path, &a, err);

    nw_artifact_close(a);
    return st;
}

nw_status nw_artifact_verify(const char *path, const char *source, nw_verify_fn report, void *ctx,
                             nw_error *err)
{
    verifier v = {.path = path, .report = report, .ctx = ctx};
    nw_status st = open_parts(&v, source, err);

    if (st != NW_OK) {
        goto out;
    }
    st = check_all(&v, err);
    if (st != NW_OK) {
        goto out;
    }
    if (v.n_bad > 0) {
        st = nw_fail(err, NW_E_FORMAT, "%s: %zu of %zu tensors are at fault, first %s", path,
                     v.n_bad, v.manifest.n_tensors, v.first);
    } else if (nw_st_n_tensors(v.st) != v.manifest.n_tensors) {
        st = nw_fail(err, NW_E_FORMAT, "%s: %zu tensors in model.safetensors, %zu in the manifest",
                     path, nw_st_n_tensors(v.st), v.manifest.n_tensors);
    } else {
        st = open_whole(path, err);
    }
out:
    free(v.findings);
    nw_checkpoint_close(v.source);
    nw_st_close(v.st);
    nw_manifest_release(&v.manifest);
    return st;
}
