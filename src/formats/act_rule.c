/* The rules for activations that are applied to values: see act_rule.h. Divisions are by the scale, as
 * the reference does: a product with its reciprocal rounds otherwise at ties.
 * SPDX-License-Identifier: Apache-2.0 */
#include "formats/act_rule.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "formats/fp8.h"

static const char *const names[] = {"a16", "a8", "a8-ct", "fp8"};

const char *nw_act_rule_name(nw_act_rule rule)
{
    return names[rule];
}

bool nw_act_rule_parse(const char *name, nw_act_rule *out)
{
    for (size_t i = 0; i < NW_COUNT(names); i++) {
        if (strcmp(names[i], name) == 0) {
            *out = (nw_act_rule)i;
            return true;
        }
    }
    return false;
}

void nw_act_rule_round(nw_act_rule rule, float *x, size_t n)
{
    const float most = rule == NW_ACT_RULE_FP8 ? NW_E4M3_MAX : 127.5F;
    float top = 0;

    for (size_t i = 0; i < n; i++) {
        const float a = fabsf(x[i]);
        top = a > top || isnan(a) ? a : top; /* a NaN stays: nothing is above it */
    }
    if (top == 0) {
        return;
    }
    const float scale = isfinite(top) ? top / most : NAN;
    for (size_t i = 0; i < n; i++) {
        const float q = x[i] / scale;
        x[i] = scale * (rule == NW_ACT_RULE_FP8 ? nw_e4m3_to_f32(nw_e4m3_from_f32(q))
                                                : fminf(fmaxf(nearbyintf(q), -128.0F), 127.0F));
    }
}
