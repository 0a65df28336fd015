/* The only list of commands. Dispatch, `narrow help`, the man pages and the shell completion are all
 * made from it.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cli/command.h"

extern const nw_command nw_cmd_bench;
extern const nw_command nw_cmd_completion;
extern const nw_command nw_cmd_convert;
extern const nw_command nw_cmd_decide;
extern const nw_command nw_cmd_doctor;
extern const nw_command nw_cmd_generate;
extern const nw_command nw_cmd_help;
extern const nw_command nw_cmd_quantize;
extern const nw_command nw_cmd_report;
extern const nw_command nw_cmd_serve;
extern const nw_command nw_cmd_tokenize;
extern const nw_command nw_cmd_verify;

static const nw_command *const commands[] = {
    &nw_cmd_bench,  &nw_cmd_completion, &nw_cmd_convert,  &nw_cmd_decide,
    &nw_cmd_doctor, &nw_cmd_generate,   &nw_cmd_help,     &nw_cmd_quantize,
    &nw_cmd_report, &nw_cmd_serve,      &nw_cmd_tokenize, &nw_cmd_verify,
};

const nw_command *const *nw_commands(size_t *n)
{
    *n = NW_COUNT(commands);
    return commands;
}

const nw_command *nw_command_find(const char *name)
{
    for (size_t i = 0; i < NW_COUNT(commands); i++) {
        if (strcmp(commands[i]->name, name) == 0) {
            return commands[i];
        }
    }
    return NULL;
}

static const char *command_name(const void *ctx, size_t i)
{
    (void)ctx;
    return i < NW_COUNT(commands) ? commands[i]->name : NULL;
}

const char *nw_command_nearest(const char *name)
{
    return nw_nearest(name, command_name, NULL);
}
