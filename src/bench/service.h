/* The service under measurement: a URL, or an artifact for which this very binary is started as
 * `narrow serve` on the loopback interface. Either way it is driven over HTTP, so that both regimes
 * measure a service and not a library call.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_BENCH_SERVICE_H
#define NW_BENCH_SERVICE_H

#include <sys/types.h>

#include "target/target.h"

#define NW_SERVICE_MAX_ARGS 40

/* Borrowed during nw_service_open only. */
typedef struct {
    const char *spec;              /* artifact path or URL */
    const char *const *serve_args; /* more arguments of `narrow serve`: "--kv", "int8", ... */
    size_t n_serve_args;
    bool in_process;          /* no server: the engine runs inside this process (batch 1 only) */
    nw_target_options target; /* of the client; and of the engine when in_process */
} nw_service_options;

typedef struct {
    nw_target *target;
    json_t *facts; /* of narrow's engine, taken at open; NULL: absent */
    pid_t pid;     /* of the server when it runs on this machine; 0: not known */
    pid_t child;   /* ours to stop; 0: none */
} nw_service;      /* all zero may be closed */

NW_MUST_USE nw_status nw_service_open(const nw_service_options *opt, nw_service *out,
                                      nw_error *err);
/* Facts as they are now, with the kernel ledger; NULL: absent. The caller owns them. */
json_t *nw_service_facts(const nw_service *s);
void nw_service_close(nw_service *s); /* ends the child it started, and no other */

#endif
