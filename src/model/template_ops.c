/* Operators, indexing and slicing, as Python does them on the values that templates have.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "model/template_internal.h"
#include "model/unicode.h"

static nw_status mismatch(nwt_env *e, const char *op, const nwt_value *a, const nwt_value *b)
{
    if (a->type == NWT_UNDEFINED || b->type == NWT_UNDEFINED) {
        const nwt_value *u = a->type == NWT_UNDEFINED ? a : b;
        return nwt_fail(e, NW_E_FORMAT, "'%.60s' is undefined", u->u.name == NULL ? "" : u->u.name);
    }
    return nwt_fail(e, NW_E_FORMAT, "'%s' between %s and %s", op, nwt_type_name(a),
                    nwt_type_name(b));
}

static bool is_int(const nwt_value *v)
{
    return v->type == NWT_INT || v->type == NWT_BOOL;
}

static int64_t int_of(const nwt_value *v)
{
    return v->type == NWT_BOOL ? v->u.b : v->u.i;
}

static bool is_number(const nwt_value *v)
{
    return is_int(v) || v->type == NWT_FLOAT;
}

static double float_of(const nwt_value *v)
{
    return v->type == NWT_FLOAT ? v->u.f : (double)int_of(v);
}

static nw_status int_op(nwt_env *e, nwt_op op, int64_t x, int64_t y, nwt_value *out)
{
    int64_t r = 0;
    bool overflow = false;

    if (op == OP_FLOORDIV || op == OP_MOD) {
        if (y == 0 || (x == INT64_MIN && y == -1)) {
            return nwt_fail(e, NW_E_FORMAT, "division of %lld by %lld", (long long)x, (long long)y);
        }
        const int64_t rest = x % y;
        const bool down = rest != 0 && (rest < 0) != (y < 0); /* Python rounds down */
        r = op == OP_MOD ? rest + (down ? y : 0) : x / y - down;
    } else if (op == OP_ADD) {
        overflow = __builtin_add_overflow(x, y, &r);
    } else if (op == OP_SUB) {
        overflow = __builtin_sub_overflow(x, y, &r);
    } else {
        overflow = __builtin_mul_overflow(x, y, &r);
    }
    if (overflow) {
        return nwt_fail(e, NW_E_RANGE, "an integer beyond 64 bits");
    }
    *out = nwt_int(r);
    return NW_OK;
}

static nw_status float_op(nwt_env *e, nwt_op op, double x, double y, nwt_value *out)
{
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && y == 0) {
        return nwt_fail(e, NW_E_FORMAT, "division by zero");
    }
    const double r = op == OP_ADD        ? x + y
                     : op == OP_SUB      ? x - y
                     : op == OP_MUL      ? x * y
                     : op == OP_DIV      ? x / y
                     : op == OP_FLOORDIV ? floor(x / y)
                                         : x - y * floor(x / y);
    *out = nwt_float(r);
    return NW_OK;
}

static nw_status join_lists(nwt_env *e, const nwt_value *a, const nwt_value *b, nwt_value *out)
{
    size_t n = 0;

    if (!nw_size_add(a->u.list.n, b->u.list.n, &n)) {
        return nwt_fail(e, NW_E_RANGE, "a list that is too long");
    }
    nwt_value *items = nwt_values(e, n);
    if (items == NULL) {
        return e->err->code;
    }
    if (a->u.list.n > 0) {
        memcpy(items, a->u.list.items, a->u.list.n * sizeof *items);
    }
    if (b->u.list.n > 0) {
        memcpy(items + a->u.list.n, b->u.list.items, b->u.list.n * sizeof *items);
    }
    *out = (nwt_value){.type = a->type, .u.list = {items, n}};
    return NW_OK;
}

static nw_status concat(nwt_env *e, const nwt_value *a, const nwt_value *b, nwt_value *out)
{
    nwt_value parts[2];

    if (nwt_to_str(e, a, &parts[0]) != NW_OK || nwt_to_str(e, b, &parts[1]) != NW_OK) {
        return e->err->code;
    }
    return nwt_concat(e, parts, 2, out);
}

static nw_status add(nwt_env *e, const nwt_value *a, const nwt_value *b, nwt_value *out)
{
    if (a->type == NWT_STR && b->type == NWT_STR) {
        return concat(e, a, b, out);
    }
    if ((a->type == NWT_LIST || a->type == NWT_TUPLE) && a->type == b->type) {
        return join_lists(e, a, b, out);
    }
    return mismatch(e, "+", a, b);
}

static nw_status contains(nwt_env *e, const nwt_value *item, const nwt_value *in, bool *out)
{
    const nwt_value *items = NULL;
    size_t n = 0;

    *out = false;
    if (in->type == NWT_STR) {
        if (item->type != NWT_STR) {
            return mismatch(e, "in", item, in);
        }
        *out = item->u.str.n == 0 ||
               nw_bytes_find(in->u.str.s, in->u.str.n, item->u.str.s, item->u.str.n) != NULL;
        return NW_OK;
    }
    if (in->type == NWT_DICT) {
        *out =
            item->type == NWT_STR && nwt_dict_get(in->u.dict, item->u.str.s, item->u.str.n) != NULL;
        return NW_OK;
    }
    if (nwt_items(e, in, &items, &n) != NW_OK) {
        return e->err->code;
    }
    for (size_t i = 0; i < n && !*out; i++) {
        *out = nwt_equal(item, &items[i]);
    }
    return NW_OK;
}

static nw_status order(nwt_env *e, nwt_op op, const nwt_value *a, const nwt_value *b,
                       nwt_value *out)
{
    double x = 0;
    double y = 0;

    if (a->type == NWT_STR && b->type == NWT_STR) {
        const size_t n = a->u.str.n < b->u.str.n ? a->u.str.n : b->u.str.n;
        const int c = memcmp(a->u.str.s, b->u.str.s, n);
        x = c != 0 ? c : (double)a->u.str.n - (double)b->u.str.n;
    } else if (is_number(a) && is_number(b)) {
        x = float_of(a);
        y = float_of(b);
    } else {
        return mismatch(e, "<", a, b);
    }
    *out = nwt_bool(op == OP_LT ? x < y : op == OP_LE ? x <= y : op == OP_GT ? x > y : x >= y);
    return NW_OK;
}

static nw_status arithmetic(nwt_env *e, nwt_op op, const nwt_value *a, const nwt_value *b,
                            nwt_value *out)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%"};

    if (is_int(a) && is_int(b) && op != OP_DIV) {
        return int_op(e, op, int_of(a), int_of(b), out);
    }
    if (is_number(a) && is_number(b)) {
        return float_op(e, op, float_of(a), float_of(b), out);
    }
    return op == OP_ADD ? add(e, a, b, out) : mismatch(e, names[op], a, b);
}

nw_status nwt_binary(nwt_env *e, nwt_op op, const nwt_value *a, const nwt_value *b, nwt_value *out)
{
    bool yes = false;

    switch (op) {
    case OP_ADD:
    case OP_SUB:
    case OP_MUL:
    case OP_DIV:
    case OP_FLOORDIV:
    case OP_MOD:
        return arithmetic(e, op, a, b, out);
    case OP_CONCAT:
        return concat(e, a, b, out);
    case OP_EQ:
    case OP_NE:
        *out = nwt_bool(nwt_equal(a, b) == (op == OP_EQ));
        return NW_OK;
    case OP_LT:
    case OP_LE:
    case OP_GT:
    case OP_GE:
        return order(e, op, a, b, out);
    case OP_IN:
    case OP_NOT_IN:
        break;
    }
    if (contains(e, a, b, &yes) != NW_OK) {
        return e->err->code;
    }
    *out = nwt_bool(yes == (op == OP_IN));
    return NW_OK;
}

nw_status nwt_attr(nwt_env *e, const nwt_value *a, const char *name, nwt_value *out)
{
    if (a->type == NWT_UNDEFINED) {
        return nwt_fail(e, NW_E_FORMAT, "'%.60s' is undefined", a->u.name == NULL ? "" : a->u.name);
    }
    const nwt_value *v = a->type == NWT_DICT ? nwt_dict_get(a->u.dict, name, strlen(name)) : NULL;
    *out = v != NULL ? *v : nwt_undefined(name);
    return NW_OK;
}

nw_status nwt_index(nwt_env *e, const nwt_value *a, const nwt_value *key, nwt_value *out)
{
    const nwt_value *items = NULL;
    size_t n = 0;

    if (a->type == NWT_UNDEFINED) {
        return nwt_fail(e, NW_E_FORMAT, "'%.60s' is undefined", a->u.name == NULL ? "" : a->u.name);
    }
    if (a->type == NWT_DICT) {
        const nwt_value *v =
            key->type == NWT_STR ? nwt_dict_get(a->u.dict, key->u.str.s, key->u.str.n) : NULL;
        *out = v != NULL ? *v : nwt_undefined(key->type == NWT_STR ? key->u.str.s : "key");
        return NW_OK;
    }
    if (!is_int(key) || (a->type != NWT_STR && a->type != NWT_LIST && a->type != NWT_TUPLE)) {
        *out = nwt_undefined("index"); /* as Jinja2: what cannot be indexed gives undefined */
        return NW_OK;
    }
    if (nwt_items(e, a, &items, &n) != NW_OK) {
        return e->err->code;
    }
    const int64_t k = int_of(key) < 0 ? int_of(key) + (int64_t)n : int_of(key);
    *out = k >= 0 && (uint64_t)k < n ? items[k] : nwt_undefined("index");
    return NW_OK;
}

/* A bound of a slice, moved into [lo, hi]. */
static nw_status bound(nwt_env *e, const nwt_value *v, int64_t fallback, int64_t n, int64_t lo,
                       int64_t hi, int64_t *out)
{
    if (v->type == NWT_NONE) {
        *out = fallback;
        return NW_OK;
    }
    if (!is_int(v)) {
        return nwt_fail(e, NW_E_FORMAT, "%s as a bound of a slice", nwt_type_name(v));
    }
    int64_t k = int_of(v);
    k = k < 0 ? (k < -n ? -1 : k + n) : k;
    *out = k < lo ? lo : k > hi ? hi : k;
    return NW_OK;
}

/* The items start, start + step... before stop, as a value of a's type. */
static nw_status take(nwt_env *e, const nwt_value *a, const nwt_value *items, size_t n,
                      int64_t start, int64_t stop, int64_t step, nwt_value *out)
{
    nwt_value *kept = nwt_values(e, n);
    size_t n_kept = 0;

    for (int64_t i = start; kept != NULL && (step > 0 ? i < stop : i > stop);) {
        kept[n_kept++] = items[i];
        if (__builtin_add_overflow(i, step, &i)) {
            break;
        }
    }
    if (kept == NULL) {
        return e->err->code;
    }
    if (a->type == NWT_STR) {
        return nwt_concat(e, kept, n_kept, out);
    }
    *out = (nwt_value){.type = a->type, .u.list = {kept, n_kept}};
    return NW_OK;
}

static nw_status step_of(nwt_env *e, const nwt_value *v, int64_t *out)
{
    *out = v->type == NWT_NONE ? 1 : is_int(v) ? int_of(v) : 0;
    return *out != 0 ? NW_OK : nwt_fail(e, NW_E_FORMAT, "a slice whose step is zero or no integer");
}

nw_status nwt_slice(nwt_env *e, const nwt_value *a, const nwt_value bounds[3], nwt_value *out)
{
    const nwt_value *items = NULL;
    size_t n = 0;
    int64_t start = 0;
    int64_t stop = 0;
    int64_t step = 0;

    if (a->type != NWT_STR && a->type != NWT_LIST && a->type != NWT_TUPLE) {
        return nwt_fail(e, NW_E_FORMAT, "%s cannot be sliced", nwt_type_name(a));
    }
    if (step_of(e, &bounds[2], &step) != NW_OK || nwt_items(e, a, &items, &n) != NW_OK) {
        return e->err->code;
    }
    const int64_t len = (int64_t)n;
    const bool up = step > 0;
    if (bound(e, &bounds[0], up ? 0 : len - 1, len, up ? 0 : -1, up ? len : len - 1, &start) !=
            NW_OK ||
        bound(e, &bounds[1], up ? len : -1, len, up ? 0 : -1, up ? len : len - 1, &stop) != NW_OK) {
        return e->err->code;
    }
    return take(e, a, items, n, start, stop, step, out);
}
