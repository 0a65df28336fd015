/* From text to words: repair, added tokens cut out of the raw text (control tokens only where the
 * text is the template's), normalization, added tokens that match normalized text, pre-tokenizer.
 * tokenizer_word.c turns the words into ids.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_internal.h"

#define SPACE_MARK "\xE2\x96\x81" /* U+2581, SentencePiece's space */

/* Normalization may lengthen a text (a space becomes three bytes). */
#define MAX_NORMALIZED (NW_TOKENIZER_MAX_TEXT * 4)

/* A stretch of the text that the template wrote; the rest is content. */
typedef struct {
    size_t start, end;
} template_span;

typedef struct {
    nw_encoder e;
    nw_buf text;
    template_span *spans; /* in order, apart from each other */
    size_t n_spans, at;   /* at: the first span that does not end before the position looked at */
} call;

/* ---- finding added tokens ---- */

/* Narrows [*lo, *hi), items that share their first k bytes, to those whose byte k is c. */
static void narrow(const nw_added_set *set, size_t *lo, size_t *hi, size_t k, unsigned char c)
{
    size_t a = *lo;
    size_t b = *hi;

    while (a < b) { /* the first item whose byte k is not below c; ended items come first */
        const size_t mid = a + (b - a) / 2;
        const nw_text *x = &set->items[mid].text;
        if (x->n <= k || (unsigned char)x->s[k] < c) {
            a = mid + 1;
        } else {
            b = mid;
        }
    }
    *lo = a;
    b = *hi;
    while (a < b) { /* the first item whose byte k is above c */
        const size_t mid = a + (b - a) / 2;
        if ((unsigned char)set->items[mid].text.s[k] <= c) {
            a = mid + 1;
        } else {
            b = mid;
        }
    }
    *hi = a;
}

static bool in_template(call *c, size_t start, size_t end)
{
    while (c->at < c->n_spans && c->spans[c->at].end <= start) {
        c->at++;
    }
    return c->at < c->n_spans && c->spans[c->at].start <= start && end <= c->spans[c->at].end;
}

/* The longest added token at s[i..n) that may stand there; NULL: none. `c` is NULL for text whose
 * positions mean nothing any more (normalized): then no control token matches. */
static const nw_added *match_at(const nw_added_set *set, call *c, const char *s, size_t n, size_t i)
{
    const unsigned char first = (unsigned char)s[i];
    size_t lo = set->first[first];
    size_t hi = set->first[first + 1];
    const nw_added *best = NULL;

    for (size_t k = 1; lo < hi; k++) {
        const nw_added *x = &set->items[lo];
        if (x->text.n == k && (!x->special || (c != NULL && in_template(c, i, i + k)))) {
            best = x;
        }
        if (i + k >= n) {
            break;
        }
        narrow(set, &lo, &hi, k, (unsigned char)s[i + k]);
    }
    return best;
}

/* Start of the character that ends right before s[i]. */
static size_t char_before(const char *s, size_t i)
{
    do {
        i--;
    } while (i > 0 && ((unsigned char)s[i] & 0xC0U) == 0x80U);
    return i;
}

static bool is_word_at(const char *s, size_t n, size_t i)
{
    uint32_t cp = 0;

    (void)nw_utf8_decode(s + i, n - i, &cp, NULL);
    return nw_is_word(cp);
}

/* A single_word token does not match inside of a word. */
static bool stands_alone(const char *s, size_t n, size_t start, size_t end)
{
    return (start == 0 || !is_word_at(s, n, char_before(s, start))) &&
           (end == n || !is_word_at(s, n, end));
}

/* Widens [*start, *end) over white space as the token's flags ask; not before `floor`. */
static void take_spaces(const nw_added *x, const char *s, size_t n, size_t floor, size_t *start,
                        size_t *end)
{
    uint32_t cp = 0;

    while (x->lstrip && *start > floor) {
        const size_t before = char_before(s, *start);
        (void)nw_utf8_decode(s + before, n - before, &cp, NULL);
        if (!nw_is_space(cp) || before < floor) {
            break;
        }
        *start = before;
    }
    while (x->rstrip && *end < n) {
        const size_t len = nw_utf8_decode(s + *end, n - *end, &cp, NULL);
        if (!nw_is_space(cp)) {
            break;
        }
        *end += len;
    }
}

/* The next added token at or after `from`: its stretch and id. False: none. */
static bool next_added(const nw_added_set *set, call *c, const char *s, size_t n, size_t from,
                       size_t *start, size_t *end, int32_t *id)
{
    for (size_t i = from; i < n && set->n > 0; i++) {
        if (set->first[(unsigned char)s[i]] == set->first[(unsigned char)s[i] + 1]) {
            continue;
        }
        const nw_added *x = match_at(set, c, s, n, i);
        if (x == NULL) {
            continue;
        }
        *start = i;
        *end = i + x->text.n;
        *id = x->id;
        if (x->single_word && !stands_alone(s, n, *start, *end)) {
            i = *end - 1;
            continue;
        }
        take_spaces(x, s, n, from, start, end);
        return true;
    }
    return false;
}

/* ---- from a stretch of plain text to words ---- */

static nw_status too_long(nw_encoder *e, size_t n)
{
    return nw_fail(e->err, NW_E_RANGE, "normalizing %zu bytes of text gives more than %zu bytes", n,
                   MAX_NORMALIZED);
}

static nw_status word(void *ctx, const char *s, size_t n)
{
    nw_encoder *e = ctx;
    const nw_tokenizer *t = e->tok;
    size_t start = 0;

    for (size_t i = 1; t->split_at_space && i + 3 <= n; i++) {
        if (s[i] == SPACE_MARK[0] && memcmp(s + i, SPACE_MARK, 3) == 0 &&
            !t->joins_space[(unsigned char)s[i - 1]] &&
            !(i >= 3 && memcmp(s + i - 3, SPACE_MARK, 3) == 0)) {
            const nw_status st = nw_encode_word(e, s + start, i - start);
            if (st != NW_OK) {
                return st;
            }
            start = i;
        }
    }
    return nw_encode_word(e, s + start, n - start);
}

static bool replace_literal(const nw_norm_step *step, const char *s, size_t n, nw_buf *out)
{
    const char *end = s + n;
    const char *at = NULL;

    while (step->from.n > 0 &&
           (at = nw_bytes_find(s, (size_t)(end - s), step->from.s, step->from.n)) != NULL) {
        if (!nw_buf_add(out, s, (size_t)(at - s)) || !nw_buf_add(out, step->to.s, step->to.n)) {
            return false;
        }
        s = at + step->from.n;
    }
    return nw_buf_add(out, s, (size_t)(end - s));
}

static nw_status replace_regex(nw_encoder *e, const nw_norm_step *step, const char *s, size_t n,
                               nw_buf *out)
{
    size_t done = 0;
    size_t from = 0;
    bool found = true;

    while (from < n) {
        size_t start = 0;
        size_t end = 0;
        uint32_t cp = 0;
        if (nw_regex_find(step->regex, s, n, from, &start, &end, &found, e->err) != NW_OK) {
            return e->err->code;
        }
        if (!found) {
            break;
        }
        if (end > start && (!nw_buf_add(out, s + done, start - done) ||
                            !nw_buf_add(out, step->to.s, step->to.n))) {
            return too_long(e, n);
        }
        done = end > start ? end : done;
        from = end > start ? end : end < n ? end + nw_utf8_decode(s + end, n - end, &cp, NULL) : n;
    }
    return nw_buf_add(out, s + done, n - done) ? NW_OK : too_long(e, n);
}

static nw_status norm_step(nw_encoder *e, const nw_norm_step *step, const char *s, size_t n,
                           nw_buf *out)
{
    bool fits = true;

    nw_buf_clear(out);
    switch (step->kind) {
    case NW_NORM_FORM:
        return nw_unicode_normalize(s, n, step->form, out, e->err);
    case NW_NORM_REPLACE:
        if (step->regex != NULL) {
            return replace_regex(e, step, s, n, out);
        }
        fits = replace_literal(step, s, n, out);
        break;
    case NW_NORM_PREPEND:
        fits = (n == 0 || nw_buf_add(out, step->to.s, step->to.n)) && nw_buf_add(out, s, n);
        break;
    }
    return fits ? NW_OK : too_long(e, n);
}

/* SentencePiece's remove_extra_whitespaces: no space at either end, none after another. */
static bool collapse(const char *s, size_t n, nw_buf *out)
{
    bool after_space = true;

    for (size_t i = 0; i < n; i++) {
        const bool space = s[i] == ' ';
        if (!(space && after_space) && !nw_buf_add(out, s + i, 1)) {
            return false;
        }
        after_space = space;
    }
    while (out->len > 0) { /* at the end, marks that were in the text go as well */
        if (out->data[out->len - 1] == ' ') {
            out->len--;
        } else if (out->len >= 3 && memcmp(out->data + out->len - 3, SPACE_MARK, 3) == 0) {
            out->len -= 3;
        } else {
            break;
        }
    }
    return true;
}

static bool wants_prefix(const nw_encoder *e, const char *s, size_t n)
{
    const nw_tokenizer *t = e->tok;

    if (n == 0) {
        return false;
    }
    if (t->pretok.prefix_space) {
        return s[0] != ' ';
    }
    if (!t->add_space_prefix || !(t->prefix_first_only ? e->at_start : e->after_token)) {
        return false;
    }
    return !t->prefix_unless_there || (s[0] != ' ' && !(n >= 3 && memcmp(s, SPACE_MARK, 3) == 0));
}

/* Writes what is done before the file's own normalization steps into `out`; *s and *n follow. */
static bool add_prefix(nw_encoder *e, const char **s, size_t *n, nw_buf *out)
{
    nw_buf_clear(out);
    if (e->tok->collapse_spaces && !collapse(*s, *n, out)) {
        return false;
    }
    if (e->tok->collapse_spaces) {
        *s = out->len == 0 ? "" : out->data;
        *n = out->len;
    }
    if (!wants_prefix(e, *s, *n)) {
        return true;
    }
    const char *prefix = e->tok->pretok.prefix_space ? " " : SPACE_MARK;
    const size_t n_prefix = strlen(prefix);
    if (e->tok->collapse_spaces) { /* `out` holds the text already: shift it */
        if (!nw_buf_add(out, prefix, n_prefix)) {
            return false;
        }
        memmove(out->data + n_prefix, out->data, out->len - n_prefix);
        memcpy(out->data, prefix, n_prefix);
    } else if (!nw_buf_add(out, prefix, n_prefix) || !nw_buf_add(out, *s, *n)) {
        return false;
    }
    *s = out->data;
    *n = out->len;
    return true;
}

static nw_status normalized(nw_encoder *e, const char *s, size_t n)
{
    size_t from = 0;
    size_t start = 0;
    size_t end = 0;
    int32_t id = -1;

    while (next_added(&e->tok->normal, NULL, s, n, from, &start, &end, &id)) {
        nw_status st = nw_pretok_run(&e->tok->pretok, s + from, start - from, word, e, e->err);
        if (st == NW_OK && !nw_ids_push(e->out, id)) {
            st = nw_fail(e->err, NW_E_NOMEM, "no memory for %zu ids", e->out->n);
        }
        if (st != NW_OK) {
            return st;
        }
        from = end;
    }
    return nw_pretok_run(&e->tok->pretok, s + from, n - from, word, e, e->err);
}

static nw_status plain(nw_encoder *e, const char *s, size_t n)
{
    nw_buf *out = &e->a;

    if (n == 0) {
        return NW_OK;
    }
    if (!add_prefix(e, &s, &n, out)) {
        return too_long(e, n);
    }
    for (size_t i = 0; i < e->tok->n_norm; i++) {
        out = s == e->a.data ? &e->b : &e->a;
        if (norm_step(e, &e->tok->norm[i], s, n, out) != NW_OK) {
            return e->err->code;
        }
        s = out->len == 0 ? "" : out->data;
        n = out->len;
    }
    e->at_start = false;
    e->after_token = false;
    return normalized(e, s, n);
}

/* ---- one call ---- */

static nw_status encode_text(call *c)
{
    const char *s = c->text.data;
    const size_t n = c->text.len;
    size_t from = 0;
    size_t start = 0;
    size_t end = 0;
    int32_t id = -1;

    while (next_added(&c->e.tok->raw, c, s, n, from, &start, &end, &id)) {
        if (plain(&c->e, s + from, start - from) != NW_OK) {
            return c->e.err->code;
        }
        if (!nw_ids_push(c->e.out, id)) {
            return nw_fail(c->e.err, NW_E_NOMEM, "no memory for %zu ids", c->e.out->n);
        }
        c->e.at_start = false;
        c->e.after_token = true;
        from = end;
    }
    return plain(&c->e, s + from, n - from);
}

/* Repairs the segments into one text and notes what the template wrote. */
static nw_status gather(call *c, const nw_text_segment *segs, size_t n_segs, nw_error *err)
{
    c->spans = malloc((n_segs + 1) * sizeof *c->spans);
    if (c->spans == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu segments of text", n_segs);
    }
    for (size_t i = 0; i < n_segs; i++) {
        const size_t start = c->text.len;
        if (!nw_utf8_repair(segs[i].text, segs[i].n, &c->text)) {
            return nw_fail(err, NW_E_NOMEM, "no memory for %zu bytes of text", segs[i].n);
        }
        if (!segs[i].is_template || segs[i].n == 0) {
            continue;
        }
        if (c->n_spans > 0 && c->spans[c->n_spans - 1].end == start) {
            c->spans[c->n_spans - 1].end = c->text.len;
        } else {
            c->spans[c->n_spans++] = (template_span){start, c->text.len};
        }
    }
    return NW_OK;
}

/* BOS was put at the front: keep one when the text brought its own. */
static void keep_one_bos(nw_ids *out, size_t n_before, int32_t bos)
{
    if (out->n >= n_before + 2 && out->ids[n_before + 1] == bos) {
        memmove(out->ids + n_before, out->ids + n_before + 1,
                (out->n - n_before - 1) * sizeof *out->ids);
        out->n--;
    }
}

static nw_status run(call *c, const nw_text_segment *segs, size_t n_segs, bool bos, nw_error *err)
{
    const size_t n_before = c->e.out->n;

    if (gather(c, segs, n_segs, err) != NW_OK) {
        return err->code;
    }
    c->e.cache = c->text.len > 1024 ? nw_word_cache_new() : NULL;
    if (bos && !nw_ids_push(c->e.out, c->e.tok->bos)) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %zu ids", c->e.out->n);
    }
    if (c->text.len > 0 && encode_text(c) != NW_OK) {
        return err->code;
    }
    if (bos) {
        keep_one_bos(c->e.out, n_before, c->e.tok->bos);
    }
    return NW_OK;
}

nw_status nw_tokenizer_encode_segments(const nw_tokenizer *tok, const nw_text_segment *segs,
                                       size_t n_segs, unsigned flags, nw_ids *out, nw_error *err)
{
    const bool bos = (flags & NW_TOK_BOS) != 0 && tok->add_bos && tok->bos >= 0;
    const size_t n_before = out->n;
    size_t total = 0;
    call c = {.e = {.tok = tok, .out = out, .err = err, .at_start = true, .after_token = true}};

    for (size_t i = 0; i < n_segs; i++) {
        if (!nw_size_add(total, segs[i].n, &total) || total > NW_TOKENIZER_MAX_TEXT) {
            return nw_fail(err, NW_E_RANGE, "text of %zu bytes or more to tokenize, limit %zu",
                           total, NW_TOKENIZER_MAX_TEXT);
        }
    }
    nw_buf_init(&c.text, NW_TOKENIZER_MAX_TEXT * 3); /* a bad byte becomes three */
    nw_buf_init(&c.e.a, MAX_NORMALIZED);
    nw_buf_init(&c.e.b, MAX_NORMALIZED);
    nw_buf_init(&c.e.c, MAX_NORMALIZED);
    const nw_status st = run(&c, segs, n_segs, bos, err);
    if (st != NW_OK) {
        out->n = n_before;
    }
    nw_buf_release(&c.text);
    nw_buf_release(&c.e.a);
    nw_buf_release(&c.e.b);
    nw_buf_release(&c.e.c);
    nw_merger_release(&c.e.merger);
    nw_word_cache_free(c.e.cache);
    free(c.spans);
    return st;
}

nw_status nw_tokenizer_encode(const nw_tokenizer *tok, const char *text, size_t n_bytes,
                              unsigned flags, nw_ids *out, nw_error *err)
{
    const nw_text_segment seg = {text, n_bytes, (flags & NW_TOK_SPECIAL) != 0};

    return nw_tokenizer_encode_segments(tok, &seg, 1, flags, out, err);
}
