/* Names of KV formats, as options give them.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "engine/engine.h"
#include "kernels/attention.h"

static bool parse_kind(const char *name, size_t n, int *out)
{
    for (int kind = 0; kind < (int)NW_KV_KINDS; kind++) {
        const char *text = nw_kv_kind_name((nw_kv_kind)kind);
        if (strlen(text) == n && memcmp(text, name, n) == 0) {
            *out = kind;
            return true;
        }
    }
    return false;
}

nw_status nw_engine_kv_parse(const char *name, nw_engine_options *o, nw_error *err)
{
    const char *slash = strchr(name, '/');
    const char *v_name = slash != NULL ? slash + 1 : name;
    const size_t k_len = slash != NULL ? (size_t)(slash - name) : strlen(name);
    int k = 0;
    int v = 0;

    if (!parse_kind(name, k_len, &k) || !parse_kind(v_name, strlen(v_name), &v)) {
        return nw_fail(
            err, NW_E_RANGE,
            "KV format '%s' is none of f32, bf16, fp8, int8, int4, nor two of them as K/V", name);
    }
    o->kv_k = k;
    o->kv_v = v;
    return NW_OK;
}
