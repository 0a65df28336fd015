/* The draw of calibration samples: see calib_sample.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/calib_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "quant/calib_rows.h"

#define TEXT_MAX_BYTES ((size_t)1 << 30)

/* The usable rows of one stratum. */
typedef struct {
    size_t *rows; /* [n] places in nw_calib_rows.rows */
    size_t n, n_drawn;
    uint32_t stratum;
} pile;

static int by_size(const void *a, const void *b)
{
    const pile *x = a;
    const pile *y = b;

    if (x->n != y->n) {
        return x->n < y->n ? -1 : 1;
    }
    return (x->stratum > y->stratum) - (x->stratum < y->stratum);
}

static uint64_t name_key(const char *name)
{
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */

    for (; *name != '\0'; name++) {
        h = (h ^ (uint8_t)*name) * UINT64_C(1099511628211);
    }
    return h;
}

/* The first n of a shuffle (Fisher and Yates). */
static void shuffle(pile *p, size_t n, uint64_t seed, const char *name)
{
    nw_rng rng = nw_rng_stream(seed, name_key(name));

    for (size_t i = 0; i < n; i++) {
        const size_t k = i + (size_t)nw_rng_below(&rng, p->n - i);
        const size_t row = p->rows[i];
        p->rows[i] = p->rows[k];
        p->rows[k] = row;
    }
    p->n_drawn = n;
}

static void fill_piles(const nw_calib_rows *r, pile *piles, size_t *rows)
{
    size_t at = 0;

    for (uint32_t s = 0; s < r->n_strata; s++) {
        piles[s] = (pile){.rows = rows + at, .stratum = s};
        for (size_t i = 0; i < r->n; i++) {
            if (r->rows[i].stratum == s && r->rows[i].usable) {
                piles[s].rows[piles[s].n++] = i;
            }
        }
        at += piles[s].n;
    }
}

/* Chosen rows, by stratum and then in the order of the log: *out [*n] is freed by the caller. */
static nw_status choose(const nw_sample_options *o, nw_calib_rows *r, size_t **out, size_t *n,
                        nw_error *err)
{
    pile *piles = calloc(r->n_strata + 1, sizeof *piles);
    size_t *rows = calloc(r->n + 1, sizeof *rows);
    size_t *chosen = calloc(o->n_samples + 1, sizeof *chosen);
    size_t left = o->n_samples;

    if (piles == NULL || rows == NULL || chosen == NULL) {
        free(chosen);
        free(piles);
        free(rows);
        return nw_fail(err, NW_E_NOMEM, "no memory to draw %zu samples", o->n_samples);
    }
    fill_piles(r, piles, rows);
    qsort(piles, r->n_strata, sizeof *piles, by_size);
    *n = 0;
    for (size_t i = 0; i < r->n_strata; i++) {
        const size_t share = left / (r->n_strata - i);
        const size_t take = piles[i].n < share ? piles[i].n : share;
        nw_stratum *s = &r->strata[piles[i].stratum];
        shuffle(&piles[i], take, o->seed, s->name);
        s->n_drawn = take;
        left -= take;
        for (size_t k = 0; k < take; k++) {
            chosen[(*n)++] = piles[i].rows[k];
        }
    }
    free(piles);
    free(rows);
    *out = chosen;
    return NW_OK;
}

/* Ids of one sample to the end of *s, at most n_ctx of them. */
static nw_status keep_sample(nw_samples *s, nw_ids *all, const nw_ids *ids, uint32_t n_ctx,
                             uint32_t stratum, nw_error *err)
{
    nw_stratum *st = &s->strata[stratum];
    const size_t n = ids->n < n_ctx ? ids->n : n_ctx;

    for (size_t i = 0; i < n; i++) {
        if (!nw_ids_push(all, ids->ids[i])) {
            return nw_fail(err, NW_E_NOMEM, "no memory for %zu tokens", all->n);
        }
    }
    st->n_cut += ids->n > n_ctx;
    st->n_tokens += n;
    s->stratum[s->n] = stratum;
    s->first[++s->n] = all->n;
    return NW_OK;
}

static int by_index(const void *a, const void *b)
{
    const nw_calib_row *x = a;
    const nw_calib_row *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

/* Second reading of the log: the drawn rows in the order they stand there. */
static nw_status encode_rows(const nw_tokenizer *tok, const nw_sample_options *o,
                             const nw_calib_row *drawn, size_t n, nw_samples *s, nw_ids *all,
                             nw_error *err)
{
    nw_jsonl in = {0};
    nw_ids ids = {0};
    json_t *row = NULL;
    char where[512];
    size_t k = 0;
    nw_status st = nw_jsonl_open(&in, o->log, false, err);

    for (size_t i = 0; st == NW_OK && k < n; i++) {
        st = nw_jsonl_next(&in, &row, err);
        if (st == NW_OK && row == NULL) {
            st = nw_fail(err, NW_E_IO, "%s: changed while it was read", o->log);
        }
        if (st != NW_OK || i != drawn[k].index) {
            continue;
        }
        (void)snprintf(where, sizeof where, "%s:%zu", o->log, in.line_no);
        ids.n = 0;
        st = nw_calib_row_encode(tok, row, where, &ids, err);
        st = st == NW_OK ? keep_sample(s, all, &ids, o->n_ctx, drawn[k].stratum, err) : st;
        k++;
    }
    nw_ids_release(&ids);
    nw_jsonl_close(&in);
    return st;
}

static nw_status keep_windows(const nw_sample_options *o, const nw_ids *text,
                              const nw_calib_row *drawn, size_t n, nw_samples *s, nw_ids *all,
                              nw_error *err)
{
    nw_status st = NW_OK;

    for (size_t i = 0; st == NW_OK && i < n; i++) {
        const nw_ids view = {.ids = text->ids + drawn[i].index * o->n_ctx, .n = o->n_ctx};
        st = keep_sample(s, all, &view, o->n_ctx, 0, err);
    }
    return st;
}

/* Windows side by side, the first token of each replaced by BOS where the model wants one. */
static nw_status read_windows(const nw_tokenizer *tok, const nw_sample_options *o, nw_ids *text,
                              nw_calib_rows *r, nw_error *err)
{
    const int32_t bos = nw_tokenizer_adds_bos(tok) ? nw_tokenizer_bos(tok) : -1;
    char *bytes = NULL;
    size_t n = 0;
    nw_status st = nw_file_read(o->text, TEXT_MAX_BYTES, &bytes, &n, err);

    st = st == NW_OK ? nw_tokenizer_encode(tok, bytes, n, NW_TOK_BOS, text, err) : st;
    free(bytes);
    const size_t n_windows = text->n / o->n_ctx;
    if (st == NW_OK && n_windows == 0) {
        return nw_fail(err, NW_E_RANGE, "%s: %zu tokens, less than one window of %u", o->text,
                       text->n, o->n_ctx);
    }
    for (size_t i = 0; st == NW_OK && bos >= 0 && i < n_windows; i++) {
        text->ids[i * o->n_ctx] = bos;
    }
    return st == NW_OK ? nw_calib_rows_windows(text->ids, n_windows, o->n_ctx, r, err) : st;
}

static nw_status hash_ids(const nw_ids *all, nw_digest *out, nw_error *err)
{
    return nw_digest_bytes(all->ids, all->n * sizeof *all->ids, out, err);
}

/* Rows are settled: draws, encodes and hands the strata over. */
static nw_status draw(const nw_tokenizer *tok, const nw_sample_options *o, const nw_ids *text,
                      nw_calib_rows *r, nw_samples *s, nw_error *err)
{
    size_t *chosen = NULL;
    nw_ids all = {0};
    size_t n = 0;
    nw_status st = choose(o, r, &chosen, &n, err);
    nw_calib_row *drawn = calloc(n + 1, sizeof *drawn);

    s->first = calloc(n + 1, sizeof *s->first);
    s->stratum = calloc(n + 1, sizeof *s->stratum);
    if (st == NW_OK && (drawn == NULL || s->first == NULL || s->stratum == NULL)) {
        st = nw_fail(err, NW_E_NOMEM, "no memory for %zu samples", n);
    }
    s->strata = r->strata;
    s->n_strata = r->n_strata;
    r->strata = NULL;
    r->n_strata = 0;
    if (st == NW_OK) {
        for (size_t i = 0; i < n; i++) {
            drawn[i] = r->rows[chosen[i]];
        }
        qsort(drawn, n, sizeof *drawn, by_index);
        st = o->log != NULL ? encode_rows(tok, o, drawn, n, s, &all, err)
                            : keep_windows(o, text, drawn, n, s, &all, err);
    }
    st = st == NW_OK && all.n == 0 ? nw_fail(err, NW_E_RANGE, "no token was drawn") : st;
    st = st == NW_OK ? hash_ids(&all, &s->ids_hash, err) : st;
    s->ids = all.ids;
    free(drawn);
    free(chosen);
    return st;
}

nw_status nw_samples_draw(const nw_tokenizer *tok, const nw_sample_options *o, nw_samples *out,
                          nw_error *err)
{
    const char *path = o->log != NULL ? o->log : o->text;
    nw_calib_rows r = {0};
    nw_samples s = {0};
    nw_ids text = {0};
    nw_status st = nw_digest_file(path, &s.data_hash, err);

    if (st == NW_OK) {
        st = o->log != NULL ? nw_calib_rows_scan(o, &r, err) : read_windows(tok, o, &text, &r, err);
    }
    st = st == NW_OK ? nw_calib_rows_settle(&r, err) : st;
    if (st == NW_OK && r.n_strata > o->n_samples) {
        st = nw_fail(err, NW_E_RANGE, "%zu strata of '%s', more than the %zu samples", r.n_strata,
                     o->stratify != NULL ? o->stratify : "text", o->n_samples);
    }
    st = st == NW_OK ? draw(tok, o, &text, &r, &s, err) : st;
    nw_ids_release(&text);
    nw_calib_rows_release(&r);
    if (st != NW_OK) {
        nw_samples_release(&s);
        return nw_context(err, "%s", path);
    }
    *out = s;
    return NW_OK;
}

void nw_samples_release(nw_samples *s)
{
    for (size_t i = 0; i < s->n_strata; i++) {
        free(s->strata[i].name);
    }
    free(s->strata);
    free(s->first);
    free(s->stratum);
    free(s->ids);
    *s = (nw_samples){0};
}

json_t *nw_samples_coverage(const nw_samples *s)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->n_strata; i++) {
        const nw_stratum *st = &s->strata[i];
        (void)json_array_append_new(
            list, json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "name", st->name, "seen",
                            (json_int_t)st->n_seen, "repeated", (json_int_t)st->n_repeated, "empty",
                            (json_int_t)st->n_empty, "drawn", (json_int_t)st->n_drawn, "cut",
                            (json_int_t)st->n_cut, "tokens", (json_int_t)st->n_tokens));
    }
    return list;
}
