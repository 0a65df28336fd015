/* Two passes over a run: the first counts, the second fills, so that one allocation holds it.
 * Definitions of TTFT, TPOT and of what counts in a window: MEASURES section 5.
 * SPDX-License-Identifier: Apache-2.0 */
#include "decide/data.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

#define NS_PER_MS 1e6
#define NS_PER_S  1e9

static const double none = (double)NAN;

static nw_status no_memory(nw_error *err)
{
    return nw_fail(err, NW_E_NOMEM, "no memory for the rows of a run");
}

/* ---- items ---- */

typedef struct {
    nw_arena *arena;
    nw_dec_items *out;
    size_t n; /* rows: at least as many as items */
} items_ctx;

static nw_status count_item(void *ctx, const nw_rec_item *row, nw_error *err)
{
    (void)row;
    (void)err;
    ((items_ctx *)ctx)->n++;
    return NW_OK;
}

/* 1/k where the row keeps k log-probabilities, one a choice. */
static double chance_of(const char *json)
{
    nw_error err = {0};
    json_t *o = NULL;
    double chance = 0;

    if (json != NULL && nw_json_parse("item", json, strlen(json), &o, &err) == NW_OK) {
        const size_t k = json_array_size(json_object_get(o, "logprob"));
        chance = k > 1 ? 1 / (double)k : 0;
        json_decref(o);
    }
    return chance;
}

static double or_nan(int64_t v)
{
    return v < 0 ? none : (double)v;
}

static nw_status fill_item(void *ctx, const nw_rec_item *row, nw_error *err)
{
    items_ctx *c = ctx;
    nw_dec_items *o = c->out;
    nw_dec_item *it = o->n == 0 ? NULL : &o->items[o->n - 1];

    if (row->item_id == NULL) {
        return nw_fail(err, NW_E_FORMAT, "an item without an id");
    }
    if (it == NULL || strcmp(it->id, row->item_id) != 0) {
        const char *cluster = row->cluster != NULL ? row->cluster : row->item_id;
        it = &o->items[o->n++];
        it->id = nw_arena_strndup(c->arena, row->item_id, strlen(row->item_id));
        it->cluster = nw_arena_strndup(c->arena, cluster, strlen(cluster));
        it->chance = chance_of(row->json);
        if (it->id == NULL || it->cluster == NULL) {
            return no_memory(err);
        }
    }
    const double stop = row->finish == NULL ? none : strcmp(row->finish, "stop") == 0;
    const double k = ++it->n_samples;
    it->score += (row->score - it->score) / k;
    it->n_output += (or_nan(row->n_output) - it->n_output) / k;
    it->n_bytes += ((row->output == NULL ? none : (double)strlen(row->output)) - it->n_bytes) / k;
    it->stop += (stop - it->stop) / k;
    return NW_OK;
}

nw_status nw_data_items(nw_record *rec, int64_t run, nw_arena *arena, nw_dec_items *out,
                        nw_error *err)
{
    items_ctx c = {.arena = arena, .out = out};

    *out = (nw_dec_items){0};
    if (nw_record_items(rec, run, count_item, &c, err) != NW_OK) {
        return err->code;
    }
    out->items = nw_arena_array(arena, c.n + 1, sizeof *out->items);
    return out->items == NULL ? no_memory(err) : nw_record_items(rec, run, fill_item, &c, err);
}

/* ---- windows of text ---- */

typedef struct {
    nw_dec_windows *out;
    int64_t last;
    size_t n;
} windows_ctx;

static nw_status count_window(void *ctx, const nw_rec_token *row, nw_error *err)
{
    windows_ctx *c = ctx;

    (void)err;
    c->n += c->n == 0 || row->window != c->last;
    c->last = row->window;
    return NW_OK;
}

static nw_status fill_window(void *ctx, const nw_rec_token *row, nw_error *err)
{
    nw_dec_windows *o = ((windows_ctx *)ctx)->out;

    (void)err;
    if (o->n == 0 || o->windows[o->n - 1].window != row->window) {
        o->windows[o->n++].window = row->window;
    }
    nw_dec_window *w = &o->windows[o->n - 1];
    w->count += 1;
    w->nll += row->nll;
    w->kl += row->kl;
    w->flips += row->top1 < 0 ? none : 1 - row->top1;
    return NW_OK;
}

nw_status nw_data_windows(nw_record *rec, int64_t run, nw_arena *arena, nw_dec_windows *out,
                          nw_error *err)
{
    windows_ctx c = {.out = out};

    *out = (nw_dec_windows){0};
    if (nw_record_tokens(rec, run, count_window, &c, err) != NW_OK) {
        return err->code;
    }
    out->windows = nw_arena_array(arena, c.n + 1, sizeof *out->windows);
    return out->windows == NULL ? no_memory(err) : nw_record_tokens(rec, run, fill_window, &c, err);
}

/* ---- requests ---- */

typedef struct {
    const nw_rec_window *windows;
    size_t n_windows;
    nw_dec_speed *out;
    size_t n;
    int64_t first_ns, last_ns;
} speed_ctx;

static const nw_rec_window *window_of(const speed_ctx *c, int64_t file_no)
{
    for (size_t i = 0; i < c->n_windows; i++) {
        if (c->windows[i].file_no == file_no) {
            return &c->windows[i];
        }
    }
    return NULL;
}

static nw_status count_request(void *ctx, const nw_rec_request *row, nw_error *err)
{
    speed_ctx *c = ctx;

    (void)err;
    c->n++;
    if (row->s_ns >= 0) {
        c->first_ns = c->first_ns < 0 || row->s_ns < c->first_ns ? row->s_ns : c->first_ns;
        c->last_ns = row->s_ns > c->last_ns ? row->s_ns : c->last_ns;
    }
    c->last_ns = row->l_ns > c->last_ns ? row->l_ns : c->last_ns;
    return NW_OK;
}

static double tokens_in(const nw_rec_request *row, const nw_rec_window *w)
{
    double sum = 0;

    for (size_t i = 0; i < row->n_events; i++) {
        const int64_t t = row->events[i].t_ns;
        sum += w == NULL || (t >= w->start_ns && t < w->end_ns) ? row->events[i].n_tokens : 0;
    }
    return sum;
}

static double span_ms(int64_t from, int64_t to)
{
    return from < 0 || to < 0 ? none : (double)(to - from) / NS_PER_MS;
}

static nw_status fill_request(void *ctx, const nw_rec_request *row, nw_error *err)
{
    const speed_ctx *c = ctx;
    nw_dec_speed *o = c->out;
    const nw_rec_window *w = window_of(c, row->file_no);

    (void)err;
    if (w != NULL && !(row->s_ns >= w->start_ns && row->s_ns < w->end_ns)) {
        return NW_OK;
    }
    nw_dec_request *q = &o->requests[o->n];
    const bool files_differ = o->n == 0 || o->requests[o->n - 1].file_no != row->file_no;
    o->n_files += files_differ;
    o->n++;
    *q = (nw_dec_request){.file_no = row->file_no,
                          .idx = row->idx,
                          .ok = row->status != NULL && strcmp(row->status, "ok") == 0,
                          .ttft_ms = span_ms(row->s_ns, row->f_ns),
                          .tpot_ms = none,
                          .e2e_ms = span_ms(row->s_ns, row->l_ns),
                          .received_tokens = tokens_in(row, w),
                          .correct = row->correct};
    if (row->n_output >= 2) {
        q->tpot_ms = span_ms(row->f_ns, row->l_ns) / (double)(row->n_output - 1);
    }
    return NW_OK;
}

/* Of two windows: one that is known not to be steady outweighs one that was not tested. */
static int steady_of(int a, int b)
{
    return a == 0 || b == 0 ? 0 : a < b ? a : b;
}

nw_status nw_data_speed(nw_record *rec, const nw_rec_run *run, nw_arena *arena, nw_dec_speed *out,
                        nw_error *err)
{
    nw_rec_window *windows = NULL;
    size_t n_windows = 0;

    *out = (nw_dec_speed){.run = run, .steady = -1};
    if (nw_record_windows(rec, run->id, arena, &windows, &n_windows, err) != NW_OK) {
        return err->code;
    }
    speed_ctx c = {windows, n_windows, out, 0, -1, -1};
    if (nw_record_requests(rec, run->id, count_request, &c, err) != NW_OK) {
        return err->code;
    }
    out->requests = nw_arena_array(arena, c.n + 1, sizeof *out->requests);
    if (out->requests == NULL) {
        return no_memory(err);
    }
    for (size_t i = 0; i < n_windows; i++) {
        out->window_s += (double)(windows[i].end_ns - windows[i].start_ns) / NS_PER_S;
        out->offered_rps += windows[i].offered_rps / (double)n_windows;
        out->steady = i == 0 ? windows[0].steady : steady_of(out->steady, windows[i].steady);
    }
    nw_status st = nw_record_requests(rec, run->id, fill_request, &c, err);
    if (n_windows == 0 && c.last_ns > c.first_ns && c.first_ns >= 0) {
        out->window_s = (double)(c.last_ns - c.first_ns) / NS_PER_S;
    }
    if ((n_windows == 0 || isnan(out->offered_rps)) && out->window_s > 0) {
        out->offered_rps = (double)out->n / out->window_s;
    }
    return st;
}

bool nw_request_good(const nw_dec_request *q, const nw_regime_rule *slo)
{
    /* a limit on what was not measured is not met; one token has no TPOT and cannot break it */
    return q->ok && (slo->ttft_ms <= 0 || q->ttft_ms <= slo->ttft_ms) &&
           (slo->tpot_ms <= 0 || isnan(q->tpot_ms) || q->tpot_ms <= slo->tpot_ms);
}

/* ---- comparing runs ---- */

static bool same(const char *a, const char *b)
{
    return strcmp(a == NULL ? "" : a, b == NULL ? "" : b) == 0;
}

/* The settings of two runs as documents, NULL where a run has none. */
static void parse_settings(const nw_rec_run *a, const nw_rec_run *b, json_t *out[2])
{
    const char *const text[2] = {a->settings_json, b->settings_json};
    nw_error ignored = {0};

    for (size_t i = 0; i < 2; i++) {
        out[i] = NULL;
        if (text[i] == NULL ||
            nw_json_parse("settings", text[i], strlen(text[i]), &out[i], &ignored) != NW_OK) {
            out[i] = NULL;
        }
    }
}

static bool differ_in(json_t *const doc[2], const char *key)
{
    const char *x = json_string_value(json_object_get(doc[0], key));
    const char *y = json_string_value(json_object_get(doc[1], key));
    return x != NULL && y != NULL && strcmp(x, y) != 0;
}

bool nw_data_other_tokenizer(const nw_rec_run *a, const nw_rec_run *b)
{
    json_t *doc[2];

    parse_settings(a, b, doc);
    const bool differ = differ_in(doc, "tokenizer");
    json_decref(doc[0]);
    json_decref(doc[1]);
    return differ;
}

/* Equal but for the key "baseline", which a baseline's own run cannot have, and for what comes with
 * another model. */
static bool same_settings(const nw_rec_run *a, const nw_rec_run *b)
{
    json_t *doc[2];

    parse_settings(a, b, doc);
    const bool two_models = differ_in(doc, "tokenizer");
    for (size_t i = 0; i < 2; i++) {
        (void)json_object_del(doc[i], "baseline");
        if (two_models) {
            (void)json_object_del(doc[i], "tokenizer");
            (void)json_object_del(doc[i], "template");
        }
    }
    const bool equal = doc[0] != NULL && json_equal(doc[0], doc[1]) == 1;
    json_decref(doc[0]);
    json_decref(doc[1]);
    return equal;
}

const char *nw_data_absent(const nw_rec_candidate *c, const char *suite, char *buf, size_t n)
{
    nw_error err = {0};
    json_t *o = NULL;
    char layer[64];
    const char *found = NULL;

    (void)snprintf(layer, sizeof layer, "%.*s", (int)strcspn(suite, ":"), suite);
    if (c->json != NULL &&
        nw_json_parse("candidate", c->json, strlen(c->json), &o, &err) == NW_OK) {
        const json_t *why = json_object_get(json_object_get(o, "not_measured"), layer);
        if (json_is_string(why)) {
            (void)snprintf(buf, n, "not measured: %s", json_string_value(why));
            found = buf;
        }
        json_decref(o);
    }
    return found;
}

bool nw_data_same_data(const nw_rec_run *a, const nw_rec_run *b)
{
    return same(a->suite, b->suite) && same(a->data_hash, b->data_hash);
}

const char *nw_data_mismatch(const nw_rec_run *a, const nw_rec_run *b)
{
    if (!same(a->suite, b->suite)) {
        return "different suites";
    }
    if (!same(a->data_hash, b->data_hash)) {
        return "different data";
    }
    if (!same(a->settings_hash, b->settings_hash) && !same_settings(a, b)) {
        return "different settings";
    }
    return NULL;
}
