/* The half of `narrow doctor` that looks at a server. SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_CLI_DOCTOR_SERVER_H
#define NW_CLI_DOCTOR_SERVER_H

#include "cli/command.h"

/* Tries out the server of the first operand and prints what can be measured on it. */
NW_MUST_USE nw_status nw_doctor_server(const nw_args *args, nw_error *err);

#endif
