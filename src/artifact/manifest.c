/* manifest.json: from and to JSON, sealed by a hash over its own canonical text, so that a manifest
 * edited by hand is noticed. No time stands in it: equal inputs make equal bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/manifest.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "formats/bf16_stored.h"

/* A manifest of 10^5 tensors takes about 40 MB. */
#define MANIFEST_MAX_BYTES ((size_t)64 << 20)

static bool role_parse(const char *name, nw_role *out)
{
    for (int i = 0; i < NW_ROLE_COUNT; i++) {
        if (strcmp(nw_role_name((nw_role)i), name) == 0) {
            *out = (nw_role)i;
            return true;
        }
    }
    return false;
}

void nw_tensor_error_add(nw_tensor_error *sum, const nw_tensor_error *part)
{
    sum->sum_sq += part->sum_sq;
    sum->sum_err_sq += part->sum_err_sq;
    sum->sum_out_sq += part->sum_out_sq;
    sum->max_abs_err = fmax(sum->max_abs_err, part->max_abs_err);
    sum->n_nonzero += part->n_nonzero;
    sum->n += part->n;
}

void nw_tensor_error_add_rows(nw_tensor_error *e, const nw_row_error *rows, uint64_t n)
{
    const nw_tensor_error part = {.sum_sq = rows->sum_sq,
                                  .sum_err_sq = rows->sum_err_sq,
                                  .max_abs_err = rows->max_abs_err,
                                  .sum_out_sq = rows->sum_out_sq,
                                  .n_nonzero = rows->n_nonzero,
                                  .n = n};
    nw_tensor_error_add(e, &part);
}

void nw_tensor_error_measure(nw_tensor_error *e, const float *source, const float *decoded,
                             size_t n)
{
    const nw_row_error row = nw_row_error_of(source, decoded, n);
    nw_tensor_error_add_rows(e, &row, n);
}

double nw_tensor_error_sqnr_db(const nw_tensor_error *e)
{
    if (!(e->sum_err_sq > 0)) {
        return INFINITY;
    }
    return 10 * log10(e->sum_sq / e->sum_err_sq);
}

void nw_manifest_release(nw_manifest *m)
{
    for (size_t i = 0; i < m->n_tensors; i++) {
        free(m->tensors[i].name);
    }
    free(m->tensors);
    free(m->tool_version);
    free(m->source_name);
    free(m->note);
    free(m->recipe_name);
    free(m->scale_rule);
    json_decref(m->recipe);
    *m = (nw_manifest){0};
}

/* JSON has no infinity: null stands for it. */
static json_t *number_or_null(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

json_t *nw_manifest_tensor_json(const nw_manifest_tensor *t)
{
    char type[32];

    return json_pack(
        "{s:s, s:s, s:i, s:b, s:s, s:I, s:I, s:I, s:s, s:o, s:f, s:f, s:f}", "name", t->name,
        "role", nw_role_name(t->role), "layer", (int)t->layer, "targeted", t->targeted, "type",
        t->is_vector ? "vector-f32" : nw_panel_name(t->type, type), "n_rows", (json_int_t)t->n_rows,
        "n_cols", (json_int_t)t->n_cols, "n_bytes", (json_int_t)t->n_bytes, "sha256", t->sha256.hex,
        "sqnr_db", number_or_null(t->sqnr_db), "max_abs_err", t->max_abs_err, "nonzero_share",
        t->nonzero_share, "rms", t->rms);
}

/* Without "hash"; NULL when there is no memory. */
static json_t *manifest_json(const nw_manifest *m)
{
    json_t *tensors = json_array();

    for (size_t i = 0; i < m->n_tensors; i++) {
        if (json_array_append_new(tensors, nw_manifest_tensor_json(&m->tensors[i])) != 0) {
            json_decref(tensors);
            return NULL;
        }
    }
    json_t *doc = json_pack(
        "{s:s, s:i, s:i, s:s, s:{s:s, s:s?, s:s}, s:{s:s, s:s, s:O}, s:s, s:{s:f, s:f, s:f}, s:o}",
        "format", "narrow-native", "version", (int)m->version, "panel_version", NW_PANEL_VERSION,
        "tool", m->tool_version, "source", "name", m->source_name, "sha256",
        m->source.hex[0] != '\0' ? m->source.hex : NULL, "note", m->note, "recipe", "name",
        m->recipe_name, "scale_rule", m->scale_rule, "resolved", m->recipe, "activations",
        nw_act_rule_name(m->act), "bits_per_weight", "nominal", m->nominal_bits, "stored_targeted",
        m->target_bits, "stored_all", m->effective_bits, "tensors", tensors);
    if (doc != NULL && m->hadamard_down) {
        (void)json_object_set_new(doc, "online_hadamard", json_string("down"));
    }
    if (doc != NULL && m->kv[0] != '\0') {
        (void)json_object_set_new(doc, "kv", json_string(m->kv));
    }
    if (doc != NULL && m->inputs.hex[0] != '\0') {
        (void)json_object_set_new(doc, "inputs",
                                  json_pack("{s:s, s:I}", "sha256", m->inputs.hex, "n_bytes",
                                            (json_int_t)m->inputs_bytes));
    }
    return doc;
}

nw_status nw_manifest_seal(nw_manifest *m, nw_error *err)
{
    json_t *doc = manifest_json(m);
    char *text = doc == NULL ? NULL : nw_json_canonical(doc);
    nw_status st = NW_OK;

    if (text == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "no memory for a manifest of %zu tensors", m->n_tensors);
    } else {
        st = nw_digest_bytes(text, strlen(text), &m->hash, err);
    }
    free(text);
    json_decref(doc);
    return st;
}

char *nw_manifest_text(const nw_manifest *m)
{
    json_t *doc = manifest_json(m);
    char *text = NULL;

    if (doc != NULL && json_object_set_new(doc, "hash", json_string(m->hash.hex)) == 0) {
        text = json_dumps(doc, JSON_INDENT(1));
    }
    json_decref(doc);
    return text;
}

/* ---- reading ---- */

static nw_status take_str(const json_t *obj, const char *name, const char *key, char **out,
                          nw_error *err)
{
    const char *s = NULL;
    const nw_status st = nw_json_str(obj, name, key, &s, err);

    if (st != NW_OK) {
        return st;
    }
    *out = strdup(s);
    return *out != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory for '%s'", name, key);
}

static nw_status take_digest(const json_t *obj, const char *name, const char *key, nw_digest *out,
                             nw_error *err)
{
    const char *s = NULL;
    nw_status st = nw_json_str(obj, name, key, &s, err);

    if (st != NW_OK) {
        return st;
    }
    if (strlen(s) != 64 || strspn(s, "0123456789abcdef") != 64) {
        return nw_fail(err, NW_E_FORMAT, "%s: '%s' is not 64 hexadecimal digits", name, key);
    }
    memcpy(out->hex, s, 65);
    return NW_OK;
}

static nw_status take_number(const json_t *obj, const char *name, const char *key, double *out,
                             nw_error *err)
{
    const json_t *v = json_object_get(obj, key);

    if (!json_is_number(v)) {
        return nw_fail(err, NW_E_FORMAT, "%s: '%s' is missing or not a number", name, key);
    }
    *out = json_number_value(v);
    return NW_OK;
}

static nw_status load_type(const json_t *obj, const char *path, nw_manifest_tensor *t,
                           nw_error *err)
{
    const char *role = NULL;
    const char *type = NULL;
    nw_status st = nw_json_str(obj, path, "role", &role, err);

    if (st == NW_OK) {
        st = nw_json_str(obj, path, "type", &type, err);
    }
    if (st != NW_OK) {
        return st;
    }
    if (!role_parse(role, &t->role)) {
        return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' has unknown role '%s'", path, t->name,
                       role);
    }
    t->is_vector = strcmp(type, "vector-f32") == 0;
    t->type = (nw_panel_type){.kind = NW_PANEL_F32};
    if (!t->is_vector && !nw_panel_parse(type, &t->type)) {
        return nw_fail(err, NW_E_UNSUPPORTED, "%s: tensor '%s' has unknown type '%s'", path,
                       t->name, type);
    }
    return NW_OK;
}

/* Bytes of a packed tensor follow from its values: no fewer than its shape needs, whole lines. */
static nw_status check_packed(const char *path, json_int_t n_bytes, nw_manifest_tensor *t,
                              nw_error *err)
{
    uint64_t least = 0;

    if (!nw_bf16_stored_least(t->n_rows, t->n_cols, &least) || n_bytes < 0 ||
        (uint64_t)n_bytes < least || n_bytes % 64 != 0) {
        return nw_fail(err, NW_E_FORMAT,
                       "%s: tensor '%s' says %" JSON_INTEGER_FORMAT
                       " bytes, its shape needs %" PRIu64 " or more, in multiples of 64",
                       path, t->name, n_bytes, least);
    }
    t->n_bytes = (uint64_t)n_bytes;
    return NW_OK;
}

/* The byte count is not believed: it must be what type and shape ask for. */
static nw_status load_sizes(const json_t *obj, const char *path, nw_manifest_tensor *t,
                            nw_error *err)
{
    const json_t *layer = json_object_get(obj, "layer");
    const json_int_t l = json_integer_value(layer);
    const json_int_t n_bytes = json_integer_value(json_object_get(obj, "n_bytes"));
    size_t want = 0;
    nw_status st = nw_json_u32(obj, path, "n_rows", 1, INT32_MAX, &t->n_rows, err);

    if (st == NW_OK) {
        st = nw_json_u32(obj, path, "n_cols", 1, INT32_MAX, &t->n_cols, err);
    }
    if (st != NW_OK) {
        return nw_context(err, "tensor '%s'", t->name);
    }
    if (!json_is_integer(layer) || l < -1 || l > 65535) {
        return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' has no layer in -1..65535", path,
                       t->name);
    }
    t->layer = (int32_t)l;
    if (t->type.packed) {
        return check_packed(path, n_bytes, t, err);
    }
    const bool fits = t->is_vector
                          ? nw_size_mul((size_t)t->n_rows * t->n_cols, sizeof(float), &want)
                          : nw_panel_tensor_bytes(t->type, t->n_rows, t->n_cols, &want);
    if (!fits || n_bytes < 0 || (uint64_t)n_bytes != want) {
        return nw_fail(err, NW_E_FORMAT,
                       "%s: tensor '%s' says %" JSON_INTEGER_FORMAT " bytes, its shape needs %zu",
                       path, t->name, n_bytes, want);
    }
    t->n_bytes = want;
    return NW_OK;
}

nw_status nw_manifest_tensor_read(const json_t *obj, const char *path, nw_manifest_tensor *t,
                                  nw_error *err)
{
    const json_t *sqnr = json_object_get(obj, "sqnr_db");
    nw_status st = take_str(obj, path, "name", &t->name, err);

    if (st == NW_OK) {
        st = load_type(obj, path, t, err);
    }
    if (st == NW_OK) {
        st = load_sizes(obj, path, t, err);
    }
    if (st == NW_OK) {
        st = take_digest(obj, path, "sha256", &t->sha256, err);
    }
    if (st == NW_OK) {
        st = take_number(obj, path, "max_abs_err", &t->max_abs_err, err);
    }
    if (st == NW_OK) {
        st = take_number(obj, path, "nonzero_share", &t->nonzero_share, err);
    }
    if (st == NW_OK) {
        st = take_number(obj, path, "rms", &t->rms, err);
    }
    t->targeted = json_is_true(json_object_get(obj, "targeted"));
    t->sqnr_db = json_is_number(sqnr) ? json_number_value(sqnr) : (double)INFINITY;
    return st;
}

static nw_status load_tensors(const json_t *doc, const char *path, nw_manifest *m, nw_error *err)
{
    const json_t *list = json_object_get(doc, "tensors");
    const size_t n = json_array_size(list);

    if (n == 0) {
        return nw_fail(err, NW_E_FORMAT, "%s: 'tensors' is missing or empty", path);
    }
    m->tensors = calloc(n, sizeof *m->tensors);
    if (m->tensors == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu tensors", path, n);
    }
    m->n_tensors = n;
    for (size_t i = 0; i < n; i++) {
        const nw_status st =
            nw_manifest_tensor_read(json_array_get(list, i), path, &m->tensors[i], err);
        if (st != NW_OK) {
            return st;
        }
    }
    return NW_OK;
}

/* What is said of inputs, where anything is. */
static nw_status load_inputs(const json_t *doc, const char *path, nw_manifest *m, nw_error *err)
{
    const json_t *inputs = json_object_get(doc, "inputs");
    const json_int_t n = json_integer_value(json_object_get(inputs, "n_bytes"));

    if (inputs == NULL) {
        return NW_OK;
    }
    if (n <= 0) {
        return nw_fail(err, NW_E_FORMAT, "%s: 'inputs' has no 'n_bytes' above 0", path);
    }
    m->inputs_bytes = (uint64_t)n;
    return take_digest(inputs, path, "sha256", &m->inputs, err);
}

/* What sessions keep keys and values in; the engine knows the words. */
static nw_status load_kv(const json_t *doc, const char *path, nw_manifest *m, nw_error *err)
{
    const char *kv = "";

    if (nw_json_opt_str(doc, path, "kv", &kv, err) != NW_OK) {
        return err->code;
    }
    if (strlen(kv) >= sizeof m->kv) {
        return nw_fail(err, NW_E_FORMAT, "%s: 'kv' of %zu bytes, at most %zu are known", path,
                       strlen(kv), sizeof m->kv - 1);
    }
    memcpy(m->kv, kv, strlen(kv) + 1);
    return NW_OK;
}

static nw_status load_facts(const json_t *doc, const char *path, nw_manifest *m, nw_error *err)
{
    const json_t *source = json_object_get(doc, "source");
    const json_t *recipe = json_object_get(doc, "recipe");
    const json_t *bits = json_object_get(doc, "bits_per_weight");
    const char *act = NULL;
    const struct {
        const json_t *obj;
        const char *key;
        char **out;
    } texts[] = {{doc, "tool", &m->tool_version},
                 {source, "name", &m->source_name},
                 {source, "note", &m->note},
                 {recipe, "name", &m->recipe_name},
                 {recipe, "scale_rule", &m->scale_rule}};
    const struct {
        const char *key;
        double *out;
    } numbers[] = {{"nominal", &m->nominal_bits},
                   {"stored_targeted", &m->target_bits},
                   {"stored_all", &m->effective_bits}};
    nw_status st = nw_json_str(doc, path, "activations", &act, err);

    for (size_t i = 0; st == NW_OK && i < NW_COUNT(texts); i++) {
        st = take_str(texts[i].obj, path, texts[i].key, texts[i].out, err);
    }
    for (size_t i = 0; st == NW_OK && i < NW_COUNT(numbers); i++) {
        st = take_number(bits, path, numbers[i].key, numbers[i].out, err);
    }
    if (st == NW_OK && json_is_string(json_object_get(source, "sha256"))) {
        st = take_digest(source, path, "sha256", &m->source, err);
    }
    if (st == NW_OK && !nw_act_rule_parse(act, &m->act)) {
        st = nw_fail(err, NW_E_FORMAT, "%s: activations '%.40s', expected " NW_ACT_RULE_NAMES, path,
                     act);
    }
    const json_t *turned = json_object_get(doc, "online_hadamard");
    if (st == NW_OK && turned != NULL &&
        (!json_is_string(turned) || strcmp(json_string_value(turned), "down") != 0)) {
        st = nw_fail(err, NW_E_FORMAT, "%s: online_hadamard: only the input 'down' can be turned",
                     path);
    }
    if (st == NW_OK) {
        m->hadamard_down = turned != NULL;
        m->recipe = json_deep_copy(json_object_get(recipe, "resolved"));
    }
    return st;
}

/* The versions come first: a newer file is refused for what it is, not for a key it lacks. */
static nw_status check_versions(const json_t *doc, const char *path, nw_manifest *m, nw_error *err)
{
    const char *format = NULL;
    uint32_t panel = 0;
    nw_status st = nw_json_str(doc, path, "format", &format, err);

    if (st == NW_OK && strcmp(format, "narrow-native") != 0) {
        st = nw_fail(err, NW_E_UNSUPPORTED, "%s: format '%s', this program reads 'narrow-native'",
                     path, format);
    }
    if (st == NW_OK) {
        st = nw_json_u32(doc, path, "version", NW_MANIFEST_VERSION, NW_MANIFEST_VERSION,
                         &m->version, err);
    }
    if (st == NW_OK) {
        st = nw_json_u32(doc, path, "panel_version", NW_PANEL_VERSION, NW_PANEL_VERSION, &panel,
                         err);
    }
    return st;
}

/* The hash is taken over what was understood, so that a key this reader does not know breaks it too. */
static nw_status check_hash(const json_t *doc, const char *path, nw_manifest *m, nw_error *err)
{
    nw_digest said = {0};
    nw_status st = take_digest(doc, path, "hash", &said, err);

    if (st == NW_OK) {
        st = nw_manifest_seal(m, err);
    }
    if (st == NW_OK && strcmp(said.hex, m->hash.hex) != 0) {
        st = nw_fail(err, NW_E_FORMAT, "%s: its hash says %.12s, its text has %.12s: it was edited",
                     path, said.hex, m->hash.hex);
    }
    return st;
}

nw_status nw_manifest_parse(const char *name, const char *text, size_t n, nw_manifest *out,
                            nw_error *err)
{
    nw_manifest m = {0};
    json_t *doc = NULL;
    nw_status st = nw_json_parse(name, text, n, &doc, err);

    if (st != NW_OK) {
        return st;
    }
    st = check_versions(doc, name, &m, err);
    if (st == NW_OK) {
        st = load_facts(doc, name, &m, err);
    }
    if (st == NW_OK) {
        st = load_inputs(doc, name, &m, err);
    }
    if (st == NW_OK) {
        st = load_kv(doc, name, &m, err);
    }
    if (st == NW_OK) {
        st = load_tensors(doc, name, &m, err);
    }
    if (st == NW_OK) {
        st = check_hash(doc, name, &m, err);
    }
    json_decref(doc);
    if (st != NW_OK) {
        nw_manifest_release(&m);
        return st;
    }
    *out = m;
    return NW_OK;
}

nw_status nw_manifest_load(const char *path, nw_manifest *out, nw_error *err)
{
    char *text = NULL;
    size_t n = 0;
    nw_status st = nw_file_read(path, MANIFEST_MAX_BYTES, &text, &n, err);

    if (st == NW_OK) {
        st = nw_manifest_parse(path, text, n, out, err);
        free(text);
    }
    return st;
}
