/* A recipe says which matrix gets which layout. Built-in names, or a YAML file:
 *
 *     name: attention-int8            # optional; the file's name otherwise
 *     activations: a16                # a16 | a8 (int8 per token in quantized matrices) | a8-ct | fp8 |
 *                                     # fp8-g128 | nvfp4 (formats/act_rule.h)
 *     scale: search                   # search | absmax: how INT4 and FP4 scales are chosen; tensor:
 *                                     # absmax, and one scale a tensor for INT8 and FP8 by rows
 *     scale_dtype: fp16               # fp16 | bf16: what scales of INT4 and INT8 may be
 *     method: gptq-refit              # how codes are chosen (method.h); rtn by default
 *     transform: [rotate, awq]        # changes that keep the function, before all else (below)
 *     calibration: stats              # folder of `narrow calibrate`, for the methods that need it
 *     targets:                        # the first that matches a tensor decides; weights is a
 *                                     # layout (formats/panel.h) or a block type (q4_k, q8_0, ...)
 *       - {match: '.*\.self_attn\..*', weights: int8, method: rtn}
 *       - {match: '.*\.mlp\..*', weights: int4-g64-zp}
 *     ignore: ['model\.layers\.0\..*']   # stays as `keep` says, before any target is looked at
 *     keep: bf16                      # bf16 | f32: matrices that no target names
 *
 *     outliers: 6                     # columns of larger |x| stay BF16 beside integers (input_plan.h)
 *     code_bits: 3                    # 2 to 7: fewer codes than the place holds, for study (below)
 *     activation_scale: dynamic       # dynamic | static: scales of a token, or one of the input, calibrated;
 *                                     # nvfp4's are always static
 *     kv: fp8                         # how sessions keep keys and values (kv_plan.h): as --kv
 *     kv_scales: tensor               # tensor | head: scales of FP8, one a layer or a kv head
 *     kv_calibration: stats           # in place of `calibration`, of the artifact itself
 *     last_group: whole               # whole | short: whether a row may end in a shorter group
 *
 * A pattern is a PCRE2 expression that must match the whole leaf name: the HF tensor name without
 * ".weight". One that matches no tensor is a mistake, and so is a group size that does not divide
 * the columns, unless `last_group: short` allows it (INT4, INT8, FP4: padding is stored). Nothing is ever substituted: a matrix gets what the recipe says or nothing is written.
 *
 * `code_bits` leaves INT4 and INT8 so many bits of their codes: what INT2, INT3, INT5 or INT6 would cost in quality. They
 * take the place of the whole code in file and memory.
 *
 * Transforms (transform.h): rotate, rotate-heads, rotate-down (rotate.h); awq or smoothquant
 * (channel_scales.h), which need calibration. `method: awq` brings its transform along.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_RECIPE_H
#define NW_QUANT_RECIPE_H

#include "base/buf.h"
#include "base/json.h"
#include "formats/panel.h"
#include "model/checkpoint.h"
#include "quant/method.h"

typedef struct nw_recipe nw_recipe;

/* `spec` is a built-in name or the path of a YAML file. */
NW_MUST_USE nw_status nw_recipe_open(const char *spec, nw_recipe **out, nw_error *err);
void nw_recipe_close(nw_recipe *r);

const char *nw_recipe_name(const nw_recipe *r);
nw_act_rule nw_recipe_act(const nw_recipe *r);
nw_scales nw_recipe_scales(const nw_recipe *r);        /* absmax is 0 */
const char *nw_recipe_calibration(const nw_recipe *r); /* NULL: none is named */
/* Bits of `transform`. */
#define NW_TRANSFORM_ROTATE       1u
#define NW_TRANSFORM_ROTATE_HEADS 2u
#define NW_TRANSFORM_ROTATE_DOWN  4u
#define NW_TRANSFORM_AWQ          8u
#define NW_TRANSFORM_SMOOTH       16u
unsigned nw_recipe_transforms(const nw_recipe *r);
float nw_recipe_outliers(const nw_recipe *r); /* 0: none are kept wide */
bool nw_recipe_static_scales(const nw_recipe *r);
const char *nw_recipe_kv(const nw_recipe *r); /* NULL: nothing is said of keys and values */
bool nw_recipe_kv_heads(const nw_recipe *r);
const char *nw_recipe_kv_calibration(const nw_recipe *r); /* NULL: the recipe's calibration */
/* Whether something beside the methods needs statistics. */
bool nw_recipe_needs_stats(const nw_recipe *r);
/* The command line's word in place of the recipe's: the method of all targets, the folder of
 * statistics (copied; NULL leaves it). */
void nw_recipe_set_method(nw_recipe *r, nw_method m);
void nw_recipe_set_bf16_scales(nw_recipe *r);
NW_MUST_USE nw_status nw_recipe_set_kv(nw_recipe *r, const char *kv, nw_error *err);
NW_MUST_USE nw_status nw_recipe_set_calibration(nw_recipe *r, const char *dir, nw_error *err);
/* Name of the i-th built-in recipe and its line of help; NULL past the last. */
const char *nw_recipe_builtin(size_t i, const char **help);

/* One decision per tensor of the checkpoint, in checkpoint order. */
typedef struct {
    const nw_ckpt_tensor *tensor;
    bool is_vector;
    bool targeted; /* a target named it; otherwise kept */
    nw_panel_type type;
    nw_format_id block;       /* GGUF's type whose encoder chooses the codes; F32: none */
    nw_format_id asked_block; /* what the recipe says; another where columns are no whole blocks */
    nw_method method;         /* rtn where the layout knows no other */
    nw_method asked;          /* what the recipe says */
    bool widened; /* asked for as bf16-12, whose panels have no room for its escapes: bf16 */
    struct nw_packed_plan *packed; /* type.packed, once its values were read; of the driver */
    float absmax;                  /* nvfp4, scale tensor: once values were read (tensor_scale.h) */
    float scale, zero;             /* layouts with one scale a tensor, likewise */
    const char *why; /* the pattern that decided, or "kept"; borrowed from the recipe */
} nw_recipe_choice;

/* Resolves the recipe against a checkpoint; *out [n tensors] is freed by the caller. All mistakes
 * are collected, one line each, into err's message as far as they fit; *mistakes (may be NULL)
 * gets all of them. Nothing of the weights is read. */
NW_MUST_USE nw_status nw_recipe_resolve(const nw_recipe *r, const nw_checkpoint *c,
                                        nw_recipe_choice **out, size_t *n, nw_buf *mistakes,
                                        nw_error *err);
/* The recipe and its resolved list as JSON for the manifest; owned by the caller. */
json_t *nw_recipe_json(const nw_recipe *r, const nw_recipe_choice *choices, size_t n);

#endif
