/* Answers as the OpenAI API shapes them. Text is whole UTF-8 by construction (engine/textout).
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/reply.h"

#include <inttypes.h>

static void put_string(nw_buf *out, const char *key, const char *value)
{
    (void)nw_buf_printf(out, "\"%s\":", key);
    nw_json_put(out, value != NULL ? json_string(value) : json_null());
}

static void put_usage(nw_buf *out, uint32_t n_prompt, uint32_t n_output)
{
    (void)nw_buf_printf(out,
                        "{\"prompt_tokens\":%" PRIu32 ",\"completion_tokens\":%" PRIu32
                        ",\"total_tokens\":%" PRIu64 "}",
                        n_prompt, n_output, (uint64_t)n_prompt + n_output);
}

static void put_logprobs(nw_buf *out, const nw_reply_head *h, const nw_reply_delta *d)
{
    size_t none = 0;

    if (d->logprobs == NULL) {
        (void)nw_buf_puts(out, "null");
    } else if (h->chat) {
        (void)nw_buf_puts(out, "{\"content\":");
        nw_logprob_put_content(out, h->tok, d->logprobs);
        (void)nw_buf_puts(out, "}");
    } else {
        nw_logprob_put_lists(out, h->tok, d->logprobs, d->offset != NULL ? d->offset : &none);
    }
}

static json_t *text_of(const nw_reply_delta *d)
{
    return json_stringn(d->text != NULL ? d->text : "", d->n_text);
}

/* A choice up to the text that it holds. */
static void open_choice(nw_buf *out, const nw_reply_head *h, const nw_reply_delta *d, size_t index)
{
    (void)nw_buf_printf(out, "{\"index\":%zu,\"logprobs\":", index);
    put_logprobs(out, h, d);
    (void)nw_buf_puts(out, ",");
    put_string(out, "finish_reason", d->finish);
}

static void put_event_choice(nw_buf *out, const nw_reply_head *h, const nw_reply_delta *d)
{
    open_choice(out, h, d, 0);
    if (!h->chat) {
        (void)nw_buf_puts(out, ",\"text\":");
        nw_json_put(out, text_of(d));
        (void)nw_buf_puts(out, "}");
        return;
    }
    json_t *delta = json_object();
    if (d->role) {
        (void)json_object_set_new(delta, "role", json_string("assistant"));
        (void)json_object_set_new(delta, "content", json_string(""));
    }
    if (d->text != NULL) {
        (void)json_object_set_new(delta, "content", text_of(d));
    }
    (void)nw_buf_puts(out, ",\"delta\":");
    nw_json_put(out, delta);
    (void)nw_buf_puts(out, "}");
}

/* The object up to its first choice. */
static void open_envelope(nw_buf *out, const nw_reply_head *h, const char *object)
{
    (void)nw_buf_puts(out, "{");
    put_string(out, "id", h->id);
    (void)nw_buf_printf(out, ",\"object\":\"%s\",\"created\":%" PRId64 ",", object, h->created);
    put_string(out, "model", h->model);
    (void)nw_buf_puts(out, ",\"choices\":[");
}

static const char *event_object(const nw_reply_head *h)
{
    return h->chat ? "chat.completion.chunk" : "text_completion";
}

void nw_reply_event(nw_buf *out, const nw_reply_head *h, const nw_reply_delta *d)
{
    (void)nw_buf_puts(out, "data: ");
    open_envelope(out, h, event_object(h));
    put_event_choice(out, h, d);
    (void)nw_buf_puts(out, "]");
    if (h->event_usage) {
        (void)nw_buf_puts(out, ",\"usage\":");
        put_usage(out, d->n_prompt, d->n_output);
    } else if (h->include_usage) {
        (void)nw_buf_puts(out, ",\"usage\":null");
    }
    (void)nw_buf_puts(out, "}\n\n");
}

void nw_reply_usage_event(nw_buf *out, const nw_reply_head *h, uint32_t n_prompt, uint32_t n_output)
{
    (void)nw_buf_puts(out, "data: ");
    open_envelope(out, h, event_object(h));
    nw_reply_end(out, n_prompt, n_output);
    (void)nw_buf_puts(out, "\n\n");
}

void nw_reply_begin(nw_buf *out, const nw_reply_head *h)
{
    open_envelope(out, h, h->chat ? "chat.completion" : "text_completion");
}

void nw_reply_choice(nw_buf *out, const nw_reply_head *h, const nw_reply_delta *d, size_t index)
{
    (void)nw_buf_puts(out, index > 0 ? "," : "");
    open_choice(out, h, d, index);
    (void)nw_buf_puts(out,
                      h->chat ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"text\":");
    nw_json_put(out, text_of(d));
    (void)nw_buf_puts(out, h->chat ? "}}" : "}");
}

void nw_reply_end(nw_buf *out, uint32_t n_prompt, uint32_t n_output)
{
    (void)nw_buf_puts(out, "],\"usage\":");
    put_usage(out, n_prompt, n_output);
    (void)nw_buf_puts(out, "}");
}
