/* The files beside a tokenizer.json: tokenizer_config.json (texts of BOS, EOS and the others, the
 * chat template), chat_template.jinja, generation_config.json and config.json (ids that end a
 * generation). Each may be absent.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/template.h"
#include "model/tokenizer_internal.h"

#define MAX_CONFIG ((size_t)16 << 20)

/* *out stays NULL where the file is absent. */
static nw_status load(const char *dir, const char *file, json_t **out, char **path, nw_error *err)
{
    *out = NULL;
    *path = nw_path_join(dir, file);
    if (*path == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a path", dir);
    }
    return nw_file_exists(*path) ? nw_json_load(*path, MAX_CONFIG, out, err) : NW_OK;
}

/* "bos_token": its id; the value is a text or an object with "content". */
static nw_status token_id(const nw_tokenizer *t, const char *path, const json_t *config,
                          const char *key, int32_t *out, nw_error *err)
{
    const json_t *v = json_object_get(config, key);
    const json_t *s = json_is_object(v) ? json_object_get(v, "content") : v;

    if (v == NULL || json_is_null(v)) {
        return NW_OK;
    }
    if (!json_is_string(s)) {
        return nw_fail(err, NW_E_FORMAT, "%s: \"%s\" is neither a text nor an added token", path,
                       key);
    }
    const int32_t id = nw_vocab_find(t, json_string_value(s), json_string_length(s));
    if (id < 0) {
        return nw_fail(err, NW_E_FORMAT, "%s: \"%s\" is '%.80s', which is not in the vocabulary",
                       path, key, json_string_value(s));
    }
    *out = id;
    return NW_OK;
}

/* A text, or a list of {"name", "template"} of which "default" counts. */
static nw_status config_template(nw_tokenizer *t, const json_t *v, nw_error *err)
{
    size_t i = 0;
    json_t *item = NULL;
    const char *text = json_string_value(v);

    json_array_foreach(v, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name != NULL && strcmp(name, "default") == 0) {
            text = json_string_value(json_object_get(item, "template"));
        }
    }
    if (text != NULL) {
        t->chat_template = strdup(text);
        if (t->chat_template == NULL) {
            return nw_fail(err, NW_E_NOMEM, "%s: no memory for the chat template", t->path);
        }
    }
    return NW_OK;
}

static nw_status read_config(nw_tokenizer *t, const char *path, const json_t *config, nw_error *err)
{
    if (token_id(t, path, config, "bos_token", &t->bos, err) != NW_OK ||
        token_id(t, path, config, "eos_token", &t->eos, err) != NW_OK ||
        token_id(t, path, config, "pad_token", &t->pad, err) != NW_OK ||
        token_id(t, path, config, "unk_token", &t->unk, err) != NW_OK ||
        nw_json_opt_bool(config, path, "add_bos_token", &t->add_bos, err) != NW_OK) {
        return err->code;
    }
    return config_template(t, json_object_get(config, "chat_template"), err);
}

/* "eos_token_id": a number or a list of numbers. */
static void read_eos_ids(nw_tokenizer *t, const json_t *config)
{
    const json_t *v = json_object_get(config, "eos_token_id");
    const size_t n = json_is_array(v) ? json_array_size(v) : 1;

    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(v) ? json_array_get(v, i) : v;
        if (json_is_integer(id) && json_integer_value(id) >= 0 &&
            json_integer_value(id) < (json_int_t)t->n) {
            t->eos = t->eos < 0 ? (int32_t)json_integer_value(id) : t->eos;
            nw_vocab_add_eog(t, (int32_t)json_integer_value(id));
        }
    }
    const json_t *bos = json_object_get(config, "bos_token_id");
    if (t->bos < 0 && json_is_integer(bos) && json_integer_value(bos) >= 0 &&
        json_integer_value(bos) < (json_int_t)t->n) {
        t->bos = (int32_t)json_integer_value(bos);
    }
}

static nw_status read_jinja(nw_tokenizer *t, const char *dir, nw_error *err)
{
    char *path = nw_path_join(dir, "chat_template.jinja");
    char *text = NULL;
    size_t len = 0;
    nw_status st = NW_OK;

    if (path == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a path", dir);
    }
    if (nw_file_exists(path)) {
        st = nw_file_read(path, NW_TEMPLATE_MAX_SOURCE, &text, &len, err);
    }
    if (text != NULL && strlen(text) != len) {
        st = nw_fail(err, NW_E_FORMAT, "%s: holds a NUL byte", path);
    }
    if (st == NW_OK && text != NULL) {
        free(t->chat_template);
        t->chat_template = text;
        text = NULL;
    }
    free(text);
    free(path);
    return st;
}

nw_status nw_tokenizer_read_hf_config(nw_tokenizer *t, const char *dir, nw_error *err)
{
    static const char *const eos_files[] = {"generation_config.json", "config.json"};
    json_t *config = NULL;
    char *path = NULL;
    nw_status st = load(dir, "tokenizer_config.json", &config, &path, err);

    if (st == NW_OK && config != NULL) {
        st = read_config(t, path, config, err);
    }
    json_decref(config);
    free(path);
    for (size_t i = 0; i < NW_COUNT(eos_files) && st == NW_OK; i++) {
        st = load(dir, eos_files[i], &config, &path, err);
        if (st == NW_OK && config != NULL) {
            read_eos_ids(t, config);
        }
        json_decref(config);
        free(path);
    }
    return st == NW_OK ? read_jinja(t, dir, err) : st;
}
