/* YAML by libfyaml's event parser into json_t, with the place of every node in a tree beside it.
 * The tree repeats the shape of the document, so its size is bounded by the text's; a map of whole
 * pointers would not be. Aliases and tags are refused: studies, recipes and policies need neither,
 * and a few lines of nested aliases can stand for gigabytes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/yaml.h"

#include <libfyaml.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/arena.h"
#include "base/file.h"

#define MAX_BYTES ((size_t)1 << 20)
#define MAX_DEPTH 64

typedef struct place place;
struct place {
    const char *key; /* in a mapping; NULL in a list */
    place *first, *last, *next;
    int line, column; /* from 1 */
};

struct nw_yaml {
    char *path;
    nw_arena arena;
    json_t *root;
    place *places;
};

typedef struct {
    nw_yaml *y;
    struct fy_parser *parser;
    struct fy_diag *diag;
    unsigned depth;
    nw_error *err;
} reader;

static nw_status parse_value(reader *r, struct fy_event *e, place *at, json_t **out);

static nw_status no_memory(const reader *r)
{
    return nw_fail(r->err, NW_E_NOMEM, "%s: no memory for the document", r->y->path);
}

static nw_status fail_at(const reader *r, const place *at, const char *what)
{
    return nw_fail(r->err, NW_E_FORMAT, "%s:%d:%d: %s", r->y->path, at->line, at->column, what);
}

/* The next event, never NULL on success; a syntax error comes with libfyaml's first message. */
static nw_status next_event(reader *r, struct fy_event **out)
{
    *out = fy_parser_parse(r->parser);
    if (*out != NULL && !fy_parser_get_stream_error(r->parser)) {
        return NW_OK;
    }
    if (*out != NULL) {
        fy_parser_event_free(r->parser, *out);
        *out = NULL;
    }
    void *previous = NULL;
    const struct fy_diag_error *d = fy_diag_errors_iterate(r->diag, &previous);
    if (d == NULL) {
        return nw_fail(r->err, NW_E_FORMAT, "%s: not a YAML document", r->y->path);
    }
    return nw_fail(r->err, NW_E_FORMAT, "%s:%d:%d: %s", r->y->path, d->line, d->column, d->msg);
}

/* libfyaml marks the text of a token, which comes after its '*' or opening quote. */
static int indicator_width(const struct fy_event *e)
{
    if (e->type == FYET_ALIAS) {
        return 1;
    }
    if (e->type != FYET_SCALAR || e->scalar.value == NULL) {
        return 0;
    }
    const enum fy_scalar_style style = fy_token_scalar_style(e->scalar.value);
    return style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED ? 1 : 0;
}

static void set_place(place *at, struct fy_event *e)
{
    const struct fy_mark *m = fy_event_start_mark(e);
    if (m != NULL) {
        at->line = m->line + 1;
        at->column = m->column + 1 - indicator_width(e);
    }
}

static place *add_place(reader *r, place *parent)
{
    place *p = nw_arena_alloc(&r->y->arena, sizeof *p);

    if (p != NULL) {
        p->line = parent->line;
        p->column = parent->column;
        if (parent->last == NULL) {
            parent->first = p;
        } else {
            parent->last->next = p;
        }
        parent->last = p;
    }
    return p;
}

static bool is_any(const char *s, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(s, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static size_t digits(const char *s, const char *set)
{
    return strspn(s, set);
}

#define DECIMAL "0123456789"

/* [-+]? [0-9]+ | 0o [0-7]+ | 0x [0-9a-fA-F]+ (YAML 1.2.2, 10.3.2). The base, or 0. */
static int integer_base(const char *s)
{
    if (s[0] == '0' && s[1] == 'o' && s[2] != '\0' && s[2 + digits(s + 2, "01234567")] == '\0') {
        return 8;
    }
    if (s[0] == '0' && s[1] == 'x' && s[2] != '\0' &&
        s[2 + digits(s + 2, DECIMAL "abcdefABCDEF")] == '\0') {
        return 16;
    }
    s += *s == '-' || *s == '+' ? 1 : 0;
    return *s != '\0' && s[digits(s, DECIMAL)] == '\0' ? 10 : 0;
}

/* [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )? */
static bool is_float(const char *s)
{
    s += *s == '-' || *s == '+' ? 1 : 0;
    const size_t whole = digits(s, DECIMAL);
    s += whole;
    if (*s == '.') {
        const size_t fraction = digits(s + 1, DECIMAL);
        if (whole + fraction == 0) {
            return false;
        }
        s += 1 + fraction;
    } else if (whole == 0) {
        return false;
    }
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '-' || *s == '+' ? 1 : 0;
        const size_t exponent = digits(s, DECIMAL);
        if (exponent == 0) {
            return false;
        }
        s += exponent;
    }
    return *s == '\0';
}

/* Numbers, or *out untouched for text. JSON has no infinity and our integers have 64 bits. */
static nw_status plain_number(const reader *r, const char *s, const place *at, json_t **out)
{
    const int base = integer_base(s);

    if (base != 0) {
        char *end = NULL;
        const char *body = base == 10 ? s : s + 2;
        const long long v = strtoll(body, &end, base);
        char back[32];
        (void)snprintf(back, sizeof back, "%lld", v);
        /* strtoll saturates: an end of the range that the text does not spell is an overflow */
        if ((v == INT64_MAX || v == INT64_MIN) && strcmp(back, s + (*s == '+' ? 1 : 0)) != 0) {
            return fail_at(r, at, "integer does not fit 64 bits");
        }
        *out = json_integer(v);
        return NW_OK;
    }
    static const char *const not_finite[] = {
        ".inf",  ".Inf",  ".INF",  "-.inf", "-.Inf", "-.INF",
        "+.inf", "+.Inf", "+.INF", ".nan",  ".NaN",  ".NAN",
    };
    const bool number = is_float(s);
    const double v = number ? strtod(s, NULL) : 0;
    if (is_any(s, not_finite, NW_COUNT(not_finite)) || !isfinite(v)) {
        return fail_at(r, at, "number is not finite");
    }
    if (number) {
        *out = json_real(v);
    }
    return NW_OK;
}

static nw_status plain_scalar(const reader *r, const char *s, const place *at, json_t **out)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    static const char *const trues[] = {"true", "True", "TRUE"};
    static const char *const falses[] = {"false", "False", "FALSE"};

    if (is_any(s, nulls, NW_COUNT(nulls))) {
        *out = json_null();
    } else if (is_any(s, trues, NW_COUNT(trues))) {
        *out = json_true();
    } else if (is_any(s, falses, NW_COUNT(falses))) {
        *out = json_false();
    } else {
        return plain_number(r, s, at, out);
    }
    return NW_OK;
}

static nw_status parse_scalar(const reader *r, struct fy_event *e, const place *at, json_t **out)
{
    struct fy_token *token = e->scalar.value;
    size_t n = 0;
    const char *text = token == NULL ? "" : fy_token_get_text(token, &n);

    if (e->scalar.tag != NULL) {
        return fail_at(r, at, "tags are not supported");
    }
    if (text == NULL) {
        return no_memory(r);
    }
    if (memchr(text, '\0', n) != NULL) {
        return fail_at(r, at, "a NUL byte in a string");
    }
    char *s = strndup(text, n);
    if (s == NULL) {
        return no_memory(r);
    }
    json_t *v = NULL;
    nw_status st = NW_OK;
    if (token == NULL || fy_token_scalar_style(token) == FYSS_PLAIN) {
        st = plain_scalar(r, s, at, &v);
    }
    if (st == NW_OK && v == NULL) {
        v = json_string(s); /* NULL for what is not UTF-8 */
        st = v == NULL ? fail_at(r, at, "not UTF-8") : NW_OK;
    }
    free(s);
    *out = v;
    return st;
}

static nw_status parse_list(reader *r, place *at, json_t **out)
{
    nw_status st = NW_OK;
    json_t *list = json_array();

    while (st == NW_OK) {
        struct fy_event *e = NULL;
        json_t *item = NULL;
        st = next_event(r, &e);
        const bool end = st == NW_OK && e->type == FYET_SEQUENCE_END;
        if (st == NW_OK && !end) {
            place *p = add_place(r, at);
            st = p == NULL ? no_memory(r) : parse_value(r, e, p, &item);
        }
        fy_parser_event_free(r->parser, e);
        if (end) {
            break;
        }
        if (st == NW_OK && json_array_append_new(list, item) != 0) {
            st = no_memory(r);
        }
    }
    *out = list;
    return st;
}

/* Reads a key into place p, whose parent is `map`; duplicates are refused where they stand. */
static nw_status parse_key(reader *r, struct fy_event *e, const json_t *map, place *p)
{
    size_t n = 0;

    set_place(p, e);
    if (e->type != FYET_SCALAR || e->scalar.tag != NULL) {
        return fail_at(r, p, "a key must be a plain name");
    }
    const char *text = e->scalar.value == NULL ? "" : fy_token_get_text(e->scalar.value, &n);
    if (text == NULL || memchr(text, '\0', n) != NULL) {
        return fail_at(r, p, "a NUL byte in a key");
    }
    p->key = nw_arena_strndup(&r->y->arena, text, n);
    if (p->key == NULL) {
        return no_memory(r);
    }
    if (json_object_get(map, p->key) != NULL) {
        return nw_fail(r->err, NW_E_FORMAT, "%s:%d:%d: duplicate key '%.64s'", r->y->path, p->line,
                       p->column, p->key);
    }
    return NW_OK;
}

/* One "key: value" whose key is event e. */
static nw_status parse_pair(reader *r, struct fy_event *e, json_t *map, place *at)
{
    place *p = add_place(r, at);
    struct fy_event *value_event = NULL;
    json_t *value = NULL;
    nw_status st = p == NULL ? no_memory(r) : parse_key(r, e, map, p);

    if (st == NW_OK) {
        st = next_event(r, &value_event);
    }
    if (st == NW_OK) {
        st = parse_value(r, value_event, p, &value);
        fy_parser_event_free(r->parser, value_event);
    }
    if (st == NW_OK && json_object_set_new(map, p->key, value) != 0) {
        st = fail_at(r, p, "key is not UTF-8");
    }
    return st;
}

static nw_status parse_map(reader *r, place *at, json_t **out)
{
    nw_status st = NW_OK;
    json_t *map = json_object();

    while (st == NW_OK) {
        struct fy_event *e = NULL;
        st = next_event(r, &e);
        const bool end = st == NW_OK && e->type == FYET_MAPPING_END;
        if (st == NW_OK && !end) {
            st = parse_pair(r, e, map, at);
        }
        fy_parser_event_free(r->parser, e);
        if (end) {
            break;
        }
    }
    *out = map;
    return st;
}

/* *out is set, and must be released, only on success. */
static nw_status parse_value(reader *r, struct fy_event *e, place *at, json_t **out)
{
    json_t *v = NULL;
    nw_status st = NW_OK;

    set_place(at, e);
    if (r->depth >= MAX_DEPTH) {
        return fail_at(r, at, "more than 64 levels deep");
    }
    r->depth++;
    if (e->type == FYET_SCALAR) {
        st = parse_scalar(r, e, at, &v);
    } else if (e->type == FYET_SEQUENCE_START && e->sequence_start.tag == NULL) {
        st = parse_list(r, at, &v);
    } else if (e->type == FYET_MAPPING_START && e->mapping_start.tag == NULL) {
        st = parse_map(r, at, &v);
    } else {
        st = fail_at(r, at, "aliases and tags are not supported");
    }
    r->depth--;
    if (st == NW_OK) {
        *out = v;
    } else {
        json_decref(v);
    }
    return st;
}

/* Skips to the event that opens the value, or refuses: one document, and only one. */
static nw_status parse_stream(reader *r)
{
    nw_status st = NW_OK;

    for (bool ended = false; st == NW_OK && !ended;) {
        struct fy_event *e = NULL;
        st = next_event(r, &e);
        if (st != NW_OK) {
            break;
        }
        ended = e->type == FYET_STREAM_END;
        const bool frame = ended || e->type == FYET_STREAM_START ||
                           e->type == FYET_DOCUMENT_START || e->type == FYET_DOCUMENT_END;
        if (!frame && r->y->root != NULL) {
            place second = {.line = 1, .column = 1};
            set_place(&second, e);
            st = fail_at(r, &second, "a second document in one file");
        } else if (!frame) {
            st = parse_value(r, e, r->y->places, &r->y->root);
        }
        fy_parser_event_free(r->parser, e);
    }
    if (st == NW_OK && r->y->root == NULL) {
        st = nw_fail(r->err, NW_E_FORMAT, "%s: an empty document", r->y->path);
    }
    return st;
}

/* The parser is kept from what it does not handle: it loops for ever over some directives and NUL
 * bytes (libfyaml 0.7.12, found by tests/fuzz). Text is UTF-8 of printable characters (YAML 1.2.2,
 * 5.1), and no document of ours needs a directive. */
static nw_status check_text(nw_yaml *y, const char *text, size_t n, nw_error *err)
{
    const uint8_t *p = (const uint8_t *)text;
    place at = {.line = 1, .column = 1};
    const reader r = {.y = y, .err = err};

    for (size_t i = 0; i < n;) {
        utf8proc_int32_t c = 0;
        const utf8proc_ssize_t len = utf8proc_iterate(p + i, (utf8proc_ssize_t)(n - i), &c);
        if (len <= 0) {
            return fail_at(&r, &at, "not UTF-8");
        }
        if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f) {
            return fail_at(&r, &at, "a control character");
        }
        if (c == '%' && at.column == 1) {
            return fail_at(&r, &at, "directives are not supported");
        }
        at.column = c == '\n' ? 1 : at.column + 1;
        at.line += c == '\n' ? 1 : 0;
        i += (size_t)len;
    }
    return NW_OK;
}

static nw_status parse_text(nw_yaml *y, const char *text, size_t n, nw_error *err)
{
    struct fy_diag_cfg diag_cfg;
    reader r = {.y = y, .err = err};

    fy_diag_cfg_default(&diag_cfg);
    diag_cfg.fp = NULL;
    r.diag = fy_diag_create(&diag_cfg);
    if (r.diag == NULL) {
        return no_memory(&r);
    }
    fy_diag_set_collect_errors(r.diag, true);
    const struct fy_parse_cfg cfg = {.flags = FYPCF_DEFAULT_VERSION_1_2 | FYPCF_JSON_NONE,
                                     .diag = r.diag};
    r.parser = fy_parser_create(&cfg);
    nw_status st = NW_OK;
    if (r.parser == NULL || fy_parser_set_string(r.parser, text, n) != 0) {
        st = no_memory(&r);
    } else {
        st = parse_stream(&r);
    }
    fy_parser_destroy(r.parser);
    fy_diag_destroy(r.diag);
    return st;
}

nw_status nw_yaml_parse(const char *name, const char *bytes, size_t n, nw_yaml **out, nw_error *err)
{
    nw_yaml *y = calloc(1, sizeof *y);
    nw_status st = NW_OK;

    if (y != NULL) {
        y->path = strdup(name);
        y->places = nw_arena_alloc(&y->arena, sizeof *y->places);
    }
    if (y == NULL || y->path == NULL || y->places == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for the document", name);
    } else {
        *y->places = (place){.line = 1, .column = 1};
        st = check_text(y, bytes, n, err);
    }
    if (st == NW_OK) {
        st = parse_text(y, bytes, n, err);
    }
    if (st == NW_OK) {
        *out = y;
    } else {
        nw_yaml_close(y);
    }
    return st;
}

nw_status nw_yaml_load(const char *path, nw_yaml **out, nw_error *err)
{
    char *text = NULL;
    size_t n = 0;
    nw_status st = nw_file_read(path, MAX_BYTES, &text, &n, err);

    if (st == NW_OK) {
        st = nw_yaml_parse(path, text, n, out, err);
        free(text);
    }
    return st;
}

void nw_yaml_close(nw_yaml *y)
{
    if (y != NULL) {
        json_decref(y->root);
        nw_arena_release(&y->arena);
        free(y->path);
        free(y);
    }
}

json_t *nw_yaml_root(const nw_yaml *y)
{
    return y->root;
}

const char *nw_yaml_path(const nw_yaml *y)
{
    return y->path;
}

/* Whether the pointer step s[n] (with ~0 for '~' and ~1 for '/', RFC 6901) spells `key`. */
static bool step_is(const char *s, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++, key++) {
        char c = s[i];
        if (c == '~' && i + 1 < n) {
            i++;
            c = s[i] == '1' ? '/' : '~';
        }
        if (*key != c) {
            return false;
        }
    }
    return *key == '\0';
}

static const place *child(const place *parent, const char *step, size_t n)
{
    char index[24];
    size_t i = 0;

    for (const place *p = parent->first; p != NULL; p = p->next, i++) {
        (void)snprintf(index, sizeof index, "%zu", i);
        if (step_is(step, n, p->key == NULL ? index : p->key)) {
            return p;
        }
    }
    return NULL;
}

const char *nw_yaml_where(const nw_yaml *y, const char *pointer, char *buf, size_t n)
{
    const place *at = y->places;

    while (*pointer == '/') {
        const size_t len = strcspn(pointer + 1, "/");
        const place *below = child(at, pointer + 1, len);
        if (below == NULL) {
            break;
        }
        at = below;
        pointer += 1 + len;
    }
    (void)snprintf(buf, n, "%s:%d:%d", y->path, at->line, at->column);
    return buf;
}
