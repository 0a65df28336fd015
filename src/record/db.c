/* SQLite for the tables of the record: statements made from a table's description, values bound and
 * read with their types checked. A record may come from anywhere, so that a column may hold any
 * type: what does not fit is an error with file, table and column, never a silent 0.
 * SPDX-License-Identifier: Apache-2.0 */
#include "record/db.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"

#define MAX_SQL    ((size_t)16 << 10)
#define MAX_EVENTS ((size_t)16 << 20) /* bytes of one request's events as text */

nw_status nw_db_fail(const nw_record *r, int code, nw_error *err)
{
    nw_status st = NW_E_IO;

    switch (code & 0xff) {
    case SQLITE_NOMEM:
        st = NW_E_NOMEM;
        break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        st = NW_E_BUSY;
        break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_ERROR: /* a table or column that is not there */
    case SQLITE_TOOBIG:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
        st = NW_E_FORMAT;
        break;
    default:
        break;
    }
    return nw_fail(err, st, "%s: %s", r->path, sqlite3_errmsg(r->db));
}

nw_status nw_db_exec(nw_record *r, const char *sql, nw_error *err)
{
    const int rc = sqlite3_exec(r->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? NW_OK : nw_db_fail(r, rc, err);
}

nw_status nw_db_prepare(nw_record *r, const char *sql, const nw_db_arg *args, size_t n_args,
                        sqlite3_stmt **out, nw_error *err)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(r->db, sql, -1, &s, NULL);

    for (size_t i = 0; rc == SQLITE_OK && i < n_args; i++) {
        const int at = (int)i + 1;
        rc = args[i].text != NULL ? sqlite3_bind_text(s, at, args[i].text, -1, SQLITE_TRANSIENT)
                                  : sqlite3_bind_int64(s, at, args[i].number);
    }
    if (rc != SQLITE_OK) {
        const nw_status st = nw_db_fail(r, rc, err);
        (void)sqlite3_finalize(s);
        return st;
    }
    *out = s;
    return NW_OK;
}

nw_status nw_db_run(nw_record *r, const char *sql, const nw_db_arg *args, size_t n_args,
                    nw_error *err)
{
    sqlite3_stmt *s = NULL;

    if (nw_db_prepare(r, sql, args, n_args, &s, err) != NW_OK) {
        return err->code;
    }
    const int rc = sqlite3_step(s);
    const nw_status st = rc == SQLITE_DONE || rc == SQLITE_ROW ? NW_OK : nw_db_fail(r, rc, err);
    (void)sqlite3_finalize(s);
    return st;
}

nw_status nw_db_text(nw_record *r, const char *sql, const nw_db_arg *args, size_t n_args,
                     nw_arena *arena, const char **text, nw_error *err)
{
    sqlite3_stmt *s = NULL;
    nw_status st = nw_db_prepare(r, sql, args, n_args, &s, err);

    if (st != NW_OK) {
        return st;
    }
    const int rc = sqlite3_step(s);
    const char *found = NULL;
    if (rc == SQLITE_ROW && sqlite3_column_type(s, 0) == SQLITE_TEXT) {
        const char *v = (const char *)sqlite3_column_text(s, 0);
        found = v == NULL ? NULL : nw_arena_strndup(arena, v, strlen(v));
        st = found == NULL ? nw_fail(err, NW_E_NOMEM, "%s: no memory for a text", r->path) : NW_OK;
    } else if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        st = nw_db_fail(r, rc, err);
    }
    if (st == NW_OK) {
        *text = found;
    }
    (void)sqlite3_finalize(s);
    return st;
}

nw_status nw_db_number(nw_record *r, const char *sql, const nw_db_arg *args, size_t n_args,
                       int64_t *number, nw_error *err)
{
    sqlite3_stmt *s = NULL;
    nw_status st = nw_db_prepare(r, sql, args, n_args, &s, err);

    if (st != NW_OK) {
        return st;
    }
    const int rc = sqlite3_step(s);
    if (rc == SQLITE_ROW || rc == SQLITE_DONE) {
        *number = rc == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;
    } else {
        st = nw_db_fail(r, rc, err);
    }
    (void)sqlite3_finalize(s);
    return st;
}

/* ---- writing ---- */

/* INSERT OR REPLACE INTO t(run_id, a, b) VALUES(?, ?, ?) */
static bool insert_sql(const nw_db_table *t, nw_buf *sql)
{
    nw_buf_init(sql, MAX_SQL);
    (void)nw_buf_printf(sql, "INSERT OR REPLACE INTO %s(%s", t->name, t->of_run ? "run_id, " : "");
    for (size_t i = 0; i < t->n_columns; i++) {
        (void)nw_buf_printf(sql, "%s\"%s\"", i == 0 ? "" : ", ", t->columns[i].name);
    }
    (void)nw_buf_printf(sql, ") VALUES(%s", t->of_run ? "?, " : "");
    for (size_t i = 0; i < t->n_columns; i++) {
        (void)nw_buf_puts(sql, i == 0 ? "?" : ", ?");
    }
    return nw_buf_puts(sql, ")") && !sql->failed;
}

/* [[t_ns, tokens], ...] */
static int bind_events(sqlite3_stmt *s, int at, const nw_rec_request *q)
{
    nw_buf b;
    nw_buf_init(&b, MAX_EVENTS);
    for (size_t i = 0; i < q->n_events; i++) {
        (void)nw_buf_printf(&b, "%c[%lld,%u]", i == 0 ? '[' : ',', (long long)q->events[i].t_ns,
                            (unsigned)q->events[i].n_tokens);
    }
    if (!nw_buf_puts(&b, "]") || b.failed) {
        nw_buf_release(&b);
        return SQLITE_TOOBIG;
    }
    const int rc = sqlite3_bind_text(s, at, b.data, (int)b.len, SQLITE_TRANSIENT);
    nw_buf_release(&b);
    return rc;
}

static int bind_count(sqlite3_stmt *s, int at, int64_t v)
{
    return v < 0 ? sqlite3_bind_null(s, at) : sqlite3_bind_int64(s, at, v);
}

static int bind_column(sqlite3_stmt *s, int at, const nw_db_column *c, const char *row)
{
    const void *field = row + c->offset;

    switch (c->kind) {
    case NW_COL_TEXT: {
        const char *text = *(const char *const *)field;
        return text == NULL ? sqlite3_bind_null(s, at)
                            : sqlite3_bind_text(s, at, text, -1, SQLITE_STATIC);
    }
    case NW_COL_COUNT:
        return bind_count(s, at, *(const int64_t *)field);
    case NW_COL_RAW:
        return sqlite3_bind_int64(s, at, *(const int64_t *)field);
    case NW_COL_FLAG:
        return bind_count(s, at, *(const int *)field);
    case NW_COL_BOOL:
        return sqlite3_bind_int64(s, at, *(const bool *)field ? 1 : 0);
    case NW_COL_REAL:
        return sqlite3_bind_double(s, at, *(const double *)field); /* NaN becomes NULL */
    case NW_COL_EVENTS: {
        const nw_rec_request *q = (const nw_rec_request *)(const void *)row;
        return q->n_events == 0 ? sqlite3_bind_null(s, at) : bind_events(s, at, q);
    }
    }
    return SQLITE_MISUSE;
}

static int insert_row(sqlite3_stmt *s, const nw_db_table *t, int64_t run, const char *row)
{
    int at = 1;
    int rc = t->of_run ? sqlite3_bind_int64(s, at++, run) : SQLITE_OK;

    for (size_t i = 0; rc == SQLITE_OK && i < t->n_columns; i++) {
        rc = bind_column(s, at++, &t->columns[i], row);
    }
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(s);
    }
    const int reset = sqlite3_reset(s);
    return rc == SQLITE_DONE ? reset : rc;
}

nw_status nw_db_insert(nw_record *r, const nw_db_table *t, int64_t run, const void *rows, size_t n,
                       nw_error *err)
{
    sqlite3_stmt *s = NULL;
    nw_buf sql;

    if (!insert_sql(t, &sql)) {
        nw_buf_release(&sql);
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a statement", r->path);
    }
    nw_status st = nw_db_exec(r, "SAVEPOINT nw_rows", err);
    if (st != NW_OK) {
        nw_buf_release(&sql);
        return st;
    }
    st = nw_db_prepare(r, sql.data, NULL, 0, &s, err);
    for (size_t i = 0; st == NW_OK && i < n; i++) {
        const int rc = insert_row(s, t, run, (const char *)rows + i * t->row_size);
        if (rc != SQLITE_OK) {
            st = nw_db_fail(r, rc, err);
            (void)nw_context(err, "row %zu of %zu for table %s", i, n, t->name);
        }
    }
    (void)sqlite3_finalize(s);
    nw_buf_release(&sql);
    if (st == NW_OK) {
        st = nw_db_exec(r, "RELEASE nw_rows", err);
    }
    if (st != NW_OK) {
        (void)sqlite3_exec(r->db, "ROLLBACK TO nw_rows; RELEASE nw_rows", NULL, NULL, NULL);
    }
    return st;
}

/* ---- reading ---- */

static nw_status wrong_type(const nw_record *r, const nw_db_table *t, const nw_db_column *c,
                            const char *want, nw_error *err)
{
    return nw_fail(err, NW_E_FORMAT, "%s: table %s, column %s: not %s", r->path, t->name, c->name,
                   want);
}

/* Events of one request into a block that the reader frees after the callback. */
static nw_status read_events(const nw_record *r, const char *text, nw_rec_request *q, nw_error *err)
{
    json_t *list = NULL;

    if (nw_json_parse("events of a request", text, strlen(text), &list, err) != NW_OK) {
        return nw_context(err, "%s", r->path);
    }
    const size_t n = json_array_size(list); /* 0 for what is not a list */
    nw_rec_event *events = n == 0 ? NULL : calloc(n, sizeof *events);
    nw_status st = NW_OK;
    if (n > 0 && events == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu events", r->path, n);
    }
    for (size_t i = 0; st == NW_OK && i < n; i++) {
        const json_t *pair = json_array_get(list, i);
        const json_t *t = json_array_get(pair, 0);
        const json_t *m = json_array_get(pair, 1);
        const json_int_t count = json_integer_value(m);
        if (!json_is_integer(t) || !json_is_integer(m) || count < 0 || count > UINT32_MAX) {
            st = nw_fail(err, NW_E_FORMAT, "%s: event %zu of a request is not [t_ns, tokens]",
                         r->path, i);
        } else {
            events[i] = (nw_rec_event){json_integer_value(t), (uint32_t)count};
        }
    }
    json_decref(list);
    if (st != NW_OK) {
        free(events);
        return st;
    }
    q->events = events;
    q->n_events = n;
    return NW_OK;
}

static nw_status read_text(const nw_record *r, const nw_db_table *t, const nw_db_column *c,
                           sqlite3_stmt *s, int at, char *row, nw_error *err)
{
    const int type = sqlite3_column_type(s, at);

    if (type != SQLITE_NULL && type != SQLITE_TEXT) {
        return wrong_type(r, t, c, "a text", err);
    }
    const char *text = (const char *)sqlite3_column_text(s, at);
    if (c->kind == NW_COL_EVENTS) {
        nw_rec_request *q = (nw_rec_request *)(void *)row;
        q->events = NULL;
        q->n_events = 0;
        return text == NULL ? NW_OK : read_events(r, text, q, err);
    }
    *(const char **)(void *)(row + c->offset) = text;
    return NW_OK;
}

static nw_status read_integer(const nw_record *r, const nw_db_table *t, const nw_db_column *c,
                              sqlite3_stmt *s, int at, void *field, nw_error *err)
{
    const int type = sqlite3_column_type(s, at);
    const int64_t v = type == SQLITE_INTEGER ? sqlite3_column_int64(s, at) : -1;
    const bool null_ok = c->kind == NW_COL_COUNT || c->kind == NW_COL_FLAG;

    if (type != SQLITE_INTEGER && !(type == SQLITE_NULL && null_ok)) {
        return wrong_type(r, t, c, "a whole number", err);
    }
    if (c->kind == NW_COL_FLAG) {
        *(int *)field = v < 0 ? -1 : v > 0;
    } else if (c->kind == NW_COL_BOOL) {
        *(bool *)field = v != 0;
    } else {
        *(int64_t *)field = v;
    }
    return NW_OK;
}

static nw_status read_real(const nw_record *r, const nw_db_table *t, const nw_db_column *c,
                           sqlite3_stmt *s, int at, double *field, nw_error *err)
{
    const int type = sqlite3_column_type(s, at);

    if (type != SQLITE_NULL && type != SQLITE_FLOAT && type != SQLITE_INTEGER) {
        return wrong_type(r, t, c, "a number", err);
    }
    *field = type == SQLITE_NULL ? (double)NAN : sqlite3_column_double(s, at);
    return NW_OK;
}

static nw_status read_row(const nw_record *r, const nw_db_table *t, sqlite3_stmt *s, char *row,
                          nw_error *err)
{
    nw_status st = NW_OK;

    for (size_t i = 0; st == NW_OK && i < t->n_columns; i++) {
        const nw_db_column *c = &t->columns[i];
        if (c->kind == NW_COL_TEXT || c->kind == NW_COL_EVENTS) {
            st = read_text(r, t, c, s, (int)i, row, err);
        } else if (c->kind == NW_COL_REAL) {
            st = read_real(r, t, c, s, (int)i, (double *)(void *)(row + c->offset), err);
        } else {
            st = read_integer(r, t, c, s, (int)i, row + c->offset, err);
        }
    }
    return st;
}

static bool select_sql(const nw_db_table *t, const char *where, nw_buf *sql)
{
    nw_buf_init(sql, MAX_SQL);
    (void)nw_buf_puts(sql, "SELECT ");
    for (size_t i = 0; i < t->n_columns; i++) {
        (void)nw_buf_printf(sql, "%s\"%s\"", i == 0 ? "" : ", ", t->columns[i].name);
    }
    return nw_buf_printf(sql, " FROM %s WHERE %s ORDER BY %s", t->name, where == NULL ? "1" : where,
                         t->order) &&
           !sql->failed;
}

/* The events of a request are the only block a row owns. */
static void release_row(const nw_db_table *t, char *row)
{
    for (size_t i = 0; i < t->n_columns; i++) {
        if (t->columns[i].kind == NW_COL_EVENTS) {
            nw_rec_request *q = (nw_rec_request *)(void *)row;
            void *events = NULL;
            memcpy(&events, &q->events, sizeof events); /* ours to free; const to the callback */
            free(events);
            q->events = NULL;
        }
    }
}

nw_status nw_db_each(nw_record *r, const nw_db_table *t, const char *where, const nw_db_arg *args,
                     size_t n_args, void *row, nw_db_row_fn fn, void *ctx, nw_error *err)
{
    sqlite3_stmt *s = NULL;
    nw_buf sql;

    if (!select_sql(t, where, &sql)) {
        nw_buf_release(&sql);
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a statement", r->path);
    }
    nw_status st = nw_db_prepare(r, sql.data, args, n_args, &s, err);
    nw_buf_release(&sql);
    int rc = SQLITE_DONE;
    while (st == NW_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        memset(row, 0, t->row_size);
        st = read_row(r, t, s, row, err);
        if (st == NW_OK) {
            st = fn(ctx, row, err);
        }
        release_row(t, row);
    }
    if (st == NW_OK && rc != SQLITE_DONE) {
        st = nw_db_fail(r, rc, err);
    }
    (void)sqlite3_finalize(s);
    return st;
}

typedef struct {
    const nw_record *r;
    const nw_db_table *t;
    nw_arena *arena;
    char *rows;
    size_t n, cap;
} collect;

static bool copy_texts(const nw_db_table *t, char *row, nw_arena *arena)
{
    for (size_t i = 0; i < t->n_columns; i++) {
        if (t->columns[i].kind == NW_COL_TEXT) {
            const char **field = (const char **)(void *)(row + t->columns[i].offset);
            if (*field != NULL) {
                *field = nw_arena_strndup(arena, *field, strlen(*field));
                if (*field == NULL) {
                    return false;
                }
            }
        }
    }
    return true;
}

static nw_status collect_row(void *ctx, const void *row, nw_error *err)
{
    collect *c = ctx;
    size_t bytes = 0;

    if (c->n == c->cap) {
        const size_t cap = c->cap == 0 ? 8 : c->cap * 2;
        char *grown = nw_size_mul(cap, c->t->row_size, &bytes) ? realloc(c->rows, bytes) : NULL;
        if (grown == NULL) {
            return nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu rows of table %s", c->r->path,
                           cap, c->t->name);
        }
        c->rows = grown;
        c->cap = cap;
    }
    char *at = c->rows + c->n * c->t->row_size;
    memcpy(at, row, c->t->row_size);
    if (!copy_texts(c->t, at, c->arena)) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a text", c->r->path);
    }
    c->n++;
    return NW_OK;
}

nw_status nw_db_list(nw_record *r, const nw_db_table *t, const char *where, const nw_db_arg *args,
                     size_t n_args, void *row, nw_arena *arena, void **out, size_t *n,
                     nw_error *err)
{
    collect c = {.r = r, .t = t, .arena = arena};
    nw_status st = nw_db_each(r, t, where, args, n_args, row, collect_row, &c, err);

    if (st == NW_OK) {
        void *rows = nw_arena_array(arena, c.n == 0 ? 1 : c.n, t->row_size);
        if (rows == NULL) {
            st = nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu rows", r->path, c.n);
        } else {
            if (c.n > 0) {
                memcpy(rows, c.rows, c.n * t->row_size);
            }
            *out = rows;
            *n = c.n;
        }
    }
    free(c.rows);
    return st;
}
