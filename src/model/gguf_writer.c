/* The container: head, keys, tensor infos, data. See gguf_writer.h, and gguf.h for the layout.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/gguf_writer.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "model/names.h"

#define VERSION   3
#define ALIGNMENT 32
#define MAX_KEYS  ((size_t)1 << 31) /* bytes of all keys and infos */
#define MAX_NAME  63
#define MAX_NE    ((uint64_t)INT64_MAX)

struct nw_gguf_writer {
    nw_writer file;
    nw_buf keys;    /* as they stand in the file */
    nw_names names; /* of keys */
    uint64_t n_keys;
    bool no_memory;
    size_t *sizes; /* [n] bytes of each tensor */
    size_t n, at;  /* tensor whose turn it is */
    size_t done;   /* bytes of it already written */
    uint64_t total;
};

nw_status nw_gguf_writer_open(const char *path, nw_gguf_writer **out, nw_error *err)
{
    nw_gguf_writer *w = calloc(1, sizeof *w);

    *out = NULL;
    if (w == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a writer", path);
    }
    nw_buf_init(&w->keys, MAX_KEYS);
    const nw_status st = nw_writer_open(&w->file, path, err);
    if (st != NW_OK) {
        nw_gguf_writer_close(w);
        return st;
    }
    *out = w;
    return NW_OK;
}

void nw_gguf_writer_close(nw_gguf_writer *w)
{
    if (w != NULL) {
        nw_writer_close(&w->file);
        nw_buf_release(&w->keys);
        nw_names_release(&w->names);
        free(w->sizes);
        free(w);
    }
}

/* ---- little endian, whatever the machine ---- */
static void add_u32(nw_buf *b, uint32_t v)
{
    const uint8_t bytes[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16),
                              (uint8_t)(v >> 24)};
    (void)nw_buf_add(b, bytes, sizeof bytes);
}

static void add_u64(nw_buf *b, uint64_t v)
{
    add_u32(b, (uint32_t)v);
    add_u32(b, (uint32_t)(v >> 32));
}

static void add_text(nw_buf *b, const char *s, size_t n)
{
    add_u64(b, n);
    (void)nw_buf_add(b, s, n);
}

static void begin(nw_gguf_writer *w, const char *key, uint32_t type)
{
    w->no_memory = !nw_names_add(&w->names, key, strlen(key)) || w->no_memory;
    w->n_keys++;
    add_text(&w->keys, key, strlen(key));
    add_u32(&w->keys, type);
}

void nw_gguf_put_u32(nw_gguf_writer *w, const char *key, uint32_t v)
{
    begin(w, key, NW_GGUF_U32);
    add_u32(&w->keys, v);
}

void nw_gguf_put_f32(nw_gguf_writer *w, const char *key, float v)
{
    uint32_t bits = 0;

    memcpy(&bits, &v, sizeof bits);
    begin(w, key, NW_GGUF_F32);
    add_u32(&w->keys, bits);
}

void nw_gguf_put_bool(nw_gguf_writer *w, const char *key, bool v)
{
    const uint8_t byte = v ? 1 : 0;

    begin(w, key, NW_GGUF_BOOL);
    (void)nw_buf_add(&w->keys, &byte, 1);
}

void nw_gguf_put_str(nw_gguf_writer *w, const char *key, const char *s, size_t n)
{
    begin(w, key, NW_GGUF_STR);
    add_text(&w->keys, s, n);
}

void nw_gguf_put_words(nw_gguf_writer *w, const char *key, nw_gguf_type elem, const void *items,
                       size_t n)
{
    const uint8_t *p = items;

    assert(elem == NW_GGUF_I32 || elem == NW_GGUF_U32 || elem == NW_GGUF_F32);
    begin(w, key, NW_GGUF_ARR);
    add_u32(&w->keys, (uint32_t)elem);
    add_u64(&w->keys, n);
    for (size_t i = 0; i < n; i++, p += 4) {
        uint32_t bits = 0;
        memcpy(&bits, p, sizeof bits);
        add_u32(&w->keys, bits);
    }
}

void nw_gguf_put_strings(nw_gguf_writer *w, const char *key, size_t n)
{
    begin(w, key, NW_GGUF_ARR);
    add_u32(&w->keys, NW_GGUF_STR);
    add_u64(&w->keys, n);
}

void nw_gguf_put_item(nw_gguf_writer *w, const char *s, size_t n)
{
    add_text(&w->keys, s, n);
}

void nw_gguf_put_copy(nw_gguf_writer *w, const nw_gguf_kv *kv)
{
    begin(w, kv->key, kv->type);
    if (kv->type == NW_GGUF_ARR) {
        add_u32(&w->keys, kv->elem_type);
        add_u64(&w->keys, kv->n);
    } else if (kv->type == NW_GGUF_STR) {
        add_u64(&w->keys, kv->n_bytes);
    }
    (void)nw_buf_add(&w->keys, kv->data, kv->n_bytes);
}

/* ---- tensors ---- */
static nw_status tensor_bytes(const nw_gguf_writer *w, const nw_gguf_decl *t, size_t *out,
                              nw_error *err)
{
    const nw_format *f = nw_format_get(t->format);
    const size_t len = strlen(t->name);
    size_t n_rows = t->n_dims > 1 ? (size_t)t->ne[1] : 1;
    bool ok = f->ggml_type >= 0 && t->n_dims >= 1 && t->n_dims <= 2 && len > 0 && len <= MAX_NAME;

    ok = ok && t->ne[0] <= MAX_NE && (t->n_dims < 2 || t->ne[1] <= MAX_NE);
    if (!ok || !nw_format_bytes(f, t->ne[0], out) || !nw_size_mul(*out, n_rows, out)) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "%s: tensor '%.80s' of format %s, with %" PRIu64
                       " columns, does not fit GGUF",
                       w->file.path, t->name, f->name, t->ne[0]);
    }
    return NW_OK;
}

static size_t padded(size_t n)
{
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static nw_status add_infos(nw_gguf_writer *w, const nw_gguf_decl *tensors, size_t n,
                           nw_names *names, nw_error *err)
{
    uint64_t offset = 0;
    nw_status st = NW_OK;

    for (size_t i = 0; st == NW_OK && i < n; i++) {
        const nw_gguf_decl *t = &tensors[i];
        st = tensor_bytes(w, t, &w->sizes[i], err);
        if (st != NW_OK) {
            break;
        }
        w->no_memory = !nw_names_add(names, t->name, strlen(t->name)) || w->no_memory;
        add_text(&w->keys, t->name, strlen(t->name));
        add_u32(&w->keys, t->n_dims);
        for (uint32_t d = 0; d < t->n_dims; d++) {
            add_u64(&w->keys, t->ne[d]);
        }
        add_u32(&w->keys, (uint32_t)nw_format_get(t->format)->ggml_type);
        add_u64(&w->keys, offset);
        offset += padded(w->sizes[i]);
        w->total += w->sizes[i];
    }
    return st;
}

static nw_status check_names(const nw_gguf_writer *w, nw_names *names, const char *what,
                             nw_error *err)
{
    size_t dup = 0;

    if (w->no_memory || w->keys.failed || !nw_names_seal(names, &dup)) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for its keys, or more than %zu bytes",
                       w->file.path, MAX_KEYS);
    }
    if (dup < names->n) {
        return nw_fail(err, NW_E_FORMAT, "%s: %s '%.80s' twice", w->file.path, what,
                       nw_names_at(names, dup));
    }
    return NW_OK;
}

static nw_status write_head(nw_gguf_writer *w, nw_error *err)
{
    nw_buf head;

    nw_buf_init(&head, 4096);
    (void)nw_buf_add(&head, "GGUF", 4);
    add_u32(&head, VERSION);
    add_u64(&head, w->n);
    add_u64(&head, w->n_keys);
    nw_status st = head.failed ? nw_fail(err, NW_E_NOMEM, "%s: no memory", w->file.path)
                               : nw_writer_write(&w->file, head.data, head.len, err);
    nw_buf_release(&head);
    if (st == NW_OK) {
        st = nw_writer_write(&w->file, w->keys.data, w->keys.len, err);
    }
    return st == NW_OK ? nw_writer_pad(&w->file, ALIGNMENT, err) : st;
}

nw_status nw_gguf_writer_declare(nw_gguf_writer *w, const nw_gguf_decl *tensors, size_t n,
                                 nw_error *err)
{
    nw_names names = {0};
    nw_status st = NW_OK;

    assert(w->sizes == NULL);
    w->n = n;
    w->sizes = calloc(n + 1, sizeof *w->sizes);
    if (w->sizes == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu tensors", w->file.path, n);
    }
    st = add_infos(w, tensors, n, &names, err);
    if (st == NW_OK) {
        st = check_names(w, &w->names, "key", err);
    }
    if (st == NW_OK) {
        st = check_names(w, &names, "tensor", err);
    }
    nw_names_release(&names);
    return st == NW_OK ? write_head(w, err) : st;
}

nw_status nw_gguf_writer_write(nw_gguf_writer *w, const void *bytes, size_t n, nw_error *err)
{
    nw_status st = NW_OK;

    if (w->at == w->n || n > w->sizes[w->at] - w->done) {
        return nw_fail(err, NW_E_RANGE, "%s: %zu bytes beyond tensor %zu", w->file.path, n, w->at);
    }
    st = nw_writer_write(&w->file, bytes, n, err);
    w->done += n;
    if (st == NW_OK && w->done == w->sizes[w->at]) {
        st = nw_writer_pad(&w->file, ALIGNMENT, err);
        w->at++;
        w->done = 0;
    }
    return st;
}

nw_status nw_gguf_writer_commit(nw_gguf_writer *w, nw_error *err)
{
    if (w->at != w->n) {
        return nw_fail(err, NW_E_RANGE, "%s: %zu of %zu tensors were written", w->file.path, w->at,
                       w->n);
    }
    return nw_writer_commit(&w->file, err);
}

uint64_t nw_gguf_writer_bytes(const nw_gguf_writer *w)
{
    return w->total;
}
