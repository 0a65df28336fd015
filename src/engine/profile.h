/* The kernel ledger against the machine's limits: how near each op comes to the memory's read rate and
 * to the processor's multiply-adds, what ran on another kernel than intended, and where matrices of
 * another kind stand among the rest (islands), with what is converted for them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_ENGINE_PROFILE_H
#define NW_ENGINE_PROFILE_H

#include <jansson.h>

#include "engine/engine.h"

/* Measured beside the run; 0 where unknown. */
typedef struct {
    double read_bytes_s;                         /* raw read, all threads of the engine */
    double f32_macs_s, bf16_macs_s, int8_macs_s; /* multiply-adds a second, likewise */
} nw_roofs;

/* What the engine's ledger holds since its last reset:
 *   "roofs"   as given, GB/s and GMAC/s; null where unknown
 *   "phases"  one object a phase that ran: phase, s, tokens, bytes, gb_per_s, share_of_read, macs,
 *             gmac_per_s, bytes_converted, fallback_share (of time)
 *   "ops"     one object an (op, shape, phase, kernel), all layers together, longest first: op, shape,
 *             phase, layers, calls, intended, used, fallback, s, share_of_time (of its phase), bytes,
 *             gb_per_s, share_of_read, macs, gmac_per_s, share_of_peak (null without matrices or
 *             peak), bytes_converted
 *   "islands" ops whose kernel is not the one that reads most bytes of all matrices: op, shape,
 *             phase, used, among (that kernel), s, bytes, bytes_converted
 * NULL without memory. New reference. */
json_t *nw_profile_json(nw_engine *e, const nw_roofs *roofs);

#endif
