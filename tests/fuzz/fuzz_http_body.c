/* Whatever the body, the API's parser gives a request whose every number is in range, or a refusal of
 * status 400 that says something and can be written as JSON. Both endpoints see each input.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fuzz/check.h"
#include "serve/api.h"

static void check_request(const nw_api_request *r)
{
    nw_error err = {0};

    NW_CHECK(nw_sampling_check(&r->sampling, &err) == NW_OK);
    NW_CHECK(r->n_top_logprobs <= NW_TOP_LOGPROBS_MAX && r->n_stop <= NW_STOP_MAX);
    NW_CHECK(r->chat ? json_array_size(r->messages) > 0 : r->n_prompts > 0);
    NW_CHECK(r->max_tokens > 0 || !r->has_max_tokens || r->echo);
    NW_CHECK(!r->stream || r->n_prompts <= 1);
    for (size_t i = 0; i < r->n_stop; i++) {
        NW_CHECK(r->stop[i][0] != '\0' && strlen(r->stop[i]) <= NW_STOP_MAX_BYTES);
    }
    for (size_t i = 0; i < json_array_size(r->messages); i++) {
        const json_t *m = json_array_get(r->messages, i);
        NW_CHECK(json_is_string(json_object_get(m, "role")));
        NW_CHECK(json_is_string(json_object_get(m, "content")));
    }
    for (size_t i = 0; i < r->n_prompts; i++) {
        const nw_api_prompt *p = &r->prompts[i];
        NW_CHECK((p->text != NULL) != (p->ids != NULL) && (p->text != NULL || p->n_ids > 0));
        for (size_t k = 0; k < p->n_ids; k++) {
            NW_CHECK(p->ids[k] >= 0);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int chat = 0; chat < 2; chat++) {
        nw_api_request r;
        nw_api_error e = {0};
        const char *body = size == 0 ? "" : (const char *)data;
        if (nw_api_parse(body, size, chat != 0, 32, &r, &e) == NW_OK) {
            check_request(&r);
        } else {
            char *text = nw_api_error_json(&e);
            NW_CHECK(e.http_status == 400 && e.message[0] != '\0');
            NW_CHECK(r.messages == NULL && r.prompts == NULL && text != NULL);
            free(text);
        }
        nw_api_release(&r);
    }
    return 0;
}
