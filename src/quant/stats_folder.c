/* Folders of calibration statistics: see stats_folder.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/stats_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define STATS_VERSION      1
#define MANIFEST_MAX_BYTES ((size_t)64 << 20)
#define NAME_MAX_BYTES     64

struct nw_stats {
    char *dir;
    json_t *manifest;
    nw_digest hash;
};

static void file_name(int32_t layer, char buf[NAME_MAX_BYTES])
{
    if (layer < 0) {
        (void)snprintf(buf, NAME_MAX_BYTES, "head.safetensors");
    } else {
        (void)snprintf(buf, NAME_MAX_BYTES, "layer-%05d.safetensors", (int)layer);
    }
}

static void tensor_name(nw_input input, const char *part, char buf[NAME_MAX_BYTES])
{
    (void)snprintf(buf, NAME_MAX_BYTES, "%s.%s", nw_input_name(input), part);
}

static size_t triangle(uint32_t n)
{
    return (size_t)n * ((size_t)n + 1) / 2;
}

/* ---- writing ---- */

static const char *const parts[] = {"absmax", "mean_abs", "moments"};

static nw_status write_entry(nw_st_writer *w, const nw_stats_entry *e, nw_error *err)
{
    const nw_input_stats *s = e->stats;
    const float *vectors[] = {s->absmax, s->mean_abs};
    char name[NAME_MAX_BYTES];
    nw_status st = NW_OK;

    for (size_t i = 0; st == NW_OK && i < NW_COUNT(vectors); i++) {
        tensor_name(e->input, parts[i], name);
        st = nw_st_writer_write(w, name, vectors[i], s->n_cols * sizeof(float), err);
    }
    tensor_name(e->input, parts[2], name);
    for (uint32_t c = 0; st == NW_OK && c < s->n_cols; c++) {
        st = nw_st_writer_write(w, name, s->moments + (size_t)c * s->n_cols + c,
                                (s->n_cols - c) * sizeof(float), err);
    }
    return st;
}

static nw_status write_file(const char *path, const nw_stats_entry *entries, size_t n,
                            nw_error *err)
{
    char(*names)[NAME_MAX_BYTES] = calloc(n * NW_COUNT(parts), sizeof *names);
    nw_st_decl *decls = calloc(n * NW_COUNT(parts), sizeof *decls);
    nw_st_writer *w = NULL;
    nw_status st = NW_OK;

    if (names == NULL || decls == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu inputs", path, n);
        goto out;
    }
    for (size_t i = 0; i < n * NW_COUNT(parts); i++) {
        const uint32_t n_cols = entries[i / NW_COUNT(parts)].stats->n_cols;
        tensor_name(entries[i / NW_COUNT(parts)].input, parts[i % NW_COUNT(parts)], names[i]);
        decls[i] = (nw_st_decl){.name = names[i],
                                .format = NW_FMT_F32,
                                .n_dims = 1,
                                .dims = {i % NW_COUNT(parts) == 2 ? triangle(n_cols) : n_cols}};
    }
    st = nw_st_writer_open(path, decls, n * NW_COUNT(parts), NULL, 64, &w, err);
    for (size_t i = 0; st == NW_OK && i < n; i++) {
        st = write_entry(w, &entries[i], err);
    }
    st = st == NW_OK ? nw_st_writer_commit(w, err) : st;
    nw_st_writer_close(w);
out:
    free(names);
    free(decls);
    return st;
}

static int append(json_t *manifest, const char *key, json_t *item)
{
    json_t *list = json_object_get(manifest, key);

    if (list == NULL) {
        list = json_array();
        if (json_object_set_new(manifest, key, list) != 0) {
            json_decref(item);
            return -1;
        }
    }
    return json_array_append_new(list, item);
}

static nw_status note_file(const char *file, int32_t layer, const nw_digest *sha256,
                           const nw_stats_entry *entries, size_t n, json_t *manifest, nw_error *err)
{
    int bad =
        append(manifest, "files", json_pack("{s:s, s:s}", "name", file, "sha256", sha256->hex));

    for (size_t i = 0; i < n; i++) {
        const nw_input_stats *s = entries[i].stats;
        float absmax = 0;
        for (uint32_t c = 0; c < s->n_cols; c++) {
            absmax = s->absmax[c] > absmax ? s->absmax[c] : absmax;
        }
        bad |= append(manifest, "inputs",
                      json_pack("{s:i, s:s, s:I, s:I, s:I, s:f}", "layer", (int)layer, "input",
                                nw_input_name(entries[i].input), "n_cols", (json_int_t)s->n_cols,
                                "n_live", (json_int_t)nw_input_stats_live(s), "n_tokens",
                                (json_int_t)s->n_tokens, "absmax", (double)absmax));
    }
    return bad == 0 ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory for its manifest", file);
}

nw_status nw_stats_write(const char *dir, int32_t layer, const nw_stats_entry *entries, size_t n,
                         json_t *manifest, nw_error *err)
{
    char file[NAME_MAX_BYTES];
    char name[NAME_MAX_BYTES];
    nw_digest sha256 = {0};
    nw_status st = NW_OK;

    for (size_t i = 0; st == NW_OK && i < n; i++) {
        (void)snprintf(name, sizeof name, "%s of layer %d", nw_input_name(entries[i].input),
                       (int)layer);
        st = nw_input_stats_check(entries[i].stats, name, err);
    }
    file_name(layer, file);
    char *path = nw_path_join(dir, file);
    if (st == NW_OK && path == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for a path", dir);
    }
    st = st == NW_OK ? write_file(path, entries, n, err) : st;
    st = st == NW_OK ? nw_digest_file(path, &sha256, err) : st;
    free(path);
    return st == NW_OK ? note_file(file, layer, &sha256, entries, n, manifest, err) : st;
}

nw_status nw_stats_note_file(const char *dir, const char *file, json_t *manifest, nw_error *err)
{
    char *path = nw_path_join(dir, file);
    nw_digest sha256 = {0};
    nw_status st = path == NULL ? nw_fail(err, NW_E_NOMEM, "%s: no memory for a path", dir)
                                : nw_digest_file(path, &sha256, err);

    free(path);
    return st == NW_OK ? note_file(file, 0, &sha256, NULL, 0, manifest, err) : st;
}

/* The hash of a manifest without its own "hash". */
static nw_status hash_of(const json_t *manifest, nw_digest *out, nw_error *err)
{
    json_t *doc = json_copy((json_t *)(uintptr_t)manifest);
    char *text = NULL;
    nw_status st = NW_OK;

    if (doc != NULL) {
        (void)json_object_del(doc, "hash");
        text = nw_json_canonical(doc);
    }
    st = text == NULL ? nw_fail(err, NW_E_NOMEM, "no memory for a manifest of statistics")
                      : nw_digest_bytes(text, strlen(text), out, err);
    free(text);
    json_decref(doc);
    return st;
}

nw_status nw_stats_seal(const char *dir, json_t *manifest, nw_error *err)
{
    nw_digest hash = {0};
    char *text = NULL;
    char *path = nw_path_join(dir, "manifest.json");
    nw_status st = hash_of(manifest, &hash, err);

    if (st == NW_OK && json_object_set_new(manifest, "hash", json_string(hash.hex)) == 0) {
        text = json_dumps(manifest, JSON_INDENT(1));
    }
    if (st == NW_OK) {
        st = text != NULL && path != NULL ? nw_file_write(path, text, strlen(text), err)
                                          : nw_fail(err, NW_E_NOMEM, "%s: no memory", dir);
    }
    free(path);
    free(text);
    return st;
}

/* ---- reading ---- */

static nw_status check_manifest(const char *path, json_t *m, nw_digest *hash, nw_error *err)
{
    const char *format = NULL;
    const char *said = NULL;
    uint32_t version = 0;
    nw_status st = nw_json_str(m, path, "format", &format, err);

    if (st == NW_OK && strcmp(format, "narrow-calibration") != 0) {
        st = nw_fail(err, NW_E_FORMAT, "%s: format '%.40s', statistics are 'narrow-calibration'",
                     path, format);
    }
    st = st == NW_OK ? nw_json_u32(m, path, "version", STATS_VERSION, STATS_VERSION, &version, err)
                     : st;
    st = st == NW_OK ? nw_json_str(m, path, "hash", &said, err) : st;
    st = st == NW_OK ? hash_of(m, hash, err) : st;
    if (st == NW_OK && strcmp(said, hash->hex) != 0) {
        st = nw_fail(err, NW_E_FORMAT, "%s: its hash says %.12s, its text has %.12s: it was edited",
                     path, said, hash->hex);
    }
    return st;
}

nw_status nw_stats_open(const char *dir, nw_stats **out, nw_error *err)
{
    nw_stats *s = calloc(1, sizeof *s);
    char *path = nw_path_join(dir, "manifest.json");
    nw_status st = NW_OK;

    *out = NULL;
    if (s == NULL || path == NULL || (s->dir = strdup(dir)) == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory to open statistics", dir);
    }
    st = st == NW_OK ? nw_json_load(path, MANIFEST_MAX_BYTES, &s->manifest, err) : st;
    st = st == NW_OK ? check_manifest(path, s->manifest, &s->hash, err) : st;
    free(path);
    if (st != NW_OK) {
        nw_stats_close(s);
        return nw_context(err, "calibration statistics");
    }
    *out = s;
    return NW_OK;
}

void nw_stats_close(nw_stats *s)
{
    if (s != NULL) {
        json_decref(s->manifest);
        free(s->dir);
        free(s);
    }
}

const char *nw_stats_hash(const nw_stats *s)
{
    return s->hash.hex;
}

const json_t *nw_stats_manifest(const nw_stats *s)
{
    return s->manifest;
}

bool nw_stats_is_of(const nw_stats *s, const nw_digest *model)
{
    const char *said =
        json_string_value(json_object_get(json_object_get(s->manifest, "model"), "sha256"));
    return said != NULL && strcmp(said, model->hex) == 0;
}

/* The row of an input in the manifest, or NULL. */
static const json_t *find_input(const nw_stats *s, int32_t layer, nw_input input)
{
    const json_t *list = json_object_get(s->manifest, "inputs");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(row, "input"));
        if (name != NULL && strcmp(name, nw_input_name(input)) == 0 &&
            json_integer_value(json_object_get(row, "layer")) == layer) {
            return row;
        }
    }
    return NULL;
}

nw_status nw_stats_fit(const nw_stats *s, const nw_model_config *c, nw_error *err)
{
    size_t n = 0;
    size_t n_missing = 0;
    size_t n_wrong = 0;
    uint32_t other = 0;

    for (int32_t layer = -1; layer < (int32_t)c->n_layers; layer++) {
        for (int i = 0; i < NW_INPUT_COUNT; i++) {
            if ((i == NW_INPUT_HEAD) != (layer < 0)) {
                continue;
            }
            const json_t *row = find_input(s, layer, (nw_input)i);
            const json_int_t cols = json_integer_value(json_object_get(row, "n_cols"));
            n++;
            n_missing += row == NULL;
            if (row != NULL && cols != (json_int_t)nw_input_cols(c, (nw_input)i)) {
                n_wrong++;
                other = (uint32_t)cols;
            }
        }
    }
    if (n_missing + n_wrong > 0) {
        return nw_fail(err, NW_E_FORMAT,
                       "calibration statistics %s are of another model: of its %zu inputs %zu "
                       "match, %zu are missing, %zu have another width (one has %u)",
                       s->dir, n, n - n_missing - n_wrong, n_missing, n_wrong, other);
    }
    return NW_OK;
}

static nw_status check_file(const nw_stats *s, const char *file, const char *path, nw_error *err)
{
    const json_t *list = json_object_get(s->manifest, "files");
    const char *said = NULL;
    nw_digest is = {0};

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(row, "name"));
        if (name != NULL && strcmp(name, file) == 0) {
            said = json_string_value(json_object_get(row, "sha256"));
        }
    }
    if (nw_digest_file(path, &is, err) != NW_OK) {
        return err->code;
    }
    if (said == NULL || strcmp(said, is.hex) != 0) {
        return nw_fail(err, NW_E_FORMAT, "%s: sha256 %.12s, the manifest says %.12s", path, is.hex,
                       said != NULL ? said : "nothing");
    }
    return NW_OK;
}

static nw_status copy_tensor(const nw_safetensors *st, nw_input input, const char *part, size_t n,
                             float *out, nw_error *err)
{
    char name[NAME_MAX_BYTES];

    tensor_name(input, part, name);
    const nw_st_tensor *t = nw_st_find(st, name);
    if (t == NULL || t->format != NW_FMT_F32 || t->n_elems != n) {
        return nw_fail(err, NW_E_FORMAT, "%s: no tensor '%s' of %zu F32 values", nw_st_path(st, 0),
                       name, n);
    }
    memcpy(out, t->data, n * sizeof *out);
    return NW_OK;
}

/* The packed triangle stands at the front of the square: rows move to their places from the last
 * one on, and then the lower half is a mirror. */
static void unpack_moments(nw_input_stats *s)
{
    const size_t n = s->n_cols;

    for (size_t i = n; i-- > 1;) {
        memmove(s->moments + i * n + i, s->moments + i * n - i * (i - 1) / 2,
                (n - i) * sizeof *s->moments);
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++) {
            s->moments[i * n + k] = s->moments[k * n + i];
        }
        s->mean_sq[i] = s->moments[i * n + i];
    }
}

static nw_status fill(const nw_safetensors *st, nw_input input, nw_input_stats *out, nw_error *err)
{
    const uint32_t n = out->n_cols;
    nw_status s = copy_tensor(st, input, parts[0], n, out->absmax, err);

    s = s == NW_OK ? copy_tensor(st, input, parts[1], n, out->mean_abs, err) : s;
    s = s == NW_OK ? copy_tensor(st, input, parts[2], triangle(n), out->moments, err) : s;
    if (s == NW_OK) {
        unpack_moments(out);
    }
    return s;
}

nw_status nw_stats_load(const nw_stats *s, int32_t layer, nw_input input, nw_input_stats *out,
                        nw_error *err)
{
    const json_t *row = find_input(s, layer, input);
    char file[NAME_MAX_BYTES];
    nw_safetensors *st = NULL;
    nw_input_stats got = {0};
    uint32_t n_cols = 0;

    if (row == NULL) {
        return nw_fail(err, NW_E_FORMAT, "%s: no statistics of %s in layer %d", s->dir,
                       nw_input_name(input), (int)layer);
    }
    nw_status code = nw_json_u32(row, s->dir, "n_cols", 1, 1 << 20, &n_cols, err);
    file_name(layer, file);
    char *path = nw_path_join(s->dir, file);
    if (code == NW_OK && path == NULL) {
        code = nw_fail(err, NW_E_NOMEM, "%s: no memory for a path", s->dir);
    }
    code = code == NW_OK ? check_file(s, file, path, err) : code;
    code = code == NW_OK ? nw_st_open(path, &st, err) : code;
    code = code == NW_OK ? nw_input_stats_init(&got, n_cols, err) : code;
    code = code == NW_OK ? fill(st, input, &got, err) : code;
    if (code == NW_OK) {
        got.n_tokens = (uint64_t)json_integer_value(json_object_get(row, "n_tokens"));
        code = nw_input_stats_check(&got, path, err);
    }
    nw_st_close(st);
    free(path);
    if (code != NW_OK) {
        nw_input_stats_release(&got);
        return code;
    }
    *out = got;
    return NW_OK;
}

nw_status nw_stats_open_file(const nw_stats *s, const char *file, nw_safetensors **out,
                             nw_error *err)
{
    char *path = nw_path_join(s->dir, file);
    nw_status st = path == NULL ? nw_fail(err, NW_E_NOMEM, "%s: no memory for a path", s->dir)
                                : check_file(s, file, path, err);

    st = st == NW_OK ? nw_st_open(path, out, err) : st;
    free(path);
    return st;
}
