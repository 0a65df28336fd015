/* The scheduler's prompt scoring: rows of logits after every prompt token, instead of after the last
 * one only, turned into log-probabilities and told in order. Rows are few (NW_SCORE_BYTES), so that a
 * long prompt is scored in chunks beside whatever else is in the step.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "engine/sched.h"

/* Rows of one step take at most this much memory, but always four of them. */
#define NW_SCORE_BYTES ((size_t)32 << 20)

nw_status nw_sched_score_open(nw_scheduler *s, nw_error *err)
{
    const size_t row_bytes = s->engine->config->n_vocab * sizeof(float);
    const uint32_t most = s->engine->facts.max_step_tokens;
    uint32_t n = (uint32_t)(NW_SCORE_BYTES / row_bytes);

    (void)pthread_mutex_lock(&s->lock);
    if (s->score_logits == NULL) {
        n = n < 4 ? 4 : n;
        n = n < most ? n : most;
        s->score_rows = calloc(n, sizeof *s->score_rows);
        s->score_logits = s->score_rows != NULL ? malloc(n * row_bytes) : NULL;
        s->max_score_rows = n;
    }
    const bool ok = s->score_logits != NULL;
    if (!ok) {
        free(s->score_rows);
        s->score_rows = NULL;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return ok ? NW_OK
              : nw_fail(err, NW_E_NOMEM, "no memory for %u rows of %zu bytes of logits", n,
                        row_bytes);
}

bool nw_sched_scoring(const nw_sched_job *j)
{
    return j->request.score_prompt && j->n_scored < j->n_prompt;
}

uint32_t nw_sched_score_limit(const nw_scheduler *s, const nw_sched_job *j, uint32_t n)
{
    const uint32_t done = nw_session_len(j->session);
    const uint32_t silent = j->n_scored - 1 - done; /* computed again after a preemption: no rows */
    const uint32_t most = silent + s->max_score_rows - s->n_score;

    return n < most ? n : most;
}

void nw_sched_score_item(nw_scheduler *s, uint32_t i, nw_step_item *it)
{
    const nw_sched_job *j = s->item_jobs[i];
    const uint32_t first = j->n_scored - 1; /* its row tells of the token after it */
    const uint32_t end = nw_session_len(j->session) + it->n_tokens;

    s->item_row[i] = s->n_score;
    it->n_logits = end > first ? end - first : 0;
    it->logits = s->score_logits + (size_t)s->n_score * s->engine->config->n_vocab;
    for (uint32_t k = 0; k < it->n_logits; k++) {
        nw_sched_row *row = &s->score_rows[s->n_score++];
        const uint32_t at = first + k + 1;
        row->id = at < j->n_prompt ? j->tokens[at] : -1;
        row->n_top = j->request.n_top_logprobs;
    }
}

static void score_row(void *ctx, size_t i, unsigned worker)
{
    const nw_scheduler *s = ctx;
    const uint32_t n_vocab = s->engine->config->n_vocab;
    nw_sched_row *row = &s->score_rows[i];

    (void)worker;
    if (row->id >= 0) {
        row->score.status = nw_logits_score(s->score_logits + i * n_vocab, n_vocab, row->id,
                                            row->n_top, &row->score.pick, &row->score.error);
    }
}

void nw_sched_score_run(nw_scheduler *s)
{
    nw_pool_run(s->engine->pool, s->n_score, score_row, s);
}

const nw_error *nw_sched_score_tell(nw_scheduler *s, uint32_t i,
                                    void (*tell)(const nw_sched_job *j, nw_sched_event ev))
{
    nw_sched_job *j = s->item_jobs[i];

    for (uint32_t k = 0; k < s->items[i].n_logits && nw_sched_scoring(j); k++) {
        const nw_sched_row *row = &s->score_rows[s->item_row[i] + k];
        if (row->score.status != NW_OK) {
            return &row->score.error;
        }
        j->n_scored++;
        tell(j, (nw_sched_event){.type = NW_SCHED_PROMPT,
                                 .id = row->id,
                                 .logprob = row->score.pick.logprob,
                                 .n_top = row->score.pick.n_top,
                                 .top = row->score.pick.top});
    }
    return NULL;
}
