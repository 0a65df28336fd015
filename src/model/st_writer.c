/* safetensors, the writing half: the header is made from the declarations before any data, so that
 * tensors of any size stream through without being held. See safetensors.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "model/safetensors.h"

struct nw_st_writer {
    nw_writer file;
    char **names;
    size_t *sizes; /* bytes of each tensor */
    size_t n, at;  /* tensor whose turn it is */
    size_t done;   /* bytes of it already written */
};

/* {"dtype", "shape", "data_offsets"}; NULL without memory. */
static json_t *entry(const nw_st_decl *t, size_t begin, size_t end)
{
    json_t *shape = json_array();
    json_t *e = json_object();
    int bad = 0;

    for (uint32_t d = 0; d < t->n_dims; d++) {
        bad |= json_array_append_new(shape, json_integer((json_int_t)t->dims[d]));
    }
    bad |= json_object_set_new(e, "dtype", json_string(nw_format_get(t->format)->st_dtype));
    bad |= json_object_set_new(e, "shape", shape);
    bad |= json_object_set_new(e, "data_offsets",
                               json_pack("[I, I]", (json_int_t)begin, (json_int_t)end));
    if (bad != 0) {
        json_decref(e);
        return NULL;
    }
    return e;
}

static nw_status tensor_bytes(const char *path, const nw_st_decl *t, size_t *out, nw_error *err)
{
    const nw_format *f = nw_format_get(t->format);
    size_t n = 1;
    bool ok = f->st_dtype != NULL && t->n_dims <= NW_ST_MAX_DIMS;

    for (uint32_t d = 0; ok && d < t->n_dims; d++) {
        ok = t->dims[d] <= INT64_MAX && nw_size_mul(n, (size_t)t->dims[d], &n);
    }
    if (!ok || !nw_format_bytes(f, n, out) || *out > INT64_MAX) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "%s: tensor '%s' of format %s and this shape does not fit safetensors", path,
                       t->name, f->name);
    }
    return NW_OK;
}

static nw_status declare(nw_st_writer *w, const char *path, const nw_st_decl *tensors, json_t *root,
                         nw_error *err)
{
    size_t begin = 0;

    for (size_t i = 0; i < w->n; i++) {
        size_t end = 0;
        const nw_st_decl *t = &tensors[i];
        const nw_status st = tensor_bytes(path, t, &w->sizes[i], err);
        if (st != NW_OK) {
            return st;
        }
        if (strcmp(t->name, "__metadata__") == 0 || json_object_get(root, t->name) != NULL) {
            return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' declared twice", path, t->name);
        }
        w->names[i] = strdup(t->name);
        if (!nw_size_add(begin, w->sizes[i], &end) || w->names[i] == NULL ||
            json_object_set_new(root, t->name, entry(t, begin, end)) != 0) {
            return nw_fail(err, NW_E_NOMEM, "%s: no memory for tensor '%s'", path, t->name);
        }
        begin = end;
    }
    return NW_OK;
}

/* The 8 bytes of the length and the JSON after them, padded with spaces; the caller frees it. */
static nw_status header_bytes(const char *path, const json_t *root, size_t alignment, char **out,
                              size_t *size, nw_error *err)
{
    char *text = json_dumps(root, JSON_COMPACT);

    if (text == NULL) {
        return nw_fail(err, NW_E_FORMAT, "%s: a name or a metadata value is no UTF-8", path);
    }
    const size_t n = strlen(text);
    const size_t total = (8 + n + alignment - 1) / alignment * alignment;
    char *bytes = total - 8 <= NW_ST_MAX_HEADER ? malloc(total) : NULL;
    nw_status st = NW_OK;
    if (total - 8 > NW_ST_MAX_HEADER) {
        st = nw_fail(err, NW_E_RANGE, "%s: header of %zu bytes, at most %u are allowed", path,
                     total - 8, NW_ST_MAX_HEADER);
    } else if (bytes == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for its header", path);
    } else {
        for (int i = 0; i < 8; i++) {
            bytes[i] = (char)((uint64_t)(total - 8) >> (8 * i) & 0xFFU);
        }
        memcpy(bytes + 8, text, n);
        memset(bytes + 8 + n, ' ', total - 8 - n);
        *out = bytes;
        *size = total;
    }
    free(text);
    return st;
}

static json_t *header(const char *const *metadata)
{
    json_t *root = json_object();
    json_t *meta = json_object();
    int bad = json_object_set_new(root, "__metadata__", meta);

    bad |= json_object_set_new(meta, "format", json_string("pt"));
    for (; metadata != NULL && metadata[0] != NULL; metadata += 2) {
        bad |= json_object_set_new(meta, metadata[0], json_string(metadata[1]));
    }
    if (bad != 0) {
        json_decref(root);
        return NULL;
    }
    return root;
}

/* The file with its header, or as far as n_done tensors reach. */
static nw_status open_file(nw_st_writer *w, const char *path, const json_t *root, size_t alignment,
                           const size_t *n_done, nw_error *err)
{
    char *bytes = NULL;
    size_t size = 0;
    nw_status st = header_bytes(path, root, alignment, &bytes, &size, err);

    if (st != NW_OK) {
        return st;
    }
    if (n_done == NULL) {
        st = nw_writer_open(&w->file, path, err);
    } else {
        const size_t room = strlen(path) + sizeof NW_ST_PART;
        char *part = calloc(1, room);
        uint64_t keep = *n_done > 0 ? size : 0;
        for (w->at = 0; w->at < *n_done; w->at++) {
            keep += w->sizes[w->at];
        }
        st = part != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory for its name", path);
        if (st == NW_OK) {
            (void)snprintf(part, room, "%s%s", path, NW_ST_PART);
            st = nw_writer_resume(&w->file, path, part, keep, err);
        }
        free(part);
    }
    if (st == NW_OK && (n_done == NULL || *n_done == 0)) {
        st = nw_writer_write(&w->file, bytes, size, err);
    }
    free(bytes);
    return st;
}

/* n_done: NULL for a writer that nobody resumes. */
static nw_status open_writer(const char *path, const nw_st_decl *tensors, size_t n,
                             const char *const *metadata, size_t alignment, const size_t *n_done,
                             nw_st_writer **out, nw_error *err)
{
    nw_st_writer *w = calloc(1, sizeof *w);
    json_t *root = header(metadata);
    nw_status st = NW_OK;

    assert(alignment >= 8 && (alignment & (alignment - 1)) == 0);
    if (w != NULL) {
        w->names = calloc(n + 1, sizeof *w->names);
        w->sizes = calloc(n + 1, sizeof *w->sizes);
    }
    if (w == NULL || w->names == NULL || w->sizes == NULL || root == NULL) {
        st =
            nw_fail(err, NW_E_NOMEM, "%s: no memory for its header, or metadata is no UTF-8", path);
        goto out;
    }
    w->n = n;
    st = declare(w, path, tensors, root, err);
    if (st == NW_OK) {
        st = open_file(w, path, root, alignment, n_done, err);
    }
    if (st == NW_OK) {
        *out = w;
        w = NULL;
    }
out:
    json_decref(root);
    nw_st_writer_close(w);
    return st;
}

nw_status nw_st_writer_open(const char *path, const nw_st_decl *tensors, size_t n,
                            const char *const *metadata, size_t alignment, nw_st_writer **out,
                            nw_error *err)
{
    return open_writer(path, tensors, n, metadata, alignment, NULL, out, err);
}

nw_status nw_st_writer_resume(const char *path, const nw_st_decl *tensors, size_t n,
                              const char *const *metadata, size_t alignment, size_t n_done,
                              nw_st_writer **out, nw_error *err)
{
    assert(n_done <= n);
    return open_writer(path, tensors, n, metadata, alignment, &n_done, out, err);
}

/* Steps over tensors that are complete, empty ones included. */
static void advance(nw_st_writer *w)
{
    while (w->at < w->n && w->done == w->sizes[w->at]) {
        w->at++;
        w->done = 0;
    }
}

nw_status nw_st_writer_write(nw_st_writer *w, const char *name, const void *bytes, size_t n_bytes,
                             nw_error *err)
{
    if (n_bytes == 0) {
        return NW_OK;
    }
    advance(w);
    if (w->at == w->n || strcmp(name, w->names[w->at]) != 0) {
        return nw_fail(err, NW_E_RANGE, "%s: data of tensor '%s', expected that of '%s'",
                       w->file.path, name, w->at < w->n ? w->names[w->at] : "no other");
    }
    if (n_bytes > w->sizes[w->at] - w->done) {
        return nw_fail(err, NW_E_RANGE, "%s: tensor '%s': %zu bytes where %zu are left",
                       w->file.path, name, n_bytes, w->sizes[w->at] - w->done);
    }
    const nw_status st = nw_writer_write(&w->file, bytes, n_bytes, err);
    w->done += st == NW_OK ? n_bytes : 0;
    return st;
}

static nw_status check_complete(nw_st_writer *w, nw_error *err)
{
    advance(w);
    if (w->at < w->n) {
        return nw_fail(err, NW_E_RANGE, "%s: tensor '%s' is not complete: %zu of %zu bytes",
                       w->file.path, w->names[w->at], w->done, w->sizes[w->at]);
    }
    return NW_OK;
}

nw_status nw_st_writer_commit(nw_st_writer *w, nw_error *err)
{
    const nw_status st = check_complete(w, err);
    return st == NW_OK ? nw_writer_commit(&w->file, err) : st;
}

nw_status nw_st_writer_place(nw_st_writer *w, nw_error *err)
{
    const nw_status st = check_complete(w, err);
    return st == NW_OK ? nw_writer_place(&w->file, err) : st;
}

nw_status nw_st_writer_sync(nw_st_writer *w, nw_error *err)
{
    return nw_writer_sync(&w->file, err);
}

static void release(nw_st_writer *w)
{
    for (size_t i = 0; i < w->n; i++) {
        free(w->names[i]);
    }
    free(w->names);
    free(w->sizes);
    free(w);
}

void nw_st_writer_close(nw_st_writer *w)
{
    if (w != NULL) {
        nw_writer_close(&w->file);
        release(w);
    }
}

void nw_st_writer_keep(nw_st_writer *w)
{
    if (w != NULL) {
        nw_writer_keep(&w->file);
        release(w);
    }
}

void nw_st_shard_name(size_t shard, size_t n_shards, char buf[64])
{
    if (n_shards == 1) {
        (void)snprintf(buf, 64, "model.safetensors");
    } else {
        (void)snprintf(buf, 64, "model-%05zu-of-%05zu.safetensors", shard + 1, n_shards);
    }
}
