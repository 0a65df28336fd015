/* Opening, draining and closing of the server: see server.h for its threads.
 * SPDX-License-Identifier: Apache-2.0 */
#include "serve/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/facts.h"
#include "serve/http.h"

#define TELL_S 2.0 /* for the last words of answers that are cut short */

nw_server_options nw_server_options_default(void)
{
    return (nw_server_options){.host = "127.0.0.1",
                               .max_connections = 256,
                               .max_queue = 128,
                               .max_body_bytes = (size_t)4 << 20,
                               .max_depth = 64,
                               .idle_timeout_s = 30};
}

typedef struct {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    };
    bool is_v6;
} address;

static nw_status parse_address(const char *host, uint16_t port, address *out, nw_error *err)
{
    const char *h = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;

    *out = (address){.is_v6 = false};
    if (inet_pton(AF_INET, h, &out->v4.sin_addr) == 1) {
        out->v4.sin_family = AF_INET;
        out->v4.sin_port = htons(port);
        return NW_OK;
    }
    if (inet_pton(AF_INET6, h, &out->v6.sin6_addr) == 1) {
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons(port);
        out->is_v6 = true;
        return NW_OK;
    }
    return nw_fail(err, NW_E_USAGE, "host '%s': an IPv4 or IPv6 address is expected", host);
}

static void log_mhd(void *cls, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

static void log_mhd(void *cls, const char *fmt, va_list ap)
{
    char line[256];

    (void)cls;
    (void)vsnprintf(line, sizeof line, fmt, ap);
    line[strcspn(line, "\r\n")] = '\0';
    nw_log(NW_LOG_DEBUG, "http: %s", line);
}

static nw_status listen_on(nw_server *s, nw_error *err)
{
    address a;
    const unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
                           MHD_USE_POLL | MHD_USE_ERROR_LOG;

    if (parse_address(s->opt.host, s->opt.port, &a, err) != NW_OK) {
        return err->code;
    }
    errno = 0;
    s->daemon = MHD_start_daemon(
        flags | (a.is_v6 ? (unsigned)MHD_USE_IPv6 : 0U), s->opt.port, NULL, NULL, nw_http_request,
        s, MHD_OPTION_EXTERNAL_LOGGER, log_mhd, NULL, MHD_OPTION_SOCK_ADDR, &a.any,
        MHD_OPTION_CONNECTION_LIMIT, s->opt.max_connections, MHD_OPTION_CONNECTION_TIMEOUT,
        s->opt.idle_timeout_s, MHD_OPTION_NOTIFY_COMPLETED, nw_http_completed, s, MHD_OPTION_END);
    if (s->daemon == NULL) {
        return nw_fail(err, NW_E_IO, "listening on %s port %u: %s", s->opt.host, s->opt.port,
                       errno != 0 ? strerror(errno) : "libmicrohttpd does not start");
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);
    s->port = info != NULL ? info->port : s->opt.port;
    return NW_OK;
}

/* The last part of a path, without a slash at its end. */
static void name_from_path(const char *path, char *out, size_t n)
{
    size_t end = strlen(path);

    while (end > 1 && path[end - 1] == '/') {
        end--;
    }
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') {
        begin--;
    }
    (void)snprintf(out, n, "%.*s", (int)(end - begin), path + begin);
}

static nw_status set_model_name(nw_server *s, nw_error *err)
{
    json_t *facts = nw_engine_facts_json(s->engine);
    const char *path = json_string_value(json_object_get(facts, "model"));

    if (s->opt.model_name != NULL) {
        (void)snprintf(s->model_name, sizeof s->model_name, "%s", s->opt.model_name);
    } else if (path != NULL) {
        name_from_path(path, s->model_name, sizeof s->model_name);
    }
    json_decref(facts);
    return s->model_name[0] != '\0' ? NW_OK
                                    : nw_fail(err, NW_E_USAGE, "the model needs a name to serve");
}

nw_status nw_server_open(nw_engine *engine, const nw_server_options *opt, nw_server **out,
                         nw_error *err)
{
    const nw_engine_facts *f = nw_engine_get_facts(engine);
    nw_server *s = calloc(1, sizeof *s);

    *out = NULL;
    if (s == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for a server");
    }
    s->opt = *opt;
    s->engine = engine;
    s->tok = nw_engine_tokenizer(engine);
    nw_gate_init(&s->texts, NW_SERVE_TEXTS);
    s->created = (int64_t)time(NULL);
    s->n_ctx = f->kv_capacity_tokens < f->n_ctx ? (uint32_t)f->kv_capacity_tokens : f->n_ctx;
    const nw_scheduler_options so = {.max_queue = opt->max_queue,
                                     .prefill_chunk = opt->prefill_chunk};
    nw_status st = s->tok != NULL ? set_model_name(s, err)
                                  : nw_fail(err, NW_E_UNSUPPORTED,
                                            "serving needs a tokenizer, and "
                                            "the model has none");
    if (st == NW_OK) {
        st = nw_scheduler_open(engine, &so, &s->sched, err);
    }
    if (st == NW_OK) {
        st = listen_on(s, err);
    }
    if (st != NW_OK) {
        nw_server_close(s);
        return st;
    }
    *out = s;
    return NW_OK;
}

uint16_t nw_server_port(const nw_server *s)
{
    return s->port;
}

/* Until every answer is sent, or the time is over. */
static void wait_for_answers(const nw_server *s, double limit_s)
{
    const double end_s = nw_now_s() + limit_s;

    while (atomic_load(&s->n_open) > 0 && nw_now_s() < end_s) {
        nw_sleep_until_ns(nw_now_ns() + 20000000);
    }
}

void nw_server_drain(nw_server *s, double grace_s)
{
    atomic_store(&s->draining, true);
    wait_for_answers(s, grace_s);
    atomic_store(&s->closing, true); /* who still waits is told so, if it reads at all */
    wait_for_answers(s, TELL_S);
}

void nw_server_close(nw_server *s)
{
    if (s != NULL) {
        nw_server_drain(s, 0);
        if (s->daemon != NULL) {
            MHD_stop_daemon(s->daemon);
        }
        nw_scheduler_close(s->sched);
        nw_gate_release(&s->texts);
        free(s);
    }
}
