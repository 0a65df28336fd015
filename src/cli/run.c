/* One command line from argv to exit code: the only place that prints an error.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/command.h"
#include "cli/help.h"

static nw_status unknown_command(const char *name, nw_error *err)
{
    const char *near = nw_command_nearest(name);

    if (name[0] == '-') {
        return nw_fail(err, NW_E_USAGE, "unknown option '%s' before a command; see 'narrow help'",
                       name);
    }
    if (near != NULL) {
        return nw_fail(err, NW_E_USAGE, "unknown command '%s'; did you mean '%s'?", name, near);
    }
    return nw_fail(err, NW_E_USAGE, "unknown command '%s'; 'narrow help' lists them", name);
}

static nw_status run_command(const nw_command *c, int argc, char *const *argv, int *exit_code,
                             nw_error *err)
{
    nw_args args = {0};
    nw_status st = nw_args_parse(c, argc, argv, &args, err);

    if (st != NW_OK) {
        return st;
    }
    if (args.quiet) {
        nw_log_set_level(NW_LOG_WARN);
    }
    if (args.help) {
        nw_buf out;
        nw_buf_init(&out, SIZE_MAX);
        nw_help_command(c, &out);
        st = nw_help_print(&out, err);
    } else {
        st = c->fn(&args, exit_code, err);
    }
    nw_args_release(&args);
    return st;
}

static nw_status show_day(nw_error *err)
{
    nw_buf out;
    nw_buf_init(&out, SIZE_MAX);
    nw_help_day(&out);
    return nw_help_print(&out, err);
}

static nw_status dispatch(int argc, char *const *argv, int *exit_code, nw_error *err)
{
    const char *name = argc < 2 ? "" : argv[1];

    if (*name == '\0') {
        return show_day(err);
    }
    if (strcmp(name, "--version") == 0) {
        return printf("narrow %s\n", NW_VERSION) > 0
                   ? NW_OK
                   : nw_fail(err, NW_E_IO, "stdout: cannot write");
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        name = "help";
    }
    const nw_command *c = nw_command_find(name);
    return c == NULL ? unknown_command(name, err)
                     : run_command(c, argc - 2, argv + 2, exit_code, err);
}

int nw_cli_run(int argc, char *const *argv)
{
    nw_error err = {0};
    int exit_code = 0;
    nw_status st = dispatch(argc, argv, &exit_code, &err);

    /* a result that did not reach its file is no result */
    if (st == NW_OK && (fflush(stdout) != 0 || ferror(stdout) != 0)) {
        st = nw_fail(&err, NW_E_IO, "stdout: cannot write");
    }
    if (st != NW_OK) {
        (void)fprintf(stderr, "narrow: %s\n", err.message);
        return nw_status_exit_code(st);
    }
    return exit_code;
}
