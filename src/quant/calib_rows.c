/* Rows of a log and their strata: see calib_rows.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/calib_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/template.h"

#define MAX_STRATA 65536

void nw_calib_rows_release(nw_calib_rows *r)
{
    for (size_t i = 0; i < r->n_strata; i++) {
        free(r->strata[i].name);
    }
    free(r->strata);
    free(r->rows);
    *r = (nw_calib_rows){0};
}

/* The value at "a.b.c", or NULL. */
static const json_t *field_at(const json_t *row, const char *path)
{
    char key[256];

    while (row != NULL && path != NULL) {
        const char *dot = strchr(path, '.');
        const size_t n = dot != NULL ? (size_t)(dot - path) : strlen(path);
        if (n >= sizeof key) {
            return NULL;
        }
        memcpy(key, path, n);
        key[n] = '\0';
        row = json_object_get(row, key);
        path = dot != NULL ? dot + 1 : NULL;
    }
    return row;
}

/* The stratum's name: the value's own text; NULL for objects, lists and where there is no memory. */
static char *stratum_name(const json_t *v, const char *stratify)
{
    if (stratify == NULL) {
        return strdup("all");
    }
    if (v == NULL || json_is_null(v)) {
        return strdup("(none)");
    }
    if (json_is_string(v)) {
        return strdup(json_string_value(v));
    }
    return json_is_object(v) || json_is_array(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY);
}

/* The index of a stratum, which is made where it is new; takes the name over. */
static nw_status stratum_index(nw_calib_rows *r, char *name, uint32_t *out, nw_error *err)
{
    for (size_t i = 0; i < r->n_strata; i++) {
        if (strcmp(r->strata[i].name, name) == 0) {
            free(name);
            *out = (uint32_t)i;
            return NW_OK;
        }
    }
    if (r->n_strata == r->cap_strata) {
        const size_t cap = r->cap_strata == 0 ? 16 : 2 * r->cap_strata;
        nw_stratum *grown = cap > MAX_STRATA ? NULL : realloc(r->strata, cap * sizeof *r->strata);
        if (grown == NULL) {
            free(name);
            return nw_fail(err, NW_E_RANGE, "more than %zu different values of the stratum's field",
                           r->n_strata);
        }
        r->strata = grown;
        r->cap_strata = cap;
    }
    *out = (uint32_t)r->n_strata;
    r->strata[r->n_strata++] = (nw_stratum){.name = name};
    return NW_OK;
}

static nw_status add_row(nw_calib_rows *r, nw_calib_row row, nw_error *err)
{
    if (r->n == r->cap) {
        const size_t cap = r->cap == 0 ? 1024 : 2 * r->cap;
        nw_calib_row *grown = realloc(r->rows, cap * sizeof *grown);
        if (grown == NULL) {
            return nw_fail(err, NW_E_NOMEM, "no memory for %zu rows of the log", cap);
        }
        r->rows = grown;
        r->cap = cap;
    }
    r->rows[r->n++] = row;
    return NW_OK;
}

static nw_status digest_u64(const void *bytes, size_t n, uint64_t *out, nw_error *err)
{
    nw_digest d = {0};
    const nw_status st = nw_digest_bytes(bytes, n, &d, err);
    char head[17] = "";

    memcpy(head, d.hex, 16);
    *out = strtoull(head, NULL, 16);
    return st;
}

/* The parts of a row that are text: at most two. */
static nw_status content_of(const json_t *row, const char *where, const json_t *part[2],
                            nw_error *err)
{
    const json_t *messages = json_object_get(row, "messages");
    const json_t *text = json_object_get(row, "text");
    const json_t *prompt = json_object_get(row, "prompt");
    const json_t *reply = json_object_get(row, "completion");

    part[1] = NULL;
    if (json_is_array(messages)) {
        part[0] = messages;
    } else if (json_is_string(text)) {
        part[0] = text;
    } else if (json_is_string(prompt)) {
        part[0] = prompt;
        part[1] = reply != NULL && !json_is_null(reply) ? reply : json_object_get(row, "response");
    } else {
        return nw_fail(err, NW_E_FORMAT,
                       "%s: a row has a list 'messages', a string 'text' or a string 'prompt'",
                       where);
    }
    if (part[1] != NULL && !json_is_string(part[1])) {
        return nw_fail(err, NW_E_FORMAT, "%s: 'completion' or 'response' is not a string", where);
    }
    return NW_OK;
}

static bool is_empty(const json_t *const part[2])
{
    return json_is_array(part[0]) ? json_array_size(part[0]) == 0
                                  : json_string_length(part[0]) + json_string_length(part[1]) == 0;
}

static nw_status scan_row(const nw_sample_options *o, const json_t *row, const char *where,
                          nw_calib_rows *r, nw_error *err)
{
    const json_t *part[2];
    nw_calib_row out = {.index = r->n, .usable = true};

    if (content_of(row, where, part, err) != NW_OK) {
        return err->code;
    }
    char *name = stratum_name(field_at(row, o->stratify), o->stratify);
    if (name == NULL) {
        return nw_fail(err, NW_E_FORMAT, "%s: '%s' is neither a word nor a number", where,
                       o->stratify);
    }
    if (stratum_index(r, name, &out.stratum, err) != NW_OK) {
        return nw_context(err, "%s", where);
    }
    json_t *both = json_pack("[O, O*]", part[0], part[1]);
    char *text = both == NULL ? NULL : nw_json_canonical(both);
    nw_status st = text == NULL ? nw_fail(err, NW_E_NOMEM, "%s: no memory", where)
                                : digest_u64(text, strlen(text), &out.digest, err);
    free(text);
    json_decref(both);
    r->strata[out.stratum].n_seen++;
    if (is_empty(part)) {
        out.usable = false;
        r->strata[out.stratum].n_empty++;
    }
    return st == NW_OK ? add_row(r, out, err) : st;
}

nw_status nw_calib_rows_scan(const nw_sample_options *o, nw_calib_rows *out, nw_error *err)
{
    nw_jsonl in = {0};
    json_t *row = NULL;
    char where[512];
    nw_calib_rows r = {0};
    nw_status st = nw_jsonl_open(&in, o->log, false, err);

    while (st == NW_OK && (st = nw_jsonl_next(&in, &row, err)) == NW_OK && row != NULL) {
        (void)snprintf(where, sizeof where, "%s:%zu", o->log, in.line_no);
        st = scan_row(o, row, where, &r, err);
    }
    nw_jsonl_close(&in);
    if (st != NW_OK) {
        nw_calib_rows_release(&r);
        return st;
    }
    *out = r;
    return NW_OK;
}

nw_status nw_calib_rows_windows(const int32_t *ids, size_t n, uint32_t n_ctx, nw_calib_rows *out,
                                nw_error *err)
{
    nw_calib_rows r = {0};
    uint32_t stratum = 0;
    char *name = strdup("text");
    nw_status st = name == NULL ? nw_fail(err, NW_E_NOMEM, "no memory for a stratum")
                                : stratum_index(&r, name, &stratum, err);

    for (size_t i = 0; st == NW_OK && i < n; i++) {
        nw_calib_row row = {.index = i, .usable = true};
        st = digest_u64(ids + i * n_ctx, n_ctx * sizeof *ids, &row.digest, err);
        st = st == NW_OK ? add_row(&r, row, err) : st;
    }
    if (st != NW_OK) {
        nw_calib_rows_release(&r);
        return st;
    }
    r.strata[0].n_seen = n;
    *out = r;
    return NW_OK;
}

static int by_name(const void *a, const void *b)
{
    const nw_stratum *x = a;
    const nw_stratum *y = b;
    return strcmp(x->name, y->name);
}

static int by_content(const void *a, const void *b)
{
    const nw_calib_row *x = a;
    const nw_calib_row *y = b;

    if (x->stratum != y->stratum) {
        return x->stratum < y->stratum ? -1 : 1;
    }
    if (x->digest != y->digest) {
        return x->digest < y->digest ? -1 : 1;
    }
    return (x->index > y->index) - (x->index < y->index);
}

/* Rows follow their strata to the sorted places. */
static nw_status sort_strata(nw_calib_rows *r, nw_error *err)
{
    uint32_t *place = calloc(r->n_strata + 1, sizeof *place);
    char **before = calloc(r->n_strata + 1, sizeof *before);

    if (place == NULL || before == NULL) {
        free(place);
        free(before);
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu strata", r->n_strata);
    }
    for (size_t i = 0; i < r->n_strata; i++) {
        before[i] = r->strata[i].name;
    }
    qsort(r->strata, r->n_strata, sizeof *r->strata, by_name);
    for (size_t i = 0; i < r->n_strata; i++) {
        for (size_t k = 0; k < r->n_strata; k++) {
            place[i] = before[i] == r->strata[k].name ? (uint32_t)k : place[i];
        }
    }
    for (size_t i = 0; i < r->n; i++) {
        r->rows[i].stratum = place[r->rows[i].stratum];
    }
    free(place);
    free(before);
    return NW_OK;
}

nw_status nw_calib_rows_settle(nw_calib_rows *r, nw_error *err)
{
    if (r->n == 0) {
        return nw_fail(err, NW_E_RANGE, "no row to draw from");
    }
    if (sort_strata(r, err) != NW_OK) {
        return err->code;
    }
    qsort(r->rows, r->n, sizeof *r->rows, by_content);
    for (size_t i = 1; i < r->n; i++) {
        const nw_calib_row *before = &r->rows[i - 1];
        nw_calib_row *row = &r->rows[i];
        if (row->usable && row->stratum == before->stratum && row->digest == before->digest) {
            row->usable = false;
            r->strata[row->stratum].n_repeated++;
        }
    }
    return NW_OK;
}

nw_status nw_calib_row_encode(const nw_tokenizer *tok, const json_t *row, const char *where,
                              nw_ids *ids, nw_error *err)
{
    const json_t *part[2];
    nw_status st = content_of(row, where, part, err);

    if (st == NW_OK && json_is_array(part[0])) {
        st = nw_chat_encode(tok, part[0], false, ids, err);
    } else if (st == NW_OK) {
        const size_t n = json_string_length(part[0]);
        const size_t m = json_string_length(part[1]);
        char *text = malloc(n + m + 1);
        if (text == NULL) {
            return nw_fail(err, NW_E_NOMEM, "%s: no memory for its text", where);
        }
        memcpy(text, json_string_value(part[0]), n);
        if (m > 0) {
            memcpy(text + n, json_string_value(part[1]), m);
        }
        st = nw_tokenizer_encode(tok, text, n + m, NW_TOK_BOS, ids, err);
        free(text);
    }
    return st == NW_OK ? NW_OK : nw_context(err, "%s", where);
}
