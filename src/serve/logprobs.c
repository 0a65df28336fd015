/* The JSON of log-probabilities: see logprobs.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/logprobs.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool nw_logprob_add(nw_logprob_list *l, nw_token_logprob entry)
{
    if (l->n == l->cap) {
        const size_t cap = l->cap == 0 ? 64 : l->cap * 2;
        nw_token_logprob *at = realloc(l->at, cap * sizeof *at);
        if (at == NULL) {
            return false;
        }
        l->at = at;
        l->cap = cap;
    }
    l->at[l->n++] = entry;
    return true;
}

void nw_logprob_list_release(nw_logprob_list *l)
{
    free(l->at);
    *l = (nw_logprob_list){0};
}

void nw_json_put(nw_buf *out, json_t *value)
{
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

    if (text == NULL) {
        out->failed = true;
    } else {
        (void)nw_buf_puts(out, text);
    }
    free(text);
    json_decref(value);
}

/* Bytes of a token; never NULL. */
typedef struct {
    const char *bytes;
    size_t n;
} piece;

static piece piece_of(const nw_tokenizer *tok, int32_t id)
{
    piece p = {.n = 0};

    p.bytes = nw_tokenizer_piece(tok, id, &p.n);
    return p.bytes != NULL ? p : (piece){.bytes = "", .n = 0};
}

/* The nine digits that give the same float back. No logarithm is finite of nothing: OpenAI's -9999. */
static void put_number(nw_buf *out, float x)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%.9g", isfinite(x) ? (double)x : -9999.0);
    (void)nw_buf_puts(out, text);
    if (strpbrk(text, ".e") == NULL) {
        (void)nw_buf_puts(out, ".0");
    }
}

static void comma(nw_buf *out, size_t i)
{
    if (i > 0) {
        (void)nw_buf_puts(out, ",");
    }
}

/* ---- of a chat ---- */

/* An entry without its end. */
static void put_token(nw_buf *out, piece p, bool has_logprob, float logprob)
{
    json_t *text = json_stringn(p.bytes, p.n);

    (void)nw_buf_puts(out, "{\"token\":");
    nw_json_put(out, text != NULL ? text : json_string("\xEF\xBF\xBD"));
    (void)nw_buf_puts(out, ",\"logprob\":");
    if (has_logprob) {
        put_number(out, logprob);
    } else {
        (void)nw_buf_puts(out, "null");
    }
    (void)nw_buf_puts(out, ",\"bytes\":[");
    for (size_t i = 0; i < p.n; i++) {
        (void)nw_buf_printf(out, i > 0 ? ",%u" : "%u", (unsigned)(unsigned char)p.bytes[i]);
    }
    (void)nw_buf_puts(out, "]");
}

void nw_logprob_put_content(nw_buf *out, const nw_tokenizer *tok, const nw_logprob_list *l)
{
    (void)nw_buf_puts(out, "[");
    for (size_t i = 0; i < l->n; i++) {
        const nw_token_logprob *e = &l->at[i];
        comma(out, i);
        put_token(out, piece_of(tok, e->id), e->top != NULL, e->logprob);
        (void)nw_buf_puts(out, e->top != NULL ? ",\"top_logprobs\":[" : ",\"top_logprobs\":null");
        for (uint32_t k = 0; e->top != NULL && k < e->n_top; k++) {
            comma(out, k);
            put_token(out, piece_of(tok, e->top[k].id), true, e->top[k].logprob);
            (void)nw_buf_puts(out, "}");
        }
        (void)nw_buf_puts(out, e->top != NULL ? "]}" : "}");
    }
    (void)nw_buf_puts(out, "]");
}

/* ---- of a completion ---- */

/* The token's text, or its bytes where they are no text. */
static void put_text(nw_buf *out, piece p)
{
    json_t *text = json_stringn(p.bytes, p.n);

    if (text != NULL) {
        nw_json_put(out, text);
        return;
    }
    (void)nw_buf_puts(out, "\"bytes:");
    for (size_t i = 0; i < p.n; i++) {
        (void)nw_buf_printf(out, "\\\\x%02x", (unsigned)(unsigned char)p.bytes[i]);
    }
    (void)nw_buf_puts(out, "\"");
}

/* Whether one of the first n alternatives has the same text. */
static bool is_told(const nw_tokenizer *tok, const nw_token_logprob *e, size_t n, piece p)
{
    for (size_t k = 0; k < n; k++) {
        const piece q = piece_of(tok, e->top[k].id);
        if (q.n == p.n && memcmp(q.bytes, p.bytes, p.n) == 0) {
            return true;
        }
    }
    return false;
}

/* Two tokens may have one text: the more likely one, which comes first, stands for both. */
static void put_tops(nw_buf *out, const nw_tokenizer *tok, const nw_token_logprob *e)
{
    size_t n_put = 0;

    if (e->top == NULL) {
        (void)nw_buf_puts(out, "null");
        return;
    }
    (void)nw_buf_puts(out, "{");
    for (size_t k = 0; k <= e->n_top; k++) { /* the last is the token itself */
        const nw_logprob one =
            k < e->n_top ? e->top[k] : (nw_logprob){.id = e->id, .logprob = e->logprob};
        const piece p = piece_of(tok, one.id);
        if (is_told(tok, e, k, p)) {
            continue;
        }
        comma(out, n_put++);
        put_text(out, p);
        (void)nw_buf_puts(out, ":");
        put_number(out, one.logprob);
    }
    (void)nw_buf_puts(out, "}");
}

/* Characters that begin in the token. */
static size_t n_characters(piece p)
{
    size_t n = 0;

    for (size_t i = 0; i < p.n; i++) {
        n += ((unsigned char)p.bytes[i] & 0xC0) != 0x80;
    }
    return n;
}

void nw_logprob_put_lists(nw_buf *out, const nw_tokenizer *tok, const nw_logprob_list *l,
                          size_t *offset)
{
    (void)nw_buf_puts(out, "{\"tokens\":[");
    for (size_t i = 0; i < l->n; i++) {
        comma(out, i);
        put_text(out, piece_of(tok, l->at[i].id));
    }
    (void)nw_buf_puts(out, "],\"token_logprobs\":[");
    for (size_t i = 0; i < l->n; i++) {
        comma(out, i);
        if (l->at[i].top != NULL) {
            put_number(out, l->at[i].logprob);
        } else {
            (void)nw_buf_puts(out, "null");
        }
    }
    (void)nw_buf_puts(out, "],\"top_logprobs\":[");
    for (size_t i = 0; i < l->n; i++) {
        comma(out, i);
        put_tops(out, tok, &l->at[i]);
    }
    (void)nw_buf_puts(out, "],\"text_offset\":[");
    for (size_t i = 0; i < l->n; i++) {
        comma(out, i);
        (void)nw_buf_printf(out, "%zu", *offset);
        *offset += n_characters(piece_of(tok, l->at[i].id));
    }
    (void)nw_buf_puts(out, "]}");
}
