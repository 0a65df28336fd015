/* Journals of long work: see journal.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/journal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"

#define VERSION   1
#define MAX_BYTES ((size_t)128 << 20)

struct nw_journal {
    FILE *file;
    char *path;
};

static nw_status check_of(const char *path, const json_t *head, const json_t *of,
                          const char **differs, nw_error *err)
{
    const json_t *found = json_object_get(head, "of");
    const char *key = NULL;
    json_t *value = NULL;

    json_object_foreach((json_t *)(uintptr_t)of, key, value)
    {
        if (!json_equal(json_object_get(found, key), value)) {
            *differs = key;
            return nw_fail(err, NW_E_FORMAT, "%s: of another %s", path, key);
        }
    }
    return NW_OK;
}

/* Whole lines that parse; the first that does not ends them. */
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

static bool is_head(const json_t *head, const char *format)
{
    const char *found = json_string_value(json_object_get(head, "format"));

    return found != NULL && strcmp(found, format) == 0 &&
           json_integer_value(json_object_get(head, "version")) == VERSION;
}

nw_status nw_journal_load(const char *path, const char *format, const json_t *of, json_t **rows,
                          const char **differs, nw_error *err)
{
    nw_error ignored = {0};
    char *text = NULL;
    json_t *head = NULL;
    size_t n = 0;
    nw_status st = NW_OK;

    *rows = NULL;
    *differs = NULL;
    /* a file that is none, or whose first line is cut, is the journal of nothing */
    if (!nw_file_exists(path) || nw_file_read(path, MAX_BYTES, &text, &n, &ignored) != NW_OK) {
        return NW_OK;
    }
    const char *end = memchr(text, '\n', n);
    if (end != NULL && nw_json_parse(path, text, (size_t)(end - text), &head, &ignored) == NW_OK &&
        is_head(head, format)) {
        st = check_of(path, head, of, differs, err);
        if (st == NW_OK) {
            *rows = parse_rows(path, end + 1, n - (size_t)(end - text) - 1);
            st = *rows != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory for it", path);
        }
    }
    json_decref(head);
    free(text);
    return st;
}

static bool add_line(nw_buf *b, const json_t *value)
{
    char *text = value == NULL ? NULL : json_dumps(value, JSON_COMPACT);
    const bool ok = text != NULL && nw_buf_puts(b, text) && nw_buf_puts(b, "\n");

    free(text);
    return ok;
}

nw_status nw_journal_open(const char *path, const char *format, const json_t *of,
                          const json_t *rows, size_t n, nw_journal **out, nw_error *err)
{
    nw_journal *j = calloc(1, sizeof *j);
    json_t *head = json_pack("{s:s, s:i, s:O}", "format", format, "version", VERSION, "of", of);
    nw_buf text;
    nw_status st = NW_OK;

    nw_buf_init(&text, MAX_BYTES);
    bool ok = j != NULL && add_line(&text, head);
    for (size_t i = 0; ok && i < n; i++) {
        ok = add_line(&text, json_array_get(rows, i));
    }
    json_decref(head);
    if (!ok || (j->path = strdup(path)) == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for a journal", path);
    } else {
        st = nw_file_write(path, text.data, text.len, err);
    }
    if (st == NW_OK && (j->file = fopen(path, "a")) == NULL) {
        st = nw_fail(err, NW_E_IO, "%s: cannot be opened", path);
    }
    nw_buf_release(&text);
    if (st != NW_OK) {
        nw_journal_close(j);
        return st;
    }
    *out = j;
    return NW_OK;
}

nw_status nw_journal_add(nw_journal *j, const json_t *row, nw_error *err)
{
    if (row == NULL || json_dumpf(row, j->file, JSON_COMPACT) != 0 || fputc('\n', j->file) == EOF ||
        fflush(j->file) != 0) {
        return nw_fail(err, NW_E_IO, "%s: cannot be written", j->path);
    }
    return NW_OK;
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
