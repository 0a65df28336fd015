/* TIER[/ACT[/KV]] of the programs that other programs are held against: a kernel tier ("best": the one that
 * narrow takes by itself), a rule for activations (none between two slashes: the model's) and a format of keys
 * and values.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_INTEROP_SPEC_H
#define NW_TESTS_INTEROP_SPEC_H

#include <string.h>

#include "base/status.h"
#include "engine/engine.h"

/* Cuts `spec`, which must outlive *o. */
static inline nw_status take_spec(char *spec, nw_engine_options *o, nw_error *err)
{
    char *act = strchr(spec, '/');
    char *kv = act != NULL ? strchr(act + 1, '/') : NULL;
    nw_status st = NW_OK;

    if (act != NULL) {
        *act++ = '\0';
    }
    if (kv != NULL) {
        *kv++ = '\0';
    }
    o->tier = strcmp(spec, "best") != 0 ? spec : NULL;
    if (act != NULL && *act != '\0') {
        st = nw_engine_act_parse(act, o, err);
    }
    return st == NW_OK && kv != NULL ? nw_engine_kv_parse(kv, o, err) : st;
}

#endif
