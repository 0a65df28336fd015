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

/* What tells one model from another of the same name: its length, what llama.cpp says of its weights, and
 * the artifact of a server of ours. NULL: no memory. */
static json_t *identity_of(const nw_endpoint *ep, size_t i, const json_t *entry, const char *owner)
{
    static const char *const of_entry[] = {"id", "max_model_len", "meta"};
    static const char *const of_facts[] = {"artifact_hash", "act", "kv"};
    json_t *o = json_object();
    json_t *facts = NULL;
    long http = 0;
    nw_error ignored = {0};

    for (size_t k = 0; k < NW_COUNT(of_entry); k++) {
        json_t *v = json_object_get(entry, of_entry[k]);
        (void)json_object_set_new(o, of_entry[k], v != NULL ? json_deep_copy(v) : json_null());
    }
    if (ep->n_replicas > 1 && strcmp(owner, "narrow") == 0 &&
        nw_ep_ask(ep, i, "/narrow/facts", NULL, &http, &facts, &ignored) == NW_OK) {
        for (size_t k = 0; http == 200 && k < NW_COUNT(of_facts); k++) {
            json_t *v = json_object_get(facts, of_facts[k]);
            (void)json_object_set(o, of_facts[k], v != NULL ? v : json_null());
        }
    }
    json_decref(facts);
    return o;
}

/* Another replica says the same of itself as the first. */
static nw_status check_replica(const nw_endpoint *ep, size_t i, const json_t *other, nw_error *err)
{
    const char *key = NULL;
    json_t *mine = NULL;

    json_object_foreach(ep->identity, key, mine)
    {
        const json_t *theirs = json_object_get(other, key);
        if (theirs != NULL && json_equal(mine, theirs)) {
            continue;
        }
        char *a = json_dumps(mine, JSON_COMPACT | JSON_ENCODE_ANY);
        char *b = json_dumps(theirs, JSON_COMPACT | JSON_ENCODE_ANY);
        (void)nw_fail(err, NW_E_NETWORK,
                      "%.100s and %.100s serve different models: '%s' is %.80s and %.80s; replicas "
                      "serve one",
                      ep->root, ep->roots[i], key, a != NULL ? a : "?", b != NULL ? b : "not said");
        nw_utf8_mend(err->message);
        free(a);
        free(b);
        return err->code;
    }
    return NW_OK;
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
    json_t *identity = identity_of(ep, i, entry, owner != NULL ? owner : "");
    if (identity == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory", ep->roots[i]);
    }
    if (i > 0) {
        const nw_status st = check_replica(ep, i, identity, err);
        json_decref(identity);
        return st;
    }
    ep->identity = identity;
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
