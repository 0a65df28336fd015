/* llama2.c checkpoints, the legacy layout ("version 0"): no magic, seven integers, float32 tensors in
 * a fixed order, stacked over layers, little endian.
 *
 *   i32 dim | hidden | n_layers | n_heads | n_kv_heads | vocab (< 0: head of its own) | seq_len
 *   embedding [vocab][dim] | attn_norm [L][dim] | wq wk wv wo [L][..] | ffn_norm [L][dim]
 *   w1 [L][hidden][dim] | w2 [L][dim][hidden] | w3 [L][hidden][dim] | out_norm [dim]
 *   cos, sin tables [seq_len][head/2] each (not used) | head [vocab][dim] when vocab < 0
 *
 * Since nothing else identifies the format, the size of the file has to be exactly that of the
 * tensors. Fixed by llama2.c's code: norm epsilon 1e-5, RoPE base 10000, BOS 1, EOS 2.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/arch.h"
#include "model/gguf_shard.h"
#include "model/sources.h"

#define HEAD_BYTES 28
#define NAME_BYTES 80

static int32_t int_at(const uint8_t *bytes, size_t i)
{
    const uint32_t u = nw_gguf_le32(bytes + 4 * i);
    return (int32_t)u; /* two's complement on every target; gcc and clang define it so */
}

static nw_status read_config(const char *path, const uint8_t *bytes, size_t n, nw_model_config *c,
                             nw_error *err)
{
    *c = nw_arch_get(NW_ARCH_LLAMA)->defaults;
    if (n < HEAD_BYTES) {
        return nw_fail(err, NW_E_FORMAT, "%s: %zu bytes are too short for a checkpoint", path, n);
    }
    uint32_t *const dims[] = {&c->d_model,    &c->d_ff,    &c->n_layers, &c->n_heads,
                              &c->n_kv_heads, &c->n_vocab, &c->n_ctx};
    for (size_t i = 0; i < NW_COUNT(dims); i++) {
        const int32_t v = int_at(bytes, i);
        const bool negative_vocab = i == 5 && v < 0 && v > INT32_MIN;
        if (v <= 0 && !negative_vocab) {
            return nw_fail(
                err, NW_E_FORMAT,
                "%s: neither GGUF nor safetensors, and no llama2.c file: header word %zu "
                "is %" PRId32,
                path, i, v);
        }
        *dims[i] = (uint32_t)(negative_vocab ? -v : v);
    }
    c->tied = int_at(bytes, 5) > 0;
    c->d_head = c->d_model / c->n_heads;
    c->norm_eps = 1e-5F;
    c->rope_base_local = c->rope_base;
    c->bos = c->n_vocab > 2 ? 1 : -1;
    c->eos[0] = 2;
    c->n_eos = c->n_vocab > 2 ? 1 : 0;
    c->pad = -1;
    if (c->d_head == 0 || c->d_model % c->n_heads != 0) {
        return nw_fail(err, NW_E_FORMAT,
                       "%s: neither GGUF nor safetensors, and no llama2.c file: %" PRIu32
                       " dims in %" PRIu32 " heads",
                       path, c->d_model, c->n_heads);
    }
    c->attn_scale = 1.0F / sqrtf((float)c->d_head);
    return nw_config_check(c, path, err) == NW_OK
               ? NW_OK
               : nw_context(err, "neither GGUF nor safetensors, and no llama2.c file");
}

/* Order of the file; the two tables stand before the head. */
static const nw_role file_order[] = {
    NW_ROLE_EMBED,    NW_ROLE_ATTN_NORM, NW_ROLE_Q,    NW_ROLE_K,  NW_ROLE_V,        NW_ROLE_O,
    NW_ROLE_FFN_NORM, NW_ROLE_GATE,      NW_ROLE_DOWN, NW_ROLE_UP, NW_ROLE_OUT_NORM, NW_ROLE_HEAD};

static uint32_t copies(const nw_model_config *c, nw_role role)
{
    return role >= NW_ROLE_ATTN_NORM ? c->n_layers : 1;
}

/* Dims passed nw_config_check: the largest sum, 2^10 * (2^17 * 2^22 ...), is far below 2^64. */
static uint64_t expected_bytes(const nw_model_config *c)
{
    uint64_t n = (uint64_t)c->n_ctx * c->d_head; /* two tables of half that */

    for (size_t i = 0; i < NW_COUNT(file_order); i++) {
        const nw_role role = file_order[i];
        uint32_t rows = 0;
        uint32_t cols = 0;
        nw_role_shape(c, role, &rows, &cols);
        if (role != NW_ROLE_HEAD || !c->tied) {
            n += (uint64_t)rows * cols * copies(c, role);
        }
    }
    return HEAD_BYTES + 4 * n;
}

/* The tensors of one role, from *at on. */
static nw_status add_role(nw_llama2c *m, nw_role role, const uint8_t **at, nw_error *err)
{
    const nw_model_config *c = &m->config;

    for (uint32_t layer = 0; layer < copies(c, role); layer++) {
        nw_llama2c_tensor *t = &m->tensors[m->n_tensors];
        char name[NAME_BYTES];
        nw_role_shape(c, role, &t->n_rows, &t->n_cols);
        t->vector = nw_role_is_vector(role);
        t->n_bytes = (size_t)t->n_rows * t->n_cols * 4;
        t->data = *at;
        *at += t->n_bytes;
        if (nw_role_hf_name(c, role, (int32_t)layer, name, sizeof name)) {
            t->name = strdup(name);
        }
        if (t->name == NULL) {
            return nw_fail(err, NW_E_NOMEM, "no memory for the name of a tensor");
        }
        m->n_tensors++;
    }
    return NW_OK;
}

nw_status nw_llama2c_read(const char *path, const uint8_t *bytes, size_t n, nw_llama2c *out,
                          nw_error *err)
{
    nw_llama2c m = {0};
    const uint8_t *at = bytes + HEAD_BYTES;
    nw_status st = read_config(path, bytes, n, &m.config, err);

    if (st != NW_OK) {
        return st;
    }
    const uint64_t want = expected_bytes(&m.config);
    if (want != n) {
        return nw_fail(err, NW_E_FORMAT,
                       "%s: read as a llama2.c file it would take %" PRIu64 " bytes, it has %zu",
                       path, want, n);
    }
    m.tensors = calloc(3 + (size_t)NW_ROLE_COUNT * m.config.n_layers, sizeof *m.tensors);
    if (m.tensors == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for its tables", path);
    }
    for (size_t i = 0; i < NW_COUNT(file_order) && st == NW_OK; i++) {
        const nw_role role = file_order[i];
        if (role == NW_ROLE_HEAD) {
            at += (size_t)m.config.n_ctx * m.config.d_head * 4;
        }
        if (role != NW_ROLE_HEAD || !m.config.tied) {
            st = add_role(&m, role, &at, err);
        }
    }
    if (st != NW_OK) {
        nw_llama2c_release(&m);
        return st;
    }
    *out = m;
    return NW_OK;
}

void nw_llama2c_release(nw_llama2c *m)
{
    for (size_t i = 0; i < m->n_tensors; i++) {
        free(m->tensors[i].name);
    }
    free(m->tensors);
    *m = (nw_llama2c){0};
}
