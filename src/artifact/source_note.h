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

/* What a result that says nothing of inputs is without: "rounding of activations (a8), with the fixed scales
 * of 210 matrices". */
void nw_source_say_activations(nw_act_rule act, size_t n_fixed, char buf[128]);
#define NW_SOURCE_KV_SCALES "keys and values in fp8, with their fixed scales"
/* What decoded values of this checkpoint are without, as texts; owned by the caller. */
json_t *nw_source_dropped(const nw_checkpoint *c);

/* {"Q4_1": 210, "F32": 61}: tensors by format; owned by the caller. */
json_t *nw_source_formats(const nw_checkpoint *c);

#endif
