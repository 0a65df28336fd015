/* Inside decide: the items of two runs, one beside the other. SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_DECIDE_PAIRS_H
#define NW_DECIDE_PAIRS_H

#include "decide/data.h"
#include "stats/noninferiority.h"

typedef struct {
    nw_pairs pairs; /* points to the arrays below */
    double *base, *cand, *chance;
    uint32_t *cluster;
    size_t n_left_out;   /* without a value on either side */
    const char *differs; /* first id that only one side has: nothing is paired then; NULL */
} nw_paired_items;

/* Which number of an item: its score, its tokens, whether it stopped by itself. */
typedef double (*nw_item_value)(const nw_dec_item *it);
double nw_item_score(const nw_dec_item *it);
double nw_item_tokens(const nw_dec_item *it);
double nw_item_bytes(const nw_dec_item *it);
double nw_item_stop(const nw_dec_item *it);

/* All memory is the arena's. */
NW_MUST_USE nw_status nw_pair_items(nw_record *rec, const nw_rec_run *base, const nw_rec_run *cand,
                                    nw_item_value value, nw_arena *arena, nw_paired_items *out,
                                    nw_error *err);

#endif
