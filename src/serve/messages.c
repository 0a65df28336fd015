/* Messages are brought to one shape before a template sees them: role and content are strings; parts
 * of type text are joined; what cannot be honoured (images, tool calls) is refused by its place.
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"

#define MAX_TEXT ((size_t)64 << 20)

/* [{"type": "text", "text": "..."}, ...] into one string. */
static nw_status join_parts(size_t at, const json_t *parts, json_t **out, nw_api_error *e)
{
    nw_buf b;
    char where[64];

    nw_buf_init(&b, MAX_TEXT);
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *text = json_object_get(part, "text");
        (void)snprintf(where, sizeof where, "messages[%zu].content[%zu]", at, i);
        if (type == NULL || strcmp(type, "text") != 0 || !json_is_string(text)) {
            nw_buf_release(&b);
            return nw_api_fail(e, where, "%s: only parts of type 'text' are supported", where);
        }
        (void)nw_buf_add(&b, json_string_value(text), json_string_length(text));
    }
    *out = b.failed ? NULL : json_stringn(b.data != NULL ? b.data : "", b.len);
    nw_buf_release(&b);
    return *out != NULL ? NW_OK : nw_api_no_memory(e, "messages");
}

static nw_status read_content(size_t at, const json_t *m, json_t **out, nw_api_error *e)
{
    const json_t *content = json_object_get(m, "content");
    char where[64];

    if (json_is_string(content)) {
        *out = json_stringn(json_string_value(content), json_string_length(content));
        return *out != NULL ? NW_OK : nw_api_no_memory(e, "messages");
    }
    if (json_is_array(content)) {
        return join_parts(at, content, out, e);
    }
    (void)snprintf(where, sizeof where, "messages[%zu].content", at);
    return nw_api_wrong(e, where, content, "a string or a list of parts");
}

/* Keys besides role and content that may stand in a message and do not change the answer; refusal
 * comes as null from OpenAI's own client. */
static nw_status check_keys(size_t at, const json_t *m, nw_api_error *e)
{
    static const char *const known[] = {"role", "content", "name"};
    const char *key = NULL;
    json_t *value = NULL;
    char where[64];

    json_object_foreach((json_t *)(uintptr_t)m, key, value)
    {
        size_t i = 0;
        while (i < NW_COUNT(known) && strcmp(known[i], key) != 0) {
            i++;
        }
        if (i == NW_COUNT(known) && !json_is_null(value)) {
            (void)snprintf(where, sizeof where, "messages[%zu].%.30s", at, key);
            return nw_api_fail(e, where, "%s: not supported", where);
        }
    }
    return NW_OK;
}

static nw_status read_message(size_t at, const json_t *m, json_t *list, nw_api_error *e)
{
    const json_t *found = json_object_get(m, "role");
    const char *role = json_string_value(found);
    json_t *content = NULL;
    char where[64];

    (void)snprintf(where, sizeof where, "messages[%zu].role", at);
    if (!json_is_object(m) || role == NULL || role[0] == '\0' || strlen(role) > 32) {
        return nw_api_wrong(e, where, found, "a string such as 'user', of at most 32 bytes,");
    }
    if (check_keys(at, m, e) != NW_OK || read_content(at, m, &content, e) != NW_OK) {
        return NW_E_FORMAT;
    }
    json_t *clean = json_pack("{s:s, s:o}", "role", role, "content", content);
    return clean != NULL && json_array_append_new(list, clean) == 0
               ? NW_OK
               : nw_api_no_memory(e, "messages");
}

nw_status nw_api_read_messages(const char *name, const json_t *v, nw_api_request *r,
                               nw_api_error *e)
{
    if (!json_is_array(v)) {
        return nw_api_wrong(e, name, v, "a list of messages");
    }
    if (json_array_size(v) == 0) {
        return nw_api_fail(e, name, "messages: 0 are given, at least one message is expected");
    }
    r->messages = json_array();
    if (r->messages == NULL) {
        return nw_api_no_memory(e, name);
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        const nw_status st = read_message(i, json_array_get(v, i), r->messages, e);
        if (st != NW_OK) {
            return st;
        }
    }
    return NW_OK;
}

nw_status nw_api_read_ids(const char *name, const json_t *v, int32_t **ids, size_t *n,
                          nw_api_error *e)
{
    *n = json_array_size(v);
    *ids = calloc(*n + 1, sizeof **ids);
    if (*ids == NULL) {
        return nw_api_no_memory(e, name);
    }
    for (size_t i = 0; i < *n; i++) {
        const json_t *id = json_array_get(v, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX) {
            char found[NW_JSON_SHOWN];
            return nw_api_fail(e, name, "%s[%zu]: %s is given, a token id is expected", name, i,
                               nw_json_show(id, found));
        }
        (*ids)[i] = (int32_t)json_integer_value(id);
    }
    return NW_OK;
}

/* A text, or a list of ids. */
static nw_status read_one_prompt(const char *name, const json_t *v, nw_api_prompt *p,
                                 nw_api_error *e)
{
    if (json_is_array(v)) {
        return nw_api_read_ids(name, v, &p->ids, &p->n_ids, e);
    }
    p->n_bytes = json_string_length(v);
    p->text = strdup(json_string_value(v));
    return p->text != NULL ? NW_OK : nw_api_no_memory(e, name);
}

nw_status nw_api_read_prompt(const char *name, const json_t *v, nw_api_request *r, nw_api_error *e)
{
    const json_t *first = json_array_get(v, 0);
    const bool list = json_is_string(first) || json_is_array(first);
    const size_t n = list ? json_array_size(v) : 1;
    nw_status st = NW_OK;

    if (n > NW_API_MAX_PROMPTS) {
        return nw_api_fail(e, name, "prompt: %zu prompts, at most %d are allowed", n,
                           NW_API_MAX_PROMPTS);
    }
    r->prompts = calloc(n, sizeof *r->prompts);
    if (r->prompts == NULL) {
        return nw_api_no_memory(e, name);
    }
    r->n_prompts = n;
    for (size_t i = 0; i < n && st == NW_OK; i++) {
        const json_t *one = list ? json_array_get(v, i) : v;
        char where[32];
        (void)snprintf(where, sizeof where, list ? "prompt[%zu]" : "prompt", i);
        if (!json_is_string(one) && json_array_size(one) == 0) {
            char found[NW_JSON_SHOWN];
            return nw_api_fail(
                e, name, "%s: %s is given, a string or a list of token ids is expected", where,
                json_is_array(one) ? "an empty list" : nw_json_show(one, found));
        }
        st = read_one_prompt(where, one, &r->prompts[i], e);
    }
    return st;
}
