/* Inside of the record layer: one description of a table serves its writer and its readers. A column
 * of SQLite stands beside the offset of a struct's field, so that a new column is one line.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_RECORD_DB_H
#define NW_RECORD_DB_H

#include <sqlite3.h>

#include "record/record.h"

/* How a field is stored; what "not measured" is in the struct, and NULL in the file. */
typedef enum {
    NW_COL_TEXT,  /* const char *; NULL */
    NW_COL_COUNT, /* int64_t; negative */
    NW_COL_RAW,   /* int64_t as it is, never NULL */
    NW_COL_FLAG,  /* int; negative */
    NW_COL_BOOL,  /* bool as 0 or 1, never NULL */
    NW_COL_REAL,  /* double; NaN */
    NW_COL_EVENTS /* the pair events, n_events of nw_rec_request; n_events 0 */
} nw_db_kind;

typedef struct {
    const char *name;
    nw_db_kind kind;
    size_t offset;
} nw_db_column;

typedef struct {
    const char *name; /* as it stands in SQL, quoted where needed */
    const nw_db_column *columns;
    size_t n_columns, row_size;
    const char *order; /* of the readers: "item_id, sample" */
    bool of_run;       /* a first column run_id that no struct has */
} nw_db_table;

struct nw_record {
    sqlite3 *db;
    char *path;
};

/* A value of a WHERE clause. */
typedef struct {
    const char *text; /* NULL: the number counts */
    int64_t number;
} nw_db_arg;

/* Called with `row`, filled in; strings in it die when it returns. */
typedef nw_status (*nw_db_row_fn)(void *ctx, const void *row, nw_error *err);

/* "path: what SQLite says", with the status that fits the code. */
nw_status nw_db_fail(const nw_record *r, int code, nw_error *err);
NW_MUST_USE nw_status nw_db_exec(nw_record *r, const char *sql, nw_error *err);
NW_MUST_USE nw_status nw_db_prepare(nw_record *r, const char *sql, const nw_db_arg *args,
                                    size_t n_args, sqlite3_stmt **out, nw_error *err);
/* Runs a statement that returns no rows. */
NW_MUST_USE nw_status nw_db_run(nw_record *r, const char *sql, const nw_db_arg *args, size_t n_args,
                                nw_error *err);
/* The single text or integer of a query; *text (arena) NULL, *number 0 when there is no row. */
NW_MUST_USE nw_status nw_db_text(nw_record *r, const char *sql, const nw_db_arg *args,
                                 size_t n_args, nw_arena *arena, const char **text, nw_error *err);
NW_MUST_USE nw_status nw_db_number(nw_record *r, const char *sql, const nw_db_arg *args,
                                   size_t n_args, int64_t *number, nw_error *err);

/* INSERT OR REPLACE of all rows or none. run is used when the table is of_run. */
NW_MUST_USE nw_status nw_db_insert(nw_record *r, const nw_db_table *t, int64_t run,
                                   const void *rows, size_t n, nw_error *err);

/* Each row that `where` ("candidate = ?1"; NULL for all) selects, in the table's order. `row` is the
 * caller's struct of t->row_size bytes. */
NW_MUST_USE nw_status nw_db_each(nw_record *r, const nw_db_table *t, const char *where,
                                 const nw_db_arg *args, size_t n_args, void *row, nw_db_row_fn fn,
                                 void *ctx, nw_error *err);
/* The same as an array in the arena, strings copied. Not for tables with events. */
NW_MUST_USE nw_status nw_db_list(nw_record *r, const nw_db_table *t, const char *where,
                                 const nw_db_arg *args, size_t n_args, void *row, nw_arena *arena,
                                 void **out, size_t *n, nw_error *err);

/* src/record/schema.sql, put into the program by the build; NUL-terminated. */
extern const char nw_record_schema[];

#endif
