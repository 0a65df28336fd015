/* narrow help: the list of commands, one command, or their man pages.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/help.h"

static const nw_option options[] = {
    {.name = "man", .type = NW_OPT_FLAG, .help = "print the manual page (mdoc source)"},
};

static nw_status run(const nw_args *args, int *exit_code, nw_error *err)
{
    const nw_command *c = NULL;
    nw_buf out;

    (void)exit_code;
    if (args->n_operands == 1) {
        c = nw_command_find(args->operands[0]);
        if (c == NULL) {
            return nw_fail(err, NW_E_USAGE, "help: no command '%s'; 'narrow help' lists them",
                           args->operands[0]);
        }
    }
    nw_buf_init(&out, SIZE_MAX);
    if (nw_args_flag(args, "man")) {
        nw_help_man(c, &out);
    } else if (c != NULL) {
        nw_help_command(c, &out);
    } else {
        nw_help_commands(&out);
    }
    return nw_help_print(&out, err);
}

const nw_command nw_cmd_help = {
    .name = "help",
    .fn = run,
    .options = options,
    .n_options = NW_COUNT(options),
    .operands = "[COMMAND]",
    .max_operands = 1,
    .text_only = true,
    .summary = "list the commands, or explain one",
    .description = "Without an operand: all commands, a line each. With the name of a command: its "
                   "usage, options, defaults and ranges, as 'narrow COMMAND --help' shows them.",
};
