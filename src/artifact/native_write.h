/* A checkpoint as a native artifact, nothing chosen anew: codes, scales and minima of its blocks in the
 * panels that hold them exactly (formats/repack.h, and the quantized matrices of Hugging Face folders
 * likewise), BF16 as BF16, everything else as F32. What narrow would pack when it opens the
 * checkpoint lies ready to be mapped.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_NATIVE_WRITE_H
#define NW_ARTIFACT_NATIVE_WRITE_H

#include "artifact/export.h"

NW_MUST_USE nw_status nw_native_export(const nw_export_job *job, nw_error *err);

#endif
