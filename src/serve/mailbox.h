/* Between the scheduler's worker and a connection: room for every token that a request may give (and of
 * a prompt that is scored) is taken
 * when it is admitted, so that the worker never allocates or waits for a slow reader, and no token is
 * ever dropped for want of room.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_SERVE_MAILBOX_H
#define NW_SERVE_MAILBOX_H

#include "engine/scheduler.h"

typedef struct nw_mailbox nw_mailbox;

typedef enum { NW_MAIL_PROMPT, NW_MAIL_TOKEN, NW_MAIL_END, NW_MAIL_NOTHING } nw_mail_kind;

typedef struct {
    nw_mail_kind kind;
    int32_t id; /* PROMPT, TOKEN; END: the token that ended it, -1: none */
    float logprob;
    uint32_t n_top;
    const nw_logprob *top; /* lives as long as the mailbox */
    nw_finish finish;      /* END */
    nw_status status;      /* END: NW_OK, or why */
    const char *message;   /* END: "" or why; lives as long as the mailbox */
    uint32_t n_output;
} nw_mail;

NW_MUST_USE nw_status nw_mailbox_open(size_t max_tokens, uint32_t n_top, nw_mailbox **out,
                                      nw_error *err);
/* Only after END was delivered, or when nothing was ever submitted. Takes NULL. */
void nw_mailbox_close(nw_mailbox *m);

void nw_mailbox_on_event(void *mailbox, const nw_sched_event *e);
/* The next token, the end, or NOTHING after wait_ms. After the end: the end again. */
nw_mail nw_mailbox_next(nw_mailbox *m, unsigned wait_ms);

#endif
