/* Strict JSON over Jansson: see json.h. Every message names the file, the place or the key, the
 * value found, and what was allowed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"

/* The digits at s[i..j) are an integer that int64_t does not hold. */
static bool is_too_long(const char *s, size_t n, size_t i, size_t j)
{
    static const char most[] = "9223372036854775807";
    const size_t n_most = sizeof most - 1;
    const size_t at = i > 0 && s[i - 1] == '-' ? i - 1 : i;
    const bool fraction = at > 0 && strchr(".eE+", s[at - 1]) != NULL;
    const bool whole = j == n || strchr(".eE", s[j]) == NULL;

    return whole && !fraction &&
           (j - i > n_most || (j - i == n_most && memcmp(s + i, most, n_most) > 0));
}

/* The text with ".0" behind such integers, outside of strings; NULL without memory. */
static char *long_integers_as_reals(const char *s, size_t n, size_t *n_out)
{
    nw_buf b;
    bool in_string = false;
    size_t from = 0;

    nw_buf_init(&b, n + n / 8 + 8);
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"') {
            in_string = !in_string;
        } else if (in_string) {
            i += s[i] == '\\';
        } else if (s[i] >= '0' && s[i] <= '9') {
            size_t j = i;
            while (j < n && s[j] >= '0' && s[j] <= '9') {
                j++;
            }
            if (is_too_long(s, n, i, j)) {
                (void)(nw_buf_add(&b, s + from, j - from) && nw_buf_puts(&b, ".0"));
                from = j;
            }
            i = j - 1;
        }
    }
    (void)nw_buf_add(&b, s + from, n - from);
    *n_out = b.len;
    return nw_buf_take(&b);
}

/* Transformers writes 10^30 for "no limit": a number that no integer here holds is a real. */
static json_t *load_long_integers(const char *bytes, size_t n)
{
    json_error_t ignored;
    size_t n_text = 0;
    char *text = long_integers_as_reals(bytes, n, &n_text);
    json_t *value =
        text != NULL ? json_loadb(text, n_text, JSON_REJECT_DUPLICATES, &ignored) : NULL;

    free(text);
    return value;
}

nw_status nw_json_parse(const char *name, const char *bytes, size_t n, json_t **out, nw_error *err)
{
    json_error_t at;
    json_t *value = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &at);

    if (value == NULL && json_error_code(&at) == json_error_numeric_overflow) {
        value = load_long_integers(bytes, n);
    }
    if (value == NULL) {
        return nw_fail(err, NW_E_FORMAT, "%s:%d:%d: %s", name, at.line < 1 ? 1 : at.line,
                       at.column < 0 ? 0 : at.column, at.text);
    }
    *out = value;
    return NW_OK;
}

nw_status nw_json_load(const char *path, size_t max_bytes, json_t **out, nw_error *err)
{
    char *text = NULL;
    size_t n = 0;
    nw_status st = nw_file_read(path, max_bytes, &text, &n, err);

    if (st == NW_OK) {
        st = nw_json_parse(path, text, n, out, err);
        free(text);
    }
    return st;
}

char *nw_json_canonical(const json_t *value)
{
    return json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
}

const char *nw_json_show(const json_t *v, char buf[NW_JSON_SHOWN])
{
    if (json_is_object(v) || json_is_array(v)) {
        (void)snprintf(buf, NW_JSON_SHOWN, "%s", json_is_object(v) ? "an object" : "a list");
        return buf;
    }
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text == NULL) {
        (void)snprintf(buf, NW_JSON_SHOWN, "?");
    } else if (strlen(text) < NW_JSON_SHOWN) {
        (void)snprintf(buf, NW_JSON_SHOWN, "%s", text);
    } else {
        size_t n = NW_JSON_SHOWN - 4;
        while (n > 0 && (text[n] & 0xC0) == 0x80) { /* not inside a character */
            n--;
        }
        (void)snprintf(buf, NW_JSON_SHOWN, "%.*s...", (int)n, text);
    }
    free(text);
    return buf;
}

/* NULL when the key is absent or null. */
static const json_t *find(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);
    return json_is_null(v) ? NULL : v;
}

static nw_status missing(const char *name, const char *key, nw_error *err)
{
    return nw_fail(err, NW_E_FORMAT, "%s: '%s' is missing", name, key);
}

static nw_status wrong_type(const json_t *v, const char *name, const char *key, const char *want,
                            nw_error *err)
{
    char buf[NW_JSON_SHOWN];
    return nw_fail(err, NW_E_FORMAT, "%s: '%s' is %s, expected %s", name, key, nw_json_show(v, buf),
                   want);
}

nw_status nw_json_opt_u32(const json_t *obj, const char *name, const char *key, uint32_t lo,
                          uint32_t hi, uint32_t *out, nw_error *err)
{
    const json_t *v = find(obj, key);

    if (v == NULL) {
        return NW_OK;
    }
    if (!json_is_integer(v)) {
        return wrong_type(v, name, key, "an integer", err);
    }
    const json_int_t i = json_integer_value(v);
    if (i < (json_int_t)lo || i > (json_int_t)hi) {
        return nw_fail(err, NW_E_RANGE,
                       "%s: '%s' is %" JSON_INTEGER_FORMAT ", must be %" PRIu32 " to %" PRIu32,
                       name, key, i, lo, hi);
    }
    *out = (uint32_t)i;
    return NW_OK;
}

nw_status nw_json_u32(const json_t *obj, const char *name, const char *key, uint32_t lo,
                      uint32_t hi, uint32_t *out, nw_error *err)
{
    if (find(obj, key) == NULL) {
        return missing(name, key, err);
    }
    return nw_json_opt_u32(obj, name, key, lo, hi, out, err);
}

nw_status nw_json_opt_double(const json_t *obj, const char *name, const char *key, double lo,
                             double hi, double *out, nw_error *err)
{
    const json_t *v = find(obj, key);

    if (v == NULL) {
        return NW_OK;
    }
    if (!json_is_number(v)) {
        return wrong_type(v, name, key, "a number", err);
    }
    const double x = json_number_value(v);
    if (!(x >= lo && x <= hi)) {
        return nw_fail(err, NW_E_RANGE, "%s: '%s' is %g, must be %g to %g", name, key, x, lo, hi);
    }
    *out = x;
    return NW_OK;
}

nw_status nw_json_opt_bool(const json_t *obj, const char *name, const char *key, bool *out,
                           nw_error *err)
{
    const json_t *v = find(obj, key);

    if (v == NULL) {
        return NW_OK;
    }
    if (!json_is_boolean(v)) {
        return wrong_type(v, name, key, "true or false", err);
    }
    *out = json_is_true(v);
    return NW_OK;
}

nw_status nw_json_opt_str(const json_t *obj, const char *name, const char *key, const char **out,
                          nw_error *err)
{
    const json_t *v = find(obj, key);

    if (v == NULL) {
        return NW_OK;
    }
    if (!json_is_string(v)) {
        return wrong_type(v, name, key, "a string", err);
    }
    *out = json_string_value(v);
    return NW_OK;
}

nw_status nw_json_str(const json_t *obj, const char *name, const char *key, const char **out,
                      nw_error *err)
{
    if (find(obj, key) == NULL) {
        return missing(name, key, err);
    }
    return nw_json_opt_str(obj, name, key, out, err);
}

nw_status nw_jsonl_open(nw_jsonl *r, const char *path, bool strict_end, nw_error *err)
{
    nw_file probe = {0};
    /* the map refuses what is no file, with its reason, before stdio hides it */
    nw_status st = nw_file_map(path, &probe, err);

    *r = (nw_jsonl){.strict_end = strict_end};
    if (st != NW_OK) {
        return st;
    }
    r->fp = fopen(path, "rbe");
    r->path = probe.path;
    probe.path = NULL;
    nw_file_unmap(&probe);
    if (r->fp == NULL) {
        st = nw_fail(err, NW_E_IO, "%s: cannot open", path);
        nw_jsonl_close(r);
    }
    return st;
}

static bool is_blank(const char *line, size_t n)
{
    return strspn(line, " \t\r\n") == n;
}

nw_status nw_jsonl_next(nw_jsonl *r, json_t **row, nw_error *err)
{
    json_error_t at;
    ssize_t n = 0;

    json_decref(r->row);
    *row = r->row = NULL;
    do {
        n = getline(&r->line, &r->cap, r->fp);
        if (n < 0) {
            return feof(r->fp) != 0 ? NW_OK
                                    : nw_fail(err, NW_E_IO, "%s: read error or no memory", r->path);
        }
        r->line_no++;
        if (r->strict_end && r->line[n - 1] != '\n') {
            return nw_fail(err, NW_E_FORMAT, "%s:%zu: line cut short", r->path, r->line_no);
        }
    } while (is_blank(r->line, (size_t)n));

    r->row = json_loadb(r->line, (size_t)n, JSON_REJECT_DUPLICATES, &at);
    if (r->row == NULL) {
        return nw_fail(err, NW_E_FORMAT, "%s:%zu:%d: %s", r->path, r->line_no, at.column, at.text);
    }
    *row = r->row;
    return NW_OK;
}

void nw_jsonl_close(nw_jsonl *r)
{
    json_decref(r->row);
    free(r->line);
    free(r->path);
    if (r->fp != NULL) {
        (void)fclose(r->fp);
    }
    *r = (nw_jsonl){0};
}
