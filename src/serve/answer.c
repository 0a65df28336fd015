/* A whole answer to one or several prompts: a wave of them is in the scheduler at a time, so that they
 * share its steps, and their choices are gathered in order.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "serve/job.h"

/* Prompts of one request that are in the scheduler together. */
#define WAVE 32

#define ANSWER_MAX ((size_t)256 << 20)

typedef struct {
    nw_server *server;
    const nw_api_request *req;
    int fd;
    size_t n, next; /* prompts; the first that is not admitted yet */
    nw_job *jobs[WAVE];
    size_t n_jobs;
    char id[40];
    nw_reply_head head;
    size_t n_choices;
    nw_buf text; /* of the answer, as far as it is known */
    nw_job_counts counts;
} answer;

static void keep_head(answer *a)
{
    if (a->id[0] == '\0') {
        a->head = nw_job_head(a->jobs[0]);
        (void)snprintf(a->id, sizeof a->id, "%s", a->head.id);
        a->head.id = a->id;
        nw_reply_begin(&a->text, &a->head);
    }
}

/* Admits prompts until the wave is full. One that the queue has no room for waits for the wave to end;
 * it is refused where there is none. */
static nw_status admit_wave(answer *a, nw_api_error *e)
{
    nw_status st = NW_OK;

    while (st == NW_OK && a->next < a->n && a->n_jobs < WAVE) {
        nw_api_request one;
        if (!nw_api_one_prompt(a->req, a->next, &one)) {
            return nw_job_no_room(&a->text, e);
        }
        st = nw_job_admit(a->server, &one, a->fd, &a->jobs[a->n_jobs], e);
        nw_api_release(&one);
        if (st == NW_OK) {
            a->n_jobs++;
            a->next++;
        }
    }
    if (a->n_jobs > 0) {
        keep_head(a);
    }
    return st != NW_OK && e->http_status == 429 && a->n_jobs > 0 ? NW_OK : st;
}

/* Takes the choices of the wave, or ends what is left of it. */
static nw_status end_wave(answer *a, nw_status st, nw_api_error *e)
{
    for (size_t i = 0; i < a->n_jobs; i++) {
        if (st == NW_OK) {
            st = nw_job_choice(a->jobs[i], a->n_choices++, &a->text, &a->counts, e);
        }
        nw_job_close(a->jobs[i]);
    }
    a->n_jobs = 0;
    return st;
}

char *nw_job_answer(nw_server *s, const nw_api_request *req, int fd, nw_api_error *e)
{
    answer a = {.server = s, .req = req, .fd = fd, .n = req->chat ? 1 : req->n_prompts};
    nw_status st = NW_OK;

    nw_buf_init(&a.text, ANSWER_MAX);
    while (st == NW_OK && a.next < a.n) {
        st = admit_wave(&a, e);
        st = end_wave(&a, st, e);
    }
    if (st == NW_OK) {
        nw_reply_end(&a.text, a.counts.prompt, a.counts.output);
        st = a.text.failed ? nw_job_no_room(&a.text, e) : NW_OK;
    }
    if (st != NW_OK) {
        nw_buf_release(&a.text);
        return NULL;
    }
    return nw_buf_take(&a.text);
}
