/* The filter of textout.h. `held` is text in the order it was generated, control tokens' text
 * included, with a flag for each byte that may be shown. After each push it keeps no more than the
 * longest end of it that begins some stop string, so it stays shorter than the longest of them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/textout.h"

#include <stdlib.h>
#include <string.h>

struct nw_textout {
    nw_detok detok;
    nw_buf piece;
    char *stops[NW_STOP_MAX];
    size_t stop_len[NW_STOP_MAX];
    size_t n_stop;
    nw_buf held;  /* bytes */
    nw_buf shown; /* one flag a byte of held: 1 may be shown */
};

#define HELD_MAX ((size_t)64 << 20) /* a token's text; cut to a stop string's length after */

static bool add_stops(nw_textout *t, const char *const *stop, size_t n_stop, nw_error *err)
{
    if (n_stop > NW_STOP_MAX) {
        (void)nw_fail(err, NW_E_RANGE, "stop: %zu strings, at most %d are allowed", n_stop,
                      NW_STOP_MAX);
        return false;
    }
    for (size_t i = 0; i < n_stop; i++) {
        const size_t n = strlen(stop[i]);
        if (n == 0 || n > NW_STOP_MAX_BYTES) {
            (void)nw_fail(err, NW_E_RANGE, "stop: string %zu has %zu bytes, 1 to %d are allowed", i,
                          n, NW_STOP_MAX_BYTES);
            return false;
        }
        t->stops[i] = strdup(stop[i]);
        if (t->stops[i] == NULL) {
            (void)nw_fail(err, NW_E_NOMEM, "stop: no memory");
            return false;
        }
        t->stop_len[i] = n;
        t->n_stop++;
    }
    return true;
}

nw_status nw_textout_open(const nw_tokenizer *tok, const char *const *stop, size_t n_stop,
                          nw_textout **out, nw_error *err)
{
    nw_textout *t = calloc(1, sizeof *t);

    *out = NULL;
    if (t == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for a text stream");
    }
    nw_detok_init(&t->detok, tok, 0);
    nw_buf_init(&t->piece, HELD_MAX);
    nw_buf_init(&t->held, HELD_MAX);
    nw_buf_init(&t->shown, HELD_MAX);
    if (!add_stops(t, stop, n_stop, err)) {
        nw_textout_close(t);
        return err->code;
    }
    *out = t;
    return NW_OK;
}

void nw_textout_close(nw_textout *t)
{
    if (t != NULL) {
        nw_detok_release(&t->detok);
        nw_buf_release(&t->piece);
        nw_buf_release(&t->held);
        nw_buf_release(&t->shown);
        for (size_t i = 0; i < t->n_stop; i++) {
            free(t->stops[i]);
        }
        free(t);
    }
}

static void hold(nw_textout *t, const char *bytes, size_t n, char flag)
{
    for (size_t i = 0; i < n; i++) {
        if (!nw_buf_add(&t->held, &bytes[i], 1)) {
            return;
        }
        if (!nw_buf_add(&t->shown, &flag, 1)) { /* keep both of one length */
            t->held.len--;
            return;
        }
    }
}

/* Hands out the first n held bytes. */
static void release(nw_textout *t, size_t n, nw_buf *text)
{
    for (size_t i = 0; i < n; i++) {
        if (t->shown.data[i] == 1) {
            (void)nw_buf_add(text, t->held.data + i, 1);
        }
    }
    if (n > 0) {
        memmove(t->held.data, t->held.data + n, t->held.len - n);
        memmove(t->shown.data, t->shown.data + n, t->shown.len - n);
        t->held.len -= n;
        t->shown.len -= n;
    }
}

/* Where the earliest stop string begins in what is held; held.len when there is none. */
static size_t find_stop(const nw_textout *t)
{
    for (size_t at = 0; at < t->held.len; at++) {
        for (size_t i = 0; i < t->n_stop; i++) {
            if (t->stop_len[i] <= t->held.len - at &&
                memcmp(t->held.data + at, t->stops[i], t->stop_len[i]) == 0) {
                return at;
            }
        }
    }
    return t->held.len;
}

/* Where the longest end of held begins that some stop string starts with; held.len: none. */
static size_t find_start(const nw_textout *t)
{
    for (size_t at = 0; at < t->held.len; at++) {
        for (size_t i = 0; i < t->n_stop; i++) {
            const size_t n = t->held.len - at;
            if (n < t->stop_len[i] && memcmp(t->held.data + at, t->stops[i], n) == 0) {
                return at;
            }
        }
    }
    return t->held.len;
}

bool nw_textout_push(nw_textout *t, int32_t id, nw_buf *text)
{
    nw_buf_clear(&t->piece);
    if (nw_tokenizer_is_control(t->detok.tok, id)) {
        size_t n = 0;
        const char *name = nw_tokenizer_piece(t->detok.tok, id, &n);
        (void)nw_detok_flush(&t->detok, &t->piece);
        hold(t, t->piece.data, t->piece.len, 1);
        hold(t, name, n, 0);
    } else if (nw_detok_push(&t->detok, id, &t->piece)) {
        hold(t, t->piece.data, t->piece.len, 1);
    }
    const size_t stop = find_stop(t);
    if (stop < t->held.len) {
        release(t, stop, text);
        nw_buf_clear(&t->held);
        nw_buf_clear(&t->shown);
        return true;
    }
    release(t, find_start(t), text);
    return false;
}

void nw_textout_flush(nw_textout *t, nw_buf *text)
{
    nw_buf_clear(&t->piece);
    (void)nw_detok_flush(&t->detok, &t->piece);
    hold(t, t->piece.data, t->piece.len, 1);
    release(t, t->held.len, text);
}
