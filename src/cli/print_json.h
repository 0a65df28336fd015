/* The result of a command as JSON on stdout. SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_CLI_PRINT_JSON_H
#define NW_CLI_PRINT_JSON_H

#include <jansson.h>

#include "base/status.h"

/* Prints `result` indented, with a newline, and releases it. NULL (a constructor that had no memory)
 * is NW_E_NOMEM naming the command; what cannot be written is NW_E_IO. */
NW_MUST_USE nw_status nw_print_json(const char *command, json_t *result, nw_error *err);

#endif
