/* Cutting a text into scored windows. SPDX-License-Identifier: Apache-2.0 */
#include "eval/windows.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

enum { TEXT_MAX = 1 << 30 };

const char *nw_cut_name(nw_cut cut)
{
    static const char *const names[] = {"chunks", "stride", "documents"};
    return names[cut];
}

static bool has_suffix(const char *path, const char *suffix)
{
    const size_t n = strlen(path);
    const size_t m = strlen(suffix);
    return n > m && strcmp(path + n - m, suffix) == 0;
}

/* Room for n windows over n_ids stored ids. */
static nw_status make_room(nw_windows *w, size_t n, size_t n_ids, const char *path, nw_error *err)
{
    w->items = calloc(n > 0 ? n : 1, sizeof *w->items);
    w->ids = calloc(n_ids > 0 ? n_ids : 1, sizeof *w->ids);
    return w->items != NULL && w->ids != NULL
               ? NW_OK
               : nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu tokens", path, n_ids);
}

static void put(nw_windows *w, const int32_t *ids, uint32_t n, uint32_t first)
{
    w->items[w->n] = (nw_window){.ids = ids, .n = n, .first = first};
    w->n++;
    w->n_scored += n - first;
}

/* llama-perplexity scores, in a chunk of n_ctx, the tokens that follow positions n_ctx/2 to
 * n_ctx-2: the tokens n_ctx/2+1 .. n_ctx-1. */
static nw_status cut_chunks(const nw_tokenizer *tok, const nw_window_options *o, const nw_ids *all,
                            nw_windows *w, nw_error *err)
{
    size_t n = all->n / o->n_ctx;
    const int32_t bos = nw_tokenizer_adds_bos(tok) ? nw_tokenizer_bos(tok) : -1;

    n = o->max_windows > 0 && n > o->max_windows ? o->max_windows : n;
    if (n == 0 || o->n_ctx < 4) {
        return nw_fail(err, NW_E_RANGE, "%s: %zu tokens, less than one context of %u", o->path,
                       all->n, o->n_ctx);
    }
    if (make_room(w, n, n * o->n_ctx, o->path, err) != NW_OK) {
        return err->code;
    }
    memcpy(w->ids, all->ids, n * o->n_ctx * sizeof *w->ids);
    for (size_t i = 0; i < n; i++) {
        int32_t *ids = w->ids + i * o->n_ctx;
        if (bos >= 0) {
            ids[0] = bos;
        }
        put(w, ids, o->n_ctx, o->n_ctx / 2 + 1);
    }
    return NW_OK;
}

static nw_status cut_stride(const nw_window_options *o, const nw_ids *all, nw_windows *w,
                            nw_error *err)
{
    if (all->n < 2) {
        return nw_fail(err, NW_E_RANGE, "%s: %zu tokens, 2 wanted at least", o->path, all->n);
    }
    size_t n = (all->n + o->stride - 1) / o->stride;
    n = o->max_windows > 0 && n > o->max_windows ? o->max_windows : n;
    if (make_room(w, n, all->n, o->path, err) != NW_OK) {
        return err->code;
    }
    memcpy(w->ids, all->ids, all->n * sizeof *w->ids);
    size_t scored_to = 1; /* the first token has nothing before it */
    for (size_t i = 0; i < n && scored_to < all->n; i++) {
        const size_t begin = i * o->stride;
        const size_t end = begin + o->n_ctx < all->n ? begin + o->n_ctx : all->n;
        /* windows side by side: the first token of each has nothing before it */
        const size_t from = scored_to > begin ? scored_to : begin + 1;
        if (end > from) {
            put(w, w->ids + begin, (uint32_t)(end - begin), (uint32_t)(from - begin));
            scored_to = end;
        }
    }
    return NW_OK;
}

/* The texts of a JSON list of strings, or of the "text" of each line, as one JSON array. */
static nw_status load_documents(const char *path, json_t **out, nw_error *err)
{
    nw_jsonl in = {0};
    json_t *row = NULL;

    if (has_suffix(path, ".json")) {
        return nw_json_load(path, TEXT_MAX, out, err);
    }
    *out = json_array();
    nw_status st = nw_jsonl_open(&in, path, false, err);
    while (st == NW_OK && (st = nw_jsonl_next(&in, &row, err)) == NW_OK && row != NULL) {
        json_t *text = json_object_get(row, "text");
        (void)json_array_append(*out, text != NULL ? text : row); /* a row is no string: refused */
    }
    nw_jsonl_close(&in);
    return st;
}

static nw_status encode_document(const nw_tokenizer *tok, const nw_window_options *o,
                                 const json_t *docs, size_t i, nw_ids *ids, nw_error *err)
{
    const json_t *doc = json_array_get(docs, i);

    if (!json_is_string(doc)) {
        return nw_fail(err, NW_E_FORMAT, "%s: document %zu is not a string", o->path, i);
    }
    ids->n = 0;
    return nw_tokenizer_encode(tok, json_string_value(doc), json_string_length(doc), NW_TOK_BOS,
                               ids, err);
}

static nw_status cut_documents(const nw_tokenizer *tok, const nw_window_options *o, nw_windows *w,
                               nw_error *err)
{
    json_t *docs = NULL;
    nw_ids ids = {0};
    nw_status st = load_documents(o->path, &docs, err);
    size_t n = st == NW_OK ? json_array_size(docs) : 0;
    size_t used = 0;

    n = o->max_windows > 0 && n > o->max_windows ? o->max_windows : n;
    if (st == NW_OK && n == 0) {
        st = nw_fail(err, NW_E_FORMAT, "%s: not a list of documents", o->path);
    }
    st = st == NW_OK ? make_room(w, n, n * o->n_ctx, o->path, err) : st;
    for (size_t i = 0; i < n && st == NW_OK; i++) {
        st = encode_document(tok, o, docs, i, &ids, err);
        if (st == NW_OK && ids.n >= 2) {
            const size_t len = ids.n < o->n_ctx ? ids.n : o->n_ctx;
            memcpy(w->ids + used, ids.ids, len * sizeof *w->ids);
            put(w, w->ids + used, (uint32_t)len, 1);
            used += len;
        }
    }
    nw_ids_release(&ids);
    json_decref(docs);
    return st;
}

static nw_status cut_text(const nw_tokenizer *tok, const nw_window_options *o, nw_windows *w,
                          nw_error *err)
{
    char *text = NULL;
    size_t n = 0;
    nw_ids all = {0};
    nw_status st = nw_file_read(o->path, TEXT_MAX, &text, &n, err);

    st = st == NW_OK ? nw_tokenizer_encode(tok, text, n, NW_TOK_BOS, &all, err) : st;
    if (st == NW_OK) {
        st = w->cut == NW_CUT_STRIDE ? cut_stride(o, &all, w, err)
                                     : cut_chunks(tok, o, &all, w, err);
    }
    nw_ids_release(&all);
    free(text);
    return st;
}

/* Bytes of the text of the first n tokens; control tokens are none of it. */
static nw_status bytes_of(const nw_tokenizer *tok, const int32_t *ids, size_t n, nw_buf *text,
                          uint64_t *bytes, nw_error *err)
{
    text->len = 0;
    const nw_status st = nw_tokenizer_decode(tok, ids, n, 0, text, err);
    *bytes = text->len;
    return st;
}

static nw_status count_bytes(const nw_tokenizer *tok, nw_windows *w, nw_error *err)
{
    nw_status st = NW_OK;
    nw_buf text;

    nw_buf_init(&text, TEXT_MAX);
    for (size_t i = 0; i < w->n && st == NW_OK; i++) {
        const nw_window *one = &w->items[i];
        uint64_t whole = 0;
        uint64_t before = 0;
        st = bytes_of(tok, one->ids, one->n, &text, &whole, err);
        st = st == NW_OK ? bytes_of(tok, one->ids, one->first, &text, &before, err) : st;
        w->n_scored_bytes += whole > before ? whole - before : 0;
    }
    nw_buf_release(&text);
    return st;
}

nw_status nw_windows_open(const nw_tokenizer *tok, const nw_window_options *o, nw_windows *out,
                          nw_error *err)
{
    nw_windows w = {.n = 0};
    nw_file file = {0};
    const bool documents = has_suffix(o->path, ".json") || has_suffix(o->path, ".jsonl");

    if (o->n_ctx < 2 || (o->stride > 0 && o->stride > o->n_ctx)) {
        return nw_fail(err, NW_E_RANGE, "context of %u with stride %u: 2 and up, stride within it",
                       o->n_ctx, o->stride);
    }
    if (nw_digest_file(o->path, &w.data_hash, err) != NW_OK ||
        nw_file_map(o->path, &file, err) != NW_OK) {
        return err->code;
    }
    w.n_bytes = file.size;
    nw_file_unmap(&file);
    w.cut = documents ? NW_CUT_DOCUMENTS : o->stride > 0 ? NW_CUT_STRIDE : NW_CUT_CHUNKS;
    nw_status st = documents ? cut_documents(tok, o, &w, err) : cut_text(tok, o, &w, err);
    if (st == NW_OK && w.n_scored == 0) {
        st = nw_fail(err, NW_E_RANGE, "%s: no token to score in %zu windows", o->path, w.n);
    }
    st = st == NW_OK ? count_bytes(tok, &w, err) : st;
    if (st != NW_OK) {
        nw_windows_release(&w);
        return st;
    }
    *out = w;
    return NW_OK;
}

void nw_windows_release(nw_windows *w)
{
    free(w->items);
    free(w->ids);
    *w = (nw_windows){.n = 0};
}
