/* What the tables of commands and options look like to a reader: help, man pages (mdoc), completion.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_CLI_HELP_H
#define NW_CLI_HELP_H

#include "base/buf.h"
#include "cli/command.h"

/* The seven steps of the usual day: what `narrow` alone shows. */
void nw_help_day(nw_buf *out);
/* All commands, a line each. */
void nw_help_commands(nw_buf *out);
void nw_help_command(const nw_command *c, nw_buf *out);
/* mdoc(7) source; c == NULL: the page of the program itself. */
void nw_help_man(const nw_command *c, nw_buf *out);
/* Help, range and default of one option: "context length (1 to 4096 tokens; default 512)". */
void nw_help_explain(const nw_option *o, nw_buf *out);
void nw_help_bash(nw_buf *out);

/* Writes the buffer to stdout and releases it. */
NW_MUST_USE nw_status nw_help_print(nw_buf *b, nw_error *err);

#endif
