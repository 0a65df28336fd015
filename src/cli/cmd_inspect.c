/* narrow inspect: what is in a model, before anything is done with it.
 * SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/command.h"
#include "cli/inspect.h"
#include "cli/print_json.h"

static const nw_option options[] = {
    {.name = "tensors",
     .type = NW_OPT_FLAG,
     .help = "one line for each tensor, with its name in the file"},
};

static json_t *tensor_rows(const nw_inspection *m)
{
    json_t *list = json_array();

    for (size_t i = 0; i < m->n_tensors; i++) {
        const nw_inspect_tensor *t = &m->tensors[i];
        json_t *shape = nw_role_is_vector(t->role)
                            ? json_pack("[I]", (json_int_t)t->n_cols)
                            : json_pack("[I, I]", (json_int_t)t->n_rows, (json_int_t)t->n_cols);
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:i, s:s, s:o, s:I}", "name", t->name, "source",
                            t->source != NULL ? t->source : t->name, "role", nw_role_name(t->role),
                            "layer", (int)t->layer, "format", t->format, "shape", shape, "n_bytes",
                            (json_int_t)t->n_bytes));
    }
    return list;
}

static json_t *format_rows(const nw_inspection *m)
{
    json_t *list = json_array();

    for (size_t i = 0; i < m->n_formats; i++) {
        const nw_inspect_format *f = &m->formats[i];
        (void)json_array_append_new(
            list, json_pack("{s:s, s:I, s:I, s:I, s:f}", "format", f->format, "n_tensors",
                            (json_int_t)f->n_tensors, "n_params", (json_int_t)f->n_params,
                            "n_bytes", (json_int_t)f->n_bytes, "bits_per_weight",
                            nw_inspect_bits(f->n_bytes, f->n_params)));
    }
    return list;
}

static json_t *tokenizer_row(const nw_inspection *m)
{
    if (m->tokenizer[0] == '\0') {
        return json_pack("{s:n, s:s}", "kind", "why", m->tokenizer_why);
    }
    return json_pack("{s:s, s:I, s:b}", "kind", m->tokenizer, "n_tokens", (json_int_t)m->n_tokens,
                     "has_chat_template", (int)m->has_template);
}

static nw_status print_json(const nw_inspection *m, nw_error *err)
{
    const nw_model_config *c = &m->config;
    json_t *dims = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "n_layers", (json_int_t)c->n_layers,
        "d_model", (json_int_t)c->d_model, "n_heads", (json_int_t)c->n_heads, "n_kv_heads",
        (json_int_t)c->n_kv_heads, "d_head", (json_int_t)c->d_head, "d_ff", (json_int_t)c->d_ff,
        "n_vocab", (json_int_t)c->n_vocab, "n_ctx", (json_int_t)c->n_ctx, "tied", (int)c->tied);
    json_t *row = json_pack(
        "{s:s, s:s, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:f, "
        "s:o, "
        "s:o}",
        "path", m->path, "kind", m->kind, "n_files", (json_int_t)m->n_files, "file_bytes",
        (json_int_t)m->file_bytes, "sha256", m->hash.hex, "recipe", m->recipe, "note", m->note,
        "activations", m->act, "kv", m->kv, "dims", dims, "config", nw_config_to_json(c, "float32"),
        "tokenizer", tokenizer_row(m), "n_tensors", (json_int_t)m->n_tensors, "n_ignored",
        (json_int_t)m->n_ignored, "n_params", (json_int_t)m->n_params, "weight_bytes",
        (json_int_t)m->n_bytes, "effective_bits", nw_inspect_bits(m->n_bytes, m->n_params),
        "formats", format_rows(m), "tensors", tensor_rows(m));
    return nw_print_json("inspect", row, err);
}

static nw_status run(const nw_args *args, int *exit_code, nw_error *err)
{
    nw_inspection m = {0};
    nw_status st = nw_inspect(args->operands[0], &m, err);

    (void)exit_code;
    if (st == NW_OK && args->json) {
        st = print_json(&m, err);
    } else if (st == NW_OK) {
        nw_inspect_print(&m, nw_args_flag(args, "tensors"));
    }
    nw_inspection_release(&m);
    return st;
}

const nw_command nw_cmd_inspect = {
    .name = "inspect",
    .fn = run,
    .options = options,
    .n_options = NW_COUNT(options),
    .operands = "MODEL",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "show the tensors, formats, bits, shapes, tokenizer and hash of a model",
    .description =
        "MODEL is a GGUF file (any shard of a split one), a Hugging Face folder or one of its "
        "safetensors files, a llama2.c checkpoint, or an artifact that narrow wrote. Everything an "
        "engine would rely on is checked on the way: a file that is damaged, incomplete or of "
        "another architecture is refused with the name of what is wrong.\n"
        "\n"
        "Bits per weight are effective: all stored bytes, scales included, over all parameters. "
        "The hash is that of the file, as sha256sum prints it; of several files, that of the list "
        "sha256sum prints for them; of an artifact, the one in its manifest.",
};
