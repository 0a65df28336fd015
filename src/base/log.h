/* Log lines to stderr: stdout is for results. Four levels; text for people without time stamps, or
 * one JSON object a line with ISO time when NW_LOG=json.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_LOG_H
#define NW_BASE_LOG_H

#include "base/status.h"

typedef enum { NW_LOG_ERROR, NW_LOG_WARN, NW_LOG_INFO, NW_LOG_DEBUG } nw_log_level;

void nw_log_set_level(nw_log_level level); /* NW_LOG_INFO by default; --quiet: NW_LOG_WARN */
nw_log_level nw_log_get_level(void);
void nw_log(nw_log_level level, const char *fmt, ...) NW_PRINTF(2, 3);

#endif
