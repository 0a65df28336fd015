/* Reading a study: tables of fields, one for each object of the file.
 * SPDX-License-Identifier: Apache-2.0 */
#include "study/file.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/yaml.h"

typedef enum { FIELD_STR, FIELD_U32, FIELD_REAL, FIELD_NESTED } field_type;

/* A key of an object: where its value goes, and what is allowed. NESTED is read by its own code. */
typedef struct {
    const char *key;
    field_type type;
    size_t offset;
    double lo, hi;
} field;

typedef struct {
    const nw_yaml *yaml;
    nw_study *study;
} reader;

enum { POINTER_MAX = 128, WHERE_MAX = 512 };

static const field top_fields[] = {
    {"study", FIELD_STR, offsetof(nw_study, name), 0, 0},
    {"model", FIELD_STR, offsetof(nw_study, model), 0, 0},
    {"work", FIELD_STR, offsetof(nw_study, work), 0, 0},
    {"policy", FIELD_STR, offsetof(nw_study, policy), 0, 0},
    {"baseline", FIELD_NESTED, 0, 0, 0},
    {"candidates", FIELD_NESTED, 0, 0, 0},
    {"calibration", FIELD_NESTED, 0, 0, 0},
    {"quality", FIELD_NESTED, 0, 0, 0},
    {"batch1", FIELD_NESTED, 0, 0, 0},
    {"load", FIELD_NESTED, 0, 0, 0},
};

static const field candidate_fields[] = {
    {"name", FIELD_STR, offsetof(nw_study_candidate, name), 0, 0},
    {"recipe", FIELD_STR, offsetof(nw_study_candidate, recipe), 0, 0},
    {"artifact", FIELD_STR, offsetof(nw_study_candidate, artifact), 0, 0},
    {"kv", FIELD_STR, offsetof(nw_study_candidate, kv), 0, 0},
    {"act", FIELD_STR, offsetof(nw_study_candidate, act), 0, 0},
};

static const field calibration_fields[] = {
    {"log", FIELD_STR, offsetof(nw_study, calibration.log), 0, 0},
    {"text", FIELD_STR, offsetof(nw_study, calibration.text), 0, 0},
    {"by", FIELD_STR, offsetof(nw_study, calibration.by), 0, 0},
    {"samples", FIELD_U32, offsetof(nw_study, calibration.samples), 1, 1048576},
    {"context", FIELD_U32, offsetof(nw_study, calibration.n_ctx), 2, 65536},
    {"seed", FIELD_U32, offsetof(nw_study, calibration.seed), 0, 4294967295.0},
};

static const field quality_fields[] = {
    {"text", FIELD_STR, offsetof(nw_study, quality.text), 0, 0},
    {"choice", FIELD_STR, offsetof(nw_study, quality.choice), 0, 0},
    {"generate", FIELD_STR, offsetof(nw_study, quality.generate), 0, 0},
    {"context", FIELD_U32, offsetof(nw_study, quality.n_ctx), 4, 131072},
    {"stride", FIELD_U32, offsetof(nw_study, quality.stride), 0, 131072},
    {"windows", FIELD_U32, offsetof(nw_study, quality.windows), 0, 1000000},
    {"items", FIELD_U32, offsetof(nw_study, quality.items), 0, 1000000},
    {"seed", FIELD_U32, offsetof(nw_study, quality.seed), 0, 4294967295.0},
};

static const field batch1_fields[] = {
    {"prompt", FIELD_U32, offsetof(nw_study, batch1.prompt), 1, 131072},
    {"output", FIELD_U32, offsetof(nw_study, batch1.output), 1, 131072},
    {"requests", FIELD_U32, offsetof(nw_study, batch1.requests), 1, 1000000},
    {"warmup", FIELD_U32, offsetof(nw_study, batch1.warmup), 0, 10000},
    {"natural", FIELD_U32, offsetof(nw_study, batch1.natural), 0, 1000000},
};

static const field load_fields[] = {
    {"prompt", FIELD_NESTED, 0, 0, 0},
    {"output", FIELD_NESTED, 0, 0, 0},
    {"rates", FIELD_NESTED, 0, 0, 0},
    {"requests", FIELD_U32, offsetof(nw_study, load.requests), 1, 1000000},
    {"files", FIELD_U32, offsetof(nw_study, load.files), 1, NW_STUDY_MAX_FILES},
    {"max_seqs", FIELD_U32, offsetof(nw_study, load.max_seqs), 1, 256},
    {"warmup_s", FIELD_REAL, offsetof(nw_study, load.warmup_s), 0, 3600},
    {"slo_ttft_ms", FIELD_REAL, offsetof(nw_study, load.slo_ttft_ms), 1, 3600000},
    {"slo_tpot_ms", FIELD_REAL, offsetof(nw_study, load.slo_tpot_ms), 1, 3600000},
};

/* Fails at a node: "path:line:column: what". */
static nw_status fail_at(const reader *r, const char *pointer, nw_error *err, const char *what)
{
    char where[WHERE_MAX];
    return nw_fail(err, NW_E_FORMAT, "%s: %s", nw_yaml_where(r->yaml, pointer, where, sizeof where),
                   what);
}

static nw_status read_number(const reader *r, const field *f, const json_t *value,
                             const char *pointer, char *base, nw_error *err)
{
    const double x = json_number_value(value);
    char what[160];

    if (!json_is_number(value) || !(x >= f->lo && x <= f->hi) ||
        (f->type == FIELD_U32 && !json_is_integer(value))) {
        (void)snprintf(what, sizeof what, "'%s' is not %s from %g to %g", f->key,
                       f->type == FIELD_U32 ? "a whole number" : "a number", f->lo, f->hi);
        return fail_at(r, pointer, err, what);
    }
    if (f->type == FIELD_U32) {
        const uint32_t n = (uint32_t)x;
        memcpy(base + f->offset, &n, sizeof n);
    } else {
        memcpy(base + f->offset, &x, sizeof x);
    }
    return NW_OK;
}

static nw_status read_string(const reader *r, const field *f, const json_t *value,
                             const char *pointer, char *base, nw_error *err)
{
    const char *text = json_string_value(value);
    char what[160];

    if (text == NULL || text[0] == '\0') {
        (void)snprintf(what, sizeof what, "'%s' is not a text", f->key);
        return fail_at(r, pointer, err, what);
    }
    const char *copy = nw_arena_strndup(&r->study->arena, text, strlen(text));
    memcpy(base + f->offset, &copy, sizeof copy);
    return copy != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory", r->study->path);
}

static const field *find_field(const field *fields, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(fields[i].key, key) == 0) {
            return &fields[i];
        }
    }
    return NULL;
}

/* Reads the plain fields of the object at `pointer` into `base`; refuses keys not in the table. */
static nw_status read_fields(const reader *r, json_t *obj, const char *pointer, const field *fields,
                             size_t n, void *base, nw_error *err)
{
    const char *key = NULL;
    json_t *value = NULL;
    char at[POINTER_MAX];
    char what[160];

    if (!json_is_object(obj)) {
        return fail_at(r, pointer, err, "not a mapping of keys to values");
    }
    json_object_foreach(obj, key, value)
    {
        const field *f = find_field(fields, n, key);
        nw_status st = NW_OK;
        (void)snprintf(at, sizeof at, "%s/%s", pointer, key);
        if (f == NULL) {
            (void)snprintf(what, sizeof what, "unknown key '%.60s'", key);
            return fail_at(r, at, err, what);
        }
        if (f->type == FIELD_STR) {
            st = read_string(r, f, value, at, base, err);
        } else if (f->type != FIELD_NESTED) {
            st = read_number(r, f, value, at, base, err);
        }
        if (st != NW_OK) {
            return st;
        }
    }
    return NW_OK;
}

/* Names become folder names, labels and command arguments. */
static bool good_name(const char *name)
{
    for (const char *c = name; *c != '\0'; c++) {
        if (isalnum((unsigned char)*c) == 0 && strchr("-_.+", *c) == NULL) {
            return false;
        }
    }
    return name[0] != '.' && name[0] != '-' && strlen(name) <= 48;
}

static nw_status read_candidate(const reader *r, json_t *obj, const char *pointer, nw_error *err)
{
    nw_study *s = r->study;
    nw_study_candidate *c = &s->candidates[s->n_candidates];

    if (read_fields(r, obj, pointer, candidate_fields, NW_COUNT(candidate_fields), c, err) !=
        NW_OK) {
        return err->code;
    }
    if (c->name == NULL || !good_name(c->name)) {
        return fail_at(r, pointer, err,
                       "a candidate needs a name of up to 48 letters, digits, '-', '_', '.', '+'");
    }
    if ((c->recipe == NULL) == (c->artifact == NULL)) {
        return fail_at(r, pointer, err, "a candidate needs either a recipe or an artifact");
    }
    for (size_t i = 0; i < s->n_candidates; i++) {
        if (strcmp(s->candidates[i].name, c->name) == 0) {
            return fail_at(r, pointer, err, "two candidates of one name");
        }
    }
    s->n_candidates++;
    return NW_OK;
}

static nw_status read_candidates(const reader *r, json_t *root, nw_error *err)
{
    const json_t *list = json_object_get(root, "candidates");
    const size_t n = json_array_size(list);
    char pointer[POINTER_MAX];

    if (json_object_get(root, "baseline") == NULL) {
        return fail_at(r, "", err, "no baseline: everything is compared with one");
    }
    if (n == 0 || n >= NW_STUDY_MAX_CANDIDATES) {
        return fail_at(r, "/candidates", err, "candidates: a list of 1 to 63 wanted");
    }
    r->study->candidates = nw_arena_array(&r->study->arena, n + 1, sizeof *r->study->candidates);
    if (r->study->candidates == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory", r->study->path);
    }
    nw_status st = read_candidate(r, json_object_get(root, "baseline"), "/baseline", err);
    for (size_t i = 0; i < n && st == NW_OK; i++) {
        (void)snprintf(pointer, sizeof pointer, "/candidates/%zu", i);
        st = read_candidate(r, json_array_get(list, i), pointer, err);
    }
    return st;
}

/* [lo, hi] of tokens, or one number for both. */
static nw_status read_range(const reader *r, const json_t *load, const char *key, uint32_t *lo,
                            uint32_t *hi, nw_error *err)
{
    const json_t *v = json_object_get(load, key);
    char pointer[POINTER_MAX];
    json_int_t a = json_integer_value(v);
    json_int_t b = a;

    if (v == NULL) {
        return NW_OK;
    }
    if (json_is_array(v) && json_array_size(v) == 2) {
        a = json_integer_value(json_array_get(v, 0));
        b = json_integer_value(json_array_get(v, 1));
    }
    if (a < 1 || b < a || b > 131072) {
        (void)snprintf(pointer, sizeof pointer, "/load/%s", key);
        return fail_at(r, pointer, err, "tokens: one number or [low, high], from 1 to 131072");
    }
    *lo = (uint32_t)a;
    *hi = (uint32_t)b;
    return NW_OK;
}

static nw_status read_rates(const reader *r, json_t *load, nw_error *err)
{
    const json_t *list = json_object_get(load, "rates");
    const size_t n = json_array_size(list);
    nw_study *s = r->study;

    if (list == NULL) {
        return NW_OK;
    }
    for (size_t i = 0; i < n && i < NW_STUDY_MAX_RATES; i++) {
        const double x = json_number_value(json_array_get(list, i));
        s->load.rates[i] = x;
        s->load.n_rates = x > 0 && x <= 4 ? i + 1 : 0;
        if (s->load.n_rates == 0) {
            break;
        }
    }
    return n > 0 && s->load.n_rates == n
               ? NW_OK
               : fail_at(r, "/load/rates", err,
                         "rates: 1 to 16 shares of the baseline's capacity, above 0 and up to 4");
}

static nw_status read_load(const reader *r, json_t *load, nw_error *err)
{
    nw_study *s = r->study;

    if (load == NULL) {
        return NW_OK;
    }
    if (read_fields(r, load, "/load", load_fields, NW_COUNT(load_fields), s, err) != NW_OK ||
        read_range(r, load, "prompt", &s->load.prompt_lo, &s->load.prompt_hi, err) != NW_OK ||
        read_range(r, load, "output", &s->load.output_lo, &s->load.output_hi, err) != NW_OK) {
        return err->code;
    }
    return read_rates(r, load, err);
}

static nw_status read_section(const reader *r, json_t *root, const char *key, const field *fields,
                              size_t n, nw_error *err)
{
    json_t *section = json_object_get(root, key);
    char pointer[POINTER_MAX];

    (void)snprintf(pointer, sizeof pointer, "/%s", key);
    return section == NULL ? NW_OK : read_fields(r, section, pointer, fields, n, r->study, err);
}

static nw_status read_calibration(const reader *r, json_t *root, nw_error *err)
{
    const nw_study *s = r->study;

    if (read_section(r, root, "calibration", calibration_fields, NW_COUNT(calibration_fields),
                     err) != NW_OK) {
        return err->code;
    }
    if (json_object_get(root, "calibration") != NULL &&
        (s->calibration.log == NULL) == (s->calibration.text == NULL)) {
        return fail_at(r, "/calibration", err, "calibration needs either a log or a text");
    }
    if (s->calibration.by != NULL && s->calibration.log == NULL) {
        return fail_at(r, "/calibration/by", err, "'by' names a field of a log, and there is none");
    }
    return NW_OK;
}

static void set_defaults(nw_study *s)
{
    s->calibration.samples = 256;
    s->calibration.n_ctx = 512;
    s->calibration.seed = 1;
    s->quality.n_ctx = 512;
    s->quality.seed = 1;
    s->load.prompt_lo = s->load.prompt_hi = 1024;
    s->load.output_lo = s->load.output_hi = 128;
    s->load.files = 1;
    s->load.max_seqs = 48;
    s->load.warmup_s = 30;
    s->load.slo_ttft_ms = 1000;
    s->load.slo_tpot_ms = 70;
    s->load.rates[0] = 0.8;
    s->load.n_rates = 1;
}

static nw_status read_all(const reader *r, nw_error *err)
{
    json_t *root = nw_yaml_root(r->yaml);
    nw_study *s = r->study;

    set_defaults(s);
    if (read_fields(r, root, "", top_fields, NW_COUNT(top_fields), s, err) != NW_OK ||
        read_candidates(r, root, err) != NW_OK || read_calibration(r, root, err) != NW_OK ||
        read_section(r, root, "quality", quality_fields, NW_COUNT(quality_fields), err) != NW_OK ||
        read_section(r, root, "batch1", batch1_fields, NW_COUNT(batch1_fields), err) != NW_OK ||
        read_load(r, json_object_get(root, "load"), err) != NW_OK) {
        return err->code;
    }
    if (s->name == NULL) {
        return fail_at(r, "", err, "no name: study: NAME");
    }
    return NW_OK;
}

nw_status nw_study_load(const char *path, nw_study *out, nw_error *err)
{
    nw_study s = {.n_candidates = 0};
    nw_yaml *yaml = NULL;

    if (nw_yaml_load(path, &yaml, err) != NW_OK) {
        return err->code;
    }
    s.path = nw_arena_strndup(&s.arena, path, strlen(path));
    const reader r = {.yaml = yaml, .study = &s};
    const nw_status st = s.path == NULL
                             ? nw_fail(err, NW_E_NOMEM, "%s: no memory for a study", path)
                             : read_all(&r, err);
    nw_yaml_close(yaml);
    if (st != NW_OK) {
        nw_study_release(&s);
        return st;
    }
    *out = s;
    return NW_OK;
}

void nw_study_release(nw_study *s)
{
    nw_arena_release(&s->arena);
    *s = (nw_study){.n_candidates = 0};
}
