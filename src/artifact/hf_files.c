/* Config and tokenizer files of a result folder: see hf_files.h. Key order is fixed, so that equal
 * models give equal bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/hf_files.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/tokenizer.h"

nw_status nw_hf_json_write(const char *dir, const char *name, json_t *value, nw_error *err)
{
    char *path = nw_path_join(dir, name);
    char *text = value == NULL ? NULL : json_dumps(value, JSON_INDENT(2) | JSON_SORT_KEYS);
    nw_status st = NW_OK;

    if (path == NULL || text == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s/%s: no memory for its text", dir, name);
    } else {
        const size_t n = strlen(text);
        text[n] = '\n'; /* in place of the NUL: the file ends in a newline */
        st = nw_file_write(path, text, n + 1, err);
    }
    json_decref(value);
    free(path);
    free(text);
    return st;
}

static json_t *eos_json(const nw_model_config *c)
{
    json_t *list = json_array();

    if (c->n_eos == 1) {
        json_decref(list);
        return json_integer(c->eos[0]);
    }
    for (uint32_t i = 0; i < c->n_eos; i++) {
        (void)json_array_append_new(list, json_integer(c->eos[i]));
    }
    return list;
}

static json_t *generation_json(const nw_model_config *c)
{
    json_t *g = json_pack("{s:b}", "_from_model_config", 1);

    if (c->bos >= 0) {
        (void)json_object_set_new(g, "bos_token_id", json_integer(c->bos));
    }
    if (c->pad >= 0) {
        (void)json_object_set_new(g, "pad_token_id", json_integer(c->pad));
    }
    if (c->n_eos > 0) {
        (void)json_object_set_new(g, "eos_token_id", eos_json(c));
    }
    return g;
}

static nw_status write_tokenizer(const nw_checkpoint *c, const char *dir, nw_error *err)
{
    nw_tokenizer *tok = NULL;
    nw_status st = nw_tokenizer_open(nw_checkpoint_path(c), &tok, err);

    if (st != NW_OK) {
        return nw_context(err, "tokenizer (--no-tokenizer does without one)");
    }
    st = nw_tokenizer_write_hf(tok, dir, err);
    nw_tokenizer_close(tok);
    return st;
}

/* Files of a Hugging Face folder that have to do with its tokenizer. */
static const char *const tokenizer_files[] = {"tokenizer.json",      "tokenizer_config.json",
                                              "chat_template.jinja", "special_tokens_map.json",
                                              "vocab.json",          "merges.txt",
                                              "tokenizer.model",     "added_tokens.json"};

static nw_status copy_file(const char *from, const char *dir, const char *name, bool *there,
                           nw_error *err)
{
    char *source = nw_path_join(from, name);
    char *target = nw_path_join(dir, name);
    nw_file f = {0};
    nw_status st = NW_OK;

    *there = false;
    if (source == NULL || target == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "%s: no memory for a name", from);
    } else if (nw_file_exists(source)) {
        *there = true;
        st = nw_file_map(source, &f, err);
        if (st == NW_OK) {
            st = nw_file_write(target, f.data, f.size, err);
        }
        nw_file_unmap(&f);
    }
    free(source);
    free(target);
    return st;
}

nw_status nw_hf_files_copy(const char *from, const char *dir, bool with_tokenizer,
                           bool *has_generation, bool *has_tokenizer, nw_error *err)
{
    nw_status st = copy_file(from, dir, "generation_config.json", has_generation, err);

    *has_tokenizer = false;
    for (size_t i = 0; st == NW_OK && with_tokenizer && i < NW_COUNT(tokenizer_files); i++) {
        bool there = false;
        st = copy_file(from, dir, tokenizer_files[i], &there, err);
        *has_tokenizer = *has_tokenizer || (there && i == 0);
    }
    return st;
}

nw_status nw_hf_files_write(const nw_checkpoint *c, const char *dir, const char *torch_dtype,
                            bool with_tokenizer, nw_error *err)
{
    const nw_model_config *config = nw_checkpoint_config(c);
    const char *from = nw_checkpoint_path(c);
    bool has_generation = false;
    bool has_tokenizer = false;
    nw_status st =
        nw_hf_json_write(dir, "config.json", nw_config_to_json(config, torch_dtype), err);

    if (st == NW_OK && nw_checkpoint_kind(c) == NW_CKPT_HF && nw_file_is_dir(from)) {
        st = nw_hf_files_copy(from, dir, with_tokenizer, &has_generation, &has_tokenizer, err);
    }
    if (st == NW_OK && !has_generation) {
        st = nw_hf_json_write(dir, "generation_config.json", generation_json(config), err);
    }
    if (st == NW_OK && with_tokenizer && !has_tokenizer) {
        st = write_tokenizer(c, dir, err);
    }
    return st;
}
