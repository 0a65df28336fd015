/* narrow tokenize: the ids of a text, or of a chat rendered by the model's template.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/command.h"
#include "model/template.h"
#include "model/tokenizer.h"

static const nw_option options[] = {
    {.name = "file",
     .letter = 'f',
     .type = NW_OPT_STRING,
     .unit = "FILE",
     .help = "take the text from a file, byte for byte"},
    {.name = "special",
     .type = NW_OPT_FLAG,
     .help = "control-token text in the input becomes control tokens"},
    {.name = "no-bos", .type = NW_OPT_FLAG, .help = "do not begin with BOS"},
    {.name = "chat",
     .type = NW_OPT_STRING,
     .unit = "FILE",
     .help = "JSON list of messages, rendered by the model's chat template"},
    {.name = "write",
     .type = NW_OPT_STRING,
     .unit = "DIR",
     .help = "write the tokenizer's files (tokenizer.json and beside it) into a folder"},
};

typedef struct {
    nw_tokenizer *tok;
    nw_ids ids;
    double encode_s;
} work;

static nw_status encode_chat(work *w, const char *path, nw_error *err)
{
    json_t *messages = NULL;

    if (nw_json_load(path, NW_TEMPLATE_MAX_OUTPUT, &messages, err) != NW_OK) {
        return err->code;
    }
    const double start = nw_now_s();
    const nw_status st = nw_chat_encode(w->tok, messages, true, &w->ids, err);
    w->encode_s = nw_now_s() - start;
    json_decref(messages);
    return st;
}

static nw_status encode_text(work *w, const nw_args *args, nw_error *err)
{
    const unsigned flags = (nw_args_flag(args, "special") ? NW_TOK_SPECIAL : 0U) |
                           (nw_args_flag(args, "no-bos") ? 0U : NW_TOK_BOS);
    const char *file = nw_args_str(args, "file");
    const char *text = args->n_operands > 1 ? args->operands[1] : "";
    char *data = NULL;
    size_t len = strlen(text);

    if (file != NULL) {
        if (nw_file_read(file, NW_TOKENIZER_MAX_TEXT, &data, &len, err) != NW_OK) {
            return err->code;
        }
        text = data;
    }
    const double start = nw_now_s();
    const nw_status st = nw_tokenizer_encode(w->tok, text, len, flags, &w->ids, err);
    w->encode_s = nw_now_s() - start;
    free(data);
    return st;
}

static nw_status print_json(const work *w, nw_error *err)
{
    json_t *ids = json_array();

    for (size_t i = 0; i < w->ids.n; i++) {
        (void)json_array_append_new(ids, json_integer(w->ids.ids[i]));
    }
    json_t *row = json_pack("{s:s, s:s, s:i, s:s, s:b, s:I, s:f, s:o}", "tokenizer",
                            nw_tokenizer_path(w->tok), "kind", nw_tokenizer_kind(w->tok), "n_vocab",
                            (int)nw_tokenizer_size(w->tok), "hash", nw_tokenizer_hash(w->tok).hex,
                            "adds_bos", nw_tokenizer_adds_bos(w->tok), "n", (json_int_t)w->ids.n,
                            "encode_s", w->encode_s, "ids", ids);
    char *text = row == NULL ? NULL : json_dumps(row, JSON_COMPACT);
    nw_status st = NW_OK;

    if (text == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "no memory for %zu ids", w->ids.n);
    } else {
        (void)puts(text);
    }
    free(text);
    json_decref(row);
    return st;
}

/* The bytes of a token as a JSON string; bytes that are no character appear as \xNN. */
static void print_piece(const char *s, size_t n)
{
    (void)putchar('"');
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\') {
            (void)printf("\\%c", c);
        } else if (c == '\n') {
            (void)fputs("\\n", stdout);
        } else if (c < 0x20 || c == 0x7F || c >= 0x80) {
            (void)printf("\\x%02X", c);
        } else {
            (void)putchar(c);
        }
    }
    (void)puts("\"");
}

static void print_text(const work *w)
{
    for (size_t i = 0; i < w->ids.n; i++) {
        size_t len = 0;
        const char *piece = nw_tokenizer_piece(w->tok, w->ids.ids[i], &len);
        (void)printf("%8d  ", w->ids.ids[i]);
        print_piece(piece, len);
    }
}

static nw_status run(const nw_args *args, int *exit_code, nw_error *err)
{
    work w = {0};
    const char *chat = nw_args_str(args, "chat");
    const char *dir = nw_args_str(args, "write");
    nw_status st = nw_tokenizer_open(args->operands[0], &w.tok, err);

    (void)exit_code;
    if (st == NW_OK && dir != NULL) {
        st = nw_file_mkdirs(dir, err);
    }
    if (st == NW_OK && dir != NULL) {
        st = nw_tokenizer_write_hf(w.tok, dir, err);
    }
    if (st == NW_OK) {
        st = chat != NULL ? encode_chat(&w, chat, err) : encode_text(&w, args, err);
    }
    if (st == NW_OK && args->json) {
        st = print_json(&w, err);
    } else if (st == NW_OK) {
        print_text(&w);
    }
    nw_ids_release(&w.ids);
    nw_tokenizer_close(w.tok);
    return st;
}

const nw_command nw_cmd_tokenize = {
    .name = "tokenize",
    .fn = run,
    .options = options,
    .n_options = NW_COUNT(options),
    .operands = "MODEL [TEXT]",
    .min_operands = 1,
    .max_operands = 2,
    .summary = "show the token ids of a text or a chat",
    .description =
        "Reads the tokenizer of a GGUF file, of a folder with tokenizer.json or a SentencePiece "
        "model, or of an artifact, and prints one line for each token: its id and its bytes.\n\n"
        "Text never becomes control tokens unless --special says that it may. With --chat only "
        "what "
        "the template itself writes does; the messages are text.",
};
