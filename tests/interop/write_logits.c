/* Logits of a sequence of ids, for the tests that hold them against other programs: F32 rows
 * [n_ids][n_vocab] on stdout. SPEC (spec.h) names the tier and other roundings than the model's.
 * usage: write_logits MODEL SPEC ID...
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "model/config.h"
#include "model_args.h"

static bool write_row(void *ctx, size_t pos, const float *logits)
{
    const size_t n_vocab = *(const size_t *)ctx;
    (void)pos;
    return fwrite(logits, sizeof *logits, n_vocab, stdout) == n_vocab;
}

int main(int argc, char **argv)
{
    static int32_t ids[MAX_IDS];
    nw_engine *e = NULL;
    nw_error err = {0};
    size_t n = 0;
    nw_status st = model_args(argc, argv, ids, &n, &e, &err);

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
