/* Schemes of compressed-tensors: which one a matrix and the activations it reads become, and the group of
 * quantization_config that says so. Table: ct_write.c.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_CT_SCHEME_H
#define NW_ARTIFACT_CT_SCHEME_H

#include "artifact/export_parts.h"

/* One group of quantization_config. */
typedef struct {
    const char *format, *type, *strategy, *scale_dtype;
    unsigned bits;
    uint32_t group;                  /* 0: a scale a row */
    uint32_t block_rows, block_cols; /* strategy block */
    bool symmetric;
    nw_act_rule act;
    bool act_fixed, act_zeros; /* inputs have scales of their own, and zero points */
} nw_ct_scheme;

/* False where compressed-tensors has no such weights; *why says what it lacks. act_zeros is for the caller
 * to set (nw_ct_act_zeros). */
NW_MUST_USE bool nw_ct_scheme_of(const nw_export_source *source, const nw_export_tensor *t,
                                 nw_ct_scheme *out, const char **why);
/* Of a matrix in blocks: one that stands in them, or a wide one of whole blocks of `block` columns (0: wide
 * ones stay so). */
NW_MUST_USE bool nw_ct_block_scheme_of(const nw_export_source *source, const nw_export_tensor *t,
                                       uint32_t block, nw_ct_scheme *out);
/* Whether any fixed input has a zero point: then all have, since readers take one rule for all groups. */
bool nw_ct_act_zeros(const nw_export_source *source);
bool nw_ct_same_scheme(const nw_ct_scheme *a, const nw_ct_scheme *b);
/* QuantizationArgs; group 0: none. Owned by the caller, as the next. */
json_t *nw_ct_args_json(unsigned bits, const char *type, bool symmetric, const char *strategy,
                        uint32_t group, bool dynamic);
/* A group of quantization_config for these targets. */
json_t *nw_ct_group_json(const nw_ct_scheme *s, json_t *targets);

#endif
