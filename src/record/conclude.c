/* What decide concluded, under the hash of the policy it used, so that another policy stands beside
 * it and the raw rows stay as they are.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "record/db.h"
#include "record/record.h"

#define TEXT(t, f)                      \
    {                                   \
#f, NW_COL_TEXT, offsetof(t, f) \
    }
#define COUNT(t, f)                      \
    {                                    \
#f, NW_COL_COUNT, offsetof(t, f) \
    }
#define REAL(t, f)                      \
    {                                   \
#f, NW_COL_REAL, offsetof(t, f) \
    }

static const nw_db_column policy_columns[] = {
    TEXT(nw_rec_policy, policy_hash),
    TEXT(nw_rec_policy, name),
    TEXT(nw_rec_policy, text),
    TEXT(nw_rec_policy, decided),
};
static const nw_db_column verdict_columns[] = {
    TEXT(nw_rec_verdict, policy_hash),
    TEXT(nw_rec_verdict, candidate),
    TEXT(nw_rec_verdict, gate),
    TEXT(nw_rec_verdict, metric),
    TEXT(nw_rec_verdict, slice),
    {"advisory", NW_COL_BOOL, offsetof(nw_rec_verdict, advisory)},
    TEXT(nw_rec_verdict, unit),
    REAL(nw_rec_verdict, estimate),
    REAL(nw_rec_verdict, lo),
    REAL(nw_rec_verdict, hi),
    REAL(nw_rec_verdict, margin),
    REAL(nw_rec_verdict, p),
    COUNT(nw_rec_verdict, n),
    COUNT(nw_rec_verdict, n_needed),
    TEXT(nw_rec_verdict, verdict),
    TEXT(nw_rec_verdict, why),
};
static const nw_db_column decision_columns[] = {
    TEXT(nw_rec_decision, policy_hash), TEXT(nw_rec_decision, regime),
    TEXT(nw_rec_decision, candidate),   TEXT(nw_rec_decision, why),
    TEXT(nw_rec_decision, json),
};

static const nw_db_table policy_table = {"policy",
                                         policy_columns,
                                         NW_COUNT(policy_columns),
                                         sizeof(nw_rec_policy),
                                         "decided DESC, policy_hash",
                                         false};
static const nw_db_table verdict_table = {"verdict",
                                          verdict_columns,
                                          NW_COUNT(verdict_columns),
                                          sizeof(nw_rec_verdict),
                                          "candidate, advisory, gate, slice",
                                          false};
static const nw_db_table decision_table = {
    "decision", decision_columns, NW_COUNT(decision_columns), sizeof(nw_rec_decision), "regime",
    false};

nw_status nw_record_policy_put(nw_record *r, const nw_rec_policy *p, nw_error *err)
{
    const nw_db_arg args[] = {{p->policy_hash, 0}};
    nw_status st = nw_db_run(r, "DELETE FROM verdict WHERE policy_hash = ?1", args, 1, err);

    if (st == NW_OK) {
        st = nw_db_run(r, "DELETE FROM decision WHERE policy_hash = ?1", args, 1, err);
    }
    return st == NW_OK ? nw_db_insert(r, &policy_table, 0, p, 1, err) : st;
}

nw_status nw_record_add_verdicts(nw_record *r, const nw_rec_verdict *rows, size_t n, nw_error *err)
{
    return nw_db_insert(r, &verdict_table, 0, rows, n, err);
}

nw_status nw_record_add_decisions(nw_record *r, const nw_rec_decision *rows, size_t n,
                                  nw_error *err)
{
    return nw_db_insert(r, &decision_table, 0, rows, n, err);
}

nw_status nw_record_policies(nw_record *r, nw_arena *arena, nw_rec_policy **out, size_t *n,
                             nw_error *err)
{
    nw_rec_policy row;
    void *rows = NULL;
    nw_status st = nw_db_list(r, &policy_table, NULL, NULL, 0, &row, arena, &rows, n, err);

    if (st == NW_OK) {
        *out = rows;
    }
    return st;
}

nw_status nw_record_verdicts(nw_record *r, const char *policy_hash, nw_arena *arena,
                             nw_rec_verdict **out, size_t *n, nw_error *err)
{
    const nw_db_arg args[] = {{policy_hash, 0}};
    nw_rec_verdict row;
    void *rows = NULL;
    nw_status st =
        nw_db_list(r, &verdict_table, "policy_hash = ?1", args, 1, &row, arena, &rows, n, err);

    if (st == NW_OK) {
        *out = rows;
    }
    return st;
}

nw_status nw_record_decisions(nw_record *r, const char *policy_hash, nw_arena *arena,
                              nw_rec_decision **out, size_t *n, nw_error *err)
{
    const nw_db_arg args[] = {{policy_hash, 0}};
    nw_rec_decision row;
    void *rows = NULL;
    nw_status st =
        nw_db_list(r, &decision_table, "policy_hash = ?1", args, 1, &row, arena, &rows, n, err);

    if (st == NW_OK) {
        *out = rows;
    }
    return st;
}
