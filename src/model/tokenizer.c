/* Opening a tokenizer (which file of a folder, which reader), the small accessors, and the hash that
 * says whether two tokenizers give the same ids.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/tokenizer.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_internal.h"

#define MAX_TOKENIZER_FILE ((size_t)512 << 20)

nw_tokenizer *nw_tokenizer_new(const char *path, nw_error *err)
{
    nw_tokenizer *t = calloc(1, sizeof *t);

    if (t != NULL) {
        t->path = strdup(path);
        t->bos = t->eos = t->unk = t->pad = t->model_unk = -1;
    }
    if (t == NULL || t->path == NULL) {
        free(t);
        (void)nw_fail(err, NW_E_NOMEM, "%s: no memory for a tokenizer", path);
        return NULL;
    }
    return t;
}

void nw_tokenizer_close(nw_tokenizer *tok)
{
    if (tok != NULL) {
        for (size_t i = 0; i < tok->n_norm; i++) {
            nw_regex_free(tok->norm[i].regex);
        }
        nw_pretok_release(&tok->pretok);
        nw_arena_release(&tok->arena);
        free(tok->path);
        free(tok->hf_dir);
        free(tok->chat_template);
        free(tok);
    }
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s);
    const size_t k = strlen(end);

    return n >= k && strcmp(s + n - k, end) == 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? path : slash + 1;
}

static nw_status read_gguf(nw_tokenizer *t, nw_error *err)
{
    nw_gguf *g = NULL;

    if (nw_gguf_open(t->path, &g, err) != NW_OK) {
        return err->code;
    }
    const nw_status st = nw_tokenizer_read_gguf(t, g, t->path, err);
    nw_gguf_close(g);
    return st;
}

static nw_status read_json(nw_tokenizer *t, nw_error *err)
{
    char *data = NULL;
    size_t len = 0;

    if (nw_file_read(t->path, MAX_TOKENIZER_FILE, &data, &len, err) != NW_OK) {
        return err->code;
    }
    nw_status st = nw_tokenizer_read_json(t, t->path, data, len, err);
    free(data);
    if (st != NW_OK) {
        return st;
    }
    t->hf_json = base_name(t->path);
    const size_t n_dir = (size_t)(t->hf_json - t->path);
    t->hf_dir = n_dir == 0 ? strdup(".") : strndup(t->path, n_dir);
    if (t->hf_dir == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a path", t->path);
    }
    return nw_tokenizer_read_hf_config(t, t->hf_dir, err);
}

static nw_status read_mapped(nw_tokenizer *t,
                             nw_status (*read)(nw_tokenizer *, const char *, const uint8_t *,
                                               size_t, nw_error *),
                             nw_error *err)
{
    nw_file f = {0};

    if (nw_file_map(t->path, &f, err) != NW_OK) {
        return err->code;
    }
    const nw_status st = read(t, t->path, f.data, f.size, err);
    nw_file_unmap(&f);
    return st;
}

static bool is_llama2c_vocab(const char *path)
{
    return strncmp(base_name(path), "tok", 3) == 0 && ends_with(path, ".bin");
}

static bool is_gguf(const char *path)
{
    char magic[4] = {0};
    FILE *fp = fopen(path, "rb");

    if (fp == NULL) {
        return false;
    }
    const size_t n = fread(magic, 1, sizeof magic, fp);
    (void)fclose(fp);
    return n == sizeof magic && memcmp(magic, "GGUF", 4) == 0;
}

/* The file of `dir` that holds a tokenizer, in order of preference; NULL: none (or no memory). The
 * caller frees it. */
static char *find_in_dir(const char *dir)
{
    static const char *const suffix[] = {".json", ".model", ".bin"};
    static const char *const exact[] = {"tokenizer.json", "tokenizer.model", "tokenizer.bin"};
    char *found = NULL;

    for (size_t k = 0; k < NW_COUNT(exact) && found == NULL; k++) {
        char *best = NULL;
        char *path = nw_path_join(dir, exact[k]);
        DIR *d = NULL;
        if (path != NULL && nw_file_exists(path) && !nw_file_is_dir(path)) {
            return path;
        }
        free(path);
        d = k == 0 ? NULL : opendir(dir);
        for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
            if (strncmp(e->d_name, "tok", 3) == 0 && ends_with(e->d_name, suffix[k]) &&
                (best == NULL || strcmp(e->d_name, best) < 0)) {
                free(best); /* the least name, so that the choice is the same on every disk */
                best = strdup(e->d_name);
            }
        }
        if (d != NULL) {
            (void)closedir(d);
        }
        found = best == NULL ? NULL : nw_path_join(dir, best);
        free(best);
    }
    return found;
}

/* The tokenizer's file for `path`, which may be it, hold it, or lie beside it. */
static nw_status locate(const char *path, char **out, nw_error *err)
{
    char *found = NULL;

    if (nw_file_is_dir(path)) {
        found = find_in_dir(path);
    } else if (!nw_file_exists(path)) {
        return nw_fail(err, NW_E_IO, "%s: no such file or folder", path);
    } else if (ends_with(path, ".json") || ends_with(path, ".model") || is_llama2c_vocab(path) ||
               is_gguf(path)) {
        found = strdup(path);
    } else {
        const size_t n_dir = (size_t)(base_name(path) - path);
        char *dir = n_dir == 0 ? strdup(".") : strndup(path, n_dir);
        found = dir == NULL ? NULL : find_in_dir(dir);
        free(dir);
    }
    if (found == NULL) {
        return nw_fail(err, NW_E_FORMAT,
                       "%s: no tokenizer there (looked for GGUF metadata, tokenizer.json, "
                       "tokenizer.model, tok*.model, tokenizer.bin, tok*.bin)",
                       path);
    }
    *out = found;
    return NW_OK;
}

static nw_status read_any(nw_tokenizer *t, nw_error *err)
{
    if (is_gguf(t->path)) {
        return read_gguf(t, err);
    }
    if (ends_with(t->path, ".json")) {
        return read_json(t, err);
    }
    return read_mapped(
        t, ends_with(t->path, ".model") ? nw_tokenizer_read_sp_model : nw_tokenizer_read_llama2c,
        err);
}

/* Tokens that end a turn in the families narrow knows. Their type must say control. */
static void add_known_eog(nw_tokenizer *t)
{
    static const char *const names[] = {"<|im_end|>",    "<|eot_id|>",    "<|eom_id|>",
                                        "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
                                        "<|end|>",       "<EOT>"};

    nw_vocab_add_eog(t, t->eos);
    for (size_t i = 0; i < NW_COUNT(names); i++) {
        const int32_t id = nw_vocab_find(t, names[i], strlen(names[i]));
        if (id >= 0 && t->type[id] == NW_TYPE_CONTROL) {
            nw_vocab_add_eog(t, id);
        }
    }
}

nw_status nw_tokenizer_open(const char *path, nw_tokenizer **out, nw_error *err)
{
    char *file = NULL;

    *out = NULL;
    if (locate(path, &file, err) != NW_OK) {
        return err->code;
    }
    nw_tokenizer *t = nw_tokenizer_new(file, err);
    free(file);
    if (t == NULL || read_any(t, err) != NW_OK) {
        nw_tokenizer_close(t);
        return nw_context(err, "opening the tokenizer");
    }
    add_known_eog(t);
    *out = t;
    return NW_OK;
}

void nw_ids_init(nw_ids *v)
{
    *v = (nw_ids){0};
}

void nw_ids_release(nw_ids *v)
{
    free(v->ids);
    nw_ids_init(v);
}

bool nw_ids_push(nw_ids *v, int32_t id)
{
    if (v->n == v->cap) {
        const size_t cap = v->cap < 16 ? 16 : v->cap * 2;
        size_t bytes = 0;
        if (!nw_size_mul(cap, sizeof *v->ids, &bytes)) {
            return false;
        }
        int32_t *ids = realloc(v->ids, bytes);
        if (ids == NULL) {
            return false;
        }
        v->ids = ids;
        v->cap = cap;
    }
    v->ids[v->n++] = id;
    return true;
}

uint32_t nw_tokenizer_size(const nw_tokenizer *tok)
{
    return tok->n;
}

int32_t nw_tokenizer_bos(const nw_tokenizer *tok)
{
    return tok->bos;
}

int32_t nw_tokenizer_eos(const nw_tokenizer *tok)
{
    return tok->eos;
}

int32_t nw_tokenizer_pad(const nw_tokenizer *tok)
{
    return tok->pad;
}

int32_t nw_tokenizer_unk(const nw_tokenizer *tok)
{
    return tok->unk;
}

bool nw_tokenizer_adds_bos(const nw_tokenizer *tok)
{
    return tok->add_bos && tok->bos >= 0;
}

bool nw_tokenizer_is_eog(const nw_tokenizer *tok, int32_t id)
{
    for (size_t i = 0; i < tok->n_eog; i++) {
        if (tok->eog[i] == id) {
            return true;
        }
    }
    return false;
}

bool nw_tokenizer_is_control(const nw_tokenizer *tok, int32_t id)
{
    return id >= 0 && (uint32_t)id < tok->n &&
           (tok->type[id] == NW_TYPE_CONTROL || tok->type[id] == NW_TYPE_UNKNOWN);
}

const char *nw_tokenizer_piece(const nw_tokenizer *tok, int32_t id, size_t *len)
{
    if (id < 0 || (uint32_t)id >= tok->n) {
        *len = 0;
        return NULL;
    }
    *len = tok->bytes[id].n;
    return tok->bytes[id].s;
}

int32_t nw_tokenizer_find(const nw_tokenizer *tok, const char *text, size_t len)
{
    return nw_vocab_find(tok, text, len);
}

const char *nw_tokenizer_kind(const nw_tokenizer *tok)
{
    static const char *const names[] = {"byte-bpe", "char-bpe", "sentencepiece"};

    return names[tok->kind];
}

const char *nw_tokenizer_path(const nw_tokenizer *tok)
{
    return tok->path;
}

const char *nw_tokenizer_chat_template(const nw_tokenizer *tok)
{
    return tok->chat_template;
}

/* Letters, digits, line ends, runs of spaces, marks, scripts and emoji: what the pre-tokenizers and
 * merges of the known families treat differently. Changing it changes every hash. */
static const char hash_probe[] =
    "Hello world, it's 3.14159 o'clock; we'LL see\r\n\r\n  x = foo(bar[12345]);\t\t// \n\n\n  "
    "\xCE\xB1\xCE\xB2 \xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 "
    "\xE0\xB9\x84\xE0\xB8\x97\xE0\xB8\xA2 e\xCC\x81 \xE4\xBD\xA0\xE5\xA5\xBD "
    "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB \xC2\xA0\xE2\x80\xA9 <|im_end|></s>    end";

static void hash_tokens(nw_sha256 *h, const nw_tokenizer *tok)
{
    for (uint32_t id = 0; id < tok->n; id++) {
        const uint32_t n = tok->bytes[id].n;
        const uint8_t head[5] = {nw_tokenizer_is_control(tok, (int32_t)id), (uint8_t)n,
                                 (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24)};
        nw_sha256_add(h, head, sizeof head);
        nw_sha256_add(h, tok->bytes[id].s, n);
    }
}

nw_digest nw_tokenizer_hash(const nw_tokenizer *tok)
{
    nw_sha256 h = {0};
    nw_error err = {0};
    nw_ids ids = {0};
    char facts[96];

    if (nw_sha256_init(&h, &err) != NW_OK ||
        nw_tokenizer_encode(tok, hash_probe, sizeof hash_probe - 1, NW_TOK_BOS, &ids, &err) !=
            NW_OK) {
        nw_sha256_release(&h);
        return (nw_digest){""};
    }
    hash_tokens(&h, tok);
    const int n = snprintf(facts, sizeof facts, "bos %d eos %d adds %d ids", tok->bos, tok->eos,
                           nw_tokenizer_adds_bos(tok));
    nw_sha256_add(&h, facts, (size_t)n);
    for (size_t i = 0; i < ids.n; i++) {
        const uint32_t id = (uint32_t)ids.ids[i];
        const uint8_t le[4] = {(uint8_t)id, (uint8_t)(id >> 8), (uint8_t)(id >> 16),
                               (uint8_t)(id >> 24)};
        nw_sha256_add(&h, le, sizeof le);
    }
    nw_ids_release(&ids);
    return nw_sha256_end(&h);
}
