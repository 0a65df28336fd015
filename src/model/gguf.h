/* GGUF reader, versions 2 and 3, one file or a split set (any shard is an entry). Hostile bytes in;
 * out come tables whose every pointer lies inside a mapping. Memory is bounded by a small multiple
 * of the metadata actually present; nothing is allocated from a count or a length before it was
 * held against the bytes left in the file.
 *
 *   "GGUF" | u32 version | u64 n_tensors | u64 n_kv | kv... | tensor infos... | pad | data
 *   string = u64 length, bytes; kv = string key, u32 type, value; array = u32 type, u64 n, items
 *   info   = string name, u32 n_dims, u64 ne[n_dims] (ne[0] = columns), u32 type, u64 offset
 *
 * Refused: what llama.cpp's reader refuses (offsets that are not the running sum of padded sizes,
 * duplicate names, nested arrays, alignment that is no power of two, data past the end), by name.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_MODEL_GGUF_H
#define NW_MODEL_GGUF_H

#include "base/hash.h"
#include "formats/format.h"

typedef struct nw_gguf nw_gguf;

typedef enum {
    NW_GGUF_U8,
    NW_GGUF_I8,
    NW_GGUF_U16,
    NW_GGUF_I16,
    NW_GGUF_U32,
    NW_GGUF_I32,
    NW_GGUF_F32,
    NW_GGUF_BOOL,
    NW_GGUF_STR,
    NW_GGUF_ARR,
    NW_GGUF_U64,
    NW_GGUF_I64,
    NW_GGUF_F64,
    NW_GGUF_TYPE_COUNT
} nw_gguf_type;

/* A scalar: n = 1, data = its little-endian bytes. A string: n = 1, data = its bytes (no NUL),
 * n_bytes = its length. An array: n items of elem_type, data = the first item (for strings: the
 * u64 length of the first), n_bytes = all of them. Views die with the nw_gguf. */
typedef struct {
    const char *key;          /* NUL-terminated */
    uint32_t type, elem_type; /* nw_gguf_type; elem_type = type unless an array */
    uint64_t n;
    const uint8_t *data; /* unaligned */
    size_t n_bytes;
} nw_gguf_kv;

typedef struct {
    const char *name; /* NUL-terminated, at most 63 bytes */
    nw_format_id format;
    uint32_t n_dims;  /* 0..4 */
    uint64_t ne[4];   /* ne[0] = columns; 1 from n_dims on */
    uint64_t n_elems; /* product */
    size_t n_bytes;
    const uint8_t *data; /* inside the mapping; NULL when n_bytes is 0 */
    uint32_t file;       /* index of the shard that holds it */
} nw_gguf_tensor;

/* On failure *out is untouched. */
NW_MUST_USE nw_status nw_gguf_open(const char *path, nw_gguf **out, nw_error *err);
/* One file that is in memory already: bytes are borrowed until close; `name` stands in messages.
 * A split file is refused: its other shards are not there. */
NW_MUST_USE nw_status nw_gguf_read(const char *name, const uint8_t *bytes, size_t n, nw_gguf **out,
                                   nw_error *err);
void nw_gguf_close(nw_gguf *g);

uint32_t nw_gguf_version(const nw_gguf *g);
const char *nw_gguf_path(const nw_gguf *g, uint32_t file); /* as opened; NULL from n_files on */
const uint8_t *nw_gguf_bytes(const nw_gguf *g,
                             uint32_t file); /* of the whole file; NULL likewise */
uint32_t nw_gguf_n_files(const nw_gguf *g);

size_t nw_gguf_n_kv(const nw_gguf *g);
const nw_gguf_kv *nw_gguf_kv_at(const nw_gguf *g, size_t i);
const nw_gguf_kv *nw_gguf_find(const nw_gguf *g, const char *key); /* NULL: absent */

size_t nw_gguf_n_tensors(const nw_gguf *g);
const nw_gguf_tensor *nw_gguf_tensor_at(const nw_gguf *g, size_t i); /* file order */
const nw_gguf_tensor *nw_gguf_tensor_find(const nw_gguf *g, const char *name);

/* Strict: a u32 key written as u64 or i32 is an error, as it is for llama.cpp. The opt forms leave
 * *out untouched when the key is absent. */
NW_MUST_USE nw_status nw_gguf_u32(const nw_gguf *g, const char *key, uint32_t *out, nw_error *err);
NW_MUST_USE nw_status nw_gguf_opt_u32(const nw_gguf *g, const char *key, uint32_t *out,
                                      nw_error *err);
NW_MUST_USE nw_status nw_gguf_f32(const nw_gguf *g, const char *key, float *out, nw_error *err);
NW_MUST_USE nw_status nw_gguf_opt_f32(const nw_gguf *g, const char *key, float *out, nw_error *err);
NW_MUST_USE nw_status nw_gguf_opt_bool(const nw_gguf *g, const char *key, bool *out, nw_error *err);
/* *s is not NUL-terminated and may hold any bytes. */
NW_MUST_USE nw_status nw_gguf_str(const nw_gguf *g, const char *key, const char **s, size_t *len,
                                  nw_error *err);
NW_MUST_USE nw_status nw_gguf_opt_str(const nw_gguf *g, const char *key, const char **s,
                                      size_t *len, nw_error *err);

/* Walks an array of strings: *cursor starts at 0 and is a byte position; false at the end. O(1) a
 * step: lengths were checked when the file was opened. */
bool nw_gguf_next_str(const nw_gguf_kv *kv, size_t *cursor, const char **s, size_t *len);

/* "u32", "str", "arr"; "type 77" for a value out of range, written into buf. */
const char *nw_gguf_type_name(uint32_t type, char buf[24]);

#endif
