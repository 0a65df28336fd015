/* Answers as the OpenAI API shapes them. Text is whole UTF-8 by construction (engine/textout).
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/reply.h"

#include <stdlib.h>

#include "serve/logprobs.h"

json_t *nw_reply_usage(uint32_t n_prompt, uint32_t n_output)
{
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)n_prompt, "completion_tokens",
                     (json_int_t)n_output, "total_tokens", (json_int_t)n_prompt + n_output);
}

/* Takes the list over. */
static json_t *logprobs_or_null(const nw_reply_head *h, const nw_reply_delta *d)
{
    size_t none = 0;

    if (d->logprobs == NULL) {
        return json_null();
    }
    if (h->chat) {
        return json_pack("{s:o}", "content", d->logprobs);
    }
    json_t *lists = nw_logprob_lists(d->logprobs, d->offset != NULL ? d->offset : &none);
    json_decref(d->logprobs);
    return lists;
}

static json_t *string_or_null(const char *s)
{
    return s != NULL ? json_string(s) : json_null();
}

static json_t *event_choice(const nw_reply_head *h, const nw_reply_delta *d)
{
    json_t *choice = json_pack("{s:i, s:o, s:o}", "index", 0, "logprobs", logprobs_or_null(h, d),
                               "finish_reason", string_or_null(d->finish));

    if (!h->chat) {
        (void)json_object_set_new(choice, "text",
                                  json_stringn(d->text != NULL ? d->text : "", d->n_text));
        return choice;
    }
    json_t *delta = json_object();
    if (d->role) {
        (void)json_object_set_new(delta, "role", json_string("assistant"));
        (void)json_object_set_new(delta, "content", json_string(""));
    }
    if (d->text != NULL) {
        (void)json_object_set_new(delta, "content", json_stringn(d->text, d->n_text));
    }
    (void)json_object_set_new(choice, "delta", delta);
    return choice;
}

/* The object around choices; takes choices and usage over. */
static json_t *envelope(const nw_reply_head *h, const char *object, json_t *choices, json_t *usage)
{
    json_t *root = json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", h->id, "object", object, "created",
                             (json_int_t)h->created, "model", h->model, "choices", choices);
    if (usage != NULL) {
        (void)json_object_set_new(root, "usage", usage);
    }
    return root;
}

/* Appends and frees; a failure shows as out->failed. */
static void add_event(nw_buf *out, json_t *root)
{
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;

    if (text == NULL) {
        out->failed = true;
    } else {
        (void)(nw_buf_puts(out, "data: ") && nw_buf_puts(out, text) && nw_buf_puts(out, "\n\n"));
    }
    free(text);
    json_decref(root);
}

static const char *event_object(const nw_reply_head *h)
{
    return h->chat ? "chat.completion.chunk" : "text_completion";
}

void nw_reply_event(nw_buf *out, const nw_reply_head *h, const nw_reply_delta *d)
{
    json_t *choices = json_pack("[o]", event_choice(h, d));
    json_t *usage = h->event_usage     ? nw_reply_usage(d->n_prompt, d->n_output)
                    : h->include_usage ? json_null()
                                       : NULL;

    add_event(out, envelope(h, event_object(h), choices, usage));
}

void nw_reply_usage_event(nw_buf *out, const nw_reply_head *h, uint32_t n_prompt, uint32_t n_output)
{
    add_event(out, envelope(h, event_object(h), json_array(), nw_reply_usage(n_prompt, n_output)));
}

json_t *nw_reply_choice(const nw_reply_head *h, const nw_reply_delta *d, size_t index)
{
    json_t *body = json_stringn(d->text, d->n_text);
    json_t *choice = json_pack("{s:I, s:o, s:o}", "index", (json_int_t)index, "logprobs",
                               logprobs_or_null(h, d), "finish_reason", string_or_null(d->finish));

    if (h->chat) {
        body = json_pack("{s:s, s:o}", "role", "assistant", "content", body);
    }
    (void)json_object_set_new(choice, h->chat ? "message" : "text", body);
    return choice;
}

char *nw_reply_whole(const nw_reply_head *h, json_t *choices, uint32_t n_prompt, uint32_t n_output)
{
    json_t *root = envelope(h, h->chat ? "chat.completion" : "text_completion", choices,
                            nw_reply_usage(n_prompt, n_output));
    char *out = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;

    json_decref(root);
    return out;
}
