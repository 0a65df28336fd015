/* The book-keeping of one generation: marks, text, the four times, counts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "target/gen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "model/tokenizer.h"

const char *nw_gen_finish_name(nw_gen_finish f)
{
    static const char *const names[] = {"stop", "length", "cancelled", "error"};
    return (size_t)f < NW_COUNT(names) ? names[f] : "error";
}

nw_status nw_gen_check(const nw_gen_request *req, nw_error *err)
{
    const int inputs = (req->messages != NULL) + (req->prompt != NULL) + (req->ids != NULL);

    if (inputs != 1) {
        return nw_fail(err, NW_E_USAGE,
                       "generation request: %d inputs given, exactly one of "
                       "messages, prompt and ids is needed",
                       inputs);
    }
    if (req->max_tokens == 0) {
        return nw_fail(err, NW_E_RANGE,
                       "generation request: max_tokens is 0, at least 1 is needed");
    }
    if (req->ids != NULL && req->n_ids == 0) {
        return nw_fail(err, NW_E_RANGE, "generation request: no prompt tokens");
    }
    return NW_OK;
}

void nw_gen_init(nw_gen *g, uint64_t id, const nw_gen_request *req, const nw_gen_callbacks *cb,
                 const nw_tokenizer *recount)
{
    *g = (nw_gen){.id = id, .cb = *cb, .recount = recount};
    nw_buf_init(&g->text, NW_GEN_TEXT_MAX);
    g->r.n_asked = req->max_tokens;
    g->r.s_ns = req->scheduled_ns;
    g->created_ns = nw_now_ns();
}

void nw_gen_dispatched(nw_gen *g, int64_t t_ns)
{
    if (g->r.d_ns == 0) {
        g->r.d_ns = t_ns;
    }
}

static bool grow(void **data, size_t *cap, size_t n, size_t size)
{
    if (n < *cap) {
        return true;
    }
    const size_t cap_new = *cap == 0 ? 64 : *cap * 2;
    void *p = realloc(*data, cap_new * size);
    if (p == NULL) {
        return false;
    }
    *data = p;
    *cap = cap_new;
    return true;
}

void nw_gen_receive(nw_gen *g, const char *text, size_t n, uint32_t n_tokens, int64_t t_ns)
{
    const nw_gen_mark mark = {t_ns, n_tokens};
    void *marks = g->marks;

    if (g->ended || (n == 0 && n_tokens == 0)) {
        return;
    }
    if (!grow(&marks, &g->cap_marks, g->n_marks, sizeof *g->marks) ||
        (n > 0 && !nw_buf_add(&g->text, text, n))) {
        g->no_memory = true;
        return;
    }
    g->marks = marks;
    g->marks[g->n_marks++] = mark;
    if (n > 0 && g->r.f_ns == 0) {
        g->r.f_ns = t_ns;
    }
    g->r.l_ns = t_ns;
    if (g->cb.on_text != NULL) {
        g->cb.on_text(g->cb.ctx, text, n, mark);
    }
}

void nw_gen_token(nw_gen *g, int32_t id, float logprob)
{
    void *ids = g->ids;
    void *logprobs = g->logprobs;
    size_t cap = g->cap_ids;

    if (!grow(&ids, &cap, g->n_ids, sizeof *g->ids)) {
        g->no_memory = true;
        return;
    }
    g->ids = ids;
    cap = g->cap_ids;
    if (!grow(&logprobs, &cap, g->n_ids, sizeof *g->logprobs)) {
        g->no_memory = true;
        return;
    }
    g->logprobs = logprobs;
    g->cap_ids = cap;
    g->ids[g->n_ids] = id;
    g->logprobs[g->n_ids] = logprob;
    g->n_ids++;
}

/* Tokens of the text by our tokenizer; 0 when there is none or it refuses the text. */
static uint32_t recount(const nw_gen *g)
{
    nw_ids ids;
    nw_error ignored = {0};
    uint32_t n = 0;

    if (g->recount == NULL || g->text.len == 0) {
        return 0;
    }
    nw_ids_init(&ids);
    if (nw_tokenizer_encode(g->recount, g->text.data, g->text.len, 0, &ids, &ignored) == NW_OK) {
        n = (uint32_t)ids.n;
    }
    nw_ids_release(&ids);
    return n;
}

void nw_gen_end(nw_gen *g, nw_status status, nw_gen_finish finish, const char *why)
{
    if (g->ended) {
        return;
    }
    g->ended = true;
    if (g->no_memory && status == NW_OK) {
        status = NW_E_NOMEM;
        finish = NW_GEN_ERROR;
        why = "no memory for the answer";
    }
    if (g->r.s_ns == 0) { /* closed loop: s = d, or the start where nothing was ever sent */
        g->r.s_ns = g->r.d_ns != 0 ? g->r.d_ns : g->created_ns;
    }
    g->r.status = status;
    g->r.finish = finish;
    (void)snprintf(g->r.error, sizeof g->r.error, "%s", why != NULL ? why : "");
    g->r.events = g->marks;
    g->r.n_events = g->n_marks;
    g->r.text = g->text.data != NULL ? g->text.data : "";
    g->r.n_text_bytes = g->text.len;
    g->r.ids = g->ids;
    g->r.logprobs = g->logprobs;
    g->r.n_recount = recount(g);
    if (g->r.n_output == 0) {
        g->r.n_output = g->r.n_recount;
    }
    g->cb.on_done(g->cb.ctx, g->id, &g->r);
}

void nw_gen_release(nw_gen *g)
{
    nw_buf_release(&g->text);
    free(g->marks);
    free(g->ids);
    free(g->logprobs);
    g->marks = NULL;
    g->ids = NULL;
    g->logprobs = NULL;
}
