/* See say.h. SPDX-License-Identifier: Apache-2.0 */
#include "cli/say.h"

#include <string.h>

#include "base/log.h"
#include "engine/facts.h"

/* The rules of other engines go by their own names. */
static const char *act_name(const char *act)
{
    if (strcmp(act, "a8") == 0) {
        return "int8";
    }
    return strcmp(act, "a16") == 0 ? "16 bit" : act;
}

void nw_say_kernels(const json_t *facts)
{
    const char *tier = json_string_value(json_object_get(facts, "tier"));
    const char *act = json_string_value(json_object_get(facts, "act"));
    const char *why = json_string_value(json_object_get(facts, "threads_why"));

    const char *kv = json_string_value(json_object_get(facts, "kv"));
    const char *scales = json_string_value(json_object_get(facts, "kv_scales"));

    if (tier != NULL && act != NULL && why != NULL) {
        nw_log(NW_LOG_INFO, "kernels %s, activations %s, threads %s", tier, act_name(act), why);
    }
    if (kv != NULL && scales != NULL && strcmp(scales, "none") != 0) {
        nw_log(NW_LOG_INFO, "keys and values %s, scales: %s", kv, scales);
    }
}

void nw_say_engine_kernels(const nw_engine *e)
{
    json_t *facts = nw_engine_facts_json(e);
    nw_say_kernels(facts);
    json_decref(facts);
}
