/* Opening an endpoint: the replicas behind its spec, the headers of every request, and what each
 * replica says it serves.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "model/unicode.h"
#include "target/endpoint.h"

static void curl_init_once(void)
{
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* "http://h:1/v1/" and "http://h:1" are the same server. */
static char *root_of(const char *url, size_t n)
{
    while (n > 0 && url[n - 1] == '/') {
        n--;
    }
    if (n > 3 && memcmp(url + n - 3, "/v1", 3) == 0) {
        n -= 3;
    }
    return strndup(url, n);
}

static bool set_headers(nw_endpoint *ep, const char *api_key)
{
    /* "Expect:" without a value: a long body must not wait a second for "100 Continue" */
    static const char *const fixed[] = {"Content-Type: application/json", "Expect:"};
    char line[1024];

    for (size_t i = 0; i < NW_COUNT(fixed); i++) {
        struct curl_slist *l = curl_slist_append(ep->headers, fixed[i]);
        if (l == NULL) {
            return false;
        }
        ep->headers = l;
    }
    if (api_key != NULL) {
        (void)snprintf(line, sizeof line, "Authorization: Bearer %s", api_key);
        struct curl_slist *l = curl_slist_append(ep->headers, line);
        if (l == NULL) {
            return false;
        }
        ep->headers = l;
    }
    return true;
}

/* "http://a:1,http://b:1": replicas of one service. */
static nw_status split_replicas(nw_endpoint *ep, const char *spec, nw_error *err)
{
    for (const char *at = spec; *at != '\0';) {
        const size_t n = strcspn(at, ",");
        if (ep->n_replicas == NW_EP_MAX_REPLICAS) {
            return nw_fail(err, NW_E_RANGE, "more than %d replicas", NW_EP_MAX_REPLICAS);
        }
        if (!nw_target_spec_is_url(at)) {
            return nw_fail(err, NW_E_USAGE, "replica '%.*s': a URL is expected", (int)n, at);
        }
        char *root = root_of(at, n);
        if (root == NULL) {
            return nw_fail(err, NW_E_NOMEM, "no memory for an endpoint");
        }
        ep->roots[ep->n_replicas++] = root;
        at += n + (at[n] == ',');
    }
    ep->root = ep->roots[0];
    return NW_OK;
}

/* The entry of the model asked for, or the first where none was; NULL. */
static const json_t *entry_of(const json_t *list, const char *wanted)
{
    for (size_t i = 0; wanted != NULL && i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const char *id = json_string_value(json_object_get(entry, "id"));
        if (id != NULL && strcmp(id, wanted) == 0) {
            return entry;
        }
    }
    return wanted == NULL ? json_array_get(list, 0) : NULL;
}

/* Tokens of the context; 0: not said. */
static uint32_t length_of(const json_t *entry)
{
    const json_int_t len = json_integer_value(json_object_get(entry, "max_model_len"));
    const json_t *meta = json_object_get(entry, "meta"); /* llama.cpp */
    const json_int_t trained = json_integer_value(json_object_get(meta, "n_ctx_train"));

    return len > 0 && len <= UINT32_MAX           ? (uint32_t)len
           : trained > 0 && trained <= UINT32_MAX ? (uint32_t)trained
                                                  : 0;
}

/* What the first replica says is taken over; the others have to serve the same model. */
static nw_status take_models(nw_endpoint *ep, size_t i, const json_t *root, const char *wanted,
                             nw_error *err)
{
    const json_t *list = json_object_get(root, "data");
    const json_t *entry = entry_of(list, wanted);
    /* a model that is not listed, such as an alias, still has the server's owner, not its length */
    const json_t *owned = entry != NULL ? entry : json_array_get(list, 0);
    const char *id = json_string_value(json_object_get(entry, "id"));
    const char *owner = json_string_value(json_object_get(owned, "owned_by"));

    if (wanted == NULL && id == NULL) {
        return nw_fail(err, NW_E_NETWORK, "%s/v1/models: names no model, and none was given",
                       ep->roots[i]);
    }
    if (i > 0 && wanted == NULL && strcmp(id, ep->model) != 0) {
        return nw_fail(err, NW_E_NETWORK,
                       "%s serves '%.100s', %s '%.100s': replicas serve one model", ep->roots[i],
                       id, ep->root, ep->model);
    }
    if (i > 0) {
        return NW_OK;
    }
    (void)snprintf(ep->owner, sizeof ep->owner, "%.31s", owner != NULL ? owner : "");
    nw_utf8_mend(ep->owner);
    ep->event_usage = strcmp(ep->owner, "narrow") == 0 || strcmp(ep->owner, "vllm") == 0;
    ep->max_model_len = length_of(entry);
    ep->model = strdup(wanted != NULL ? wanted : id);
    return ep->model != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory", ep->root);
}

static nw_status learn_models(nw_endpoint *ep, const char *wanted, nw_error *err)
{
    nw_status st = NW_OK;

    for (size_t i = 0; i < ep->n_replicas && st == NW_OK; i++) {
        json_t *root = NULL;
        long http = 0;
        st = nw_ep_ask(ep, i, "/v1/models", NULL, &http, &root, err);
        if (st == NW_OK && (http != 200 || root == NULL)) {
            const char *why = nw_ep_error_message(root);
            st = nw_fail(err, NW_E_NETWORK, "%s/v1/models: answered with HTTP status %ld%s%s%s",
                         ep->roots[i], http, http == 200 ? " and no JSON" : ", 200 is needed",
                         why != NULL ? ": " : "", why != NULL ? why : "");
        }
        st = st == NW_OK ? take_models(ep, i, root, wanted, err) : st;
        json_decref(root);
    }
    return st == NW_OK ? NW_OK : nw_context(err, "asking for the models");
}

/* Room in the table of open files for each connection. */
static void raise_file_limit(void)
{
    struct rlimit lim;

    if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < lim.rlim_max) {
        lim.rlim_cur = lim.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &lim);
    }
}

nw_status nw_endpoint_open(const char *url, const nw_target_options *opt, nw_target *t,
                           nw_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    nw_endpoint *ep = calloc(1, sizeof *ep);

    if (ep == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for an endpoint", url);
    }
    (void)pthread_once(&once, curl_init_once);
    (void)pthread_mutex_init(&ep->lock, NULL);
    (void)pthread_mutex_init(&ep->learn_lock, NULL);
    raise_file_limit();
    ep->max_retries = opt->max_retries;
    ep->max_rate = opt->max_rate;
    ep->timeout_s = opt->timeout_s != 0 ? opt->timeout_s : 600;
    ep->max_open = opt->max_queue != 0 ? opt->max_queue : 1024;
    ep->recount = t->own_tokenizer;
    ep->multi = curl_multi_init();
    nw_status st = split_replicas(ep, url, err);
    if (st == NW_OK && (ep->multi == NULL || !set_headers(ep, opt->api_key))) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for an endpoint", url);
    }
    if (st == NW_OK) {
        (void)curl_multi_setopt(ep->multi, CURLMOPT_MAXCONNECTS, (long)ep->max_open);
        st = learn_models(ep, opt->model, err);
    }
    st = st == NW_OK ? nw_ep_start_thread(ep, err) : st;
    if (st != NW_OK) {
        nw_ep_close(ep);
        return st;
    }
    t->ops = &nw_endpoint_ops;
    t->impl = ep;
    t->model = strdup(ep->model);
    t->max_len = ep->max_model_len;
    return NW_OK;
}
