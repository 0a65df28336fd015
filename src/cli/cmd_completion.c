/* narrow completion: a script that a shell sources.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cli/command.h"
#include "cli/help.h"

static nw_status run(const nw_args *args, int *exit_code, nw_error *err)
{
    nw_buf out;

    (void)exit_code;
    if (strcmp(args->operands[0], "bash") != 0) {
        return nw_fail(err, NW_E_USAGE, "completion: no script for '%s', must be bash",
                       args->operands[0]);
    }
    nw_buf_init(&out, SIZE_MAX);
    nw_help_bash(&out);
    return nw_help_print(&out, err);
}

const nw_command nw_cmd_completion = {
    .name = "completion",
    .fn = run,
    .operands = "bash",
    .min_operands = 1,
    .max_operands = 1,
    .text_only = true,
    .summary = "print a completion script for the shell",
    .description = "For the shell that runs: source <(narrow completion bash). For every shell to "
                   "come: narrow completion bash > "
                   "~/.local/share/bash-completion/completions/narrow",
};
