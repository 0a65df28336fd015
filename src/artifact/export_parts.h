/* The tensors of an exported Hugging Face folder, and the writer that streams them into safetensors. A
 * matrix of codes becomes several parts (codes, scales, zero points), each laid out by one function that
 * puts a row's share of its bytes; every other tensor is one part of plain values.
 *
 *   ct_write.c, words_write.c: parts and quantization_config -> nw_export_parts_write -> folder
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_EXPORT_PARTS_H
#define NW_ARTIFACT_EXPORT_PARTS_H

#include "artifact/export.h"

typedef struct nw_export_part nw_export_part;

/* Scales of E4M3 in blocks of rows x cols, [n_down][n_across]. */
typedef struct {
    uint32_t rows, cols, n_down, n_across;
    float *scales;
} nw_block_scales;

/* Puts what row `row` of the matrix adds into the part's bytes, which were zero at first. Rows of one
 * panel of 16 are put one after the other, panels on several threads: a panel's rows may share a word,
 * rows of different panels may not. */
typedef void (*nw_export_put_fn)(const nw_export_part *p, uint32_t row, const nw_export_row *r,
                                 uint8_t *bytes);

/* Likewise of a matrix whose codes are made of its values (blocks). */
typedef void (*nw_export_put_values_fn)(const nw_export_part *p, uint32_t row, const float *values,
                                        uint8_t *bytes);

struct nw_export_part {
    char name[192];
    nw_format_id format;
    uint32_t n_dims;
    uint64_t dims[3];
    const nw_export_tensor *tensor;
    const float *numbers;               /* NULL, or the part is these F32 numbers */
    nw_export_put_fn put;               /* NULL: the tensor's values in `format` */
    nw_export_put_values_fn put_values; /* or this one */
    unsigned bits;                      /* of a code */
    uint32_t scale_rows;           /* rows whose scales are written: all, or 1 for the tensor */
    bool groups_first;             /* scales are [group][row] */
    nw_format_id scale_format;     /* of the matrix's scales: F32, F16, BF16, F8_E4M3 or F8_E8M0 */
    float global;                  /* NVFP4: the divisor; 1 otherwise */
    nw_act_fixed act;              /* of the matrix's input */
    const nw_block_scales *blocks; /* E4M3 in blocks: put_values in place of put */
    const char *to;       /* what the loss report calls the type; NULL: of a part beside it */
    const char *fallback; /* nw_loss_tensor */
};

typedef struct {
    nw_export_part *items;
    size_t n, cap;
    float *kv;                /* numbers of nw_export_parts_kv */
    nw_block_scales **blocks; /* of parts in blocks; owned */
    size_t n_blocks;
} nw_export_parts; /* all zero is empty */

/* A new part of `tensor`, named after its module, with `suffix` in place of "weight"; "" keeps the name.
 * The pointer holds until the next. NULL with the error set. */
nw_export_part *nw_export_part_add(nw_export_parts *l, const nw_export_tensor *tensor,
                                   const char *suffix, nw_error *err);
void nw_export_parts_release(nw_export_parts *l);
/* Room for scales of blocks, which the list owns; all zero. NULL with the error set. */
nw_block_scales *nw_export_parts_blocks(nw_export_parts *l, nw_error *err);

/* k_scale and v_scale of every layer, where the source has them. */
NW_MUST_USE nw_status nw_export_parts_kv(nw_export_parts *l, const nw_export_source *s,
                                         nw_error *err);

/* The tensor's values in one part. */
NW_MUST_USE nw_status nw_export_part_dense(nw_export_parts *l, const nw_export_tensor *t,
                                           nw_format_id dtype, const char *fallback, nw_error *err);

/* A scale as it is after being written: BF16 and F16 round, the others hold what is given to them. */
float nw_export_rounded(float x, nw_format_id format);

/* Whether all scales of a matrix of codes are numbers of `format` (BF16 or F16). */
NW_MUST_USE nw_status nw_export_scales_fit(const nw_export_tensor *t, nw_format_id format,
                                           bool *fit, nw_error *err);

/* Module of a matrix: its name without ".weight", as length. */
size_t nw_export_module(const nw_export_tensor *t);

/* Sorts the parts (wider types first, then by name, as the format's own writer), streams them into
 * model.safetensors or shards with an index, fills job->loss and *job->n_bytes, and writes config.json
 * with `quantization` (taken over; NULL: none) and the small files. */
NW_MUST_USE nw_status nw_export_parts_write(const nw_export_job *job, nw_export_parts *l,
                                            const char *torch_dtype, json_t *quantization,
                                            nw_error *err);

/* q, k, v and gate, up of each layer must agree, since engines fuse them: what `same` says of two
 * matrices of a fused group. The error names the two. */
typedef bool (*nw_export_same_fn)(const void *ctx, const nw_export_tensor *a,
                                  const nw_export_tensor *b);
NW_MUST_USE nw_status nw_export_check_fused(const nw_export_source *s, nw_export_same_fn same,
                                            const void *ctx, const char *what, nw_error *err);

/* ---- what several formats put ---- */
void nw_put_scales(const nw_export_part *p, uint32_t row, const nw_export_row *r, uint8_t *bytes);
void nw_put_codes(const nw_export_part *p, uint32_t row, const nw_export_row *r, uint8_t *bytes);

/* ---- E4M3 in blocks (ct_block.c) ---- */
/* How the matrix stands in such blocks in its file; NULL where it does not. */
const struct nw_hfq_matrix *nw_block_stored(const nw_export_tensor *t);
/* Its scales: those of the file, or of `side` x `side` values each, absmax / 448 as BF16. The caller frees
 * out->scales. */
NW_MUST_USE nw_status nw_block_scales_of(const nw_export_source *s, const nw_export_tensor *t,
                                         uint32_t side, nw_block_scales *out, nw_error *err);
void nw_put_block_codes(const nw_export_part *p, uint32_t row, const float *values, uint8_t *bytes);
void nw_put_block_scales(const nw_export_part *p, uint32_t row, const float *values,
                         uint8_t *bytes);
/* The values that a reader has of what nw_put_block_codes puts. */
void nw_block_decode(const nw_export_part *p, uint32_t row, const float *values, float *out);

/* "bfloat16" "float16" "float32" */
const char *nw_export_torch_dtype(nw_format_id dtype);

/* Writers of the table in export.c. */
NW_MUST_USE nw_status nw_hf_export(const nw_export_job *job, nw_error *err);
NW_MUST_USE nw_status nw_ct_export(const nw_export_job *job, nw_error *err);
NW_MUST_USE nw_status nw_fp8_block_export(const nw_export_job *job, nw_error *err);
NW_MUST_USE nw_status nw_awq_export(const nw_export_job *job, nw_error *err);
NW_MUST_USE nw_status nw_gptq_export(const nw_export_job *job, nw_error *err);

#endif
