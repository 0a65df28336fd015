/* The arguments that write_logits and write_layers share: MODEL SPEC ID...
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_MODEL_ARGS_H
#define NW_TESTS_MODEL_ARGS_H

#include <stdlib.h>

#include "spec.h"

#define MAX_IDS 4096

/* The engine is the caller's. */
static inline nw_status model_args(int argc, char **argv, int32_t ids[MAX_IDS], size_t *n,
                                   nw_engine **e, nw_error *err)
{
    nw_engine_options o = nw_engine_options_default();

    if (argc < 4 || argc - 3 > MAX_IDS) {
        return nw_fail(err, NW_E_USAGE, "usage: %s MODEL SPEC ID...", argv[0]);
    }
    nw_engine_kv_plain(&o); /* as transformers in float32 */
    *n = (size_t)argc - 3;
    for (size_t i = 0; i < *n; i++) {
        ids[i] = (int32_t)strtol(argv[i + 3], NULL, 10);
    }
    o.no_tokenizer = true;
    const nw_status st = take_spec(argv[2], &o, err);
    return st == NW_OK ? nw_engine_open(argv[1], &o, e, err) : st;
}

#endif
