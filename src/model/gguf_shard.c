/* Parses one GGUF file. Every count and length is held against the bytes left in the file before it
 * is multiplied, allocated or skipped; after a successful parse nothing downstream has to check
 * again. A fixed-size array costs one comparison, an array of strings one a string.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/gguf_shard.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MIN_KV_BYTES     14 /* key length, one byte of key, type, one byte of value */
#define MIN_TENSOR_BYTES 25 /* name length, one byte of name, n_dims, type, offset */
#define MAX_LENGTH       ((uint64_t)1 << 30) /* of strings and arrays, as llama.cpp */
#define MAX_TENSOR_NAME  63
#define MAX_DIMS         4
#define DEFAULT_ALIGN    32
#define SHOW             96 /* bytes of a name in a message */

typedef struct {
    const char *path;
    const uint8_t *start, *p;
    size_t left;
} cursor;

/* Bytes of one item; 0: of variable size (strings, arrays). */
static const uint8_t type_bytes[NW_GGUF_TYPE_COUNT] = {
    [NW_GGUF_U8] = 1,  [NW_GGUF_I8] = 1,  [NW_GGUF_U16] = 2, [NW_GGUF_I16] = 2,
    [NW_GGUF_U32] = 4, [NW_GGUF_I32] = 4, [NW_GGUF_F32] = 4, [NW_GGUF_BOOL] = 1,
    [NW_GGUF_U64] = 8, [NW_GGUF_I64] = 8, [NW_GGUF_F64] = 8,
};

static size_t offset_of(const cursor *c)
{
    return (size_t)(c->p - c->start);
}

/* NULL when fewer than n bytes are left. */
static const uint8_t *take(cursor *c, size_t n)
{
    const uint8_t *p = c->p;

    if (n > c->left) {
        return NULL;
    }
    c->p += n;
    c->left -= n;
    return p;
}

static nw_status cut_short(const cursor *c, const char *what, nw_error *err)
{
    return nw_fail(err, NW_E_FORMAT, "%s: the file ends at byte %zu, inside %s", c->path,
                   offset_of(c) + c->left, what);
}

static nw_status take_u32(cursor *c, const char *what, uint32_t *out, nw_error *err)
{
    const uint8_t *p = take(c, 4);

    if (p == NULL) {
        return cut_short(c, what, err);
    }
    *out = nw_gguf_le32(p);
    return NW_OK;
}

static nw_status take_u64(cursor *c, const char *what, uint64_t *out, nw_error *err)
{
    const uint8_t *p = take(c, 8);

    if (p == NULL) {
        return cut_short(c, what, err);
    }
    *out = nw_gguf_le64(p);
    return NW_OK;
}

static nw_status take_string(cursor *c, const char *what, const uint8_t **s, size_t *len,
                             nw_error *err)
{
    uint64_t n = 0;
    const nw_status st = take_u64(c, what, &n, err);

    if (st != NW_OK) {
        return st;
    }
    if (n > c->left || n > MAX_LENGTH) {
        return nw_fail(err, NW_E_FORMAT,
                       "%s: %s of %" PRIu64 " bytes at byte %zu, %zu bytes are left in the file",
                       c->path, what, n, offset_of(c), c->left);
    }
    *s = take(c, (size_t)n);
    *len = (size_t)n;
    return NW_OK;
}

/* A key or a tensor name: not empty, no NUL. */
static nw_status take_name(cursor *c, const char *what, const uint8_t **s, size_t *len,
                           nw_error *err)
{
    const size_t at = offset_of(c);
    const nw_status st = take_string(c, what, s, len, err);

    if (st != NW_OK) {
        return st;
    }
    if (*len == 0 || memchr(*s, 0, *len) != NULL) {
        return nw_fail(err, NW_E_FORMAT, "%s: %s at byte %zu %s", c->path, what, at,
                       *len == 0 ? "is empty" : "holds a NUL byte");
    }
    return NW_OK;
}

static nw_status skip_strings(cursor *c, uint64_t n, nw_error *err)
{
    for (uint64_t i = 0; i < n; i++) {
        const uint8_t *s = NULL;
        size_t len = 0;
        const nw_status st = take_string(c, "a string of an array", &s, &len, err);
        if (st != NW_OK) {
            return st;
        }
    }
    return NW_OK;
}

/* The key is named by read_kv. */
static nw_status read_array(cursor *c, nw_gguf_kv *kv, nw_error *err)
{
    char type[24];
    nw_status st = take_u32(c, "an array", &kv->elem_type, err);

    if (st == NW_OK) {
        st = take_u64(c, "an array", &kv->n, err);
    }
    if (st != NW_OK) {
        return st;
    }
    if (kv->elem_type >= NW_GGUF_TYPE_COUNT || kv->elem_type == NW_GGUF_ARR) {
        return nw_fail(err, NW_E_FORMAT, "array of %s, which cannot be read",
                       kv->elem_type == NW_GGUF_ARR ? "arrays"
                                                    : nw_gguf_type_name(kv->elem_type, type));
    }
    const bool strings = kv->elem_type == NW_GGUF_STR;
    const size_t item = strings ? 8 : type_bytes[kv->elem_type];
    if (kv->n > MAX_LENGTH || kv->n > c->left / item) {
        return nw_fail(err, NW_E_FORMAT, "array of %" PRIu64 " %s, %zu bytes are left in the file",
                       kv->n, nw_gguf_type_name(kv->elem_type, type), c->left);
    }
    kv->data = c->p;
    if (strings) {
        st = skip_strings(c, kv->n, err);
    } else {
        (void)take(c, (size_t)kv->n * item);
    }
    kv->n_bytes = (size_t)(c->p - kv->data);
    return st;
}

static nw_status read_value(cursor *c, nw_gguf_kv *kv, nw_error *err)
{
    char type[24];

    if (kv->type == NW_GGUF_ARR) {
        return read_array(c, kv, err);
    }
    kv->elem_type = kv->type;
    kv->n = 1;
    if (kv->type == NW_GGUF_STR) {
        return take_string(c, "a string", &kv->data, &kv->n_bytes, err);
    }
    if (kv->type >= NW_GGUF_TYPE_COUNT) {
        return nw_fail(err, NW_E_FORMAT, "unknown value type %s",
                       nw_gguf_type_name(kv->type, type) + strlen("type "));
    }
    kv->n_bytes = type_bytes[kv->type];
    kv->data = take(c, kv->n_bytes);
    return kv->data != NULL ? NW_OK : cut_short(c, "a value", err);
}

static nw_status no_memory(const char *path, nw_error *err)
{
    return nw_fail(err, NW_E_NOMEM, "%s: no memory for its tables", path);
}

static nw_status read_kv(nw_gguf_shard *s, cursor *c, nw_error *err)
{
    const uint8_t *key = NULL;
    size_t len = 0;
    char shown[SHOW];
    nw_gguf_kv *kv = &s->kvs[s->n_kv];
    nw_status st = take_name(c, "a key", &key, &len, err);

    if (st == NW_OK) {
        st = take_u32(c, "the type of a key", &kv->type, err);
    }
    if (st != NW_OK) {
        return st;
    }
    if (read_value(c, kv, err) != NW_OK) {
        return nw_context(err, "%s: key '%s'", c->path,
                          nw_name_show((const char *)key, len, shown, sizeof shown));
    }
    s->n_kv++;
    return nw_names_add(&s->keys, (const char *)key, len) ? NW_OK : no_memory(s->path, err);
}

static nw_status duplicate(const nw_gguf_shard *s, const char *what, const char *name,
                           nw_error *err)
{
    char shown[SHOW];
    return nw_fail(err, NW_E_FORMAT, "%s: %s '%s' occurs twice", s->path, what,
                   nw_name_show(name, strlen(name), shown, sizeof shown));
}

static nw_status read_kvs(nw_gguf_shard *s, cursor *c, uint64_t n, nw_error *err)
{
    size_t dup = 0;

    if (n > c->left / MIN_KV_BYTES) {
        return nw_fail(err, NW_E_FORMAT, "%s: %" PRIu64 " keys announced, %zu bytes are left",
                       s->path, n, c->left);
    }
    s->kvs = calloc((size_t)n + 1, sizeof *s->kvs);
    if (s->kvs == NULL) {
        return no_memory(s->path, err);
    }
    for (uint64_t i = 0; i < n; i++) {
        const nw_status st = read_kv(s, c, err);
        if (st != NW_OK) {
            return st;
        }
    }
    if (!nw_names_seal(&s->keys, &dup)) {
        return no_memory(s->path, err);
    }
    if (dup < s->n_kv) {
        return duplicate(s, "key", nw_names_at(&s->keys, dup), err);
    }
    for (size_t i = 0; i < s->n_kv; i++) {
        s->kvs[i].key = nw_names_at(&s->keys, i);
    }
    return NW_OK;
}

/* n_elems and n_bytes from dims and type; the tensor is named by the caller. A dim of 0 makes an
 * empty tensor; nothing is ever divided by a dim. */
static nw_status size_tensor(nw_gguf_tensor *t, uint32_t type, nw_error *err)
{
    const nw_format *f = nw_format_by_ggml(type <= INT32_MAX ? (int32_t)type : -1);
    size_t n = 1;
    bool empty = false;

    if (f == NULL) {
        return nw_fail(err, NW_E_FORMAT, "type %" PRId64 " is unknown or removed",
                       type <= INT32_MAX ? (int64_t)type : (int64_t)type - ((int64_t)1 << 32));
    }
    for (uint32_t d = 0; d < t->n_dims; d++) {
        empty = empty || t->ne[d] == 0;
        if (t->ne[d] != 0 && (!nw_size_mul(n, (size_t)t->ne[d], &n) || n > INT64_MAX)) {
            return nw_fail(err, NW_E_FORMAT,
                           "dims %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
                           " make more than 2^63 elements",
                           t->ne[0], t->ne[1], t->ne[2], t->ne[3]);
        }
    }
    if (t->ne[0] % f->block_elems != 0) {
        return nw_fail(err, NW_E_FORMAT, "%" PRIu64 " columns, %s needs a multiple of %" PRIu32,
                       t->ne[0], f->name, f->block_elems);
    }
    t->format = f->id;
    t->n_elems = empty ? 0 : n;
    if (!nw_format_bytes(f, t->n_elems, &t->n_bytes)) {
        return nw_fail(err, NW_E_FORMAT, "%" PRIu64 " elements of %s overflow a size", t->n_elems,
                       f->name);
    }
    return NW_OK;
}

static nw_status read_dims(cursor *c, nw_gguf_tensor *t, nw_error *err)
{
    nw_status st = take_u32(c, "the dims of a tensor", &t->n_dims, err);

    if (st == NW_OK && t->n_dims > MAX_DIMS) {
        return nw_fail(err, NW_E_FORMAT, "%" PRIu32 " dims, at most %d are allowed", t->n_dims,
                       MAX_DIMS);
    }
    for (uint32_t d = 0; d < MAX_DIMS && st == NW_OK; d++) {
        t->ne[d] = 1;
        if (d < t->n_dims) {
            st = take_u64(c, "the dims of a tensor", &t->ne[d], err);
        }
    }
    return st;
}

/* *end is the running sum of padded sizes: where this tensor has to start. */
static nw_status read_info(cursor *c, nw_gguf_tensor *t, size_t align, size_t *end, nw_error *err)
{
    uint32_t type = 0;
    uint64_t offset = 0;
    size_t next = 0;
    nw_status st = read_dims(c, t, err);

    if (st == NW_OK) {
        st = take_u32(c, "the type of a tensor", &type, err);
    }
    if (st == NW_OK) {
        st = take_u64(c, "the offset of a tensor", &offset, err);
    }
    if (st == NW_OK) {
        st = size_tensor(t, type, err);
    }
    if (st != NW_OK) {
        return st;
    }
    if (offset != *end) {
        return nw_fail(err, NW_E_FORMAT,
                       "offset %" PRIu64 ", expected %zu: the sum of the sizes before it", offset,
                       *end);
    }
    if (!nw_size_add(*end, t->n_bytes, &next) || !nw_size_add(next, align - 1, &next)) {
        return nw_fail(err, NW_E_FORMAT, "%zu bytes at offset %" PRIu64 " overflow a size",
                       t->n_bytes, offset);
    }
    *end = next - next % align;
    return NW_OK;
}

static nw_status read_tensor(nw_gguf_shard *s, cursor *c, size_t align, size_t *end, nw_error *err)
{
    const uint8_t *name = NULL;
    size_t len = 0;
    char shown[SHOW];
    const nw_status st = take_name(c, "a tensor name", &name, &len, err);

    if (st != NW_OK) {
        return st;
    }
    (void)nw_name_show((const char *)name, len, shown, sizeof shown);
    if (len > MAX_TENSOR_NAME) {
        return nw_fail(err, NW_E_FORMAT,
                       "%s: tensor name '%s' of %zu bytes, at most %d are allowed", s->path, shown,
                       len, MAX_TENSOR_NAME);
    }
    if (read_info(c, &s->tensors[s->n_tensors], align, end, err) != NW_OK) {
        return nw_context(err, "%s: tensor '%s'", s->path, shown);
    }
    s->n_tensors++;
    return nw_names_add(&s->tensor_names, (const char *)name, len) ? NW_OK
                                                                   : no_memory(s->path, err);
}

static nw_status read_tensors(nw_gguf_shard *s, cursor *c, uint64_t n, size_t align, nw_error *err)
{
    size_t end = 0;
    size_t dup = 0;

    if (n > c->left / MIN_TENSOR_BYTES) {
        return nw_fail(err, NW_E_FORMAT, "%s: %" PRIu64 " tensors announced, %zu bytes are left",
                       s->path, n, c->left);
    }
    s->tensors = calloc((size_t)n + 1, sizeof *s->tensors);
    if (s->tensors == NULL) {
        return no_memory(s->path, err);
    }
    for (uint64_t i = 0; i < n; i++) {
        const nw_status st = read_tensor(s, c, align, &end, err);
        if (st != NW_OK) {
            return st;
        }
    }
    if (!nw_names_seal(&s->tensor_names, &dup)) {
        return no_memory(s->path, err);
    }
    return dup < s->n_tensors ? duplicate(s, "tensor", nw_names_at(&s->tensor_names, dup), err)
                              : NW_OK;
}

static size_t padded(size_t n_bytes, size_t align)
{
    return n_bytes +
           (align - n_bytes % align) % align; /* sums of these were checked by read_info */
}

/* Where the data of the last tensor ends. The padding after it may be missing: writers leave it
 * out. */
static size_t data_end(const nw_gguf_shard *s, size_t align)
{
    size_t end = 0;
    size_t at = 0;

    for (size_t i = 0; i < s->n_tensors; i++) {
        const size_t n = s->tensors[i].n_bytes;
        end = n > 0 ? at + n : end;
        at += padded(n, align);
    }
    return end;
}

/* The infos are sound and offsets are running sums; here they meet the data that is really there. */
static nw_status place_tensors(nw_gguf_shard *s, const cursor *c, size_t align, nw_error *err)
{
    const size_t pad = padded(offset_of(c), align) - offset_of(c);
    const size_t have = pad <= c->left ? c->left - pad : 0;
    const size_t end = data_end(s, align);
    size_t at = 0;

    for (size_t i = 0; i < s->n_tensors; i++) {
        nw_gguf_tensor *t = &s->tensors[i];
        t->name = nw_names_at(&s->tensor_names, i);
        if (t->n_bytes > 0 && (at > have || t->n_bytes > have - at)) {
            char shown[SHOW];
            return nw_fail(err, NW_E_FORMAT,
                           "%s: tensor '%s' is cut off: the data section needs %zu bytes and has "
                           "%zu, %zu bytes are missing",
                           s->path, nw_name_show(t->name, strlen(t->name), shown, sizeof shown),
                           end, have, end - have);
        }
        t->data = t->n_bytes > 0 ? c->p + pad + at : NULL;
        at += padded(t->n_bytes, align);
    }
    return NW_OK;
}

static nw_status alignment(const nw_gguf_shard *s, size_t *align, nw_error *err)
{
    const nw_gguf_kv *kv = nw_gguf_shard_find(s, "general.alignment");
    char type[24];

    *align = DEFAULT_ALIGN;
    if (kv == NULL) {
        return NW_OK;
    }
    if (kv->type != NW_GGUF_U32) {
        return nw_fail(err, NW_E_FORMAT, "%s: key 'general.alignment' has type %s, expected u32",
                       s->path, nw_gguf_type_name(kv->type, type));
    }
    const uint32_t a = nw_gguf_le32(kv->data);
    if (a == 0 || (a & (a - 1)) != 0) {
        return nw_fail(err, NW_E_FORMAT,
                       "%s: key 'general.alignment' is %" PRIu32 ", expected a power of two",
                       s->path, a);
    }
    *align = a;
    return NW_OK;
}

static nw_status read_head(nw_gguf_shard *s, cursor *c, uint64_t *n_tensors, uint64_t *n_kv,
                           nw_error *err)
{
    const uint8_t *magic = take(c, 4);

    if (magic == NULL || memcmp(magic, "GGUF", 4) != 0) {
        return nw_fail(err, NW_E_FORMAT, "%s: does not begin with \"GGUF\"", s->path);
    }
    nw_status st = take_u32(c, "the header", &s->version, err);
    if (st != NW_OK) {
        return st;
    }
    if (s->version != 2 && s->version != 3) {
        const bool swapped = s->version == 0x03000000U || s->version == 0x02000000U;
        return nw_fail(err, NW_E_UNSUPPORTED, "%s: GGUF version %" PRIu32 "%s, expected 2 or 3",
                       s->path, s->version, swapped ? " (a big-endian file)" : "");
    }
    st = take_u64(c, "the header", n_tensors, err);
    return st == NW_OK ? take_u64(c, "the header", n_kv, err) : st;
}

nw_status nw_gguf_shard_parse(nw_gguf_shard *s, nw_error *err)
{
    cursor c = {.path = s->path, .start = s->data, .p = s->data, .left = s->size};
    uint64_t n_tensors = 0;
    uint64_t n_kv = 0;
    size_t align = 0;
    nw_status st = read_head(s, &c, &n_tensors, &n_kv, err);

    if (st == NW_OK) {
        st = read_kvs(s, &c, n_kv, err);
    }
    if (st == NW_OK) {
        st = alignment(s, &align, err);
    }
    if (st == NW_OK) {
        st = read_tensors(s, &c, n_tensors, align, err);
    }
    return st == NW_OK ? place_tensors(s, &c, align, err) : st;
}

void nw_gguf_shard_release(nw_gguf_shard *s)
{
    nw_names_release(&s->keys);
    nw_names_release(&s->tensor_names);
    free(s->kvs);
    free(s->tensors);
    nw_file_unmap(&s->file);
    *s = (nw_gguf_shard){0};
}

const nw_gguf_kv *nw_gguf_shard_find(const nw_gguf_shard *s, const char *key)
{
    const size_t i = nw_names_find(&s->keys, key);
    return i < s->n_kv ? &s->kvs[i] : NULL;
}
