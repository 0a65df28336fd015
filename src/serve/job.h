/* One generation of the server, from an admitted request to its last byte. A connection thread drives
 * it: take a token, turn it into text, write it out. Inside src/serve.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_SERVE_JOB_H
#define NW_SERVE_JOB_H

#include "serve/api.h"
#include "serve/mailbox.h"
#include "serve/reply.h"
#include "serve/state.h"

typedef struct nw_job nw_job;

/* Takes *req, which has one prompt, over (and empties it). fd is the client's socket, watched for its going away. On
 * failure *e holds the HTTP status: 400 what the client can mend, 429 queue full, 503 shutting down
 * or no memory. */
NW_MUST_USE nw_status nw_job_admit(nw_server *s, nw_api_request *req, int fd, nw_job **out,
                                   nw_api_error *e);
/* Cancels what still runs and waits for its end (one step at most). Takes NULL. */
void nw_job_close(nw_job *j);

/* Appends the next server-sent events to *out, waiting for them. False: the stream is complete (with
 * [DONE]) or the client has gone; *out is then empty. */
bool nw_job_next_events(nw_job *j, nw_buf *out);

/* What is the same in every part of its answer; lives as long as the job. */
nw_reply_head nw_job_head(const nw_job *j);

/* Tokens of an answer, over its prompts. */
typedef struct {
    uint32_t prompt, output;
} nw_job_counts;

/* Runs to the end; appends its choice of a whole answer to *out, and adds its tokens to *n. Not NW_OK: the
 * client has gone (e->http_status 0), the engine failed, or the choice found no room (*e). */
NW_MUST_USE nw_status nw_job_choice(nw_job *j, size_t index, nw_buf *out, nw_job_counts *n,
                                    nw_api_error *e);
/* *e for an answer whose buffer failed; NW_E_RANGE. */
nw_status nw_job_no_room(const nw_buf *out, nw_api_error *e);

/* All prompts of a request that wants one answer at the end (answer.c), some at a time. The body, freed
 * by the caller, or NULL as above. */
char *nw_job_answer(nw_server *s, const nw_api_request *req, int fd, nw_api_error *e);

#endif
