/* A thread that does one thing at a time behind its caller: what is given to it runs while the caller goes
 * on, and the next thing given waits until it is done. Used by one caller.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BASE_BEHIND_H
#define NW_BASE_BEHIND_H

#include "base/status.h"

typedef struct nw_behind nw_behind;
typedef nw_status (*nw_behind_fn)(void *ctx, nw_error *err);

NW_MUST_USE nw_status nw_behind_open(nw_behind **out, nw_error *err);
/* Waits for what was given before, and fails as that did; then fn(ctx) runs behind. */
NW_MUST_USE nw_status nw_behind_give(nw_behind *b, nw_behind_fn fn, void *ctx, nw_error *err);
/* Waits until nothing runs. A failure is told once. */
NW_MUST_USE nw_status nw_behind_wait(nw_behind *b, nw_error *err);
void nw_behind_close(nw_behind *b); /* waits; takes NULL */

#endif
