/* The source of a result, and what must be said about weights that were not full precision: kept in
 * narrow.json of a converted folder, in the manifest of what is quantized from it, and in every
 * report.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ARTIFACT_SOURCE_NOTE_H
#define NW_ARTIFACT_SOURCE_NOTE_H

#include "base/json.h"
#include "model/checkpoint.h"

/* Bits a weight of the narrowest quantized format that holds at least a tenth of the weights of the
 * layers' matrices; 0 when these are F32, F16 and BF16. */
unsigned nw_source_bits(const nw_checkpoint *c);

/* The note a result made from this checkpoint carries: what narrow.json of its folder says, else
 * "made from published 4-bit weights", else "". The caller frees *note. */
NW_MUST_USE nw_status nw_source_note(const nw_checkpoint *c, char **note, nw_error *err);

/* Opens a checkpoint as the source of a result in folder `out`: refused where `out` is the folder
 * the source lies in, and where the source is a result that is no checkpoint any more. */
NW_MUST_USE nw_status nw_source_open(const char *path, const char *out, nw_checkpoint **ckpt,
                                     nw_error *err);

/* {"Q4_1": 210, "F32": 61}: tensors by format; owned by the caller. */
json_t *nw_source_formats(const nw_checkpoint *c);

#endif
