/* Quantized matrices in the safetensors of Hugging Face folders: what quantization_config of the config
 * says, and the codes, scales and zero points of a matrix wherever its format keeps them.
 *
 *   compressed-tensors  pack-quantized (2, 4, 8 bits), int-quantized, naive-, float- and mxfp8-quantized,
 *                       nvfp4- and mxfp4-pack-quantized
 *   awq                 AutoAWQ's "gemm" layout, 4 bits
 *   gptq                2, 4, 8 bits, zero points of v1 (stored less one) and v2; act-order (g_idx)
 *   fp8                 E4M3 with a scale a block (Qwen3, DeepSeek) or a tensor
 *
 * The bytes of each are in docs/formats.md. A matrix is told by its tensors, whose shapes must be those
 * that the config of the model asks for; quantization_config must know a matrix of that kind. What is
 * not understood is refused by name: rotations of inputs, sparsity, other methods and widths.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_MODEL_HF_QUANT_H
#define NW_MODEL_HF_QUANT_H

#include <jansson.h>

#include "formats/act_rule.h"
#include "model/safetensors.h"

typedef enum { NW_HFQ_NONE, NW_HFQ_CT, NW_HFQ_AWQ, NW_HFQ_GPTQ, NW_HFQ_FP8 } nw_hfq_method;

/* A group of quantization_config, as far as it describes weights; AWQ and GPTQ have one. */
typedef struct {
    unsigned bits;
    bool is_float;
    bool zeros, order; /* its matrices must have zero points, groups of columns out of order */
    uint32_t scale_rows, scale_cols; /* that share a scale; 0: all */
} nw_hfq_group;

#define NW_HFQ_MAX_GROUPS 64

typedef struct {
    nw_hfq_method method;
    nw_hfq_group groups[NW_HFQ_MAX_GROUPS];
    size_t n_groups;
    nw_act_rule act;      /* of the inputs of its matrices */
    bool act_fixed;       /* their scales stand in the file, one an input */
    bool act_mixed;       /* of some matrices only: others go by the token */
    bool act_zeros;       /* and zero points of INT8 with them */
    const char *act_note; /* what the file asks for and is not done; NULL: nothing */
    bool kv_scheme;       /* kv_cache_scheme: keys and values in FP8 with fixed scales */
    const char *kv_note;  /* what its kv_cache_scheme asks for and is not done; NULL: nothing */
    bool zero_less_one;   /* GPTQ v1 */
} nw_hfq_config;

/* The quantization_config of a parsed config.json; method NW_HFQ_NONE where there is none (root may be
 * NULL). `name` stands in messages. */
NW_MUST_USE nw_status nw_hfq_config_parse(const char *name, const json_t *root, nw_hfq_config *out,
                                          nw_error *err);
/* That of a folder: of config.json, or of quantize_config.json, where older GPTQ files keep it. */
NW_MUST_USE nw_status nw_hfq_config_load(const char *dir, nw_hfq_config *out, nw_error *err);

typedef enum {
    NW_HFQ_WORDS, /* [row][words], along the columns */
    NW_HFQ_BYTES, /* [row][column] two's complement */
    NW_HFQ_GEMM,  /* AWQ: [column][words] along the rows, interleaved */
    NW_HFQ_DOWN,  /* GPTQ: [words][row], along the columns */
    NW_HFQ_E4M3,  /* [row][column] */
    NW_HFQ_E2M1   /* [row][two columns a byte], the even one low */
} nw_hfq_layout;

/* A matrix. Views into the safetensors. Integers: w = scale (code - zero), codes 0 .. 2^bits - 1;
 * floats: w = value(code) scale / global. */
typedef struct nw_hfq_matrix {
    nw_hfq_layout layout;
    unsigned bits;
    uint32_t n_rows, n_cols;
    uint32_t scale_rows, scale_cols; /* rows and columns that share a scale: 1, a block or all */
    uint32_t n_groups;               /* of a row, ceil(n_cols / scale_cols) */
    bool groups_first;               /* scales [group][row] in place of [row][group] */
    bool zero_less_one;
    bool zero_bytes; /* zero points are two's complement, [row][group] or one, in place of words */
    nw_format_id scale_format; /* U8 and E8M0: powers of two */
    const uint8_t *codes, *scales;
    const uint8_t *zeros; /* NULL: 2^(bits - 1) everywhere */
    const uint8_t *g_idx; /* NULL: columns in order; else the group of each column */
    float global;         /* NVFP4's divisor; 1 otherwise */
    nw_act_fixed act;     /* of its input; scale 0: nothing is fixed */
    size_t n_bytes;       /* of all its tensors in the file */
    const char *stem;     /* "ct", "awq", "gptq", "hf" */
} nw_hfq_matrix;

/* Is this a tensor of a quantized matrix? The length of the module's name, without the dot and what
 * follows; 0: no. */
size_t nw_hfq_stem(const char *tensor);

/* The matrix of module `module` (n_module bytes: "model.layers.0.self_attn.q_proj"), n_rows x n_cols.
 * out->codes is NULL where there is none: plain weights. */
NW_MUST_USE nw_status nw_hfq_bind(const nw_safetensors *s, const nw_hfq_config *c,
                                  const char *module, size_t n_module, uint32_t n_rows,
                                  uint32_t n_cols, nw_hfq_matrix *out, nw_error *err);

/* "ct-int4-g64-zp" "awq-int4-g128-zp" "gptq-int4-g32-order" "hf-fp8-128x128" "ct-nvfp4"; returns buf. */
const char *nw_hfq_name(const nw_hfq_matrix *m, char buf[32]);

/* Codes of a row, [n_cols]: integers as stored from 0, floats as their bits. */
void nw_hfq_codes(const nw_hfq_matrix *m, uint32_t row, uint8_t *codes);
/* Scale, its bytes and the zero point of a row's group. The stored number, without `global`. */
float nw_hfq_scale(const nw_hfq_matrix *m, uint32_t row, uint32_t group);
uint8_t nw_hfq_scale_byte(const nw_hfq_matrix *m, uint32_t row, uint32_t group);
uint8_t nw_hfq_zero(const nw_hfq_matrix *m, uint32_t row, uint32_t group);
/* Group of a column. */
uint32_t nw_hfq_group_of(const nw_hfq_matrix *m, uint32_t col);

/* Values of a row, [n_cols]; the codes are decoded into `codes` [n_cols] first. */
void nw_hfq_row(const nw_hfq_matrix *m, uint32_t row, uint8_t *codes, float *out);

#endif
