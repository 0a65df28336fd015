/* safetensors, the reading half: header checks of one file, and the joining of shards through an
 * index. See safetensors.h for what is refused. Memory: the header's JSON while it is parsed, then
 * about 150 bytes a tensor.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/safetensors.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/huge.h"
#include "base/json.h"
#include "model/names.h"

#define MAX_INDEX_BYTES ((size_t)64 << 20)
#define SHOW            96 /* bytes of a name in a message */
#define WHERE           512

typedef struct {
    nw_file map;      /* all zero when the bytes are borrowed */
    nw_huge huge;     /* of map */
    const char *path; /* for messages: map.path or the caller's name */
    const uint8_t *data;
    size_t size;
    json_t *metadata; /* NULL: none */
} st_file;

struct nw_safetensors {
    st_file *files;
    uint32_t n_files;
    nw_names names; /* of `tensors`, same order */
    nw_st_tensor *tensors;
    size_t n_tensors;
};

static nw_status no_memory(const char *path, nw_error *err)
{
    return nw_fail(err, NW_E_NOMEM, "%s: no memory for its tables", path);
}

void nw_st_close(nw_safetensors *s)
{
    if (s == NULL) {
        return;
    }
    for (uint32_t i = 0; i < s->n_files; i++) {
        json_decref(s->files[i].metadata);
        nw_file_unmap(&s->files[i].map);
    }
    nw_names_release(&s->names);
    free(s->files);
    free(s->tensors);
    free(s);
}

bool nw_st_to_huge(nw_safetensors *s, size_t min_bytes, double seconds, nw_pool *pool)
{
    for (uint32_t i = 0; i < s->n_files; i++) {
        if (nw_huge_go_on(&s->files[i].huge, &s->files[i].map, min_bytes, seconds, pool)) {
            return true;
        }
    }
    return false;
}

/* "file: tensor 'x'" with x made harmless. */
static const char *where(const st_file *f, const char *name, char buf[WHERE])
{
    char shown[SHOW];
    (void)snprintf(buf, WHERE, "%.380s: tensor '%s'", f->path,
                   nw_name_show(name, strlen(name), shown, sizeof shown));
    return buf;
}

/* A non-negative integer of a list. */
static bool list_u64(const json_t *list, size_t i, uint64_t *out)
{
    const json_t *v = json_array_get(list, i);

    if (!json_is_integer(v) || json_integer_value(v) < 0) {
        return false;
    }
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static nw_status read_shape(const char *at, const json_t *entry, nw_st_tensor *t, nw_error *err)
{
    const json_t *shape = json_object_get(entry, "shape");
    size_t n = 1;
    bool empty = false;

    if (!json_is_array(shape)) {
        return nw_fail(err, NW_E_FORMAT, "%s: 'shape' is no list", at);
    }
    if (json_array_size(shape) > NW_ST_MAX_DIMS) {
        return nw_fail(err, NW_E_UNSUPPORTED, "%s: %zu dims, at most %d are allowed", at,
                       json_array_size(shape), NW_ST_MAX_DIMS);
    }
    t->n_dims = (uint32_t)json_array_size(shape);
    for (uint32_t d = 0; d < t->n_dims; d++) {
        if (!list_u64(shape, d, &t->dims[d])) {
            return nw_fail(err, NW_E_FORMAT, "%s: 'shape' holds something that is no size", at);
        }
        empty = empty || t->dims[d] == 0;
        if (t->dims[d] != 0 && !nw_size_mul(n, (size_t)t->dims[d], &n)) {
            return nw_fail(err, NW_E_FORMAT, "%s: the product of 'shape' overflows", at);
        }
    }
    t->n_elems = empty ? 0 : n;
    return NW_OK;
}

/* begin and end against the data section, then against shape and dtype. */
static nw_status read_offsets(const st_file *f, const char *at, const json_t *entry, size_t start,
                              nw_st_tensor *t, nw_error *err)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const uint64_t have = f->size - start;
    uint64_t begin = 0;
    uint64_t end = 0;
    size_t want = 0;

    if (!json_is_array(offsets) || json_array_size(offsets) != 2 || !list_u64(offsets, 0, &begin) ||
        !list_u64(offsets, 1, &end) || begin > end) {
        return nw_fail(err, NW_E_FORMAT, "%s: 'data_offsets' is no [begin, end]", at);
    }
    if (end > have) {
        return nw_fail(err, NW_E_FORMAT,
                       "%s: ends at byte %" PRIu64 " of the data, which has %" PRIu64 "; %" PRIu64
                       " bytes are missing",
                       at, end, have, end - have);
    }
    const nw_format *fmt = nw_format_get(t->format);
    if (!nw_format_bytes(fmt, t->n_elems, &want) || want != end - begin) {
        return nw_fail(err, NW_E_FORMAT,
                       "%s: %" PRIu64 " elements of %s do not take the %" PRIu64
                       " bytes of 'data_offsets'",
                       at, t->n_elems, fmt->name, end - begin);
    }
    t->n_bytes = want;
    t->data = f->data + start + begin; /* of empty tensors too: tiling needs the position */
    return NW_OK;
}

static nw_status read_entry(const st_file *f, const char *name, const json_t *entry, size_t start,
                            nw_st_tensor *t, nw_error *err)
{
    char at[WHERE];
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const nw_format *fmt = dtype != NULL ? nw_format_by_st_dtype(dtype) : NULL;

    (void)where(f, name, at);
    if (fmt == NULL) {
        char shown[32];
        return nw_fail(err, NW_E_FORMAT, "%s: dtype '%s' is unknown", at,
                       dtype != NULL ? nw_name_show(dtype, strlen(dtype), shown, sizeof shown)
                                     : "(none)");
    }
    t->format = fmt->id;
    const nw_status st = read_shape(at, entry, t, err);
    return st == NW_OK ? read_offsets(f, at, entry, start, t, err) : st;
}

static int by_position(const void *a, const void *b)
{
    const nw_st_tensor *x = a;
    const nw_st_tensor *y = b;

    if (x->data != y->data) {
        return x->data < y->data ? -1 : 1;
    }
    return x->n_bytes < y->n_bytes ? -1 : x->n_bytes > y->n_bytes;
}

/* tensors[n] of one file, in any order: they must tile its data exactly. Sorts them. */
static nw_status check_tiles(const st_file *f, nw_st_tensor *tensors, size_t n, size_t start,
                             nw_error *err)
{
    const uint8_t *at = f->data + start;
    char buf[WHERE];

    if (n > 0) {
        qsort(tensors, n, sizeof *tensors, by_position);
    }
    for (size_t i = 0; i < n; i++) {
        if (tensors[i].data != at) {
            return nw_fail(err, NW_E_FORMAT, "%s: begins at byte %zu of the data, expected %zu: %s",
                           where(f, tensors[i].name, buf),
                           (size_t)(tensors[i].data - f->data) - start,
                           (size_t)(at - f->data) - start,
                           tensors[i].data > at ? "a hole before it" : "it overlaps another");
        }
        at += tensors[i].n_bytes;
    }
    const size_t rest = (size_t)(f->data + f->size - at);
    if (rest > 0) {
        return nw_fail(err, NW_E_FORMAT, "%s: %zu bytes after the last tensor", f->path, rest);
    }
    return NW_OK;
}

static nw_status read_metadata(st_file *f, json_t *root, nw_error *err)
{
    json_t *meta = json_object_get(root, "__metadata__");
    const char *key = NULL;
    json_t *value = NULL;

    if (meta == NULL) {
        return NW_OK;
    }
    if (!json_is_object(meta)) {
        return nw_fail(err, NW_E_FORMAT, "%s: '__metadata__' is no object", f->path);
    }
    json_object_foreach(meta, key, value)
    {
        if (!json_is_string(value)) {
            char shown[SHOW];
            return nw_fail(err, NW_E_FORMAT, "%s: '__metadata__' value of '%s' is no string",
                           f->path, nw_name_show(key, strlen(key), shown, sizeof shown));
        }
    }
    f->metadata = json_incref(meta);
    return NW_OK;
}

static bool reserve(nw_safetensors *s, size_t more)
{
    size_t need = 0;
    size_t bytes = 0;

    if (!nw_size_add(s->n_tensors, more, &need) || !nw_size_mul(need, sizeof *s->tensors, &bytes)) {
        return false;
    }
    nw_st_tensor *t = realloc(s->tensors, bytes + 1);
    if (t == NULL) {
        return false;
    }
    s->tensors = t;
    return true;
}

/* Adds the tensors of file number `no`; their names are borrowed from the JSON until the caller
 * copies them. */
static nw_status read_entries(nw_safetensors *s, uint32_t no, json_t *root, size_t start,
                              nw_error *err)
{
    st_file *f = &s->files[no];
    const size_t first = s->n_tensors;
    const char *key = NULL;
    json_t *value = NULL;

    if (!reserve(s, json_object_size(root))) {
        return no_memory(f->path, err);
    }
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) {
            continue;
        }
        nw_st_tensor *t = &s->tensors[s->n_tensors];
        *t = (nw_st_tensor){.name = key, .file = no};
        const nw_status st = read_entry(f, key, value, start, t, err);
        if (st != NW_OK) {
            return st;
        }
        s->n_tensors++;
    }
    return check_tiles(f, s->tensors + first, s->n_tensors - first, start, err);
}

/* N, held against the file and the reference's limit. */
static nw_status header_bytes(const st_file *f, size_t *n, nw_error *err)
{
    uint64_t v = 0;

    if (f->size < 8) {
        return nw_fail(err, NW_E_FORMAT, "%s: %zu bytes are too short for a safetensors file",
                       f->path, f->size);
    }
    for (int i = 7; i >= 0; i--) {
        v = v << 8 | f->data[i];
    }
    if (v > f->size - 8) {
        return nw_fail(err, NW_E_FORMAT, "%s: header of %" PRIu64 " bytes, %zu bytes in the file",
                       f->path, v, f->size);
    }
    if (v > NW_ST_MAX_HEADER) {
        return nw_fail(err, NW_E_FORMAT, "%s: header of %" PRIu64 " bytes, at most %u are allowed",
                       f->path, v, NW_ST_MAX_HEADER);
    }
    *n = (size_t)v;
    return NW_OK;
}

static nw_status read_file(nw_safetensors *s, uint32_t no, nw_error *err)
{
    st_file *f = &s->files[no];
    json_t *root = NULL;
    size_t n = 0;
    const size_t first = s->n_tensors;
    nw_status st = header_bytes(f, &n, err);

    if (st == NW_OK) {
        st = nw_json_parse(f->path, (const char *)f->data + 8, n, &root, err);
    }
    if (st == NW_OK && !json_is_object(root)) {
        st = nw_fail(err, NW_E_FORMAT, "%s: the header is no object", f->path);
    }
    if (st == NW_OK) {
        st = read_metadata(f, root, err);
    }
    if (st == NW_OK) {
        st = read_entries(s, no, root, 8 + n, err);
    }
    for (size_t i = first; i < s->n_tensors && st == NW_OK; i++) {
        const char *name = s->tensors[i].name;
        st = nw_names_add(&s->names, name, strlen(name)) ? NW_OK : no_memory(f->path, err);
    }
    json_decref(root);
    return st;
}

/* All files are read: names are final, and no two shards hold the same tensor. */
static nw_status seal(nw_safetensors *s, nw_error *err)
{
    size_t dup = 0;

    if (!nw_names_seal(&s->names, &dup)) {
        return no_memory(s->files[0].path, err);
    }
    for (size_t i = 0; i < s->n_tensors; i++) {
        s->tensors[i].name = nw_names_at(&s->names, i);
        s->tensors[i].data = s->tensors[i].n_bytes > 0 ? s->tensors[i].data : NULL;
    }
    if (dup < s->n_tensors) {
        char at[WHERE];
        const nw_st_tensor *t = &s->tensors[dup];
        return nw_fail(err, NW_E_FORMAT, "%s: is in another shard too",
                       where(&s->files[t->file], t->name, at));
    }
    return NW_OK;
}

static nw_safetensors *new_set(size_t n_files)
{
    nw_safetensors *s = calloc(1, sizeof *s);

    if (s != NULL) {
        s->files = calloc(n_files + 1, sizeof *s->files);
        if (s->files == NULL) {
            free(s);
            return NULL;
        }
    }
    return s;
}

nw_status nw_st_read(const char *name, const uint8_t *bytes, size_t n, nw_safetensors **out,
                     nw_error *err)
{
    nw_safetensors *s = new_set(1);

    if (s == NULL) {
        return no_memory(name, err);
    }
    s->n_files = 1;
    s->files[0] = (st_file){.path = name, .data = bytes, .size = n};
    nw_status st = read_file(s, 0, err);
    st = st == NW_OK ? seal(s, err) : st;
    if (st != NW_OK) {
        nw_st_close(s);
        return st;
    }
    *out = s;
    return NW_OK;
}

static nw_status map_file(nw_safetensors *s, const char *path, nw_error *err)
{
    st_file *f = &s->files[s->n_files];
    const nw_status st = nw_file_map(path, &f->map, err);

    if (st != NW_OK) {
        return st;
    }
    *f = (st_file){.map = f->map, .path = f->map.path, .data = f->map.data, .size = f->map.size};
    s->n_files++;
    return read_file(s, s->n_files - 1, err);
}

/* Names of files, without repeats, out of weight_map. They must be plain names: an index cannot
 * reach outside its folder. */
static nw_status list_files(const char *path, const json_t *map, nw_names *files, nw_error *err)
{
    const json_t *value = NULL;
    const char *key = NULL;
    size_t dup = 0;

    json_object_foreach((json_t *)(uintptr_t)map, key, value)
    {
        const char *file = json_string_value(value);
        if (file == NULL || file[0] == '\0' || file[0] == '.' || strchr(file, '/') != NULL) {
            char shown[SHOW];
            return nw_fail(err, NW_E_FORMAT,
                           "%s: 'weight_map' names no plain file beside it for '%s'", path,
                           nw_name_show(key, strlen(key), shown, sizeof shown));
        }
        if (!nw_names_add(files, file, strlen(file))) {
            return no_memory(path, err);
        }
    }
    return nw_names_seal(files, &dup) ? NW_OK : no_memory(path, err);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* weight_map and the files agree, both ways. */
static nw_status check_map(const nw_safetensors *s, const char *path, const json_t *map,
                           nw_error *err)
{
    const json_t *value = NULL;
    const char *key = NULL;
    char shown[SHOW];

    json_object_foreach((json_t *)(uintptr_t)map, key, value)
    {
        const nw_st_tensor *t = nw_st_find(s, key);
        const char *file = json_string_value(value);
        if (t == NULL || strcmp(base_name(s->files[t->file].path), file) != 0) {
            return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' is not in %s", path,
                           nw_name_show(key, strlen(key), shown, sizeof shown), file);
        }
    }
    for (size_t i = 0; i < s->n_tensors; i++) {
        const nw_st_tensor *t = &s->tensors[i];
        if (json_object_get(map, t->name) == NULL) {
            return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' of %s is not in 'weight_map'", path,
                           nw_name_show(t->name, strlen(t->name), shown, sizeof shown),
                           base_name(s->files[t->file].path));
        }
    }
    return NW_OK;
}

static nw_status open_listed(nw_safetensors *s, const char *path, const nw_names *files,
                             nw_error *err)
{
    const size_t n_dir = (size_t)(base_name(path) - path);
    const char *last = "";
    nw_status st = NW_OK;

    for (size_t i = 0; i < files->n && st == NW_OK; i++) {
        const char *name = nw_names_at(files, nw_names_sorted(files, i));
        if (strcmp(name, last) == 0) {
            continue;
        }
        last = name;
        const size_t size = n_dir + strlen(name) + 1;
        char *full = malloc(size);
        if (full == NULL) {
            return no_memory(path, err);
        }
        (void)snprintf(full, size, "%.*s%s", (int)n_dir, path, name);
        st = map_file(s, full, err);
        free(full);
    }
    return st != NW_OK ? nw_context(err, "shards of %s", path) : NW_OK;
}

static nw_status open_index(const char *path, nw_safetensors **out, nw_error *err)
{
    json_t *root = NULL;
    nw_names files = {0};
    nw_safetensors *s = NULL;
    nw_status st = nw_json_load(path, MAX_INDEX_BYTES, &root, err);
    const json_t *map = json_object_get(root, "weight_map");

    if (st == NW_OK && json_object_size(map) == 0) {
        st = nw_fail(err, NW_E_FORMAT, "%s: no 'weight_map' with tensors", path);
    }
    if (st == NW_OK) {
        st = list_files(path, map, &files, err);
    }
    if (st == NW_OK) {
        s = new_set(files.n);
        st = s != NULL ? open_listed(s, path, &files, err) : no_memory(path, err);
    }
    st = st == NW_OK ? seal(s, err) : st;
    if (st == NW_OK) {
        st = check_map(s, path, map, err);
    }
    nw_names_release(&files);
    json_decref(root);
    if (st != NW_OK) {
        nw_st_close(s);
        return st;
    }
    *out = s;
    return NW_OK;
}

static nw_status open_single(const char *path, nw_safetensors **out, nw_error *err)
{
    nw_safetensors *s = new_set(1);

    if (s == NULL) {
        return no_memory(path, err);
    }
    nw_status st = map_file(s, path, err);
    st = st == NW_OK ? seal(s, err) : st;
    if (st != NW_OK) {
        nw_st_close(s);
        return st;
    }
    *out = s;
    return NW_OK;
}

static bool ends_with(const char *s, const char *suffix)
{
    const size_t n = strlen(s);
    const size_t k = strlen(suffix);
    return n >= k && strcmp(s + n - k, suffix) == 0;
}

static nw_status open_file(const char *path, nw_safetensors **out, nw_error *err)
{
    return ends_with(path, ".json") ? open_index(path, out, err) : open_single(path, out, err);
}

nw_status nw_st_open(const char *path, nw_safetensors **out, nw_error *err)
{
    static const char *const names[] = {"model.safetensors.index.json", "model.safetensors"};

    if (!nw_file_is_dir(path)) {
        return open_file(path, out, err);
    }
    for (size_t i = 0; i < NW_COUNT(names); i++) {
        char *full = nw_path_join(path, names[i]);
        if (full == NULL) {
            return no_memory(path, err);
        }
        const bool found = nw_file_exists(full);
        const nw_status st = found ? open_file(full, out, err) : NW_OK;
        free(full);
        if (found) {
            return st;
        }
    }
    return nw_fail(err, NW_E_IO, "%s: neither %s nor %s is in the folder", path, names[0],
                   names[1]);
}

size_t nw_st_n_tensors(const nw_safetensors *s)
{
    return s->n_tensors;
}

const nw_st_tensor *nw_st_at(const nw_safetensors *s, size_t i)
{
    assert(i < s->n_tensors);
    return &s->tensors[nw_names_sorted(&s->names, i)];
}

const nw_st_tensor *nw_st_find(const nw_safetensors *s, const char *name)
{
    const size_t i = nw_names_find(&s->names, name);
    return i < s->n_tensors ? &s->tensors[i] : NULL;
}

uint32_t nw_st_n_files(const nw_safetensors *s)
{
    return s->n_files;
}

const char *nw_st_path(const nw_safetensors *s, uint32_t file)
{
    return file < s->n_files ? s->files[file].path : NULL;
}

const uint8_t *nw_st_bytes(const nw_safetensors *s, uint32_t file)
{
    return file < s->n_files ? s->files[file].data : NULL;
}

const char *nw_st_metadata(const nw_safetensors *s, const char *key)
{
    return s->n_files > 0 ? json_string_value(json_object_get(s->files[0].metadata, key)) : NULL;
}
