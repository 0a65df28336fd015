/* safetensors, the writing half: the header is made from the declarations before any data, so that
 * tensors of any size stream through without being held. See safetensors.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <inttypes.h>
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

static nw_status write_header(nw_st_writer *w, const char *path, const json_t *root,
                              size_t alignment, nw_error *err)
{
    static const char spaces[64] =
        "                                                               ";
    char *text = json_dumps(root, JSON_COMPACT);
    uint8_t len[8];

    if (text == NULL) {
        return nw_fail(err, NW_E_FORMAT, "%s: a name or a metadata value is no UTF-8", path);
    }
    const size_t n = strlen(text);
    const size_t total = (8 + n + alignment - 1) / alignment * alignment - 8;
    for (int i = 0; i < 8; i++) {
        len[i] = (uint8_t)((uint64_t)total >> (8 * i) & 0xFFU);
    }
    nw_status st = total <= NW_ST_MAX_HEADER
                       ? nw_writer_write(&w->file, len, sizeof len, err)
                       : nw_fail(err, NW_E_RANGE, "%s: header of %zu bytes, at most %u are allowed",
                                 path, total, NW_ST_MAX_HEADER);
    if (st == NW_OK) {
        st = nw_writer_write(&w->file, text, n, err);
    }
    for (size_t left = total - n; left > 0 && st == NW_OK;) {
        const size_t part = left < sizeof spaces - 1 ? left : sizeof spaces - 1;
        st = nw_writer_write(&w->file, spaces, part, err);
        left -= part;
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

nw_status nw_st_writer_open(const char *path, const nw_st_decl *tensors, size_t n,
                            const char *const *metadata, size_t alignment, nw_st_writer **out,
                            nw_error *err)
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
        st = nw_writer_open(&w->file, path, err);
    }
    if (st == NW_OK) {
        st = write_header(w, path, root, alignment, err);
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

nw_status nw_st_writer_commit(nw_st_writer *w, nw_error *err)
{
    advance(w);
    if (w->at < w->n) {
        return nw_fail(err, NW_E_RANGE, "%s: tensor '%s' is not complete: %zu of %zu bytes",
                       w->file.path, w->names[w->at], w->done, w->sizes[w->at]);
    }
    return nw_writer_commit(&w->file, err);
}

void nw_st_writer_close(nw_st_writer *w)
{
    if (w == NULL) {
        return;
    }
    nw_writer_close(&w->file);
    for (size_t i = 0; i < w->n; i++) {
        free(w->names[i]);
    }
    free(w->names);
    free(w->sizes);
    free(w);
}
