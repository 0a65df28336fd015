/* narrow decide: gates, frontiers and recommendations from a record, under any policy.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "cli/command.h"
#include "cli/print_json.h"
#include "decide/decide.h"

#define MAX_TEXT ((size_t)16 << 20)

static const nw_option options[] = {
    {.name = "policy",
     .letter = 'p',
     .type = NW_OPT_STRING,
     .unit = "FILE",
     .help = "policy (YAML); by default the one that ships as policies/default.yaml"},
    {.name = "dry-run",
     .type = NW_OPT_FLAG,
     .help = "print only: write no verdict into the record"},
};

static nw_status show(const nw_decision *d, bool as_json, nw_error *err)
{
    nw_buf text;
    nw_status st = NW_OK;

    if (as_json) {
        return nw_print_json("decide", nw_decision_json(d), err);
    }
    nw_buf_init(&text, MAX_TEXT);
    nw_decision_print(d, &text);
    if (text.failed) {
        st = nw_fail(err, NW_E_NOMEM, "no memory for the decision's text");
    } else if (fputs(text.data, stdout) == EOF) {
        st = nw_fail(err, NW_E_IO, "stdout: cannot be written");
    }
    nw_buf_release(&text);
    return st;
}

static nw_status run(const nw_args *args, int *exit_code, nw_error *err)
{
    const bool dry = nw_args_flag(args, "dry-run");
    nw_policy policy;
    nw_record *rec = NULL;
    nw_decision d;

    /* the policy is read and hashed before the record is opened */
    if (nw_policy_load(nw_args_str(args, "policy"), &policy, err) != NW_OK) {
        return err->code;
    }
    nw_status st = NW_OK;
    if (!dry) { /* a record is made by a study, never by a question about it */
        st = nw_record_open(args->operands[0], NW_RECORD_READ, &rec, err);
        nw_record_close(rec);
        rec = NULL;
    }
    if (st == NW_OK) {
        st = nw_record_open(args->operands[0], dry ? NW_RECORD_READ : NW_RECORD_WRITE, &rec, err);
    }
    if (st == NW_OK && (st = nw_decide(rec, &policy, &d, err)) == NW_OK) {
        st = dry ? NW_OK : nw_decision_store(rec, &d, err);
        st = st == NW_OK ? show(&d, args->json, err) : st;
        *exit_code = d.all_pass ? 0 : 1;
        nw_decision_release(&d);
    }
    nw_record_close(rec);
    nw_policy_release(&policy);
    return st;
}

const nw_command nw_cmd_decide = {
    .name = "decide",
    .fn = run,
    .options = options,
    .n_options = NW_COUNT(options),
    .operands = "RECORD",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "gates, frontier and a recommendation from a record, under any policy",
    .description =
        "Reads the raw rows of a study and a policy; measures nothing. Each gate compares a "
        "candidate with the baseline on the same items and says PASS (the one-sided 95% bound on "
        "the loss lies inside the margin), FAIL (it lies outside) or INCONCLUSIVE, with the number "
        "of items that is lacking. A slice that is missing fails. Candidates that pass every gate "
        "are ranked for two regimes, one request at a time (batch1) and many (saturated), and each "
        "regime gets a recommendation of its own; when nothing passes it is the baseline.\n\n"
        "Verdicts and decisions are stored in the record under the hash of the policy, so that "
        "another policy stands beside them.\n\n"
        "Exit status 0: every gate of every candidate passes. 1: a gate failed or is undecided, "
        "which is a result and not an error.",
};
