/* Admission, and the two ways to give an answer. The connection thread sleeps in the mailbox at most
 * HANG_UP_MS at a time and then looks whether its client is still there: a client that closed its
 * connection frees its slot at once, even while its request waits in the queue.
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

#include "model/template.h"
#include "serve/reply.h"

#define HANG_UP_MS     50
#define MAX_TEXT       ((size_t)64 << 20)
#define COMPLETION_MAX 16 /* max_tokens of /v1/completions when none is given, as OpenAI has it */

struct nw_job {
    nw_server *server;
    nw_api_request req;
    int fd;
    nw_mailbox *box;
    nw_textout *out;
    uint64_t sched_id;
    bool submitted, ended, gone, opened, closed;
    const char *finish; /* "stop" "length"; NULL until then */
    nw_api_error fault; /* http_status 0: none */
    uint32_t n_prompt, n_output;
    nw_buf text;      /* what the last token made showable */
    json_t *logprobs; /* entries not sent yet; NULL when not asked for */
    char id[40];
    int64_t created;
};

/* ---- admission ------------------------------------------------------------------------------ */

static nw_status refuse(nw_api_error *e, int http_status, const char *type, const char *code,
                        const char *message)
{
    *e = (nw_api_error){.http_status = http_status, .type = type, .code = code};
    (void)snprintf(e->message, sizeof e->message, "%.500s", message);
    return NW_E_RANGE;
}

/* Which HTTP status a fault of ours or of the client's is. */
static nw_status refuse_error(nw_api_error *e, const nw_error *err)
{
    switch (err->code) {
    case NW_E_FORMAT:
    case NW_E_RANGE:
    case NW_E_UNSUPPORTED:
    case NW_E_USAGE:
        return refuse(e, 400, "invalid_request_error", NULL, err->message);
    case NW_E_BUSY:
        return refuse(e, 429, "rate_limit_error", "queue_full", err->message);
    case NW_E_NOMEM:
        return refuse(e, 503, "server_error", "out_of_memory", err->message);
    case NW_OK:
    case NW_E_IO:
    case NW_E_NETWORK:
    case NW_E_CANCELLED:
        break;
    }
    return refuse(e, 500, "server_error", NULL, err->message);
}

static nw_status encode(const nw_server *s, const nw_api_request *r, nw_ids *ids, nw_error *err)
{
    const uint32_t n_vocab = nw_tokenizer_size(s->tok);

    if (r->chat) {
        return nw_chat_encode(s->tok, r->messages, true, ids, err);
    }
    if (r->prompt != NULL) {
        return nw_tokenizer_encode(s->tok, r->prompt, r->n_prompt_bytes, NW_TOK_BOS, ids, err);
    }
    for (size_t i = 0; i < r->n_ids; i++) {
        if ((uint32_t)r->ids[i] >= n_vocab) {
            return nw_fail(err, NW_E_RANGE, "prompt[%zu]: token id %d, 0 to %u are allowed", i,
                           r->ids[i], n_vocab - 1);
        }
        if (!nw_ids_push(ids, r->ids[i])) {
            return nw_fail(err, NW_E_NOMEM, "no memory for %zu prompt tokens", r->n_ids);
        }
    }
    return NW_OK;
}

/* Holds the prompt against the context and settles max_tokens. */
static nw_status fit(const nw_server *s, nw_api_request *r, size_t n_prompt, nw_api_error *e)
{
    char why[256];

    if (n_prompt == 0) {
        (void)refuse(e, 400, "invalid_request_error", NULL, "the prompt has no tokens");
        return NW_E_RANGE;
    }
    if (n_prompt >= s->n_ctx || r->max_tokens > s->n_ctx - n_prompt) {
        (void)snprintf(why, sizeof why,
                       "prompt of %zu tokens and %u to generate: the context holds %u", n_prompt,
                       r->max_tokens > 0 ? r->max_tokens : 1, s->n_ctx);
        return refuse(e, 400, "invalid_request_error", "context_length_exceeded", why);
    }
    if (r->max_tokens == 0) {
        const uint32_t room = s->n_ctx - (uint32_t)n_prompt;
        r->max_tokens = r->chat || room < COMPLETION_MAX ? room : COMPLETION_MAX;
    }
    if (!r->has_seed && getrandom(&r->sampling.seed, sizeof r->sampling.seed, 0) < 0) {
        r->sampling.seed = (uint64_t)time(NULL);
    }
    return NW_OK;
}

static nw_status submit(nw_job *j, const nw_ids *ids, nw_api_error *e)
{
    nw_error err = {0};
    nw_api_request *r = &j->req;
    const char *stop[NW_STOP_MAX];

    for (size_t i = 0; i < r->n_stop; i++) {
        stop[i] = r->stop[i];
    }
    if (nw_textout_open(j->server->tok, stop, r->n_stop, &j->out, &err) != NW_OK ||
        nw_mailbox_open(r->max_tokens, r->n_top_logprobs, &j->box, &err) != NW_OK) {
        return refuse_error(e, &err);
    }
    const nw_sched_request q = {.prompt = ids->ids,
                                .n_prompt = ids->n,
                                .max_tokens = r->max_tokens,
                                .sampling = r->sampling,
                                .ignore_eos = r->ignore_eos,
                                .n_top_logprobs = r->n_top_logprobs,
                                .on_event = nw_mailbox_on_event,
                                .ctx = j->box};
    if (nw_scheduler_submit(j->server->sched, &q, &j->sched_id, &err) != NW_OK) {
        return refuse_error(e, &err);
    }
    j->submitted = true;
    j->n_prompt = (uint32_t)ids->n;
    return NW_OK;
}

static nw_job *job_new(nw_server *s, nw_api_request *req, int fd)
{
    nw_job *j = calloc(1, sizeof *j);

    if (j != NULL) {
        j->server = s;
        j->fd = fd;
        j->req = *req;
        *req = (nw_api_request){0};
        j->created = (int64_t)time(NULL);
        nw_buf_init(&j->text, MAX_TEXT);
        (void)snprintf(j->id, sizeof j->id, "%s-%" PRIu64, j->req.chat ? "chatcmpl" : "cmpl",
                       (uint64_t)atomic_fetch_add(&s->next_id, 1) + 1);
        atomic_fetch_add(&s->n_jobs, 1);
    }
    return j;
}

nw_status nw_job_admit(nw_server *s, nw_api_request *req, int fd, nw_job **out, nw_api_error *e)
{
    nw_error err = {0};
    nw_ids ids;
    nw_status st = NW_OK;

    *out = NULL;
    if (req->model != NULL && strcmp(req->model, s->model_name) != 0) {
        (void)nw_api_fail(e, "model", "model '%.100s' is not served here, '%.100s' is", req->model,
                          s->model_name);
        e->http_status = 404;
        e->code = "model_not_found";
        return NW_E_RANGE;
    }
    nw_job *j = job_new(s, req, fd);
    if (j == NULL) {
        return refuse(e, 503, "server_error", "out_of_memory", "no memory for a request");
    }
    nw_ids_init(&ids);
    if (atomic_load(&s->draining)) {
        st = refuse(e, 503, "server_error", "shutting_down", "the server is shutting down");
    } else if (encode(s, &j->req, &ids, &err) != NW_OK) {
        st = refuse_error(e, &err);
    } else {
        st = fit(s, &j->req, ids.n, e);
    }
    if (st == NW_OK) {
        st = submit(j, &ids, e);
    }
    nw_ids_release(&ids);
    if (st != NW_OK) {
        nw_job_close(j);
        return st;
    }
    j->logprobs = j->req.logprobs ? json_array() : NULL;
    *out = j;
    return NW_OK;
}

void nw_job_close(nw_job *j)
{
    if (j == NULL) {
        return;
    }
    if (j->submitted) {
        nw_mail mail = nw_mailbox_next(j->box, 0);
        if (mail.kind != NW_MAIL_END) {
            nw_scheduler_cancel(j->server->sched, j->sched_id);
        }
        while (mail.kind != NW_MAIL_END) {
            mail = nw_mailbox_next(j->box, 1000);
        }
    }
    nw_mailbox_close(j->box);
    nw_textout_close(j->out);
    nw_buf_release(&j->text);
    json_decref(j->logprobs);
    nw_api_release(&j->req);
    atomic_fetch_sub(&j->server->n_jobs, 1);
    free(j);
}

bool nw_job_streams(const nw_job *j)
{
    return j->req.stream;
}

/* ---- driving -------------------------------------------------------------------------------- */

/* Half-closed counts as gone: HTTP clients that still want an answer keep their side open. */
static bool client_gone(const nw_job *j)
{
    char byte = 0;
    const ssize_t n = recv(j->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static void take_token(nw_job *j, const nw_mail *mail)
{
    j->n_output++;
    if (j->logprobs != NULL) {
        (void)json_array_append_new(
            j->logprobs,
            nw_reply_logprob(j->server->tok, mail->id, mail->logprob, mail->top, mail->n_top));
    }
    if (nw_textout_push(j->out, mail->id, &j->text)) {
        j->ended = true;
        j->finish = "stop";
        nw_scheduler_cancel(j->server->sched, j->sched_id);
    }
}

static void take_end(nw_job *j, const nw_mail *mail)
{
    nw_error err = {.code = mail->status};

    j->ended = true;
    nw_textout_flush(j->out, &j->text);
    if (mail->finish == NW_FINISH_STOP || mail->finish == NW_FINISH_LENGTH) {
        j->finish = nw_finish_name(mail->finish);
    } else if (mail->finish == NW_FINISH_CANCELLED) {
        (void)refuse(&j->fault, 503, "server_error", "shutting_down",
                     "the server is shutting down");
    } else {
        (void)snprintf(err.message, sizeof err.message, "%s", mail->message);
        (void)refuse_error(&j->fault, &err);
    }
}

/* Waits for one token or the end. False: the client has gone. */
static bool advance(nw_job *j)
{
    nw_mail mail = nw_mailbox_next(j->box, 0);

    while (mail.kind == NW_MAIL_NOTHING) {
        if (client_gone(j)) {
            j->gone = true;
            atomic_fetch_add(&j->server->hang_ups, 1);
            return false;
        }
        if (atomic_load(&j->server->closing)) {
            nw_scheduler_cancel(j->server->sched, j->sched_id);
        }
        mail = nw_mailbox_next(j->box, HANG_UP_MS);
    }
    nw_buf_clear(&j->text);
    if (mail.kind == NW_MAIL_TOKEN) {
        take_token(j, &mail);
    } else {
        take_end(j, &mail);
    }
    return true;
}

static nw_reply_head head(const nw_job *j)
{
    return (nw_reply_head){.chat = j->req.chat,
                           .id = j->id,
                           .model = j->server->model_name,
                           .created = j->created,
                           .include_usage = j->req.include_usage,
                           .event_usage = j->req.event_usage};
}

/* An error after the stream has begun: the status line is gone, so it comes as an event. */
static void add_fault(nw_job *j, nw_buf *out)
{
    char *text = nw_api_error_json(&j->fault);

    (void)nw_buf_printf(out, "data: %s\n\n", text != NULL ? text : "{\"error\":{}}");
    free(text);
}

static void add_end(nw_job *j, const nw_reply_head *h, nw_buf *out)
{
    const nw_reply_delta d = {
        .finish = j->finish, .n_prompt = j->n_prompt, .n_output = j->n_output};

    j->closed = true;
    if (j->fault.http_status != 0) {
        add_fault(j, out);
        return;
    }
    nw_reply_event(out, h, &d);
    if (h->include_usage) {
        nw_reply_usage_event(out, h, j->n_prompt, j->n_output);
    }
    (void)nw_buf_puts(out, "data: [DONE]\n\n");
}

/* What the last token gave: nothing when its text is held back. With usage in every event a token
 * without text is an event too, since its time is a fact. */
static void add_text(nw_job *j, const nw_reply_head *h, nw_buf *out)
{
    nw_reply_delta d = {.text = j->text.data != NULL ? j->text.data : "",
                        .n_text = j->text.len,
                        .n_prompt = j->n_prompt,
                        .n_output = j->n_output};
    const bool pending = j->ended && json_array_size(j->logprobs) > 0;

    if (d.n_text == 0 && !pending && (!h->event_usage || j->ended)) {
        return;
    }
    if (j->logprobs != NULL) {
        d.logprobs = j->logprobs;
        j->logprobs = json_array();
    }
    nw_reply_event(out, h, &d);
}

bool nw_job_next_events(nw_job *j, nw_buf *out)
{
    const nw_reply_head h = head(j);
    const nw_reply_delta opening = {.role = true, .n_prompt = j->n_prompt};

    nw_buf_clear(out);
    while (out->len == 0 && !out->failed && !j->closed) {
        if (!j->ended && !advance(j)) {
            break;
        }
        if (!j->opened && h.chat) {
            nw_reply_event(out, &h, &opening);
        }
        j->opened = true;
        add_text(j, &h, out);
        if (j->ended) {
            add_end(j, &h, out);
        }
    }
    if (out->failed) {
        nw_buf_clear(out);
    }
    return out->len > 0;
}

char *nw_job_whole(nw_job *j, nw_api_error *e)
{
    const nw_reply_head h = head(j);
    nw_buf all;
    char *body = NULL;

    *e = (nw_api_error){0};
    nw_buf_init(&all, MAX_TEXT);
    while (!j->ended && advance(j)) {
        (void)nw_buf_add(&all, j->text.data != NULL ? j->text.data : "", j->text.len);
    }
    if (j->fault.http_status != 0) {
        *e = j->fault;
    } else if (!j->gone && !all.failed) {
        const nw_reply_delta d = {.text = all.data != NULL ? all.data : "",
                                  .n_text = all.len,
                                  .logprobs = j->logprobs,
                                  .finish = j->finish,
                                  .n_prompt = j->n_prompt,
                                  .n_output = j->n_output};
        j->logprobs = NULL;
        body = nw_reply_whole(&h, &d);
    }
    if (body == NULL && !j->gone && e->http_status == 0) {
        (void)refuse(e, 503, "server_error", "out_of_memory", "no memory for the answer");
    }
    nw_buf_release(&all);
    return body;
}
