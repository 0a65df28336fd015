/* narrow report: a record as one HTML page.
 * SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>

#include "base/log.h"
#include "cli/command.h"
#include "report/report.h"

static const nw_option options[] = {
    {.name = "out",
     .letter = 'o',
     .type = NW_OPT_STRING,
     .fallback = "report.html",
     .unit = "FILE",
     .help = "the page"},
    {.name = "title",
     .type = NW_OPT_STRING,
     .unit = "TEXT",
     .help = "heading; the record's name without it"},
    {.name = "policy",
     .type = NW_OPT_STRING,
     .fallback = "newest",
     .unit = "HASH",
     .help = "which decision to show, by the first 8 or more characters of its policy's hash"},
    {.name = "svg",
     .type = NW_OPT_STRING,
     .unit = "DIR",
     .help = "also write each figure as a file"},
};

static nw_status run(const nw_args *args, int *exit_code, nw_error *err)
{
    const nw_report_options o = {.record = args->operands[0],
                                 .out = nw_args_str(args, "out"),
                                 .title = nw_args_str(args, "title"),
                                 .policy = nw_args_str(args, "policy"),
                                 .svg_dir = nw_args_str(args, "svg")};
    nw_report_result r;

    (void)exit_code;
    if (nw_report_write(&o, &r, err) != NW_OK) {
        return err->code;
    }
    if (r.why_no_figures[0] != '\0') {
        nw_log(NW_LOG_WARN, "report: no figures: %s; the tables are complete", r.why_no_figures);
    }
    if (!args->json) {
        (void)printf("%s: %zu KiB, %zu figures\n", o.out, (r.n_bytes + 1023) / 1024, r.n_figures);
        return NW_OK;
    }
    json_t *row = json_pack("{s:s, s:I, s:I, s:s?}", "page", o.out, "bytes", (json_int_t)r.n_bytes,
                            "figures", (json_int_t)r.n_figures, "why_no_figures",
                            r.why_no_figures[0] != '\0' ? r.why_no_figures : NULL);
    const bool ok = row != NULL && json_dumpf(row, stdout, JSON_INDENT(2)) == 0;
    (void)printf("\n");
    json_decref(row);
    return ok ? NW_OK : nw_fail(err, NW_E_NOMEM, "report: no memory for the result");
}

const nw_command nw_cmd_report = {
    .name = "report",
    .fn = run,
    .options = options,
    .n_options = NW_COUNT(options),
    .operands = "STUDY.db",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "write a record as one self-contained HTML page",
    .description =
        "Writes one page that needs no network, no script and no other file: the recommendation "
        "for "
        "each regime, the gates, every figure with its interval, latency distributions, goodput "
        "under load, the frontier, and how it was all measured. It reads the record only; nothing "
        "is measured or decided again.\n\n"
        "The figures are rendered by node with the script that the build puts beside the program "
        "(NARROW_RENDER names another). Without node the page keeps its tables and says why it has "
        "no figures.",
};
