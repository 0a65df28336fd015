/* Logits of a sequence of ids, for the tests that hold them against other programs: F32 rows
 * [n_ids][n_vocab] on stdout. SPEC (spec.h) names the tier and other roundings than the model's.
 * usage: write_logits MODEL SPEC ID...
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "engine/engine.h"
#include "model/config.h"
#include "spec.h"

#define MAX_IDS 4096

static bool write_row(void *ctx, size_t pos, const float *logits)
{
    const size_t n_vocab = *(const size_t *)ctx;
    (void)pos;
    return fwrite(logits, sizeof *logits, n_vocab, stdout) == n_vocab;
}

int main(int argc, char **argv)
{
    static int32_t ids[MAX_IDS];
    nw_engine_options o = nw_engine_options_default();
    nw_engine *e = NULL;
    nw_error err = {0};

    if (argc < 4 || argc - 3 > MAX_IDS) {
        return 2;
    }
    nw_engine_kv_plain(&o); /* as transformers in float32 */
    const size_t n = (size_t)argc - 3;
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)strtol(argv[i + 3], NULL, 10);
    }
    o.no_tokenizer = true;
    nw_status st = take_spec(argv[2], &o, &err);
    if (st == NW_OK) {
        st = nw_engine_open(argv[1], &o, &e, &err);
    }
    if (st == NW_OK) {
        size_t n_vocab = nw_engine_config(e)->n_vocab;
        st = nw_engine_score(e, ids, n, 0, write_row, &n_vocab, &err);
    }
    nw_engine_close(e);
    if (st != NW_OK) {
        (void)fprintf(stderr, "write_logits: %s\n", err.message);
    }
    return nw_status_exit_code(st);
}
