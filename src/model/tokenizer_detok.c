/* Ids back to text, a token at a time: whole characters only, U+FFFD for what can never become one.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "model/tokenizer_internal.h"

#define REPLACEMENT "\xEF\xBF\xBD"

void nw_detok_init(nw_detok *d, const nw_tokenizer *tok, unsigned flags)
{
    *d = (nw_detok){.tok = tok, .flags = flags, .at_start = (flags & NW_DETOK_START) != 0};
}

void nw_detok_release(nw_detok *d)
{
    *d = (nw_detok){.tok = NULL};
}

/* True when p[0..n), n < 4, may still become a character: its decoding ends only because the bytes
 * end. */
static bool is_open(const char *p, size_t n)
{
    char probe[4] = {0};
    uint32_t cp = 0;
    const unsigned char lead = (unsigned char)p[0];
    const size_t want = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;

    if (lead < 0xC2 || lead > 0xF4 || n >= want) {
        return false;
    }
    memcpy(probe, p, n);
    return nw_utf8_decode(probe, n, &cp, NULL) == n; /* the maximal part is all there is */
}

/* Hands out what stands complete at the front of the pending bytes; `all`: open characters too. */
static bool drain(nw_detok *d, bool all, nw_buf *out)
{
    while (d->n_pending > 0) {
        uint32_t cp = 0;
        bool valid = false;
        if (!all && is_open(d->pending, d->n_pending)) {
            return true;
        }
        const size_t len = nw_utf8_decode(d->pending, d->n_pending, &cp, &valid);
        if (!(valid ? nw_buf_add(out, d->pending, len) : nw_buf_puts(out, REPLACEMENT))) {
            return false;
        }
        d->n_pending = (uint8_t)(d->n_pending - len);
        memmove(d->pending, d->pending + len, d->n_pending);
    }
    return true;
}

static bool push_bytes(nw_detok *d, const char *s, size_t n, nw_buf *out)
{
    size_t i = 0;

    while (i < n) {
        if (d->n_pending == 0) { /* the well-formed run at the front goes out at once */
            const size_t start = i;
            bool valid = true;
            while (i < n && valid) {
                uint32_t cp = 0;
                const size_t len = nw_utf8_decode(s + i, n - i, &cp, &valid);
                i += valid ? len : 0;
            }
            if (!nw_buf_add(out, s + start, i - start)) {
                return false;
            }
        }
        if (i < n) {
            d->pending[d->n_pending++] = s[i++];
            if (!drain(d, false, out)) {
                return false;
            }
        }
    }
    return true;
}

bool nw_detok_push(nw_detok *d, int32_t id, nw_buf *out)
{
    const nw_tokenizer *t = d->tok;
    size_t len = 0;
    const char *s = nw_tokenizer_piece(t, id, &len);

    if (s == NULL) {
        return false;
    }
    if (nw_tokenizer_is_control(t, id)) {
        const bool shown = (d->flags & NW_DETOK_CONTROL) != 0;
        return drain(d, true, out) && (!shown || nw_buf_add(out, s, len));
    }
    const bool dropped = d->at_start && t->decode_strip && len > 0 && s[0] == ' ';
    d->at_start = false;
    return push_bytes(d, s + (dropped ? 1 : 0), len - (dropped ? 1 : 0), out);
}

bool nw_detok_flush(nw_detok *d, nw_buf *out)
{
    return drain(d, true, out);
}

nw_status nw_tokenizer_decode(const nw_tokenizer *tok, const int32_t *ids, size_t n,
                              unsigned detok_flags, nw_buf *out, nw_error *err)
{
    nw_detok d;

    nw_detok_init(&d, tok, detok_flags);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= tok->n) {
            return nw_fail(err, NW_E_RANGE, "token id %d, the vocabulary has %u", ids[i], tok->n);
        }
        if (!nw_detok_push(&d, ids[i], out)) {
            return nw_fail(err, NW_E_RANGE, "decoding %zu tokens gives more than %zu bytes", n,
                           out->max);
        }
    }
    if (!nw_detok_flush(&d, out)) {
        return nw_fail(err, NW_E_RANGE, "decoding %zu tokens gives more than %zu bytes", n,
                       out->max);
    }
    return NW_OK;
}
