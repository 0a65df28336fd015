/* narrow study: everything, from a checkpoint to a decision. SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "study/study.h"

static const nw_option options[] = {
    {.name = "model",
     .letter = 'm',
     .type = NW_OPT_STRING,
     .unit = "MODEL",
     .help = "checkpoint, in place of the file's"},
    {.name = "work",
     .letter = 'w',
     .type = NW_OPT_STRING,
     .unit = "DIR",
     .help = "folder for artifacts, record, log and report, in place of the file's"},
    {.name = "text",
     .type = NW_OPT_STRING,
     .unit = "FILE",
     .help = "text for perplexity, in place of the file's"},
    {.name = "policy",
     .letter = 'p',
     .type = NW_OPT_STRING,
     .unit = "FILE",
     .help = "policy, in place of the file's"},
    {.name = "stop-at-gate",
     .type = NW_OPT_FLAG,
     .help = "leave out the speed of candidates that fail a quality gate"},
};

static nw_status run(const nw_args *args, int *exit_code, nw_error *err)
{
    const nw_study_options o = {
        .path = args->operands[0],
        .model = nw_args_str(args, "model"),
        .work = nw_args_str(args, "work"),
        .text = nw_args_str(args, "text"),
        .policy = nw_args_str(args, "policy"),
        .stop_at_gate = nw_args_flag(args, "stop-at-gate"),
        .json = args->json,
    };

    (void)exit_code;
    return nw_study_run(&o, err);
}

const nw_command nw_cmd_study = {
    .name = "study",
    .fn = run,
    .options = options,
    .n_options = NW_COUNT(options),
    .operands = "STUDY.yaml",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "compare number formats of a model, from checkpoint to decision",
    .description =
        "Makes an artifact for every candidate, measures the quality of each against the baseline, "
        "then batch 1, then the load that the study describes with the same arrivals for all, and "
        "ends with gates, frontier, a recommendation for each regime, and a report.\n\n"
        "Every stage is a child process that writes into one record, WORK/study.db. A study that "
        "was "
        "stopped goes on where it was: what the record holds is not measured again. A candidate "
        "that "
        "fails a quality gate is still benchmarked, for the complete table, unless "
        "--stop-at-gate.\n\n"
        "Exit status 0 when all stages were carried out, whatever the gates say; 'narrow decide' "
        "on the record tells by its own.",
};
