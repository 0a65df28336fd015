/* Builds GGUF files byte by byte, sound or broken on purpose: the writing side of the format as the
 * specification has it, independent of the reader under test.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_GGUF_BYTES_H
#define NW_TESTS_GGUF_BYTES_H

#include <string.h>

#include "base/buf.h"
#include "formats/half.h"
#include "model/gguf.h"

static inline void gb_u32(nw_buf *b, uint32_t v)
{
    const uint8_t p[4] = {(uint8_t)(v & 255), (uint8_t)(v >> 8 & 255), (uint8_t)(v >> 16 & 255),
                          (uint8_t)(v >> 24)};
    (void)nw_buf_add(b, p, sizeof p);
}

static inline void gb_u64(nw_buf *b, uint64_t v)
{
    gb_u32(b, (uint32_t)(v & UINT32_MAX));
    gb_u32(b, (uint32_t)(v >> 32));
}

static inline void gb_str(nw_buf *b, const char *s)
{
    gb_u64(b, strlen(s));
    (void)nw_buf_add(b, s, strlen(s));
}

static inline void gb_head(nw_buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_kv)
{
    (void)nw_buf_add(b, "GGUF", 4);
    gb_u32(b, version);
    gb_u64(b, n_tensors);
    gb_u64(b, n_kv);
}

static inline void gb_key(nw_buf *b, const char *key, uint32_t type)
{
    gb_str(b, key);
    gb_u32(b, type);
}

static inline void gb_kv_u32(nw_buf *b, const char *key, uint32_t v)
{
    gb_key(b, key, NW_GGUF_U32);
    gb_u32(b, v);
}

static inline void gb_kv_f32(nw_buf *b, const char *key, float v)
{
    gb_key(b, key, NW_GGUF_F32);
    gb_u32(b, nw_f32_bits(v));
}

static inline void gb_kv_str(nw_buf *b, const char *key, const char *v)
{
    gb_key(b, key, NW_GGUF_STR);
    gb_str(b, v);
}

/* The head of an array; the items follow. */
static inline void gb_kv_arr(nw_buf *b, const char *key, uint32_t elem_type, uint64_t n)
{
    gb_key(b, key, NW_GGUF_ARR);
    gb_u32(b, elem_type);
    gb_u64(b, n);
}

static inline void gb_info(nw_buf *b, const char *name, uint32_t n_dims, const uint64_t *ne,
                           uint32_t type, uint64_t offset)
{
    gb_str(b, name);
    gb_u32(b, n_dims);
    for (uint32_t d = 0; d < n_dims && d < 8; d++) {
        gb_u64(b, ne[d]);
    }
    gb_u32(b, type);
    gb_u64(b, offset);
}

static inline void gb_pad(nw_buf *b, size_t alignment)
{
    while (b->len % alignment != 0) {
        (void)nw_buf_add(b, "", 1);
    }
}

static inline void gb_zeros(nw_buf *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        (void)nw_buf_add(b, "", 1);
    }
}

/* ---- a tiny llama: 1 layer, d_model 8, 2 heads of 4, 1 key-value head, d_ff 16, 5 tokens ---- */
typedef struct {
    const char *drop;    /* tensor left out; NULL: none */
    const char *key;     /* key to replace ... */
    uint32_t value;      /* ... by this u32 */
    bool extra_layer;    /* a tensor blk.1.attn_q.weight although block_count is 1 */
    const char *extra;   /* another tensor; NULL: none */
    uint64_t extra_cols; /* its values; 0: 8 */
    uint64_t q_rows;     /* rows of blk.0.attn_q.weight; 0: 8 */
    size_t cut;          /* bytes missing at the end */
} gb_tiny;

typedef struct {
    const char *name;
    uint64_t cols, rows; /* rows 0: a vector */
} gb_tiny_tensor;

#define GB_TINY_TENSORS 11

static inline const gb_tiny_tensor *gb_tiny_tensors(void)
{
    static const gb_tiny_tensor t[GB_TINY_TENSORS] = {
        {"token_embd.weight", 8, 5},        {"output_norm.weight", 8, 0},
        {"blk.0.attn_norm.weight", 8, 0},   {"blk.0.attn_q.weight", 8, 8},
        {"blk.0.attn_k.weight", 8, 4},      {"blk.0.attn_v.weight", 8, 4},
        {"blk.0.attn_output.weight", 8, 8}, {"blk.0.ffn_norm.weight", 8, 0},
        {"blk.0.ffn_gate.weight", 8, 16},   {"blk.0.ffn_up.weight", 8, 16},
        {"blk.0.ffn_down.weight", 16, 8},
    };
    return t;
}

static inline void gb_tiny_keys(nw_buf *b, const gb_tiny *o)
{
    static const struct {
        const char *key;
        uint32_t value;
    } keys[] = {{"llama.block_count", 1},          {"llama.context_length", 32},
                {"llama.embedding_length", 8},     {"llama.feed_forward_length", 16},
                {"llama.attention.head_count", 2}, {"llama.attention.head_count_kv", 1}};

    gb_kv_str(b, "general.architecture", "llama");
    gb_kv_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5F);
    for (size_t i = 0; i < NW_COUNT(keys); i++) {
        const bool replace = o->key != NULL && strcmp(o->key, keys[i].key) == 0;
        gb_kv_u32(b, keys[i].key, replace ? o->value : keys[i].value);
    }
}

/* F32 throughout; value i of tensor t is t + i / 1024, so that any mix-up shows. */
static inline void gb_tiny_llama(nw_buf *b, const gb_tiny *o)
{
    gb_tiny_tensor t[GB_TINY_TENSORS + 2];
    size_t n = 0;
    uint64_t offset = 0;

    for (size_t i = 0; i < GB_TINY_TENSORS; i++) {
        if (o->drop == NULL || strcmp(o->drop, gb_tiny_tensors()[i].name) != 0) {
            t[n++] = gb_tiny_tensors()[i];
        }
        if (o->q_rows > 0 && n > 0 && strcmp(t[n - 1].name, "blk.0.attn_q.weight") == 0) {
            t[n - 1].rows = o->q_rows;
        }
    }
    if (o->extra_layer) {
        t[n++] = (gb_tiny_tensor){"blk.1.attn_q.weight", 8, 8};
    }
    if (o->extra != NULL) {
        t[n++] = (gb_tiny_tensor){o->extra, o->extra_cols > 0 ? o->extra_cols : 8, 0};
    }
    gb_head(b, 3, n, 8);
    gb_tiny_keys(b, o);
    for (size_t i = 0; i < n; i++) {
        const uint64_t rows = t[i].rows > 0 ? t[i].rows : 1;
        gb_info(b, t[i].name, t[i].rows > 0 ? 2 : 1, (uint64_t[]){t[i].cols, t[i].rows}, 0, offset);
        offset += t[i].cols * rows * 4;
    }
    gb_pad(b, 32);
    for (size_t i = 0; i < n; i++) {
        const uint64_t rows = t[i].rows > 0 ? t[i].rows : 1;
        for (uint64_t k = 0; k < t[i].cols * rows; k++) {
            gb_u32(b, nw_f32_bits((float)i + (float)k / 1024));
        }
    }
    b->len -= o->cut;
}

#endif
