/* Reading a policy. A table of fields serves each kind of mapping, so that an unknown key, a wrong
 * type and a number out of range are found in one place and named with their line.
 * SPDX-License-Identifier: Apache-2.0 */
#include "decide/policy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/yaml.h"
#include "stats/bootstrap.h"

#define MAX_BYTES ((size_t)1 << 20)
#define MAX_GATES 64

static const struct {
    const char *name, *unit;
} kinds[NW_GATE_COUNT] = {
#define KIND_ROW(name, text, unit) {text, unit},
    NW_GATE_MAP(KIND_ROW)
#undef KIND_ROW
};
static const char *const class_names[NW_CLASS_COUNT] = {"int4", "w8a8", "int4_kv"};
static const char *const regime_names[NW_REGIME_COUNT] = {"batch1", "saturated"};

const char *nw_gate_kind_name(nw_gate_kind k)
{
    return kinds[k].name;
}

const char *nw_gate_unit(nw_gate_kind k)
{
    return kinds[k].unit;
}

const char *nw_regime_name(nw_regime r)
{
    return regime_names[r];
}

bool nw_gate_is_speed(nw_gate_kind k)
{
    return k == NW_GATE_TTFT || k == NW_GATE_TPOT || k == NW_GATE_ATTAINMENT || k == NW_GATE_SCALAR;
}

/* One glob of n bytes. The classic walk: at a mismatch go back to the last star, one further on. */
static bool glob_one(const char *g, size_t n, const char *s)
{
    const char *end = g + n;
    const char *star = NULL;
    const char *resume = NULL;

    while (*s != '\0') {
        if (g < end && *g == '*') {
            star = g++;
            resume = s;
        } else if (g < end && *g == *s) {
            g++;
            s++;
        } else if (star != NULL) {
            g = star + 1;
            s = ++resume;
        } else {
            return false;
        }
    }
    while (g < end && *g == '*') {
        g++;
    }
    return g == end;
}

bool nw_glob_match(const char *globs, const char *name)
{
    for (const char *g = globs; *g != '\0';) {
        const size_t n = strcspn(g, ",");
        if (glob_one(g, n, name)) {
            return true;
        }
        g += n;
        g += *g == ',' ? 1 : 0;
    }
    return false;
}

/* ---- typed fields ---- */

typedef enum { F_TEXT, F_REAL, F_BOOL, F_COUNT, F_KIND, F_REGIME, F_MARGIN, F_SKIP } field_kind;

typedef struct {
    const char *key;
    field_kind kind;
    size_t offset;
    double lo, hi;
} field;

typedef struct {
    const nw_yaml *y;
    nw_policy *p;
    nw_error *err;
} reader;

static nw_status bad(const reader *r, const char *pointer, const char *what)
{
    char at[512];
    return nw_fail(r->err, NW_E_FORMAT, "%s: %s", nw_yaml_where(r->y, pointer, at, sizeof at),
                   what);
}

/* "/gates/0" + "name"; a pointer too long for the place of a mistake keeps its parent's. */
static void join(char out[256], const char *parent, const char *key)
{
    const int n = snprintf(out, 256, "%s/%s", parent, key);
    if (n < 0 || n >= 256) {
        out[0] = '\0';
    }
}

static nw_status read_real(const reader *r, const char *pointer, const field *f, const json_t *v,
                           double *out)
{
    char at[512];
    const double x = json_number_value(v);

    if (!json_is_number(v)) {
        return bad(r, pointer, "a number is wanted");
    }
    if (!(x >= f->lo && x <= f->hi)) {
        return nw_fail(r->err, NW_E_RANGE, "%s: %s is %g, allowed are %g to %g",
                       nw_yaml_where(r->y, pointer, at, sizeof at), f->key, x, f->lo, f->hi);
    }
    *out = x;
    return NW_OK;
}

static nw_status read_text(const reader *r, const char *pointer, const json_t *v, const char **out)
{
    const char *s = json_string_value(v);

    if (s == NULL || *s == '\0') {
        return bad(r, pointer, "a text is wanted");
    }
    *out = nw_arena_strndup(&r->p->arena, s, strlen(s));
    return *out != NULL ? NW_OK : nw_fail(r->err, NW_E_NOMEM, "no memory for a policy");
}

static nw_status read_name(const reader *r, const char *pointer, const char *s,
                           const char *const *names, size_t n, int *out)
{
    for (size_t i = 0; s != NULL && i < n; i++) {
        if (strcmp(s, names[i]) == 0) {
            *out = (int)i;
            return NW_OK;
        }
    }
    return bad(r, pointer, "not one of the known names");
}

/* A number for all classes, or a mapping of classes; a class that is not named has no gate. */
static nw_status read_margin(const reader *r, const char *pointer, const field *f, json_t *v,
                             double out[NW_CLASS_COUNT])
{
    const char *key = NULL;
    json_t *value = NULL;
    nw_status st = NW_OK;

    if (json_is_number(v)) {
        st = read_real(r, pointer, f, v, &out[0]);
        for (size_t i = 1; i < NW_CLASS_COUNT; i++) {
            out[i] = out[0];
        }
        return st;
    }
    if (!json_is_object(v)) {
        return bad(r, pointer, "a number, or a mapping of int4, w8a8, int4_kv is wanted");
    }
    json_object_foreach(v, key, value)
    {
        char below[256];
        int which = 0;
        join(below, pointer, key);
        st = read_name(r, below, key, class_names, NW_CLASS_COUNT, &which);
        st = st == NW_OK ? read_real(r, below, f, value, &out[which]) : st;
        if (st != NW_OK) {
            return st;
        }
    }
    return NW_OK;
}

static nw_status read_field(const reader *r, const char *pointer, const field *f, json_t *v,
                            char *base)
{
    void *at = base + f->offset;
    static const char *kind_names[NW_GATE_COUNT];
    int choice = 0;
    nw_status st = NW_OK;
    double x = 0;

    switch (f->kind) {
    case F_TEXT:
        return read_text(r, pointer, v, at);
    case F_REAL:
        return read_real(r, pointer, f, v, at);
    case F_BOOL:
        if (!json_is_boolean(v)) {
            return bad(r, pointer, "true or false is wanted");
        }
        *(bool *)at = json_is_true(v);
        return NW_OK;
    case F_COUNT:
        st = read_real(r, pointer, f, v, &x);
        *(size_t *)at = (size_t)x;
        return st;
    case F_KIND:
        for (size_t i = 0; i < NW_GATE_COUNT; i++) {
            kind_names[i] = kinds[i].name;
        }
        st = read_name(r, pointer, json_string_value(v), kind_names, NW_GATE_COUNT, &choice);
        *(nw_gate_kind *)at = (nw_gate_kind)choice;
        return st;
    case F_REGIME:
        st = read_name(r, pointer, json_string_value(v), regime_names, NW_REGIME_COUNT, &choice);
        *(nw_regime *)at = (nw_regime)choice;
        return st;
    case F_MARGIN:
        return read_margin(r, pointer, f, v, at);
    case F_SKIP:
        return NW_OK;
    }
    return NW_OK;
}

/* Every key of `map` by the table; a key that the table lacks is a mistake. */
static nw_status read_map(const reader *r, const char *pointer, const field *fields, size_t n,
                          json_t *map, void *base)
{
    const char *key = NULL;
    json_t *value = NULL;
    char below[256];

    if (!json_is_object(map)) {
        return bad(r, pointer, "a mapping is wanted");
    }
    json_object_foreach(map, key, value)
    {
        size_t i = 0;
        join(below, pointer, key);
        while (i < n && strcmp(fields[i].key, key) != 0) {
            i++;
        }
        if (i == n) {
            return bad(r, below, "unknown key");
        }
        if (read_field(r, below, &fields[i], value, base) != NW_OK) {
            return r->err->code;
        }
    }
    return NW_OK;
}

#define G(f) offsetof(nw_gate, f)
static const field gate_fields[] = {
    {"name", F_TEXT, G(name), 0, 0},
    {"kind", F_KIND, G(kind), 0, 0},
    {"advisory", F_BOOL, G(advisory), 0, 0},
    {"optional", F_BOOL, G(optional), 0, 0},
    {"suites", F_TEXT, G(suites), 0, 0},
    {"margin", F_MARGIN, G(margin), 1e-6, 100},
    {"increase", F_MARGIN, G(increase), 1e-6, 1e6},
    {"q", F_REAL, G(q), 0.5, 0.9999},
    {"limit_ms", F_REAL, G(limit_ms), 1e-3, 1e9},
    {"min", F_REAL, G(min), -1e300, 1e300},
    {"max", F_REAL, G(max), -1e300, 1e300},
    {"metric", F_TEXT, G(metric), 0, 0},
    {"regime", F_REGIME, G(regime), 0, 0},
    {"advice", F_TEXT, G(advice), 0, 0},
};
static const field regime_fields[] = {
    {"ttft_ms", F_REAL, offsetof(nw_regime_rule, ttft_ms), 0, 1e9},
    {"tpot_ms", F_REAL, offsetof(nw_regime_rule, tpot_ms), 0, 1e9},
    {"attainment", F_REAL, offsetof(nw_regime_rule, attainment), 0, 1},
    {"eps", F_REAL, offsetof(nw_regime_rule, eps), 0, 1},
};
#define P(f) offsetof(nw_policy, f)
static const field policy_fields[] = {
    {"policy", F_TEXT, P(name), 0, 0},
    {"alpha", F_REAL, P(alpha), 1e-6, 0.25},
    {"power", F_REAL, P(power), 0.5, 0.9999},
    {"holm", F_BOOL, P(holm), 0, 0},
    {"draws", F_COUNT, P(draws), 1000, 1000000},
    {"frontier_draws", F_COUNT, P(frontier_draws), 100, 100000},
    {"seed", F_COUNT, P(seed), 0, 4294967295.0},
    {"floor", F_REAL, P(floor), 0, 1},
    {"dominated", F_REAL, P(dominated), 0.5, 1},
    {"gates", F_SKIP, 0, 0, 0},
    {"batch1", F_SKIP, 0, 0, 0},
    {"saturated", F_SKIP, 0, 0, 0},
};

static bool any_margin(const double m[NW_CLASS_COUNT])
{
    for (size_t i = 0; i < NW_CLASS_COUNT; i++) {
        if (!isnan(m[i])) {
            return true;
        }
    }
    return false;
}

/* What the speed kinds cannot do without; NULL: all is there. */
static const char *speed_lacks(const nw_gate *g)
{
    const bool percentile = g->kind == NW_GATE_TTFT || g->kind == NW_GATE_TPOT;

    if (g->regime == NW_REGIME_COUNT) {
        return "this kind of gate needs a regime";
    }
    if (percentile && isnan(g->limit_ms)) {
        return "this kind of gate needs limit_ms";
    }
    if (g->kind == NW_GATE_ATTAINMENT && !(g->min > 0 && g->min < 1)) {
        return "an attainment gate needs min between 0 and 1";
    }
    if (g->kind == NW_GATE_SCALAR && (g->metric == NULL || (isnan(g->min) && isnan(g->max)))) {
        return "a metric gate needs metric and min or max";
    }
    return NULL;
}

static nw_status check_gate(const reader *r, const char *pointer, const nw_gate *g)
{
    const char *lacks = NULL;

    if (g->name == NULL || g->kind == NW_GATE_COUNT) {
        lacks = "a gate needs a name and a kind";
    } else if (nw_gate_is_speed(g->kind)) {
        lacks = speed_lacks(g);
    } else if (g->suites == NULL || !any_margin(g->margin)) {
        lacks = "this kind of gate needs suites and a margin";
    }
    return lacks == NULL ? NW_OK : bad(r, pointer, lacks);
}

static nw_gate blank_gate(void)
{
    const double none = (double)NAN;
    nw_gate g = {.kind = NW_GATE_COUNT,
                 .q = 0.99,
                 .limit_ms = none,
                 .min = none,
                 .max = none,
                 .regime = NW_REGIME_COUNT};
    for (size_t i = 0; i < NW_CLASS_COUNT; i++) {
        g.margin[i] = g.increase[i] = none;
    }
    return g;
}

static nw_status read_gates(const reader *r, const json_t *list)
{
    nw_policy *p = r->p;
    const size_t n = json_array_size(list);

    if (n == 0 || n > MAX_GATES) {
        return bad(r, "/gates", "a list of 1 to 64 gates is wanted");
    }
    p->gates = nw_arena_array(&p->arena, n, sizeof *p->gates);
    if (p->gates == NULL) {
        return nw_fail(r->err, NW_E_NOMEM, "no memory for a policy");
    }
    for (size_t i = 0; i < n; i++) {
        char pointer[64];
        (void)snprintf(pointer, sizeof pointer, "/gates/%zu", i);
        p->gates[i] = blank_gate();
        nw_status st = read_map(r, pointer, gate_fields, NW_COUNT(gate_fields),
                                json_array_get(list, i), &p->gates[i]);
        st = st == NW_OK ? check_gate(r, pointer, &p->gates[i]) : st;
        for (size_t k = 0; st == NW_OK && k < i; k++) {
            if (strcmp(p->gates[k].name, p->gates[i].name) == 0) {
                st = bad(r, pointer, "a second gate of the same name");
            }
        }
        if (st != NW_OK) {
            return st;
        }
        p->n_gates++;
    }
    return NW_OK;
}

static nw_status read_policy(const reader *r, json_t *root)
{
    nw_status st = read_map(r, "", policy_fields, NW_COUNT(policy_fields), root, r->p);

    if (st == NW_OK && r->p->name == NULL) {
        st = bad(r, "", "a policy needs its name: 'policy: NAME'");
    }
    for (size_t i = 0; st == NW_OK && i < NW_REGIME_COUNT; i++) {
        char pointer[32];
        json_t *rule = json_object_get(root, regime_names[i]);
        (void)snprintf(pointer, sizeof pointer, "/%s", regime_names[i]);
        if (rule != NULL) {
            st = read_map(r, pointer, regime_fields, NW_COUNT(regime_fields), rule,
                          &r->p->regimes[i]);
        }
    }
    return st == NW_OK ? read_gates(r, json_object_get(root, "gates")) : st;
}

static void set_defaults(nw_policy *p)
{
    *p = (nw_policy){.alpha = 0.05,
                     .power = 0.8,
                     .holm = true,
                     .draws = NW_BOOT_DRAWS,
                     .frontier_draws = 2000,
                     .seed = NW_BOOT_SEED,
                     .floor = 0.02,
                     .dominated = 0.95};
    for (size_t i = 0; i < NW_REGIME_COUNT; i++) {
        p->regimes[i] = (nw_regime_rule){.attainment = 0.9, .eps = 0.02};
    }
}

nw_status nw_policy_load(const char *path, nw_policy *out, nw_error *err)
{
    const char *name = path != NULL ? path : "the default policy";
    nw_yaml *y = NULL;
    size_t n = strlen(nw_policy_default);
    nw_status st = NW_OK;

    set_defaults(out);
    if (path != NULL) {
        st = nw_file_read(path, MAX_BYTES, &out->text, &n, err);
    } else if ((out->text = strdup(nw_policy_default)) == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "no memory for a policy");
    }
    st = st == NW_OK ? nw_digest_bytes(out->text, n, &out->hash, err) : st;
    st = st == NW_OK ? nw_yaml_parse(name, out->text, n, &y, err) : st;
    if (st == NW_OK) {
        const reader r = {y, out, err};
        st = read_policy(&r, nw_yaml_root(y));
    }
    nw_yaml_close(y);
    if (st != NW_OK) {
        nw_policy_release(out);
    }
    return st;
}

void nw_policy_release(nw_policy *p)
{
    free(p->text);
    nw_arena_release(&p->arena);
    *p = (nw_policy){0};
}
