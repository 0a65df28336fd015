/* The OpenAI-compatible server. Concurrency: libmicrohttpd gives each connection a thread, up to a
 * limit; a connection thread parses, tokenizes, waits and writes, and never touches a tensor; the
 * scheduler's one worker owns the batch and hands each request its tokens through a mailbox sized
 * when the request was admitted, so that the worker neither allocates nor blocks.
 *
 *   POST /v1/chat/completions, /v1/completions, /tokenize, /detokenize
 *   GET /v1/models, /tokenizer_info, /health, /metrics, /narrow/facts
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_SERVE_SERVER_H
#define NW_SERVE_SERVER_H

#include "base/status.h"
#include "engine/engine.h"

typedef struct nw_server nw_server;

/* Borrowed strings live as long as the server. */
typedef struct {
    const char *host;         /* "127.0.0.1"; an IPv4 or IPv6 address to listen on */
    uint16_t port;            /* 0: any free one */
    const char *api_key;      /* NULL: none asked for */
    const char *model_name;   /* what /v1/models says; NULL: the artifact's path, last part */
    unsigned max_connections; /* threads; a further client waits in the kernel's backlog */
    uint32_t max_queue;       /* requests waiting for a slot; beyond: 429 with Retry-After */
    size_t max_body_bytes;    /* beyond: 413, before buffering */
    uint32_t max_depth;       /* nesting of the JSON body */
    uint32_t prefill_chunk;   /* prompt tokens of one sequence in a step; 0: the scheduler's */
    unsigned idle_timeout_s;  /* a connection that neither sends nor takes a byte */
} nw_server_options;

nw_server_options nw_server_options_default(void);

/* Listens when it returns. The engine is borrowed and must outlive the server. */
NW_MUST_USE nw_status nw_server_open(nw_engine *engine, const nw_server_options *opt,
                                     nw_server **out, nw_error *err);
uint16_t nw_server_port(const nw_server *s); /* the real one */
/* Stops admitting (503), lets running requests end for up to grace_s, cancels the rest, whose clients
 * are told (at most 2 seconds more). */
void nw_server_drain(nw_server *s, double grace_s);
void nw_server_close(nw_server *s); /* drain(0) and everything freed; takes NULL */

#endif
