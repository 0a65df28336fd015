/* The only list of commands. Dispatch, `narrow help`, the man pages and the shell completion are all
 * made from it.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cli/command.h"

#define NW_COMMAND_MAP(X) \
    X(allocate)           \
    X(bench)              \
    X(calibrate)          \
    X(completion)         \
    X(convert)            \
    X(decide)             \
    X(doctor)             \
    X(eval)               \
    X(generate)           \
    X(help)               \
    X(inspect)            \
    X(quantize)           \
    X(report)             \
    X(serve)              \
    X(study)              \
    X(tokenize)           \
    X(verify)

#define NW_COMMAND_DECLARE(name) extern const nw_command nw_cmd_##name;
NW_COMMAND_MAP(NW_COMMAND_DECLARE)
#undef NW_COMMAND_DECLARE

/* Sorted by name. */
static const nw_command *const commands[] = {
#define NW_COMMAND_ROW(name) &nw_cmd_##name,
    NW_COMMAND_MAP(NW_COMMAND_ROW)
#undef NW_COMMAND_ROW
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
