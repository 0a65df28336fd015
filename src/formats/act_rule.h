/* How the inputs of quantized matrices are rounded, and by whose rule: two engines may read one file
 * with different ones.
 *
 *   a16       not at all
 *   a8        INT8, scale absmax / 127 of a token: ours and vLLM's; kernels multiply the codes
 *   a8-ct     INT8, scale absmax / 127.5: the rule of compressed-tensors (transformers)
 *   fp8       E4M3, scale absmax / 448 of a token: FP8 dynamic of vLLM and compressed-tensors alike
 *   fp8-g128  likewise for every 128 columns of a token, as beside weights in blocks of 128 x 128
 *   nvfp4     E2M1 with an E4M3 scale for every 16 columns, under the file's scale of the input
 *
 * All but the first two are applied to the values, which are then multiplied as they are. A file may fix
 * the scale of an input (and its zero point, INT8) beforehand, in place of the token's.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_ACT_RULE_H
#define NW_FORMATS_ACT_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    NW_ACT_RULE_A16,
    NW_ACT_RULE_A8,
    NW_ACT_RULE_A8_CT,
    NW_ACT_RULE_FP8,
    NW_ACT_RULE_FP8_G128,
    NW_ACT_RULE_NVFP4,
    NW_ACT_RULE_COUNT
} nw_act_rule;

#define NW_ACT_RULE_NAMES "a16|a8|a8-ct|fp8|fp8-g128|nvfp4"

/* What is fixed of an input; scale 0: nothing. nvfp4: the divisor, 448 * 6 / absmax, as files have it. */
typedef struct {
    float scale;
    int32_t zero; /* of INT8, -128..127 */
} nw_act_fixed;

const char *nw_act_rule_name(nw_act_rule rule);
/* False for any other text; *out is then untouched. */
bool nw_act_rule_parse(const char *name, nw_act_rule *out);

/* Whether values are to be rounded before they are packed. */
static inline bool nw_act_rule_rounds(nw_act_rule rule)
{
    return rule != NW_ACT_RULE_A16 && rule != NW_ACT_RULE_A8;
}

/* Whether what is fixed for one rule holds for the other: both round to the same numbers. */
bool nw_act_rule_shares(nw_act_rule a, nw_act_rule b);

/* Takes the scale of another matrix that reads the same input, which is rounded once: the largest scale
 * holds, as in engines that make one matrix of them; with zero points the scale and zero point of both
 * ranges together. Nothing changes where `to` has no scale yet (it becomes f) or the same one. */
void nw_act_fixed_join(nw_act_fixed *to, const nw_act_fixed *f);

/* Rounds the n inputs of one token in place; not for a16. `fixed` may be NULL; nvfp4 must have one. Zeros
 * stay zeros without a zero point; a value that is not finite makes all that share its scale NaN. */
void nw_act_rule_round(nw_act_rule rule, const nw_act_fixed *fixed, float *x, size_t n);

#endif
