/* The streaming writer of native artifacts: see writer.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact.h"
#include "artifact/gguf_keys.h"
#include "artifact/hf_files.h"
#include "base/behind.h"
#include "base/build_id.h"
#include "base/file.h"
#include "base/journal.h"
#include "model/safetensors.h"

#define DATA_ALIGNMENT 4096 /* a page: sections can be mapped and dropped alone */
#define WEIGHTS        "model.safetensors"
#define JOURNAL_FORMAT "narrow-journal"

struct nw_artifact_writer {
    nw_folder folder;
    nw_manifest manifest;
    nw_st_writer *st;
    nw_writer manifest_file;
    nw_sha256 hash;
    size_t current;          /* tensor being written */
    uint64_t n_written;      /* bytes of it */
    nw_journal *journal;     /* NULL inside another's folder */
    json_t *identity, *done; /* what is made; rows of the journal that was found */
    size_t n_done;           /* of them, those whose bytes are there */
    nw_behind *behind;       /* opened when something is handed over */
    const void *handed;      /* what that is */
    size_t n_handed;
    nw_artifact_hasher hasher;
};

static void declare(const nw_manifest_tensor *t, nw_st_decl *d)
{
    *d = (nw_st_decl){.name = t->name, .format = t->is_vector ? NW_FMT_F32 : NW_FMT_U8};
    if (t->is_vector || t->type.packed) {
        d->n_dims = 1;
        d->dims[0] = t->is_vector ? t->n_cols : t->n_bytes;
    } else {
        d->n_dims = 2;
        d->dims[0] = nw_panel_count(t->n_rows);
        d->dims[1] = t->n_bytes / d->dims[0];
    }
}

static bool size_of(const nw_manifest_tensor *t, size_t *out)
{
    return t->is_vector ? nw_size_mul(t->n_cols, sizeof(float), out)
                        : nw_panel_tensor_bytes(t->type, t->n_rows, t->n_cols, out);
}

/* Sizes follow from types and shapes, but for packed tensors, whose maker knows them; a vector before a matrix would leave the matrix unaligned. */
static nw_status size_tensors(nw_manifest *m, nw_error *err)
{
    bool vectors = false;

    for (size_t i = 0; i < m->n_tensors; i++) {
        nw_manifest_tensor *t = &m->tensors[i];
        size_t n = (size_t)t->n_bytes;
        const bool fits = t->type.packed ? n > 0 && n % 64 == 0 : size_of(t, &n);
        if (!fits || (vectors && !t->is_vector)) {
            return nw_fail(err, NW_E_RANGE, "tensor '%s': %s", t->name,
                           fits ? "a matrix after vectors" : "its size does not fit an address");
        }
        vectors = t->is_vector;
        t->n_bytes = n;
    }
    return NW_OK;
}

static nw_status open_weights(nw_artifact_writer *w, nw_error *err)
{
    static const char *const metadata[] = {"narrow", "16-row panels, see manifest.json", NULL};
    nw_st_decl *decls = calloc(w->manifest.n_tensors + 1, sizeof *decls);
    char *path = nw_path_join(w->folder.tmp, WEIGHTS);
    nw_status st = NW_OK;

    if (decls == NULL || path == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "no memory for %zu tensors", w->manifest.n_tensors);
        goto out;
    }
    for (size_t i = 0; i < w->manifest.n_tensors; i++) {
        declare(&w->manifest.tensors[i], &decls[i]);
    }
    st = nw_st_writer_resume(path, decls, w->manifest.n_tensors, metadata, DATA_ALIGNMENT,
                             w->n_done, &w->st, err);
out:
    free(decls);
    free(path);
    return st;
}

/* What is made, from a manifest whose tensors are not written yet; NULL with the error set. */
static json_t *identity_of(nw_manifest *m, const char *source, nw_error *err)
{
    const json_t *calibration = json_object_get(m->recipe, "calibration");
    const char *hash = json_string_value(json_object_get(calibration, "hash"));
    char tool[96];
    json_t *of = NULL;

    /* two builds of a version may round differently */
    (void)snprintf(tool, sizeof tool, "%s, build %s", m->tool_version, nw_build_id());
    /* the seal covers everything that is known before the first tensor is written */
    if (nw_manifest_seal(m, err) == NW_OK) {
        of = json_pack("{s:s, s:s, s:s, s:s}", "tool", tool, "source",
                       source != NULL ? source : m->source.hex, "calibration",
                       hash != NULL ? hash : "", "recipe", m->hash.hex);
        if (of == NULL) {
            (void)nw_fail(err, NW_E_NOMEM, "no memory for a journal");
        }
    }
    return of;
}

static nw_partial judge_partial(void *ctx, const char *folder, nw_error *err)
{
    nw_artifact_writer *w = ctx;
    char *path = nw_path_join(folder, NW_ARTIFACT_JOURNAL);
    const char *differs = NULL;
    json_t *rows = NULL;
    nw_partial verdict = NW_PARTIAL_REMOVE;
    const nw_status st =
        path == NULL ? nw_fail(err, NW_E_NOMEM, "%s: no memory for its name", folder)
                     : nw_journal_load(path, JOURNAL_FORMAT, w->identity, &rows, &differs, err);

    free(path);
    if (differs != NULL) {
        (void)nw_fail(err, NW_E_FORMAT,
                      "%s: an unfinished result of another %s stands there; finish it by its own "
                      "command, or start anew with --force",
                      folder, strcmp(differs, "tool") == 0 ? "build of narrow" : differs);
    }
    if (st != NW_OK) {
        verdict = NW_PARTIAL_REFUSE;
    } else if (rows != NULL) {
        verdict = NW_PARTIAL_TAKE;
    }
    if (verdict == NW_PARTIAL_TAKE && w->done == NULL) {
        w->done = rows;
    } else {
        json_decref(rows);
    }
    return verdict;
}

/* Maps the weights as far as they were written; a file that is whole gets its earlier name back.
 * False: there are none. */
static bool map_unfinished(const char *dir, nw_file *out)
{
    char *whole = nw_path_join(dir, WEIGHTS);
    char *part = nw_path_join(dir, WEIGHTS NW_ST_PART);
    nw_error ignored = {0};
    bool ok = whole != NULL && part != NULL;

    if (ok && nw_file_exists(whole)) {
        ok = rename(whole, part) == 0;
    }
    ok = ok && nw_file_exists(part) && nw_file_map(part, out, &ignored) == NW_OK;
    free(whole);
    free(part);
    return ok;
}

/* Is the row of tensor t, and are these its bytes? Then its errors and hash are taken over. */
static bool take_row(const json_t *row, nw_manifest_tensor *t, const uint8_t *bytes, size_t room)
{
    nw_manifest_tensor found = {0};
    nw_digest digest = {0};
    nw_error ignored = {0};

    const bool ok =
        nw_manifest_tensor_read(json_object_get(row, "tensor"), "", &found, &ignored) == NW_OK &&
        strcmp(found.name, t->name) == 0 && found.n_bytes == t->n_bytes && t->n_bytes <= room &&
        nw_digest_bytes(bytes, t->n_bytes, &digest, &ignored) == NW_OK &&
        strcmp(digest.hex, found.sha256.hex) == 0;
    if (ok) {
        t->sha256 = found.sha256;
        t->sqnr_db = found.sqnr_db;
        t->max_abs_err = found.max_abs_err;
        t->nonzero_share = found.nonzero_share;
        t->rms = found.rms;
    }
    free(found.name);
    return ok;
}

/* How many tensors of the journal stand in the file, byte for byte. */
static void count_done(nw_artifact_writer *w)
{
    nw_file f = {0};
    uint64_t at = 8;

    if (!map_unfinished(w->folder.tmp, &f)) {
        return;
    }
    for (unsigned i = 0; i < 8 && f.size >= 8; i++) {
        at += (uint64_t)f.data[i] << (8 * i);
    }
    while (w->n_done < w->manifest.n_tensors && w->n_done < json_array_size(w->done) &&
           at <= f.size &&
           take_row(json_array_get(w->done, w->n_done), &w->manifest.tensors[w->n_done],
                    f.data + at, f.size - at)) {
        at += w->manifest.tensors[w->n_done++].n_bytes;
    }
    nw_file_unmap(&f);
}

/* The partial folder, new or found, with nothing in it that this writer does not know. */
static nw_status open_folder(nw_artifact_writer *w, const nw_artifact_target *target, nw_error *err)
{
    static const char *const kept[] = {NW_ARTIFACT_JOURNAL, WEIGHTS NW_ST_PART};
    bool taken = false;
    nw_status st = NW_OK;

    w->identity = identity_of(&w->manifest, target->source_is, err);
    if (w->identity == NULL) {
        return err->code;
    }
    if (target->inside) {
        return nw_folder_inside(&w->folder, target->path, err);
    }
    st = nw_folder_resume(&w->folder, target->path, target->replace, judge_partial, w, &taken, err);
    if (st == NW_OK && taken) {
        count_done(w);
        st = nw_folder_clear(w->folder.tmp, kept, NW_COUNT(kept), err);
    }
    w->current = w->n_done;
    return st;
}

static nw_status open_journal(nw_artifact_writer *w, nw_error *err)
{
    if (w->folder.inside) { /* nobody could go on with it */
        return NW_OK;
    }
    char *path = nw_path_join(w->folder.tmp, NW_ARTIFACT_JOURNAL);
    const nw_status st = path == NULL
                             ? nw_fail(err, NW_E_NOMEM, "no memory for the name of a journal")
                             : nw_journal_open(path, JOURNAL_FORMAT, w->identity, w->done,
                                               w->n_done, &w->journal, err);

    free(path);
    return st;
}

/* The folder is whole. */
static nw_status remove_journal(const nw_artifact_writer *w, nw_error *err)
{
    if (w->journal == NULL) {
        return NW_OK;
    }
    char *path = nw_path_join(w->folder.tmp, NW_ARTIFACT_JOURNAL);
    const nw_status st =
        path != NULL && remove(path) == 0
            ? NW_OK
            : nw_fail(err, NW_E_IO, "%s: its journal cannot be removed", w->folder.tmp);

    free(path);
    return st;
}

nw_status nw_artifact_writer_open(const nw_artifact_target *target, nw_manifest *manifest,
                                  nw_artifact_writer **out, nw_error *err)
{
    nw_artifact_writer *w = calloc(1, sizeof *w);
    nw_status st = NW_OK;

    *out = NULL;
    if (w == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a writer", target->path);
    }
    w->manifest = *manifest;
    *manifest = (nw_manifest){0};
    st = size_tensors(&w->manifest, err);
    if (st == NW_OK) {
        st = open_folder(w, target, err);
    }
    if (st == NW_OK) {
        st = nw_hf_files_write(target->source, w->folder.tmp, "bfloat16", !target->no_tokenizer,
                               err);
    }
    if (st == NW_OK) {
        st = nw_gguf_keys_write(target->source, w->folder.tmp, err);
    }
    if (st == NW_OK) {
        st = open_weights(w, err);
    }
    if (st == NW_OK) {
        st = open_journal(w, err);
    }
    if (st == NW_OK) {
        st = nw_sha256_init(&w->hash, err);
    }
    if (st != NW_OK) {
        char where[8];
        if (w->n_done > 0) { /* finished work of an earlier writer is not lost to this failure */
            nw_artifact_writer_keep(w, where, sizeof where);
        } else {
            nw_artifact_writer_close(w);
        }
        return st;
    }
    *out = w;
    return NW_OK;
}

size_t nw_artifact_writer_n_done(const nw_artifact_writer *w)
{
    return w->current;
}

const json_t *nw_artifact_writer_note(const nw_artifact_writer *w, size_t i)
{
    const json_t *note = json_object_get(json_array_get(w->done, i), "note");
    return json_is_null(note) ? NULL : note;
}

static nw_status write_handed(void *ctx, nw_error *err)
{
    nw_artifact_writer *w = ctx;
    const nw_manifest_tensor *t = &w->manifest.tensors[w->current];

    w->n_written += w->n_handed;
    if (w->hasher.lay == NULL) {
        nw_sha256_add(&w->hash, w->handed, w->n_handed);
        return nw_st_writer_write(w->st, t->name, w->handed, w->n_handed, err);
    }
    w->hasher.lay(w->hasher.ctx, &w->hash, w->handed, w->n_handed);
    const nw_status st = nw_st_writer_write(w->st, t->name, w->handed, w->n_handed, err);
    w->hasher.collect(w->hasher.ctx);
    return st;
}

void nw_artifact_writer_hasher(nw_artifact_writer *w, nw_artifact_hasher hasher)
{
    w->hasher = hasher;
}

nw_status nw_artifact_writer_settle(nw_artifact_writer *w, nw_error *err)
{
    return w->behind != NULL ? nw_behind_wait(w->behind, err) : NW_OK;
}

nw_status nw_artifact_writer_hand(nw_artifact_writer *w, const void *bytes, size_t n, nw_error *err)
{
    const nw_status st =
        w->behind != NULL ? nw_behind_wait(w->behind, err) : nw_behind_open(&w->behind, err);

    if (st != NW_OK) {
        return st;
    }
    w->handed = bytes;
    w->n_handed = n;
    return nw_behind_give(w->behind, write_handed, w, err);
}

nw_status nw_artifact_writer_add(nw_artifact_writer *w, const void *bytes, size_t n, nw_error *err)
{
    const nw_status st = nw_artifact_writer_settle(w, err);

    if (st != NW_OK) {
        return st;
    }
    w->handed = bytes;
    w->n_handed = n;
    return write_handed(w, err);
}

nw_status nw_artifact_writer_end_tensor(nw_artifact_writer *w, const nw_tensor_error *e,
                                        const json_t *note, nw_error *err)
{
    nw_manifest_tensor *t = &w->manifest.tensors[w->current];

    if (nw_artifact_writer_settle(w, err) != NW_OK) {
        return err->code;
    }
    if (w->n_written != t->n_bytes) {
        return nw_fail(err, NW_E_RANGE, "tensor '%s' got %llu bytes, it has %llu", t->name,
                       (unsigned long long)w->n_written, (unsigned long long)t->n_bytes);
    }
    if (e->sum_sq > 0 && e->n_nonzero == 0) {
        return nw_fail(err, NW_E_RANGE,
                       "tensor '%s' would be written as zeros: its values, of rms %.3g, are below "
                       "what the scales of this layout can hold",
                       t->name, sqrt(e->sum_sq / fmax(1, (double)e->n)));
    }
    t->sha256 = nw_sha256_end(&w->hash);
    t->sqnr_db = nw_tensor_error_sqnr_db(e);
    t->max_abs_err = e->max_abs_err;
    t->nonzero_share = (double)e->n_nonzero / fmax(1, (double)e->n);
    t->rms = sqrt(e->sum_out_sq / fmax(1, (double)e->n));
    w->current++;
    w->n_written = 0;
    nw_status st = NW_OK;
    if (w->journal != NULL) {
        json_t *row = json_pack("{s:o, s:O?}", "tensor", nw_manifest_tensor_json(t), "note", note);
        st = nw_journal_add(w->journal, row, err);
        json_decref(row);
    }
    return st == NW_OK ? nw_sha256_init(&w->hash, err) : st;
}

const char *nw_artifact_writer_dir(const nw_artifact_writer *w)
{
    return w->folder.tmp;
}

void nw_artifact_writer_inputs(nw_artifact_writer *w, const nw_digest *hash, uint64_t n_bytes)
{
    w->manifest.inputs = *hash;
    w->manifest.inputs_bytes = n_bytes;
}

void nw_artifact_writer_source(nw_artifact_writer *w, const nw_digest *hash)
{
    w->manifest.source = *hash;
}

static void count_bits(nw_manifest *m)
{
    double n_all = 0;
    double n_targeted = 0;
    double bytes_all = 0;
    double bytes_targeted = 0;
    double code = 0;

    for (size_t i = 0; i < m->n_tensors; i++) {
        const nw_manifest_tensor *t = &m->tensors[i];
        const double n = (double)t->n_rows * t->n_cols;
        n_all += n;
        bytes_all += (double)t->n_bytes;
        if (t->targeted) {
            n_targeted += n;
            bytes_targeted += (double)t->n_bytes;
            code += n * nw_panel_code_bits(t->type);
        }
    }
    bytes_all += (double)m->inputs_bytes;
    bytes_targeted += (double)m->inputs_bytes;
    m->nominal_bits = n_targeted > 0 ? code / n_targeted : 0;
    m->target_bits = n_targeted > 0 ? 8 * bytes_targeted / n_targeted : 0;
    m->effective_bits = 8 * bytes_all / fmax(1, n_all);
}

static nw_status place_manifest(nw_artifact_writer *w, nw_error *err)
{
    char *path = nw_path_join(w->folder.tmp, "manifest.json");
    char *text = nw_manifest_text(&w->manifest);
    nw_writer *f = &w->manifest_file;
    nw_status st = NW_OK;

    if (path == NULL || text == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for the manifest", w->folder.path);
    } else {
        st = nw_writer_open(f, path, err);
        st = st == NW_OK ? nw_writer_write(f, text, strlen(text), err) : st;
        st = st == NW_OK ? nw_writer_place(f, err) : st;
    }
    free(path);
    free(text);
    return st;
}

static nw_status sync_files(void *ctx, nw_error *err)
{
    nw_artifact_writer *w = ctx;
    const nw_status st = nw_st_writer_sync(w->st, err);

    return st == NW_OK ? nw_writer_sync(&w->manifest_file, err) : st;
}

/* Reads everything back while it is on its way to the disk. */
static nw_status sync_and_verify(nw_artifact_writer *w, nw_error *err)
{
    nw_error late = {.code = NW_OK};
    nw_status st = w->behind != NULL ? NW_OK : nw_behind_open(&w->behind, err);

    st = st == NW_OK ? nw_behind_give(w->behind, sync_files, w, err) : st;
    if (st != NW_OK) {
        return st;
    }
    st = nw_artifact_verify(w->folder.tmp, NULL, NULL, NULL, err);
    if (nw_behind_wait(w->behind, &late) != NW_OK && st == NW_OK) {
        *err = late;
        st = late.code;
    }
    return st;
}

nw_status nw_artifact_writer_commit(nw_artifact_writer *w, nw_error *err)
{
    nw_status st = NW_OK;

    if (w->current != w->manifest.n_tensors) {
        return nw_fail(err, NW_E_RANGE, "%s: %zu of %zu tensors were written", w->folder.path,
                       w->current, w->manifest.n_tensors);
    }
    st = nw_st_writer_place(w->st, err);
    if (st == NW_OK) {
        count_bits(&w->manifest);
        st = nw_manifest_seal(&w->manifest, err);
    }
    st = st == NW_OK ? place_manifest(w, err) : st;
    st = st == NW_OK ? sync_and_verify(w, err) : st;
    st = st == NW_OK ? remove_journal(w, err) : st;
    return st == NW_OK ? nw_folder_commit(&w->folder, err) : st;
}

nw_manifest nw_artifact_writer_take_manifest(nw_artifact_writer *w)
{
    const nw_manifest m = w->manifest;

    w->manifest = (nw_manifest){0};
    return m;
}

static void release(nw_artifact_writer *w)
{
    nw_writer_close(&w->manifest_file);
    nw_journal_close(w->journal);
    json_decref(w->identity);
    json_decref(w->done);
    nw_sha256_release(&w->hash);
    nw_manifest_release(&w->manifest);
    free(w);
}

void nw_artifact_writer_close(nw_artifact_writer *w)
{
    if (w != NULL) {
        nw_behind_close(w->behind);
        nw_st_writer_close(w->st);
        nw_folder_close(&w->folder);
        release(w);
    }
}

void nw_artifact_writer_keep(nw_artifact_writer *w, char *where, size_t n)
{
    (void)snprintf(where, n, "%s", w->folder.tmp);
    nw_behind_close(w->behind);
    nw_st_writer_keep(w->st);
    nw_folder_keep(&w->folder);
    release(w);
}
