/* The routes and the handling of one HTTP request. Inside src/serve.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_SERVE_HTTP_H
#define NW_SERVE_HTTP_H

#include "serve/api.h"
#include "serve/state.h"

/* libmicrohttpd's callbacks; cls is the nw_server. */
enum MHD_Result nw_http_request(void *cls, struct MHD_Connection *conn, const char *url,
                                const char *method, const char *version, const char *data,
                                size_t *n_data, void **req_cls);
void nw_http_completed(void *cls, struct MHD_Connection *conn, void **req_cls,
                       enum MHD_RequestTerminationCode why);

/* The text of /metrics (Prometheus 0.0.4), and /narrow/facts; freed by the caller; NULL: no memory. */
char *nw_metrics_text(nw_server *s);
char *nw_facts_text(nw_server *s);

/* Answers of POST /tokenize and /detokenize (tokens.c); NULL: *e says why. */
char *nw_tokenize_text(const nw_server *s, const char *body, size_t n, nw_api_error *e);
char *nw_tokenizer_info_text(const nw_server *s); /* GET /tokenizer_info; NULL: no memory */
char *nw_detokenize_text(const nw_server *s, const char *body, size_t n, nw_api_error *e);

#endif
