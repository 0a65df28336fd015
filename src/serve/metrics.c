/* Counters of the server and its scheduler as Prometheus text, and the facts of its engine.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/buf.h"
#include "engine/facts.h"
#include "serve/http.h"

#define METRICS_MAX ((size_t)64 << 10)

static void put(nw_buf *b, const char *type, const char *name, const char *help, uint64_t value)
{
    (void)nw_buf_printf(b, "# HELP narrow_%s %s\n# TYPE narrow_%s %s\nnarrow_%s %" PRIu64 "\n",
                        name, help, name, type, name, value);
}

static void put_scheduler(nw_buf *b, nw_server *s)
{
    nw_sched_stats st = {0};

    nw_scheduler_stats(s->sched, &st);
    put(b, "gauge", "requests_active", "Requests with a place in the batch.", st.active);
    put(b, "gauge", "requests_queued", "Requests waiting for one.", st.queued);
    put(b, "gauge", "kv_pages_used", "Pages of the KV pool in use.", st.pages_used);
    put(b, "gauge", "kv_pages", "Pages of the KV pool.", st.pages_total);
    put(b, "counter", "requests_submitted_total", "Requests admitted.", st.submitted);
    put(b, "counter", "requests_completed_total", "Requests that ended by themselves.",
        st.completed);
    put(b, "counter", "requests_cancelled_total", "Requests cancelled.", st.cancelled);
    put(b, "counter", "requests_failed_total", "Requests the engine failed.", st.failed);
    put(b, "counter", "requests_rejected_total", "Requests refused: the queue was full.",
        st.rejected);
    put(b, "counter", "preemptions_total", "Times a request gave its pages back.", st.preempted);
    put(b, "counter", "steps_total", "Steps of the engine.", st.steps);
    put(b, "counter", "prompt_tokens_total", "Prompt tokens read.", st.prompt_tokens);
    put(b, "counter", "shared_tokens_total", "Prompt tokens found in shared pages, not computed.",
        st.shared_tokens);
    put(b, "counter", "output_tokens_total", "Tokens generated.", st.output_tokens);
    (void)nw_buf_printf(b,
                        "# HELP narrow_busy_seconds_total Time inside steps and sampling.\n"
                        "# TYPE narrow_busy_seconds_total counter\n"
                        "narrow_busy_seconds_total %.6f\n",
                        (double)st.busy_ns * 1e-9);
}

static void put_answers(nw_buf *b, nw_server *s)
{
    unsigned inside = 0;
    unsigned waiting = 0;

    (void)nw_buf_puts(b, "# HELP narrow_http_answers_total Answers by class of status.\n"
                         "# TYPE narrow_http_answers_total counter\n");
    for (size_t i = 2; i < NW_STATUS_CLASSES; i++) {
        (void)nw_buf_printf(b, "narrow_http_answers_total{class=\"%zuxx\"} %" PRIu64 "\n", i,
                            (uint64_t)atomic_load(&s->answers[i]));
    }
    put(b, "counter", "client_hang_ups_total", "Clients gone before their answer's end.",
        atomic_load(&s->hang_ups));
    put(b, "gauge", "jobs", "Requests being answered, waiting ones included.",
        atomic_load(&s->n_jobs));
    nw_gate_count(&s->texts, &inside, &waiting);
    put(b, "gauge", "texts", "Texts being tokenized.", inside);
    put(b, "gauge", "texts_waiting", "Texts waiting for that.", waiting);
}

static void put_engine(nw_buf *b, const nw_server *s)
{
    const nw_engine_facts *f = nw_engine_get_facts(s->engine);

    put(b, "gauge", "weight_bytes", "Bytes of weights read for a decoded token.", f->weight_bytes);
    put(b, "gauge", "kv_pool_bytes", "Size of the KV pool.", f->kv_pool_bytes);
    put(b, "gauge", "kv_bytes_per_token", "KV of one token, all layers.", f->kv_bytes_per_token);
    put(b, "gauge", "kv_capacity_tokens", "Tokens the KV pool holds.", f->kv_capacity_tokens);
    put(b, "gauge", "workspace_bytes", "Activations and scratch.", f->workspace_bytes);
    put(b, "gauge", "threads", "Threads of the engine.", f->n_threads);
}

char *nw_metrics_text(nw_server *s)
{
    nw_buf b;

    nw_buf_init(&b, METRICS_MAX);
    put_scheduler(&b, s);
    put_answers(&b, s);
    put_engine(&b, s);
    if (b.failed) {
        nw_buf_release(&b);
        return NULL;
    }
    return nw_buf_take(&b);
}

static void take_ledger(void *ctx, nw_engine *e)
{
    json_t **list = ctx;
    *list = nw_engine_ledger_json(e);
}

char *nw_facts_text(nw_server *s)
{
    json_t *facts = nw_engine_facts_json(s->engine);
    json_t *ledger = NULL;
    char *text = NULL;

    nw_scheduler_call(s->sched, take_ledger, &ledger);
    if (facts != NULL && ledger != NULL && json_object_set_new(facts, "ledger", ledger) == 0) {
        text = json_dumps(facts, JSON_COMPACT);
    }
    json_decref(facts);
    return text;
}
