/* Sorted sets of names: see names.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/names.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Doubles *cap until it is at least need. */
static bool grow(void **p, size_t *cap, size_t need, size_t item_bytes)
{
    size_t want = *cap < 16 ? 16 : *cap;
    size_t bytes = 0;

    if (need <= *cap) {
        return true;
    }
    while (want < need) {
        if (!nw_size_mul(want, 2, &want)) {
            return false;
        }
    }
    if (!nw_size_mul(want, item_bytes, &bytes)) {
        return false;
    }
    void *bigger = realloc(*p, bytes);
    if (bigger == NULL) {
        return false;
    }
    *p = bigger;
    *cap = want;
    return true;
}

bool nw_names_add(nw_names *s, const char *name, size_t len)
{
    size_t need = 0;
    void *text = s->text;
    void *at = s->at;

    assert(s->order == NULL);
    if (!nw_size_add(s->n_text, len, &need) || !nw_size_add(need, 1, &need)) {
        return false;
    }
    const bool ok =
        grow(&text, &s->cap_text, need, 1) && grow(&at, &s->cap, s->n + 1, sizeof *s->at);
    s->text = text;
    s->at = at;
    if (!ok) {
        return false;
    }
    if (len > 0) {
        memcpy(s->text + s->n_text, name, len);
    }
    s->text[need - 1] = '\0';
    s->at[s->n++] = s->n_text;
    s->n_text = need;
    return true;
}

void nw_names_release(nw_names *s)
{
    free(s->text);
    free(s->at);
    free(s->order);
    *s = (nw_names){0};
}

static int compare(const nw_names *s, size_t a, size_t b)
{
    return strcmp(s->text + s->at[a], s->text + s->at[b]);
}

/* Bottom-up merge sort: stable, so that of two equal names the later one is the duplicate, and of
 * guaranteed cost. tmp has room for n indices. */
static size_t *merge_sort(const nw_names *s, size_t *from, size_t *tmp)
{
    for (size_t width = 1; width < s->n; width *= 2) {
        for (size_t lo = 0; lo < s->n; lo += 2 * width) {
            const size_t mid = lo + width < s->n ? lo + width : s->n;
            const size_t hi = mid + width < s->n ? mid + width : s->n;
            size_t a = lo;
            size_t b = mid;
            for (size_t k = lo; k < hi; k++) {
                const bool left = a < mid && (b >= hi || compare(s, from[a], from[b]) <= 0);
                tmp[k] = left ? from[a++] : from[b++];
            }
        }
        size_t *swap = from;
        from = tmp;
        tmp = swap;
    }
    return from;
}

bool nw_names_seal(nw_names *s, size_t *dup)
{
    size_t *order = calloc(s->n + 1, sizeof *order);
    size_t *tmp = calloc(s->n + 1, sizeof *tmp);

    if (order == NULL || tmp == NULL) {
        free(order);
        free(tmp);
        return false;
    }
    for (size_t i = 0; i < s->n; i++) {
        order[i] = i;
    }
    s->order = merge_sort(s, order, tmp);
    free(s->order == order ? tmp : order);
    *dup = s->n;
    for (size_t i = 1; i < s->n && *dup == s->n; i++) {
        if (compare(s, s->order[i - 1], s->order[i]) == 0) {
            *dup = s->order[i];
        }
    }
    return true;
}

const char *nw_names_at(const nw_names *s, size_t i)
{
    assert(i < s->n);
    return s->text + s->at[i];
}

size_t nw_names_sorted(const nw_names *s, size_t i)
{
    assert(s->order != NULL && i < s->n);
    return s->order[i];
}

size_t nw_names_find(const nw_names *s, const char *name)
{
    size_t lo = 0;
    size_t hi = s->n;

    assert(s->order != NULL || s->n == 0);
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        const int c = strcmp(name, s->text + s->at[s->order[mid]]);
        if (c == 0) {
            return s->order[mid];
        }
        if (c < 0) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return s->n;
}

const char *nw_name_show(const char *bytes, size_t len, char *buf, size_t n)
{
    size_t k = 0;
    size_t i = 0;

    for (; i < len && k + 8 < n; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (c < 0x20 || c == 0x7F || c == '\'' || c == '\\' || c >= 0x80) {
            k += (size_t)snprintf(buf + k, n - k, "\\x%02X", c);
        } else {
            buf[k++] = (char)c;
        }
    }
    (void)snprintf(buf + k, n - k, "%s", i < len ? "..." : "");
    return buf;
}
