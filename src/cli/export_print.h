/* What convert and quantize say of an export.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_CLI_EXPORT_PRINT_H
#define NW_CLI_EXPORT_PRINT_H

#include "artifact/export.h"

void nw_print_export(const nw_export_report *r, const char *out, const char *format);
/* The loss alone: how many tensors are exact, the largest error, what fell back. */
void nw_print_loss(const nw_loss *l);
json_t *nw_export_report_json(const nw_export_report *r, const char *format);

#endif
