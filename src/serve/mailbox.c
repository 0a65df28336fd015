/* A list that only grows, a reader's position, and the end.
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/mailbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    bool prompt;
    int32_t id;
    float logprob;
    uint32_t n_top;
} entry;

struct nw_mailbox {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* on CLOCK_MONOTONIC */
    entry *entries;         /* [cap] */
    nw_logprob *tops;       /* [cap][max_top] */
    size_t cap, n, n_read;
    uint32_t max_top, n_output;
    bool ended;
    nw_finish finish;
    entry end; /* id -1: no token ended it */
    nw_logprob end_top[NW_TOP_LOGPROBS_MAX];
    nw_status status;
    char message[512];
};

nw_status nw_mailbox_open(size_t max_tokens, uint32_t n_top, nw_mailbox **out, nw_error *err)
{
    nw_mailbox *m = calloc(1, sizeof *m);
    pthread_condattr_t attr;
    size_t n_tops = 0;

    *out = NULL;
    if (m == NULL || !nw_size_mul(max_tokens, n_top, &n_tops)) {
        free(m);
        return nw_fail(err, NW_E_NOMEM, "no memory for a mailbox of %zu tokens", max_tokens);
    }
    (void)pthread_mutex_init(&m->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&m->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    m->cap = max_tokens;
    m->max_top = n_top;
    m->entries = calloc(max_tokens, sizeof *m->entries);
    m->tops = calloc(n_tops + 1, sizeof *m->tops);
    if (m->entries == NULL || m->tops == NULL) {
        nw_mailbox_close(m);
        return nw_fail(err, NW_E_NOMEM, "no memory for a mailbox of %zu tokens", max_tokens);
    }
    *out = m;
    return NW_OK;
}

void nw_mailbox_close(nw_mailbox *m)
{
    if (m != NULL) {
        pthread_cond_destroy(&m->changed);
        pthread_mutex_destroy(&m->lock);
        free(m->entries);
        free(m->tops);
        free(m);
    }
}

void nw_mailbox_on_event(void *mailbox, const nw_sched_event *e)
{
    nw_mailbox *m = mailbox;

    pthread_mutex_lock(&m->lock);
    const bool prompt = e->type == NW_SCHED_PROMPT;
    if ((prompt || e->type == NW_SCHED_TOKEN) && m->n < m->cap) {
        const uint32_t n_top = e->n_top < m->max_top ? e->n_top : m->max_top;
        m->entries[m->n] = (entry){prompt, e->id, e->logprob, n_top};
        if (n_top > 0) {
            memcpy(m->tops + m->n * m->max_top, e->top, n_top * sizeof *e->top);
        }
        m->n++;
    } else if (!prompt && e->type != NW_SCHED_TOKEN) {
        m->ended = true;
        m->end = (entry){false, e->id, e->logprob, e->n_top};
        if (e->n_top > 0) {
            memcpy(m->end_top, e->top, e->n_top * sizeof *e->top);
        }
        m->finish = e->finish;
        m->status = e->type == NW_SCHED_ERROR ? e->error->code : NW_OK;
        (void)snprintf(m->message, sizeof m->message, "%.500s",
                       e->type == NW_SCHED_ERROR ? e->error->message : "");
    }
    pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

static struct timespec in_ms(unsigned ms)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

nw_mail nw_mailbox_next(nw_mailbox *m, unsigned wait_ms)
{
    const struct timespec until = in_ms(wait_ms);
    nw_mail mail = {.kind = NW_MAIL_NOTHING, .message = ""};
    int rc = 0;

    pthread_mutex_lock(&m->lock);
    while (m->n_read == m->n && !m->ended && rc != ETIMEDOUT) {
        rc = pthread_cond_timedwait(&m->changed, &m->lock, &until);
    }
    if (m->n_read < m->n) {
        const entry *e = &m->entries[m->n_read];
        mail.kind = e->prompt ? NW_MAIL_PROMPT : NW_MAIL_TOKEN;
        m->n_output += !e->prompt;
        mail.id = e->id;
        mail.logprob = e->logprob;
        mail.n_top = e->n_top;
        mail.top = m->tops + m->n_read * m->max_top;
        m->n_read++;
    } else if (m->ended) {
        mail.kind = NW_MAIL_END;
        mail.id = m->end.id;
        mail.logprob = m->end.logprob;
        mail.n_top = m->end.n_top;
        mail.top = m->end_top;
        mail.finish = m->finish;
        mail.status = m->status;
        mail.message = m->message;
    }
    mail.n_output = m->n_output;
    pthread_mutex_unlock(&m->lock);
    return mail;
}
