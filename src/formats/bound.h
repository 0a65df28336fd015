/* How far an encoder of the registry may be from its input: derived bounds, which the property tests hold
 * every encoder to.
 *
 *   |x - x'| <= of_value |x| + of_peak P + of_range R + floor
 *
 * for every x of a block; P is the block's largest magnitude, R its range with zero inside. Where `rms`
 * is set, it is the root of the block's mean squared error that is bounded (searched encoders trade
 * one value's error for another's). Holds for P below the format's largest value. The derivations
 * stand in bound.c beside the numbers.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_FORMATS_BOUND_H
#define NW_FORMATS_BOUND_H

#include <stdbool.h>

#include "formats/format.h"
#include "formats/panel.h"

typedef struct {
    nw_format_id format;
    double of_value, of_peak, of_range, floor;
    double of_tensor; /* nvfp4 panels: times the tensor's largest magnitude, added to the floor */
    bool rms;
} nw_error_bound;

/* NULL: the format has no encoder. */
const nw_error_bound *nw_format_bound(nw_format_id format);

/* The same of a group of a panel (of a row, where there are no groups) by round to nearest or refit, whose
 * scales are of least squared error: code_bits as nw_scales has them, 0 for whole codes. False: nothing
 * rounds to this layout (f32, bf16-12, packed, -k). *out.format is F32. */
NW_MUST_USE bool nw_panel_bound(nw_panel_type type, unsigned code_bits, nw_error_bound *out);

#endif
