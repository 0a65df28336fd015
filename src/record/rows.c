/* Rows of a run: items, tokens, requests, windows, metrics, kernels, series. Each table is a list of
 * columns; writing and reading are db.c's.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>

#include "record/db.h"
#include "record/record.h"

#define TEXT(t, f)                      \
    {                                   \
#f, NW_COL_TEXT, offsetof(t, f) \
    }
#define COUNT(t, f)                      \
    {                                    \
#f, NW_COL_COUNT, offsetof(t, f) \
    }
#define RAW(t, f)                      \
    {                                  \
#f, NW_COL_RAW, offsetof(t, f) \
    }
#define FLAG(t, f)                      \
    {                                   \
#f, NW_COL_FLAG, offsetof(t, f) \
    }
#define REAL(t, f)                      \
    {                                   \
#f, NW_COL_REAL, offsetof(t, f) \
    }

static const nw_db_column item_columns[] = {
    TEXT(nw_rec_item, item_id),   TEXT(nw_rec_item, cluster), RAW(nw_rec_item, sample),
    REAL(nw_rec_item, score),     FLAG(nw_rec_item, correct), COUNT(nw_rec_item, n_prompt),
    COUNT(nw_rec_item, n_output), TEXT(nw_rec_item, finish),  TEXT(nw_rec_item, output),
    TEXT(nw_rec_item, expected),  TEXT(nw_rec_item, json),
};
static const nw_db_column token_columns[] = {
    RAW(nw_rec_token, window), RAW(nw_rec_token, pos),   REAL(nw_rec_token, nll),
    REAL(nw_rec_token, kl),    FLAG(nw_rec_token, top1), COUNT(nw_rec_token, rank_base),
};
static const nw_db_column request_columns[] = {
    RAW(nw_rec_request, idx),        RAW(nw_rec_request, file_no),
    COUNT(nw_rec_request, s_ns),     COUNT(nw_rec_request, d_ns),
    COUNT(nw_rec_request, f_ns),     COUNT(nw_rec_request, l_ns),
    COUNT(nw_rec_request, n_prompt), COUNT(nw_rec_request, n_asked),
    COUNT(nw_rec_request, n_output), TEXT(nw_rec_request, status),
    TEXT(nw_rec_request, finish),    TEXT(nw_rec_request, error),
    {"events", NW_COL_EVENTS, 0},    TEXT(nw_rec_request, item_id),
    FLAG(nw_rec_request, correct),
};
static const nw_db_column window_columns[] = {
    RAW(nw_rec_window, file_no),      RAW(nw_rec_window, start_ns), RAW(nw_rec_window, end_ns),
    REAL(nw_rec_window, offered_rps), FLAG(nw_rec_window, steady),  TEXT(nw_rec_window, json),
};
static const nw_db_column metric_columns[] = {
    TEXT(nw_rec_metric, name),
    REAL(nw_rec_metric, value),
    TEXT(nw_rec_metric, unit),
    TEXT(nw_rec_metric, json),
};
static const nw_db_column kernel_columns[] = {
    TEXT(nw_rec_kernel, op),       RAW(nw_rec_kernel, layer),
    TEXT(nw_rec_kernel, shape),    TEXT(nw_rec_kernel, phase),
    TEXT(nw_rec_kernel, intended), TEXT(nw_rec_kernel, used),
    RAW(nw_rec_kernel, calls),     RAW(nw_rec_kernel, ns),
    RAW(nw_rec_kernel, bytes),     RAW(nw_rec_kernel, bytes_converted),
};
static const nw_db_column series_columns[] = {
    TEXT(nw_rec_sample, name),
    RAW(nw_rec_sample, t_ns),
    REAL(nw_rec_sample, value),
};

#define TABLE(name, columns, row, order)                           \
    {                                                              \
        name, columns, NW_COUNT(columns), sizeof(row), order, true \
    }
static const nw_db_table item_table = TABLE("item", item_columns, nw_rec_item, "item_id, sample");
static const nw_db_table token_table =
    TABLE("token", token_columns, nw_rec_token, "\"window\", pos");
static const nw_db_table request_table =
    TABLE("request", request_columns, nw_rec_request, "file_no, idx");
static const nw_db_table window_table =
    TABLE("\"window\"", window_columns, nw_rec_window, "file_no");
static const nw_db_table metric_table = TABLE("metric", metric_columns, nw_rec_metric, "name");
static const nw_db_table kernel_table =
    TABLE("kernel", kernel_columns, nw_rec_kernel, "op, layer, shape, phase, used");
static const nw_db_table series_table =
    TABLE("series", series_columns, nw_rec_sample, "name, t_ns");

nw_status nw_record_add_items(nw_record *r, int64_t run, const nw_rec_item *rows, size_t n,
                              nw_error *err)
{
    return nw_db_insert(r, &item_table, run, rows, n, err);
}

nw_status nw_record_add_tokens(nw_record *r, int64_t run, const nw_rec_token *rows, size_t n,
                               nw_error *err)
{
    return nw_db_insert(r, &token_table, run, rows, n, err);
}

nw_status nw_record_add_requests(nw_record *r, int64_t run, const nw_rec_request *rows, size_t n,
                                 nw_error *err)
{
    return nw_db_insert(r, &request_table, run, rows, n, err);
}

nw_status nw_record_add_windows(nw_record *r, int64_t run, const nw_rec_window *rows, size_t n,
                                nw_error *err)
{
    return nw_db_insert(r, &window_table, run, rows, n, err);
}

nw_status nw_record_add_metrics(nw_record *r, int64_t run, const nw_rec_metric *rows, size_t n,
                                nw_error *err)
{
    return nw_db_insert(r, &metric_table, run, rows, n, err);
}

nw_status nw_record_add_kernels(nw_record *r, int64_t run, const nw_rec_kernel *rows, size_t n,
                                nw_error *err)
{
    return nw_db_insert(r, &kernel_table, run, rows, n, err);
}

nw_status nw_record_add_series(nw_record *r, int64_t run, const nw_rec_sample *rows, size_t n,
                               nw_error *err)
{
    return nw_db_insert(r, &series_table, run, rows, n, err);
}

/* ---- readers: a typed callback behind the untyped one of db.c ---- */

typedef struct {
    nw_rec_item_fn item;
    nw_rec_token_fn token;
    nw_rec_request_fn request;
    nw_rec_kernel_fn kernel;
    nw_rec_sample_fn sample;
    void *ctx;
} typed;

static nw_status call_item(void *ctx, const void *row, nw_error *err)
{
    const typed *t = ctx;
    return t->item(t->ctx, row, err);
}

static nw_status call_token(void *ctx, const void *row, nw_error *err)
{
    const typed *t = ctx;
    return t->token(t->ctx, row, err);
}

static nw_status call_request(void *ctx, const void *row, nw_error *err)
{
    const typed *t = ctx;
    return t->request(t->ctx, row, err);
}

static nw_status call_kernel(void *ctx, const void *row, nw_error *err)
{
    const typed *t = ctx;
    return t->kernel(t->ctx, row, err);
}

static nw_status call_sample(void *ctx, const void *row, nw_error *err)
{
    const typed *t = ctx;
    return t->sample(t->ctx, row, err);
}

static nw_status each_of_run(nw_record *r, const nw_db_table *table, int64_t run, void *row,
                             nw_db_row_fn fn, typed *t, nw_error *err)
{
    const nw_db_arg args[] = {{NULL, run}};
    return nw_db_each(r, table, "run_id = ?1", args, 1, row, fn, t, err);
}

nw_status nw_record_items(nw_record *r, int64_t run, nw_rec_item_fn each, void *ctx, nw_error *err)
{
    typed t = {.item = each, .ctx = ctx};
    nw_rec_item row;
    return each_of_run(r, &item_table, run, &row, call_item, &t, err);
}

nw_status nw_record_tokens(nw_record *r, int64_t run, nw_rec_token_fn each, void *ctx,
                           nw_error *err)
{
    typed t = {.token = each, .ctx = ctx};
    nw_rec_token row;
    return each_of_run(r, &token_table, run, &row, call_token, &t, err);
}

nw_status nw_record_requests(nw_record *r, int64_t run, nw_rec_request_fn each, void *ctx,
                             nw_error *err)
{
    typed t = {.request = each, .ctx = ctx};
    nw_rec_request row;
    return each_of_run(r, &request_table, run, &row, call_request, &t, err);
}

nw_status nw_record_kernels(nw_record *r, int64_t run, nw_rec_kernel_fn each, void *ctx,
                            nw_error *err)
{
    typed t = {.kernel = each, .ctx = ctx};
    nw_rec_kernel row;
    return each_of_run(r, &kernel_table, run, &row, call_kernel, &t, err);
}

nw_status nw_record_series(nw_record *r, int64_t run, const char *name, nw_rec_sample_fn each,
                           void *ctx, nw_error *err)
{
    const nw_db_arg args[] = {{NULL, run}, {name, 0}};
    typed t = {.sample = each, .ctx = ctx};
    nw_rec_sample row;
    return nw_db_each(r, &series_table, "run_id = ?1 AND name = ?2", args, 2, &row, call_sample, &t,
                      err);
}

nw_status nw_record_windows(nw_record *r, int64_t run, nw_arena *arena, nw_rec_window **out,
                            size_t *n, nw_error *err)
{
    const nw_db_arg args[] = {{NULL, run}};
    nw_rec_window row;
    void *rows = NULL;
    nw_status st = nw_db_list(r, &window_table, "run_id = ?1", args, 1, &row, arena, &rows, n, err);

    if (st != NW_OK) {
        return st;
    }
    const nw_rec_window *w = rows;
    for (size_t i = 0; i < *n; i++) {
        if (w[i].start_ns < 0 || w[i].end_ns < w[i].start_ns) {
            return nw_fail(err, NW_E_FORMAT,
                           "%s: window %" PRId64 " of run %" PRId64 " goes from %" PRId64
                           " to %" PRId64 " ns",
                           nw_record_path(r), w[i].file_no, run, w[i].start_ns, w[i].end_ns);
        }
    }
    *out = rows;
    return NW_OK;
}

nw_status nw_record_metrics(nw_record *r, int64_t run, nw_arena *arena, nw_rec_metric **out,
                            size_t *n, nw_error *err)
{
    const nw_db_arg args[] = {{NULL, run}};
    nw_rec_metric row;
    void *rows = NULL;
    nw_status st = nw_db_list(r, &metric_table, "run_id = ?1", args, 1, &row, arena, &rows, n, err);

    if (st == NW_OK) {
        *out = rows;
    }
    return st;
}

typedef struct {
    double value;
} one_metric;

static nw_status take_metric(void *ctx, const void *row, nw_error *err)
{
    (void)err;
    ((one_metric *)ctx)->value = ((const nw_rec_metric *)row)->value;
    return NW_OK;
}

nw_status nw_record_metric(nw_record *r, int64_t run, const char *name, double *value,
                           nw_error *err)
{
    const nw_db_arg args[] = {{NULL, run}, {name, 0}};
    one_metric one = {(double)NAN};
    nw_rec_metric row;
    nw_status st = nw_db_each(r, &metric_table, "run_id = ?1 AND name = ?2", args, 2, &row,
                              take_metric, &one, err);

    if (st == NW_OK) {
        *value = one.value;
    }
    return st;
}
