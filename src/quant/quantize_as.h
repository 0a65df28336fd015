/* `narrow quantize --format`: quantizes into a native artifact beside the result, hands that to a writer
 * of another format (artifact/export.h), and removes it. What the file can hold of the artifact's codes
 * and scales is carried exactly.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_QUANTIZE_AS_H
#define NW_QUANT_QUANTIZE_AS_H

#include "artifact/export.h"
#include "quant/quantize.h"

/* o->out is the folder of the result; the artifact stands beside it as <out>.native-work for the time
 * being. *summary and *report are set on success; release both. */
NW_MUST_USE nw_status nw_quantize_as(const nw_quantize_options *o, const nw_export_format *format,
                                     nw_manifest *summary, nw_export_report *report, nw_error *err);

#endif
