/* The two parameters that carry text: the messages of a chat and the prompt of a completion.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_SERVE_MESSAGES_H
#define NW_SERVE_MESSAGES_H

#include "serve/api.h"

nw_status nw_api_read_messages(const char *name, const json_t *v, nw_api_request *r,
                               nw_api_error *e);
/* A list of token ids; *ids is freed by the caller, also on failure. */
nw_status nw_api_read_ids(const char *name, const json_t *v, int32_t **ids, size_t *n,
                          nw_api_error *e);
nw_status nw_api_read_prompt(const char *name, const json_t *v, nw_api_request *r, nw_api_error *e);

#endif
