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
#include "serve/logprobs.h"
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
    nw_buf text;              /* what the last token made showable */
    nw_logprob_list logprobs; /* not sent yet; their alternatives lie in the mailbox */
    nw_buf echo;              /* text of the prompt, until it is shown */
    bool echoed;
    size_t offset; /* characters of the logprobs already sent */
    char id[40];
    int64_t created;
};

/* ---- admission ------------------------------------------------------------------------------ */

static nw_status refuse(nw_api_error *e, int http_status, const char *type, const char *code,
                        const char *message)
{
    (void)nw_api_fail(e, "", "%.500s", message);
    e->http_status = http_status;
    e->type = type;
    e->code = code;
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

static nw_status encode_prompt(const nw_server *s, const nw_api_request *r, nw_ids *ids,
                               nw_error *err)
{
    const uint32_t n_vocab = nw_tokenizer_size(s->tok);

    if (r->chat) {
        return nw_chat_encode(s->tok, r->messages, true, ids, err);
    }
    const nw_api_prompt *p = &r->prompts[0];
    if (p->text != NULL) {
        return nw_tokenizer_encode(s->tok, p->text, p->n_bytes, NW_TOK_BOS, ids, err);
    }
    for (size_t i = 0; i < p->n_ids; i++) {
        if ((uint32_t)p->ids[i] >= n_vocab) {
            return nw_fail(err, NW_E_RANGE, "prompt[%zu]: token id %d, 0 to %u are allowed", i,
                           p->ids[i], n_vocab - 1);
        }
        if (!nw_ids_push(ids, p->ids[i])) {
            return nw_fail(err, NW_E_NOMEM, "no memory for %zu prompt tokens", p->n_ids);
        }
    }
    return NW_OK;
}

static nw_status encode(nw_server *s, const nw_api_request *r, nw_ids *ids, nw_error *err)
{
    nw_gate_enter(&s->texts);
    const nw_status st = encode_prompt(s, r, ids, err);
    nw_gate_leave(&s->texts);
    return st;
}

/* The text that the answer begins with, and the entry of the first token. */
static nw_status begin_echo(nw_job *j, const nw_ids *ids, nw_error *err)
{
    const nw_api_prompt *p = &j->req.prompts[0];

    if (j->req.logprobs && !nw_logprob_add(&j->logprobs, (nw_token_logprob){.id = ids->ids[0]})) {
        return nw_fail(err, NW_E_NOMEM, "no memory for log-probabilities");
    }
    if (p->text == NULL) {
        return nw_tokenizer_decode(j->server->tok, ids->ids, ids->n,
                                   NW_DETOK_START | NW_DETOK_CONTROL, &j->echo, err);
    }
    return nw_buf_add(&j->echo, p->text, p->n_bytes)
               ? NW_OK
               : nw_fail(err, NW_E_NOMEM, "no memory for a prompt of %zu bytes", p->n_bytes);
}

/* Holds the prompt against the context and settles max_tokens. */
static nw_status fit(const nw_server *s, nw_api_request *r, size_t n_prompt, nw_api_error *e)
{
    char why[256];

    if (n_prompt == 0) {
        (void)refuse(e, 400, "invalid_request_error", NULL, "the prompt has no tokens");
        return NW_E_RANGE;
    }
    const uint32_t least = r->has_max_tokens ? r->max_tokens : 1;
    if (n_prompt > s->n_ctx || least > s->n_ctx - n_prompt) {
        (void)snprintf(why, sizeof why,
                       "prompt of %zu tokens and %u to generate: the context holds %u", n_prompt,
                       least, s->n_ctx);
        return refuse(e, 400, "invalid_request_error", "context_length_exceeded", why);
    }
    if (!r->has_max_tokens) {
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
    const bool score = r->echo && (r->logprobs || r->max_tokens == 0);
    const size_t n_mail = r->max_tokens + (score ? ids->n : 0);

    for (size_t i = 0; i < r->n_stop; i++) {
        stop[i] = r->stop[i];
    }
    if (nw_textout_open(j->server->tok, stop, r->n_stop, &j->out, &err) != NW_OK ||
        nw_mailbox_open(n_mail, r->n_top_logprobs, &j->box, &err) != NW_OK) {
        return refuse_error(e, &err);
    }
    const nw_sched_request q = {.prompt = ids->ids,
                                .n_prompt = ids->n,
                                .max_tokens = r->max_tokens,
                                .sampling = r->sampling,
                                .score_prompt = score,
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

/* What the prompt does not fit into, or cannot be read as, is told of its parameter. */
static nw_status blame_prompt(const nw_job *j, nw_api_error *e, nw_status st)
{
    if (st != NW_OK && e->http_status == 400) {
        (void)snprintf(e->param, sizeof e->param, "%s", j->req.chat ? "messages" : "prompt");
    }
    return st;
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
        nw_buf_init(&j->echo, MAX_TEXT);
        j->echoed = !j->req.echo;
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
    if (req->model != NULL && nw_api_check_model(req->model, s->model_name, e) != NW_OK) {
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
        st = blame_prompt(j, e, refuse_error(e, &err));
    } else {
        st = blame_prompt(j, e, fit(s, &j->req, ids.n, e));
    }
    if (st == NW_OK && j->req.echo && begin_echo(j, &ids, &err) != NW_OK) {
        st = refuse_error(e, &err);
    }
    if (st == NW_OK) {
        st = submit(j, &ids, e);
    }
    nw_ids_release(&ids);
    if (st != NW_OK) {
        nw_job_close(j);
        return st;
    }
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
    nw_buf_release(&j->echo);
    nw_logprob_list_release(&j->logprobs);
    nw_api_release(&j->req);
    atomic_fetch_sub(&j->server->n_jobs, 1);
    free(j);
}

/* ---- driving -------------------------------------------------------------------------------- */

/* Half-closed counts as gone: HTTP clients that still want an answer keep their side open. */
static bool client_gone(const nw_job *j)
{
    char byte = 0;
    const ssize_t n = recv(j->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static void take_logprob(nw_job *j, const nw_mail *mail)
{
    const nw_token_logprob entry = {mail->id, mail->logprob, mail->n_top, mail->top};

    if (j->req.logprobs && !nw_logprob_add(&j->logprobs, entry) && j->fault.http_status == 0) {
        (void)refuse(&j->fault, 503, "server_error", "out_of_memory",
                     "no memory for log-probabilities");
    }
}

static void take_token(nw_job *j, const nw_mail *mail)
{
    j->n_output++;
    take_logprob(j, mail);
    if (nw_textout_push(j->out, mail->id, &j->text)) {
        j->ended = true;
        j->finish = "stop";
        nw_scheduler_stop(j->server->sched, j->sched_id);
    }
}

static void take_end(nw_job *j, const nw_mail *mail)
{
    nw_error err = {.code = mail->status};

    j->ended = true;
    nw_textout_flush(j->out, &j->text);
    if (!j->req.chat && mail->finish == NW_FINISH_STOP && mail->id >= 0) {
        take_logprob(j, mail); /* clients count on one token more than the prompt has */
    }
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
    if (mail.kind != NW_MAIL_PROMPT && !j->echoed) { /* the prompt has been scored to its end */
        (void)nw_buf_add(&j->text, j->echo.data != NULL ? j->echo.data : "", j->echo.len);
        j->echoed = true;
    }
    if (mail.kind == NW_MAIL_PROMPT) {
        take_logprob(j, &mail);
    } else if (mail.kind == NW_MAIL_TOKEN) {
        take_token(j, &mail);
    } else {
        take_end(j, &mail);
    }
    return true;
}

nw_status nw_job_no_room(const nw_buf *out, nw_api_error *e)
{
    char why[160];

    if (!out->full) {
        return refuse(e, 503, "server_error", "out_of_memory", "no memory for the answer");
    }
    (void)snprintf(why, sizeof why,
                   "the answer is longer than %zu bytes: ask for fewer prompts, tokens or "
                   "log-probabilities at a time",
                   out->max);
    return refuse(e, 400, "invalid_request_error", "answer_too_long", why);
}

nw_reply_head nw_job_head(const nw_job *j)
{
    return (nw_reply_head){.chat = j->req.chat,
                           .id = j->id,
                           .model = j->server->model_name,
                           .created = j->created,
                           .include_usage = j->req.include_usage,
                           .event_usage = j->req.event_usage,
                           .tok = j->server->tok};
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
                        .offset = &j->offset,
                        .n_prompt = j->n_prompt,
                        .n_output = j->n_output};
    const bool pending = j->ended && j->logprobs.n > 0;

    if (!j->echoed || (d.n_text == 0 && !pending && (!h->event_usage || j->ended))) {
        return;
    }
    d.logprobs = j->req.logprobs ? &j->logprobs : NULL;
    nw_reply_event(out, h, &d);
    j->logprobs.n = 0;
}

bool nw_job_next_events(nw_job *j, nw_buf *out)
{
    const nw_reply_head h = nw_job_head(j);
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

nw_status nw_job_choice(nw_job *j, size_t index, nw_buf *out, nw_job_counts *n, nw_api_error *e)
{
    const nw_reply_head h = nw_job_head(j);
    nw_buf all;
    bool told = true;

    *e = (nw_api_error){0};
    nw_buf_init(&all, MAX_TEXT);
    while (!j->ended && advance(j)) {
        told = nw_buf_add(&all, j->text.data != NULL ? j->text.data : "", j->text.len) && told;
    }
    if (!j->gone && told && j->fault.http_status == 0) {
        const nw_reply_delta d = {.text = all.data != NULL ? all.data : "",
                                  .n_text = all.len,
                                  .logprobs = j->req.logprobs ? &j->logprobs : NULL,
                                  .finish = j->finish};
        nw_reply_choice(out, &h, &d, index);
        n->prompt += j->n_prompt;
        n->output += j->n_output;
    }
    nw_buf_release(&all);
    if (j->gone) {
        return NW_E_CANCELLED;
    }
    if (j->fault.http_status != 0) {
        *e = j->fault;
        return NW_E_CANCELLED;
    }
    return told && !out->failed ? NW_OK : nw_job_no_room(out, e);
}
