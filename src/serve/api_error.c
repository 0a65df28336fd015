/* Refusals of the API: which parameter, what was given, what is allowed. Texts are cut to their place and
 * mended, since what a client sent may be cut inside a character.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "model/unicode.h"
#include "serve/api.h"

nw_status nw_api_fail(nw_api_error *e, const char *param, const char *fmt, ...)
{
    va_list ap;

    *e = (nw_api_error){.http_status = 400, .type = "invalid_request_error"};
    (void)snprintf(e->param, sizeof e->param, "%.63s", param);
    va_start(ap, fmt);
    (void)vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    nw_utf8_mend(e->param); /* both may end inside a character */
    nw_utf8_mend(e->message);
    return NW_E_FORMAT;
}

nw_status nw_api_wrong(nw_api_error *e, const char *param, const json_t *found, const char *wanted)
{
    char text[NW_JSON_SHOWN];

    return nw_api_fail(e, param, "%s: %s is given, %s is expected", param,
                       found != NULL ? nw_json_show(found, text) : "nothing", wanted);
}

nw_status nw_api_no_memory(nw_api_error *e, const char *param)
{
    (void)nw_api_fail(e, param, "no memory for %s", param[0] != '\0' ? param : "the answer");
    e->http_status = 503;
    e->type = "server_error";
    e->code = "out_of_memory";
    return NW_E_NOMEM;
}

nw_status nw_api_check_model(const char *asked, const char *served, nw_api_error *e)
{
    if (strcmp(asked, served) == 0) {
        return NW_OK;
    }
    (void)nw_api_fail(e, "model", "model '%.100s' is not served here, '%.100s' is", asked, served);
    e->http_status = 404;
    e->code = "model_not_found";
    return NW_E_RANGE;
}

char *nw_api_error_json(const nw_api_error *e)
{
    json_t *param = e->param[0] != '\0' ? json_string(e->param) : json_null();
    json_t *code = e->code != NULL ? json_string(e->code) : json_null();
    json_t *message = json_string(e->message);
    json_t *root = json_pack("{s:{s:o, s:s, s:o, s:o}}", "error", "message", message, "type",
                             e->type, "param", param, "code", code);
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}
