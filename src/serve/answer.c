/* A whole answer to one or several prompts: a wave of them is in the scheduler at a time, so that they
 * share its steps, and their choices are gathered in order.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "serve/job.h"

/* Prompts of one request that are in the scheduler together. */
#define WAVE 32

typedef struct {
    nw_server *server;
    const nw_api_request *req;
    int fd;
    size_t n, next; /* prompts; the first that is not admitted yet */
    nw_job *jobs[WAVE];
    size_t n_jobs;
    char id[40];
    nw_reply_head head;
    json_t *choices;
    nw_job_counts counts;
} answer;

static nw_status no_memory(nw_api_error *e)
{
    (void)nw_api_fail(e, "", "no memory for the answer");
    e->http_status = 503;
    e->type = "server_error";
    e->code = "out_of_memory";
    return NW_E_NOMEM;
}

static void keep_head(answer *a)
{
    if (a->id[0] == '\0') {
        a->head = nw_job_head(a->jobs[0]);
        (void)snprintf(a->id, sizeof a->id, "%s", a->head.id);
        a->head.id = a->id;
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
            return no_memory(e);
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
            json_t *choice = nw_job_choice(a->jobs[i], json_array_size(a->choices), &a->counts, e);
            st = choice != NULL && json_array_append_new(a->choices, choice) == 0 ? NW_OK
                                                                                  : NW_E_CANCELLED;
        }
        nw_job_close(a->jobs[i]);
    }
    a->n_jobs = 0;
    return st;
}

char *nw_job_answer(nw_server *s, const nw_api_request *req, int fd, nw_api_error *e)
{
    answer a = {.server = s,
                .req = req,
                .fd = fd,
                .n = req->chat ? 1 : req->n_prompts,
                .choices = json_array()};
    nw_status st = a.choices != NULL ? NW_OK : no_memory(e);
    char *text = NULL;

    while (st == NW_OK && a.next < a.n) {
        st = admit_wave(&a, e);
        st = end_wave(&a, st, e);
    }
    if (st != NW_OK) {
        json_decref(a.choices);
        return NULL;
    }
    text = nw_reply_whole(&a.head, a.choices, a.counts.prompt, a.counts.output);
    if (text == NULL) {
        (void)no_memory(e);
    }
    return text;
}
