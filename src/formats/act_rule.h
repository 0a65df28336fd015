/* How the inputs of quantized matrices are rounded, token by token, and by whose rule: files keep no
 * scale for it, so two engines may read one file with different ones.
 *
 *   a16     not at all
 *   a8      INT8, scale absmax / 127: ours and vLLM's; kernels multiply the codes
 *   a8-ct   INT8, scale absmax / 127.5: the rule of compressed-tensors (transformers)
 *   fp8     E4M3, scale absmax / 448: FP8 dynamic of vLLM and compressed-tensors alike
 *
 * The last two are applied to the values, which are then multiplied as they are.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_ACT_RULE_H
#define NW_FORMATS_ACT_RULE_H

#include <stdbool.h>
#include <stddef.h>

typedef enum { NW_ACT_RULE_A16, NW_ACT_RULE_A8, NW_ACT_RULE_A8_CT, NW_ACT_RULE_FP8 } nw_act_rule;

#define NW_ACT_RULE_NAMES "a16|a8|a8-ct|fp8"

const char *nw_act_rule_name(nw_act_rule rule);
/* False for any other text; *out is then untouched. */
bool nw_act_rule_parse(const char *name, nw_act_rule *out);

/* Whether values are to be rounded before they are packed. */
static inline bool nw_act_rule_rounds(nw_act_rule rule)
{
    return rule == NW_ACT_RULE_A8_CT || rule == NW_ACT_RULE_FP8;
}

/* Rounds the n inputs of one token in place, as a8-ct or fp8. Zeros stay zeros; a value that is not
 * finite makes all of them NaN. */
void nw_act_rule_round(nw_act_rule rule, float *x, size_t n);

#endif
