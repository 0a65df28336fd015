/* A command is one row: a file cmd_<name>.c that defines nw_cmd_<name>, and its line in commands.c.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_CLI_COMMAND_H
#define NW_CLI_COMMAND_H

#include <limits.h>

#include "cli/options.h"

#define NW_ANY_OPERANDS UINT_MAX

/* Results go to stdout (as one JSON object with args->json), the rest to stderr. *exit_code is 0 on
 * entry; a command that was carried out and found a failed or undecided gate sets it to 1. */
typedef nw_status (*nw_command_fn)(const nw_args *args, int *exit_code, nw_error *err);

struct nw_command {
    const char *name;
    nw_command_fn fn;
    const nw_option *options; /* [n_options] */
    size_t n_options;
    const char *operands; /* as in the usage line: "MODEL [TEXT]"; "" for none */
    unsigned min_operands, max_operands;
    const char *summary;     /* one line, lower case, no full stop */
    const char *description; /* paragraphs, with an empty line between them */
    bool text_only;          /* prints nothing that JSON could hold: no --json */
};

/* The only list of commands: [*n], sorted by name. */
const nw_command *const *nw_commands(size_t *n);
/* NULL for an unknown name. */
const nw_command *nw_command_find(const char *name);
/* The known name that `name` was probably meant to be, or NULL. */
const char *nw_command_nearest(const char *name);

/* Runs one command line, prints its error, returns the exit code of the process. */
int nw_cli_run(int argc, char *const *argv);

#endif
