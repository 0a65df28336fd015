/* GGUF: joins the shards of a set into one view, and the typed look-ups. See gguf.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/gguf.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/half.h"
#include "model/gguf_shard.h"

#define SUFFIX_BYTES 20 /* "-00001-of-00002.gguf" */

struct nw_gguf {
    nw_gguf_shard *shards;
    uint32_t n_shards;
    nw_names names;          /* of all tensors, in the order of `tensors` */
    nw_gguf_tensor *tensors; /* of all shards, shard by shard */
    size_t n_tensors;
};

static const char *const type_names[NW_GGUF_TYPE_COUNT] = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "str", "arr", "u64", "i64", "f64"};

const char *nw_gguf_type_name(uint32_t type, char buf[24])
{
    if (type < NW_GGUF_TYPE_COUNT) {
        (void)snprintf(buf, 24, "%s", type_names[type]);
    } else {
        (void)snprintf(buf, 24, "type %" PRIu32, type);
    }
    return buf;
}

void nw_gguf_close(nw_gguf *g)
{
    if (g == NULL) {
        return;
    }
    for (uint32_t i = 0; i < g->n_shards; i++) {
        nw_gguf_shard_release(&g->shards[i]);
    }
    nw_names_release(&g->names);
    free(g->shards);
    free(g->tensors);
    free(g);
}

static nw_status no_memory(const char *path, nw_error *err)
{
    return nw_fail(err, NW_E_NOMEM, "%s: no memory for its tables", path);
}

/* The value of an unsigned or non-negative integer key of any width; def when absent. Writers
 * differ in the widths of the split keys. */
static nw_status split_value(const nw_gguf_shard *s, const char *key, uint64_t def, uint64_t *out,
                             nw_error *err)
{
    const nw_gguf_kv *kv = nw_gguf_shard_find(s, key);
    uint64_t v = 0;

    *out = def;
    if (kv == NULL) {
        return NW_OK;
    }
    const bool integer =
        kv->type <= NW_GGUF_I32 || kv->type == NW_GGUF_U64 || kv->type == NW_GGUF_I64;
    for (size_t i = 0; integer && i < kv->n_bytes; i++) {
        v |= (uint64_t)kv->data[i] << (8 * i);
    }
    if (!integer || v > INT32_MAX) {
        return nw_fail(err, NW_E_FORMAT, "%s: key '%s' is no count of shards or tensors", s->path,
                       key);
    }
    *out = v;
    return NW_OK;
}

/* The shards' tensors in one table with one set of names. */
static nw_status join(nw_gguf *g, nw_error *err)
{
    size_t dup = 0;
    size_t n = 0;

    for (uint32_t s = 0; s < g->n_shards; s++) {
        n += g->shards[s].n_tensors;
    }
    g->tensors = calloc(n + 1, sizeof *g->tensors);
    bool ok = g->tensors != NULL;
    for (uint32_t s = 0; ok && s < g->n_shards; s++) {
        for (size_t i = 0; ok && i < g->shards[s].n_tensors; i++) {
            nw_gguf_tensor *t = &g->tensors[g->n_tensors++];
            *t = g->shards[s].tensors[i];
            t->file = s;
            ok = nw_names_add(&g->names, t->name, strlen(t->name));
        }
    }
    if (!ok || !nw_names_seal(&g->names, &dup)) {
        return no_memory(g->shards[0].path, err);
    }
    if (dup < g->n_tensors) {
        return nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' is in another shard too",
                       g->shards[g->tensors[dup].file].path, nw_names_at(&g->names, dup));
    }
    return NW_OK;
}

static nw_gguf *new_gguf(uint32_t n_shards)
{
    nw_gguf *g = calloc(1, sizeof *g);

    if (g != NULL) {
        g->shards = calloc(n_shards, sizeof *g->shards);
        g->n_shards = n_shards;
        if (g->shards == NULL) {
            free(g);
            return NULL;
        }
    }
    return g;
}

nw_status nw_gguf_read(const char *name, const uint8_t *bytes, size_t n, nw_gguf **out,
                       nw_error *err)
{
    nw_gguf *g = new_gguf(1);
    uint64_t count = 0;

    if (g == NULL) {
        return no_memory(name, err);
    }
    g->shards[0] = (nw_gguf_shard){.path = name, .data = bytes, .size = n};
    nw_status st = nw_gguf_shard_parse(&g->shards[0], err);
    if (st == NW_OK) {
        st = split_value(&g->shards[0], "split.count", 1, &count, err);
    }
    if (st == NW_OK && count > 1) {
        st = nw_fail(err, NW_E_UNSUPPORTED,
                     "%s: one of %" PRIu64 " shards, the others are not given", name, count);
    }
    if (st == NW_OK) {
        st = join(g, err);
    }
    if (st != NW_OK) {
        nw_gguf_close(g);
        return st;
    }
    *out = g;
    return NW_OK;
}

static nw_status open_shard(const char *path, nw_gguf_shard *s, nw_error *err)
{
    const nw_status st = nw_file_map(path, &s->file, err);

    if (st != NW_OK) {
        return st;
    }
    s->path = s->file.path;
    s->data = s->file.data;
    s->size = s->file.size;
    return nw_gguf_shard_parse(s, err);
}

/* Moves the shard that was opened first to its place and opens the others: their names follow from
 * its own, so that no file that merely lies beside them can be taken for one. */
static nw_status open_others(nw_gguf *g, uint64_t no, uint64_t tensors_total, nw_error *err)
{
    const nw_gguf_shard first = g->shards[0];
    const size_t size = strlen(first.path) + 1;
    char *path = malloc(size);
    nw_status st = path != NULL ? NW_OK : no_memory(first.path, err);

    g->shards[0] = (nw_gguf_shard){0};
    g->shards[no] = first;
    for (uint32_t i = 0; i < g->n_shards && st == NW_OK; i++) {
        uint64_t found[3] = {0};
        if (i != no) {
            (void)snprintf(path, size, "%.*s-%05u-of-%05u.gguf", (int)(size - 1 - SUFFIX_BYTES),
                           first.path, (unsigned)(i + 1), (unsigned)g->n_shards);
            st = open_shard(path, &g->shards[i], err);
        }
        static const char *const keys[] = {"split.no", "split.count", "split.tensors.count"};
        for (size_t k = 0; k < NW_COUNT(keys) && st == NW_OK; k++) {
            st = split_value(&g->shards[i], keys[k], UINT64_MAX, &found[k], err);
        }
        if (st == NW_OK &&
            (found[0] != i || found[1] != g->n_shards || found[2] != tensors_total)) {
            st = nw_fail(err, NW_E_FORMAT,
                         "%s: not shard %u of %u of the set of %s: its split keys say otherwise",
                         g->shards[i].path, i, g->n_shards, first.path);
        }
    }
    free(path);
    return st != NW_OK ? nw_context(err, "shards of %s", first.path) : NW_OK;
}

/* Does the path end in the name of shard `no` (0-based) of `count`? */
static bool named_as_shard(const char *path, uint64_t no, uint64_t count)
{
    char suffix[64];
    const size_t len = strlen(path);

    (void)snprintf(suffix, sizeof suffix, "-%05" PRIu64 "-of-%05" PRIu64 ".gguf", no + 1, count);
    return strlen(suffix) == SUFFIX_BYTES && len > SUFFIX_BYTES &&
           strcmp(path + len - SUFFIX_BYTES, suffix) == 0;
}

/* shards[0] is the file the caller named; makes the set complete. */
static nw_status complete(nw_gguf *g, nw_error *err)
{
    const nw_gguf_shard *first = &g->shards[0];
    uint64_t no = 0;
    uint64_t count = 0;
    uint64_t total = 0;
    nw_status st = split_value(first, "split.count", 1, &count, err);

    if (st == NW_OK) {
        st = split_value(first, "split.no", 0, &no, err);
    }
    if (st == NW_OK) {
        st = split_value(first, "split.tensors.count", UINT64_MAX, &total, err);
    }
    if (st != NW_OK || count <= 1) {
        return st;
    }
    if (count > 99999 || no >= count || total == UINT64_MAX) {
        return nw_fail(err, NW_E_FORMAT,
                       "%s: shard %" PRIu64 " of %" PRIu64 ": split keys out of range or missing",
                       first->path, no, count);
    }
    if (!named_as_shard(first->path, no, count)) {
        return nw_fail(err, NW_E_FORMAT,
                       "%s: shard %" PRIu64 " of %" PRIu64 ", expected a name that ends in "
                       "-%05" PRIu64 "-of-%05" PRIu64 ".gguf",
                       first->path, no + 1, count, no + 1, count);
    }
    nw_gguf_shard *more = realloc(g->shards, (size_t)count * sizeof *more);
    if (more == NULL) {
        return no_memory(first->path, err);
    }
    memset(more + 1, 0, ((size_t)count - 1) * sizeof *more);
    g->shards = more;
    g->n_shards = (uint32_t)count;
    st = open_others(g, no, total, err);
    size_t have = 0;
    for (uint32_t i = 0; i < g->n_shards; i++) {
        have += g->shards[i].n_tensors;
    }
    if (st == NW_OK && have != total) {
        st = nw_fail(err, NW_E_FORMAT,
                     "%s: the shards hold %zu tensors, 'split.tensors.count' is %" PRIu64,
                     g->shards[0].path, have, total);
    }
    return st;
}

nw_status nw_gguf_open(const char *path, nw_gguf **out, nw_error *err)
{
    nw_gguf *g = new_gguf(1);

    if (g == NULL) {
        return no_memory(path, err);
    }
    nw_status st = open_shard(path, &g->shards[0], err);
    if (st == NW_OK) {
        st = complete(g, err);
    }
    if (st == NW_OK) {
        st = join(g, err);
    }
    if (st != NW_OK) {
        nw_gguf_close(g);
        return st;
    }
    *out = g;
    return NW_OK;
}

uint32_t nw_gguf_version(const nw_gguf *g)
{
    return g->shards[0].version;
}

const char *nw_gguf_path(const nw_gguf *g, uint32_t file)
{
    return file < g->n_shards ? g->shards[file].path : NULL;
}

const uint8_t *nw_gguf_bytes(const nw_gguf *g, uint32_t file)
{
    return file < g->n_shards ? g->shards[file].data : NULL;
}

uint32_t nw_gguf_n_files(const nw_gguf *g)
{
    return g->n_shards;
}

size_t nw_gguf_n_kv(const nw_gguf *g)
{
    return g->shards[0].n_kv;
}

const nw_gguf_kv *nw_gguf_kv_at(const nw_gguf *g, size_t i)
{
    assert(i < g->shards[0].n_kv);
    return &g->shards[0].kvs[i];
}

const nw_gguf_kv *nw_gguf_find(const nw_gguf *g, const char *key)
{
    return nw_gguf_shard_find(&g->shards[0], key);
}

size_t nw_gguf_n_tensors(const nw_gguf *g)
{
    return g->n_tensors;
}

const nw_gguf_tensor *nw_gguf_tensor_at(const nw_gguf *g, size_t i)
{
    assert(i < g->n_tensors);
    return &g->tensors[i];
}

const nw_gguf_tensor *nw_gguf_tensor_find(const nw_gguf *g, const char *name)
{
    const size_t i = nw_names_find(&g->names, name);
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

/* *kv is NULL when the key is absent; a key of another type is an error. */
static nw_status typed(const nw_gguf *g, const char *key, nw_gguf_type want, const nw_gguf_kv **kv,
                       nw_error *err)
{
    char found[24];
    char wanted[24];

    *kv = nw_gguf_find(g, key);
    if (*kv != NULL && (*kv)->type != (uint32_t)want) {
        return nw_fail(err, NW_E_FORMAT, "%s: key '%s' has type %s, expected %s",
                       nw_gguf_path(g, 0), key, nw_gguf_type_name((*kv)->type, found),
                       nw_gguf_type_name(want, wanted));
    }
    return NW_OK;
}

static nw_status missing(const nw_gguf *g, const char *key, nw_error *err)
{
    return nw_fail(err, NW_E_FORMAT, "%s: key '%s' is missing", nw_gguf_path(g, 0), key);
}

nw_status nw_gguf_opt_u32(const nw_gguf *g, const char *key, uint32_t *out, nw_error *err)
{
    const nw_gguf_kv *kv = NULL;
    const nw_status st = typed(g, key, NW_GGUF_U32, &kv, err);

    if (st == NW_OK && kv != NULL) {
        *out = nw_gguf_le32(kv->data);
    }
    return st;
}

nw_status nw_gguf_u32(const nw_gguf *g, const char *key, uint32_t *out, nw_error *err)
{
    return nw_gguf_find(g, key) == NULL ? missing(g, key, err) : nw_gguf_opt_u32(g, key, out, err);
}

nw_status nw_gguf_opt_f32(const nw_gguf *g, const char *key, float *out, nw_error *err)
{
    const nw_gguf_kv *kv = NULL;
    const nw_status st = typed(g, key, NW_GGUF_F32, &kv, err);

    if (st == NW_OK && kv != NULL) {
        *out = nw_f32_from_bits(nw_gguf_le32(kv->data));
    }
    return st;
}

nw_status nw_gguf_f32(const nw_gguf *g, const char *key, float *out, nw_error *err)
{
    return nw_gguf_find(g, key) == NULL ? missing(g, key, err) : nw_gguf_opt_f32(g, key, out, err);
}

nw_status nw_gguf_opt_bool(const nw_gguf *g, const char *key, bool *out, nw_error *err)
{
    const nw_gguf_kv *kv = NULL;
    const nw_status st = typed(g, key, NW_GGUF_BOOL, &kv, err);

    if (st == NW_OK && kv != NULL) {
        *out = kv->data[0] != 0;
    }
    return st;
}

nw_status nw_gguf_opt_str(const nw_gguf *g, const char *key, const char **s, size_t *len,
                          nw_error *err)
{
    const nw_gguf_kv *kv = NULL;
    const nw_status st = typed(g, key, NW_GGUF_STR, &kv, err);

    if (st == NW_OK && kv != NULL) {
        *s = (const char *)kv->data;
        *len = kv->n_bytes;
    }
    return st;
}

nw_status nw_gguf_str(const nw_gguf *g, const char *key, const char **s, size_t *len, nw_error *err)
{
    return nw_gguf_find(g, key) == NULL ? missing(g, key, err)
                                        : nw_gguf_opt_str(g, key, s, len, err);
}

bool nw_gguf_next_str(const nw_gguf_kv *kv, size_t *cursor, const char **s, size_t *len)
{
    if (kv->type != NW_GGUF_ARR || kv->elem_type != NW_GGUF_STR || *cursor >= kv->n_bytes) {
        return false;
    }
    *len = (size_t)nw_gguf_le64(kv->data + *cursor);
    *s = (const char *)kv->data + *cursor + 8;
    *cursor += 8 + *len;
    return true;
}
