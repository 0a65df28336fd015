/* The journal of finished tensors: see journal.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/journal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"

#define VERSION 1
/* As a manifest, and the notes. */
#define MAX_BYTES ((size_t)128 << 20)

struct nw_journal {
    FILE *file;
    char *path;
};

/* The parts in the order in which a difference is told. */
static const struct {
    const char *key, *name;
} parts[] = {
    {"tool", "version of narrow"},
    {"source", "source"},
    {"calibration", "calibration"},
    {"recipe", "recipe"},
};

json_t *nw_journal_identity(nw_manifest *m, nw_error *err)
{
    const json_t *calibration = json_object_get(m->recipe, "calibration");
    const char *hash = json_string_value(json_object_get(calibration, "hash"));
    json_t *of = NULL;

    /* the seal covers everything that is known before the first tensor is written */
    if (nw_manifest_seal(m, err) == NW_OK) {
        of = json_pack("{s:s, s:s, s:s, s:s}", "tool", m->tool_version, "source", m->source.hex,
                       "calibration", hash != NULL ? hash : "", "recipe", m->hash.hex);
        if (of == NULL) {
            (void)nw_fail(err, NW_E_NOMEM, "no memory for a journal");
        }
    }
    return of;
}

static nw_status check_identity(const char *path, const json_t *head, const json_t *identity,
                                nw_error *err)
{
    const json_t *of = json_object_get(head, "of");

    for (size_t i = 0; i < NW_COUNT(parts); i++) {
        if (!json_equal(json_object_get(of, parts[i].key),
                        json_object_get(identity, parts[i].key))) {
            return nw_fail(err, NW_E_FORMAT,
                           "%s: an unfinished result of another %s stands there; finish it by its "
                           "own command, or start anew with --force",
                           path, parts[i].name);
        }
    }
    return NW_OK;
}

/* Whole lines that parse, from the second on; the first that does not ends them. */
static json_t *parse_rows(const char *path, const char *text, size_t n)
{
    json_t *rows = json_array();
    nw_error ignored = {0};

    while (rows != NULL && n > 0) {
        const char *end = memchr(text, '\n', n);
        json_t *row = NULL;
        if (end == NULL ||
            nw_json_parse(path, text, (size_t)(end - text), &row, &ignored) != NW_OK ||
            !json_is_object(row)) {
            json_decref(row);
            break;
        }
        (void)json_array_append_new(rows, row);
        n -= (size_t)(end - text) + 1;
        text = end + 1;
    }
    return rows;
}

nw_status nw_journal_load(const char *dir, const json_t *identity, bool *found, json_t **rows,
                          nw_error *err)
{
    char *path = nw_path_join(dir, NW_JOURNAL_NAME);
    nw_error ignored = {0};
    char *text = NULL;
    json_t *head = NULL;
    size_t n = 0;
    nw_status st = NW_OK;

    *found = false;
    if (path == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for its name", dir);
    }
    /* a file that is none, or whose first line is cut, is the journal of nothing */
    if (!nw_file_exists(path) || nw_file_read(path, MAX_BYTES, &text, &n, &ignored) != NW_OK) {
        goto out;
    }
    const char *end = memchr(text, '\n', n);
    if (end == NULL || nw_json_parse(path, text, (size_t)(end - text), &head, &ignored) != NW_OK ||
        json_integer_value(json_object_get(head, "version")) != VERSION) {
        goto out;
    }
    *found = true;
    st = check_identity(dir, head, identity, err);
    if (st == NW_OK) {
        *rows = parse_rows(path, end + 1, n - (size_t)(end - text) - 1);
        st = *rows != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory for it", path);
    }
out:
    json_decref(head);
    free(text);
    free(path);
    return st;
}

static bool add_line(nw_buf *b, const json_t *value)
{
    char *text = value == NULL ? NULL : json_dumps(value, JSON_COMPACT);
    const bool ok = text != NULL && nw_buf_puts(b, text) && nw_buf_puts(b, "\n");

    free(text);
    return ok;
}

nw_status nw_journal_open(const char *dir, const json_t *identity, const json_t *rows, size_t n,
                          nw_journal **out, nw_error *err)
{
    nw_journal *j = calloc(1, sizeof *j);
    json_t *head = json_pack("{s:s, s:i, s:O}", "format", "narrow-journal", "version", VERSION,
                             "of", identity);
    nw_buf text;
    nw_status st = NW_OK;

    nw_buf_init(&text, MAX_BYTES);
    bool ok = j != NULL && add_line(&text, head);
    for (size_t i = 0; ok && i < n; i++) {
        ok = add_line(&text, json_array_get(rows, i));
    }
    json_decref(head);
    if (!ok || (j->path = nw_path_join(dir, NW_JOURNAL_NAME)) == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for a journal", dir);
    } else {
        st = nw_file_write(j->path, text.data, text.len, err);
    }
    if (st == NW_OK && (j->file = fopen(j->path, "a")) == NULL) {
        st = nw_fail(err, NW_E_IO, "%s: cannot be opened", j->path);
    }
    nw_buf_release(&text);
    if (st != NW_OK) {
        nw_journal_close(j);
        return st;
    }
    *out = j;
    return NW_OK;
}

nw_status nw_journal_add(nw_journal *j, const nw_manifest_tensor *t, const json_t *note,
                         nw_error *err)
{
    json_t *row = json_pack("{s:o, s:O?}", "tensor", nw_manifest_tensor_json(t), "note", note);
    nw_status st = NW_OK;

    /* handed to the system line by line: only a fall of the machine can lose one */
    if (row == NULL || json_dumpf(row, j->file, JSON_COMPACT) != 0 || fputc('\n', j->file) == EOF ||
        fflush(j->file) != 0) {
        st = nw_fail(err, NW_E_IO, "%s: cannot be written", j->path);
    }
    json_decref(row);
    return st;
}

void nw_journal_close(nw_journal *j)
{
    if (j != NULL) {
        if (j->file != NULL) {
            (void)fclose(j->file);
        }
        free(j->path);
        free(j);
    }
}

nw_status nw_journal_remove(const char *dir, nw_error *err)
{
    char *path = nw_path_join(dir, NW_JOURNAL_NAME);
    nw_status st = NW_OK;

    if (path == NULL || remove(path) != 0) {
        st = nw_fail(err, NW_E_IO, "%s: its journal cannot be removed", dir);
    }
    free(path);
    return st;
}
