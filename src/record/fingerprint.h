/* What the machine of a run is: processor, instruction sets, threads and why, memory, kernel. Two
 * runs with different hashes are not compared on speed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_RECORD_FINGERPRINT_H
#define NW_RECORD_FINGERPRINT_H

#include "base/hash.h"
#include "base/status.h"

typedef struct {
    char *json; /* canonical object: cpu, features, threads, threads_why, memory_bytes, os */
    nw_digest hash;
} nw_fingerprint;

/* Holds only what does not change from run to run on the same machine. */
NW_MUST_USE nw_status nw_fingerprint_take(nw_fingerprint *out, nw_error *err);
void nw_fingerprint_release(nw_fingerprint *f); /* takes an all-zero one */

#endif
