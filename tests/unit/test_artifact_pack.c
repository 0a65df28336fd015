/* A GGUF file opened as an artifact: for every block format that has a layout of its own, each matrix is
 * in that layout and each of its values is the checkpoint's, bit for bit, with q and k in their turned
 * order; what a panel cannot hold becomes F32, what is not finite is refused by name.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "artifact/artifact.h"
#include "base/file.h"
#include "base/rng.h"
#include "gguf_bytes.h"
#include "model/checkpoint.h"
#include "table.h"
#include "tmpdir.h"

#define D 256 /* a whole block of every format */

static nw_tmpdir dir;

static int setup(void **state)
{
    (void)state;
    dir = nw_tmpdir_make();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    nw_tmpdir_remove(&dir);
    return 0;
}

static struct row {
    const char *name, *panel;
    uint32_t halves[2], n_halves; /* where a block keeps fp16 scales */
    uint32_t edge;                /* a byte of the first block of V to set ... */
    uint8_t value;                /* ... to this */
    bool f32;                     /* V cannot be held then and becomes F32 */
    const char *refused;          /* or is refused; NULL: opens */
} rows[] = {
    {"Q4_0", "int4-g32", {0}, 1, 0, 0, false, NULL},
    {"Q4_1", "int4-g32-min", {0, 2}, 2, 0, 0, false, NULL},
    {"Q5_0", "int8-g32", {0}, 1, 0, 0, false, NULL},
    {"Q5_1", "int8-g32-min", {0, 2}, 2, 0, 0, false, NULL},
    {"Q8_0", "int8-g32", {0}, 1, 0, 0, false, NULL},
    {"Q4_K", "int4-g32-k", {0, 2}, 2, 0, 0, false, NULL},
    {"Q5_K", "int8-g32-k", {0, 2}, 2, 0, 0, false, NULL},
    {"Q6_K", "int8-g16-k", {208}, 1, 0, 0, false, NULL},
    {"IQ4_NL", "int8-g32", {0}, 1, 0, 0, false, NULL},
    {"MXFP4", "mxfp4", {0}, 0, 0, 100, false, NULL},
    {"NVFP4", "nvfp4", {0}, 0, 0, 0x7F, false, NULL},
    {"NVFP4", "nvfp4", {0}, 0, 1, 0xFF, true, NULL}, /* 480, which is no E4M3 */
    {"Q4_0", "int4-g32", {0}, 1, 1, 0x7C, false, "v_proj"},
    {"MXFP4", "mxfp4", {0}, 0, 0, 254, false, "v_proj"},
};

static const gb_tiny_tensor tensors[] = {
    {"token_embd.weight", D, 5},        {"output_norm.weight", D, 0},
    {"blk.0.attn_norm.weight", D, 0},   {"blk.0.attn_q.weight", D, D},
    {"blk.0.attn_k.weight", D, 128},    {"blk.0.attn_v.weight", D, 128},
    {"blk.0.attn_output.weight", D, D}, {"blk.0.ffn_norm.weight", D, 0},
    {"blk.0.ffn_gate.weight", D, D},    {"blk.0.ffn_up.weight", D, D},
    {"blk.0.ffn_down.weight", D, D},    {"blk.0.attn_q.scale", 1, 0},
};

static void put_keys(nw_buf *b)
{
    gb_kv_str(b, "general.architecture", "llama");
    gb_kv_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5F);
    gb_kv_u32(b, "llama.block_count", 1);
    gb_kv_u32(b, "llama.context_length", 32);
    gb_kv_u32(b, "llama.embedding_length", D);
    gb_kv_u32(b, "llama.feed_forward_length", D);
    gb_kv_u32(b, "llama.attention.head_count", 2);
    gb_kv_u32(b, "llama.attention.head_count_kv", 1);
}

/* Random blocks with finite scales. */
static void put_blocks(nw_buf *b, const struct row *r, const nw_format *f, uint64_t n_blocks,
                       bool edge, nw_rng *rng)
{
    uint8_t block[256];

    for (uint64_t i = 0; i < n_blocks; i++) {
        for (uint32_t k = 0; k < f->block_bytes; k++) {
            block[k] = (uint8_t)nw_rng_below(rng, 256);
        }
        for (uint32_t h = 0; h < r->n_halves; h++) {
            block[r->halves[h] + 1] &= 0xBFU;
        }
        for (uint32_t s = 0; r->n_halves == 0 && s < 4; s++) {
            block[s] &= 0x7EU; /* E8M0, or four E4M3 */
        }
        if (edge && i == 0 && r->value != 0) {
            block[r->edge] = r->value;
        }
        (void)nw_buf_add(b, block, f->block_bytes);
    }
}

/* Norms are F32 ones; the q matrix of NVFP4 has a scale beside it. */
static void write_model(const struct row *r, const char *path)
{
    const nw_format *f = nw_format_by_name(r->name);
    const size_t n = NW_COUNT(tensors) - (strcmp(r->name, "NVFP4") == 0 ? 0 : 1);
    nw_rng rng = nw_rng_seed(9);
    nw_error err = {0};
    uint64_t offset = 0;
    nw_buf b;

    nw_buf_init(&b, 1 << 24);
    gb_head(&b, 3, n, 8);
    put_keys(&b);
    for (size_t i = 0; i < n; i++) {
        const gb_tiny_tensor *t = &tensors[i];
        const uint64_t blocks = t->cols * t->rows / f->block_elems;
        const uint64_t bytes = t->rows == 0 ? t->cols * 4 : blocks * f->block_bytes;
        gb_info(&b, t->name, t->rows == 0 ? 1 : 2, (uint64_t[]){t->cols, t->rows},
                t->rows == 0 ? 0 : (uint32_t)f->ggml_type, offset);
        offset += (bytes + 31) / 32 * 32;
    }
    gb_pad(&b, 32);
    for (size_t i = 0; i < n; i++) {
        const gb_tiny_tensor *t = &tensors[i];
        for (uint64_t k = 0; t->rows == 0 && k < t->cols; k++) {
            gb_u32(&b, nw_f32_bits(0.75F));
        }
        put_blocks(&b, r, f, t->cols * t->rows / f->block_elems, strstr(t->name, "attn_v") != NULL,
                   &rng);
        gb_pad(&b, 32);
    }
    assert_int_equal(nw_file_write(path, b.data, b.len, &err), NW_OK);
    nw_buf_release(&b);
}

static void check_matrix(const nw_artifact *a, const nw_checkpoint *c, const nw_ckpt_tensor *t,
                         const char *panel)
{
    const nw_artifact_matrix *m = nw_artifact_get_matrix(a, t->role, t->layer);
    nw_error err = {0};
    char name[32];
    float want[D];
    float got[D];

    assert_non_null(m);
    assert_string_equal(nw_panel_name(m->type, name), panel);
    for (uint32_t r = 0; r < t->n_rows; r++) {
        assert_int_equal(nw_checkpoint_read_f32(c, t, r, 1, want, &err), NW_OK);
        nw_panel_unpack_row(m->type, m->data, m->n_cols, r, got);
        assert_memory_equal(got, want, sizeof want);
    }
}

static void panels_hold_the_values_of_the_file(void **state)
{
    const struct row *r = *state;
    nw_artifact *a = NULL;
    nw_checkpoint *c = NULL;
    nw_error err = {0};
    char path[512];

    write_model(r, nw_tmpdir_file(&dir, "model.gguf", path, sizeof path));
    const nw_status st = nw_artifact_open(path, &a, &err);
    if (r->refused != NULL) {
        assert_int_equal(st, NW_E_FORMAT);
        assert_non_null(strstr(err.message, r->refused));
        assert_non_null(strstr(err.message, "not finite in row 0"));
        return;
    }
    assert_int_equal(st, NW_OK);
    assert_int_equal(nw_checkpoint_open(path, &c, &err), NW_OK);
    for (size_t i = 0; i < nw_checkpoint_n_tensors(c); i++) {
        const nw_ckpt_tensor *t = nw_checkpoint_at(c, i);
        if (!nw_role_is_vector(t->role)) {
            check_matrix(a, c, t, r->f32 && t->role == NW_ROLE_V ? "f32" : r->panel);
        }
    }
    nw_artifact_close(a);
    nw_checkpoint_close(c);
}

int main(void)
{
    (void)setup(NULL);
    const int failed = NW_RUN_TABLE("formats", rows, panels_hold_the_values_of_the_file);
    (void)teardown(NULL);
    return failed;
}
