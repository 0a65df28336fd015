/* Arrival schedules: made from a seed, read from and written to CSV or JSONL.
 * SPDX-License-Identifier: Apache-2.0 */
#include "bench/arrivals.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"

#define MAX_ROWS  ((size_t)1000000)
#define MAX_BYTES ((size_t)256 << 20)
#define MAX_T_S   (30.0 * 86400)
#define CSV_HEAD  "t,prompt_tokens,output_tokens"

enum { STREAM_TIMES, STREAM_LENGTHS };

void nw_arrivals_release(nw_arrivals *a)
{
    free(a->rows);
    *a = (nw_arrivals){0};
}

static bool push(nw_arrivals *a, size_t *cap, nw_arrival row)
{
    if (a->n == *cap) {
        const size_t grown = *cap == 0 ? 256 : *cap * 2;
        nw_arrival *p = realloc(a->rows, grown * sizeof *p);
        if (p == NULL) {
            return false;
        }
        a->rows = p;
        *cap = grown;
    }
    a->rows[a->n++] = row;
    return true;
}

static uint32_t draw(nw_rng *r, nw_token_range range)
{
    return range.lo + (uint32_t)nw_rng_below(r, (uint64_t)range.hi - range.lo + 1);
}

static nw_status check_plan(const nw_arrival_plan *p, nw_error *err)
{
    if (!(p->rate > 0) || p->rate > 1e5) {
        return nw_fail(err, NW_E_RANGE,
                       "arrivals: rate of %g requests/s, above 0 to 1e5 is allowed", p->rate);
    }
    if (!(p->duration_s > 0) || p->duration_s > MAX_T_S) {
        return nw_fail(err, NW_E_RANGE, "arrivals: duration of %g s, above 0 to %g is allowed",
                       p->duration_s, MAX_T_S);
    }
    if (p->max_requests == 0 && p->rate * p->duration_s > (double)MAX_ROWS / 2) {
        return nw_fail(err, NW_E_RANGE, "arrivals: about %.0f requests, at most %zu are allowed",
                       p->rate * p->duration_s, MAX_ROWS / 2);
    }
    if (p->prompt.lo == 0 || p->prompt.lo > p->prompt.hi || p->output.lo == 0 ||
        p->output.lo > p->output.hi) {
        return nw_fail(err, NW_E_RANGE,
                       "arrivals: lengths %u-%u and %u-%u: each range must rise from 1 or more",
                       p->prompt.lo, p->prompt.hi, p->output.lo, p->output.hi);
    }
    return NW_OK;
}

nw_status nw_arrivals_make(const nw_arrival_plan *p, nw_arrivals *out, nw_error *err)
{
    nw_arrivals a = {0};
    nw_rng times = nw_rng_stream(p->seed, STREAM_TIMES);
    nw_rng lengths = nw_rng_stream(p->seed, STREAM_LENGTHS);
    const size_t max =
        p->max_requests != 0 && p->max_requests < MAX_ROWS ? p->max_requests : MAX_ROWS;
    size_t cap = 0;
    double t_s = 0;

    if (check_plan(p, err) != NW_OK) {
        return err->code;
    }
    while (a.n < max) {
        /* constant: the k-th at k/rate, without adding up rounding errors */
        t_s = p->kind == NW_ARRIVE_CONSTANT ? (double)a.n / p->rate
                                            : t_s + nw_rng_exponential(&times) / p->rate;
        if (t_s >= p->duration_s) {
            break;
        }
        nw_arrival row = {.t_ns = (int64_t)llround(t_s * 1e9)};
        row.n_prompt = draw(&lengths, p->prompt);
        row.n_output = draw(&lengths, p->output);
        if (!push(&a, &cap, row)) {
            nw_arrivals_release(&a);
            return nw_fail(err, NW_E_NOMEM, "arrivals: no memory for %zu requests", a.n);
        }
    }
    *out = a;
    return NW_OK;
}

double nw_arrivals_rate(const nw_arrivals *a)
{
    if (a->n < 2 || a->rows[a->n - 1].t_ns <= a->rows[0].t_ns) {
        return 0;
    }
    return (double)(a->n - 1) * 1e9 / (double)(a->rows[a->n - 1].t_ns - a->rows[0].t_ns);
}

/* ---- files ---------------------------------------------------------------------------------- */

typedef struct {
    const char *path;
    size_t line;
    nw_arrivals a;
    size_t cap;
} reader;

static nw_status add_row(reader *r, double t_s, double prompt, double output, nw_error *err)
{
    if (!(t_s >= 0) || t_s > MAX_T_S) {
        return nw_fail(err, NW_E_RANGE, "%s:%zu: t is %g s, 0 to %g is allowed", r->path, r->line,
                       t_s, MAX_T_S);
    }
    if (!(prompt >= 1) || prompt > 1e7 || !(output >= 1) || output > 1e7 ||
        prompt != floor(prompt) || output != floor(output)) {
        return nw_fail(err, NW_E_RANGE,
                       "%s:%zu: %g prompt and %g output tokens, whole numbers from "
                       "1 to 1e7 are allowed",
                       r->path, r->line, prompt, output);
    }
    const nw_arrival row = {(int64_t)llround(t_s * 1e9), (uint32_t)prompt, (uint32_t)output};
    if (r->a.n > 0 && row.t_ns < r->a.rows[r->a.n - 1].t_ns) {
        return nw_fail(err, NW_E_RANGE, "%s:%zu: t of %g s lies before the row above it", r->path,
                       r->line, t_s);
    }
    if (r->a.n == MAX_ROWS) {
        return nw_fail(err, NW_E_RANGE, "%s:%zu: more than %zu rows", r->path, r->line, MAX_ROWS);
    }
    return push(&r->a, &r->cap, row) ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory", r->path);
}

/* "t,p,o" with nothing else on the line. */
static nw_status csv_line(reader *r, char *line, nw_error *err)
{
    double v[3] = {0};
    char *at = line;

    for (int i = 0; i < 3; i++) {
        char *end = at;
        v[i] = strtod(at, &end);
        if (end == at || *end != (i < 2 ? ',' : '\0')) {
            return nw_fail(err, NW_E_FORMAT,
                           "%s:%zu: '%.60s': three numbers are expected, " CSV_HEAD, r->path,
                           r->line, line);
        }
        at = end + 1;
    }
    return add_row(r, v[0], v[1], v[2], err);
}

/* Cuts the next line off *text, without its end; NULL: there is none. */
static char *next_line(char **text)
{
    char *line = *text;
    const size_t n = strcspn(line, "\n");

    if (*line == '\0') {
        return NULL;
    }
    *text = line + n + (line[n] == '\n');
    line[n] = '\0';
    if (n > 0 && line[n - 1] == '\r') {
        line[n - 1] = '\0';
    }
    return line;
}

static nw_status read_csv(reader *r, char *text, size_t n, nw_error *err)
{
    const char *const end = text + n;
    char *line = next_line(&text);

    r->line = 1;
    if (line == NULL || strcmp(line, CSV_HEAD) != 0) {
        return nw_fail(err, NW_E_FORMAT, "%s:1: '%.60s': the header " CSV_HEAD " is expected",
                       r->path, line != NULL ? line : "");
    }
    while ((line = next_line(&text)) != NULL) {
        r->line++;
        if (line[0] != '\0' && csv_line(r, line, err) != NW_OK) {
            return err->code;
        }
    }
    return text == end ? NW_OK
                       : nw_fail(err, NW_E_FORMAT, "%s:%zu: a byte of 0, text is expected", r->path,
                                 r->line + 1);
}

static nw_status read_jsonl(reader *r, nw_error *err)
{
    nw_jsonl in = {0};
    json_t *row = NULL;
    nw_status st = nw_jsonl_open(&in, r->path, false, err);

    while (st == NW_OK && (st = nw_jsonl_next(&in, &row, err)) == NW_OK && row != NULL) {
        const json_t *t = json_object_get(row, "t");
        const json_t *p = json_object_get(row, "prompt_tokens");
        const json_t *o = json_object_get(row, "output_tokens");
        r->line = in.line_no;
        if (!json_is_number(t) || !json_is_number(p) || !json_is_number(o)) {
            st = nw_fail(err, NW_E_FORMAT,
                         "%s:%zu: numbers t, prompt_tokens and output_tokens are "
                         "expected",
                         r->path, r->line);
        } else {
            st = add_row(r, json_number_value(t), json_number_value(p), json_number_value(o), err);
        }
    }
    nw_jsonl_close(&in);
    return st;
}

nw_status nw_arrivals_read(const char *path, nw_arrivals *out, nw_error *err)
{
    reader r = {.path = path};
    char *text = NULL;
    size_t n = 0;

    if (nw_file_read(path, MAX_BYTES, &text, &n, err) != NW_OK) {
        return err->code;
    }
    nw_status st = text[0] == '{' ? read_jsonl(&r, err) : read_csv(&r, text, n, err);
    free(text);
    if (st == NW_OK && r.a.n == 0) {
        st = nw_fail(err, NW_E_FORMAT, "%s: no arrivals in it", path);
    }
    if (st != NW_OK) {
        nw_arrivals_release(&r.a);
        return st;
    }
    *out = r.a;
    return NW_OK;
}

nw_status nw_arrivals_write(const nw_arrivals *a, const char *path, nw_error *err)
{
    nw_buf b;

    nw_buf_init(&b, MAX_BYTES);
    (void)nw_buf_puts(&b, CSV_HEAD "\n");
    for (size_t i = 0; i < a->n; i++) {
        const nw_arrival *r = &a->rows[i];
        (void)nw_buf_printf(&b, "%.9f,%u,%u\n", (double)r->t_ns * 1e-9, r->n_prompt, r->n_output);
    }
    const nw_status st =
        b.failed ? nw_fail(err, NW_E_RANGE, "%s: more than %zu bytes of arrivals", path, MAX_BYTES)
                 : nw_file_write(path, b.data, b.len, err);
    nw_buf_release(&b);
    return st;
}
