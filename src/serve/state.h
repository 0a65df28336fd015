/* The server's state, shared by the files of src/serve and by nobody else.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_SERVE_STATE_H
#define NW_SERVE_STATE_H

#include <microhttpd.h>
#include <stdatomic.h>

#include "engine/scheduler.h"
#include "model/tokenizer.h"
#include "serve/gate.h"
#include "serve/server.h"

/* Threads that tokenize at a time. */
#define NW_SERVE_TEXTS 2

/* Answers by HTTP status, for /metrics. */
#define NW_STATUS_CLASSES 6

struct nw_server {
    nw_server_options opt;
    nw_engine *engine; /* borrowed */
    const nw_tokenizer *tok;
    nw_scheduler *sched;
    struct MHD_Daemon *daemon;
    nw_gate texts; /* what tokenizes */
    char model_name[256];
    uint16_t port;
    uint32_t n_ctx;       /* longest prompt + answer */
    int64_t created;      /* UTC seconds, for /v1/models */
    atomic_bool draining; /* new requests get 503 */
    atomic_bool closing;  /* running ones end at once */
    atomic_uint n_jobs;   /* admitted, not closed */
    atomic_uint n_open;   /* requests that were read, whose answer is not sent to its end */
    atomic_uint_fast64_t next_id;
    atomic_uint_fast64_t answers[NW_STATUS_CLASSES]; /* [status / 100] */
    atomic_uint_fast64_t hang_ups; /* clients that went away before their answer's end */
};

#endif
