/* narrow quantize: a checkpoint and a recipe to a native artifact, with the error of every tensor.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/command.h"
#include "cli/export_print.h"
#include "cli/option_rows.h"
#include "cli/print_json.h"
#include "quant/quantize.h"
#include "quant/quantize_as.h"
#include "quant/recipe.h"

#define N_WORST 5

static const nw_option options[] = {
    {.name = "recipe",
     .letter = 'r',
     .type = NW_OPT_STRING,
     .unit = "RECIPE",
     .required = true,
     .help = "a built-in recipe (bf16, int8-w8a8, int4-g64, ...) or a YAML file; see below"},
    NW_OPTION_OUT,
    {.name = "format",
     .letter = 'f',
     .type = NW_OPT_STRING,
     .fallback = "native",
     .unit = "FORMAT",
     .help =
         "native, which narrow maps; gguf, which llama.cpp loads; compressed-tensors, fp8-block, "
         "awq or gptq, which vLLM and transformers load; hf, decoded to BF16"},
    NW_OPTION_WORK_THREADS,
    {.name = "method",
     .type = NW_OPT_CHOICE,
     .choices = "rtn|refit|hqq|imatrix|awq|gptq|gptq-refit",
     .help = "how codes are chosen in all targets; by default as the recipe says, or rtn"},
    {.name = "calibration",
     .letter = 'c',
     .type = NW_OPT_STRING,
     .unit = "DIR",
     .help = "statistics that narrow calibrate wrote, for imatrix, awq, gptq and gptq-refit"},
    {.name = "kv",
     .type = NW_OPT_STRING,
     .unit = "KIND",
     .help =
         "keys and values that sessions keep unless told otherwise, such as fp8 with scales from "
         "--calibration; by default as the recipe says"},
    NW_OPTION_FORCE,
    {.name = "show",
     .type = NW_OPT_FLAG,
     .help = "print what each matrix would get and why, and write nothing"},
    {.name = "no-fallback",
     .type = NW_OPT_FLAG,
     .help = "end with an error where a method, layout or format does not fit a matrix, instead of "
             "rounding to nearest or keeping BF16 and saying so"},
    {.name = "no-tokenizer",
     .type = NW_OPT_FLAG,
     .help = "for a model that has none; otherwise a missing tokenizer is an error"},
};

/* Bytes and weights of one layout. */
typedef struct {
    char type[32];
    size_t n_tensors;
    uint64_t n_weights, n_bytes;
} layout_row;

#define MAX_LAYOUTS 16

static size_t count_layouts(const nw_manifest *m, layout_row rows[MAX_LAYOUTS])
{
    size_t n = 0;
    char name[32];

    for (size_t i = 0; i < m->n_tensors; i++) {
        const nw_manifest_tensor *t = &m->tensors[i];
        size_t k = 0;
        (void)snprintf(name, sizeof name, "%s", "norms f32");
        if (!t->is_vector) {
            (void)nw_panel_name(t->type, name);
        }
        while (k < n && strcmp(rows[k].type, name) != 0) {
            k++;
        }
        if (k == MAX_LAYOUTS) {
            continue; /* more layouts than exist */
        }
        if (k == n) {
            rows[n++] = (layout_row){0};
            (void)snprintf(rows[k].type, sizeof rows[k].type, "%s", name);
        }
        rows[k].n_tensors++;
        rows[k].n_weights += (uint64_t)t->n_rows * t->n_cols;
        rows[k].n_bytes += t->n_bytes;
    }
    return n;
}

static int by_sqnr(const void *a, const void *b)
{
    const nw_manifest_tensor *const *x = a;
    const nw_manifest_tensor *const *y = b;
    return ((*x)->sqnr_db > (*y)->sqnr_db) - ((*x)->sqnr_db < (*y)->sqnr_db);
}

/* Tensors with the lowest SQNR first; [*n] of them are not exact. The caller frees the list. */
static const nw_manifest_tensor **sort_tensors(const nw_manifest *m, size_t *n)
{
    const nw_manifest_tensor **list = calloc(m->n_tensors + 1, sizeof *list);

    *n = 0;
    for (size_t i = 0; list != NULL && i < m->n_tensors; i++) {
        if (isfinite(m->tensors[i].sqnr_db)) {
            list[(*n)++] = &m->tensors[i];
        }
    }
    if (list != NULL) {
        qsort(list, *n, sizeof(const nw_manifest_tensor *), by_sqnr);
    }
    return list;
}

static void print_errors(const nw_manifest *m)
{
    size_t n = 0;
    const nw_manifest_tensor **list = sort_tensors(m, &n);

    (void)printf("error       %zu of %zu tensors are exact\n", m->n_tensors - n, m->n_tensors);
    if (list != NULL && n > 0) {
        (void)printf("            SQNR %.2f dB lowest, %.2f median, %.2f highest; lowest:\n",
                     list[0]->sqnr_db, list[n / 2]->sqnr_db, list[n - 1]->sqnr_db);
        for (size_t i = 0; i < n && i < N_WORST; i++) {
            (void)printf("            %6.2f dB  max error %.3g  %s\n", list[i]->sqnr_db,
                         list[i]->max_abs_err, list[i]->name);
        }
    }
    free(list);
}

/* What the manifest says stands in place of what was asked for: found at once, or at work. */
static void print_substituted(const nw_manifest *m)
{
    const json_t *lists[] = {json_object_get(m->recipe, "substituted"),
                             json_object_get(m->recipe, "matrices")};
    size_t n = 0;

    for (size_t k = 0; k < NW_COUNT(lists); k++) {
        for (size_t i = 0; i < json_array_size(lists[k]); i++) {
            const json_t *row = json_array_get(lists[k], i);
            const char *asked = json_string_value(json_object_get(row, "asked"));
            const char *used = json_string_value(json_object_get(row, k == 0 ? "used" : "method"));
            if (asked != NULL && used != NULL && n++ < N_WORST) {
                (void)printf("%-11s %s: %s in place of %s\n", n == 1 ? "substituted" : "",
                             json_string_value(json_object_get(row, "name")), used, asked);
            }
        }
    }
    if (n == 0) {
        (void)printf("substituted none\n");
    } else if (n > N_WORST) {
        (void)printf("            and %zu more; --no-fallback refuses them\n", n - N_WORST);
    }
}

/* What was done to weights and inputs beside rounding; nothing where nothing was. */
static void print_transforms(const nw_manifest *m)
{
    const json_t *list = json_object_get(m->recipe, "transform");
    const json_t *wide = json_object_get(m->recipe, "n_wide_columns");

    for (size_t i = 0; i < json_array_size(list); i++) {
        (void)printf("%s%s%s", i == 0 ? "transform   " : ", ",
                     json_string_value(json_array_get(list, i)),
                     i + 1 == json_array_size(list) ? "\n" : "");
    }
    if (wide != NULL) {
        (void)printf("wide        %" JSON_INTEGER_FORMAT " input columns in BF16 beside INT8\n",
                     json_integer_value(wide));
    }
}

static void print_text(const nw_manifest *m, const char *out)
{
    layout_row rows[MAX_LAYOUTS];
    const size_t n = count_layouts(m, rows);

    (void)printf("artifact    %s\n", out);
    (void)printf("recipe      %s, activations %s\n", m->recipe_name,
                 m->act == NW_ACT_RULE_A16 ? "BF16 or F32" : nw_act_rule_name(m->act));
    print_transforms(m);
    if (m->scale_rule[0] != '\0') {
        (void)printf("scales      %s\n", m->scale_rule);
    }
    if (m->note[0] != '\0') {
        (void)printf("note        %s\n", m->note);
    }
    for (size_t i = 0; i < n; i++) {
        (void)printf("%-11s %4zu x %-12s %12" PRIu64 " weights %12" PRIu64 " bytes  %.3f bits\n",
                     i == 0 ? "tensors" : "", rows[i].n_tensors, rows[i].type, rows[i].n_weights,
                     rows[i].n_bytes, 8 * (double)rows[i].n_bytes / (double)rows[i].n_weights);
    }
    (void)printf(
        "bits        nominal %.2f, stored %.3f in targeted matrices, %.3f in all weights\n",
        m->nominal_bits, m->target_bits, m->effective_bits);
    print_substituted(m);
    print_errors(m);
    (void)printf("hash        %s\n", m->hash.hex);
}

static nw_status print_json(const nw_manifest *m, nw_error *err)
{
    char *text = nw_manifest_text(m);

    if (text == NULL) {
        return nw_fail(err, NW_E_NOMEM, "quantize: no memory for the result");
    }
    (void)printf("%s\n", text);
    free(text);
    return NW_OK;
}

/* One line a matrix, and the sum; false: nothing is to be written. */
static bool show_choices(void *ctx, const nw_recipe_choice *choices, size_t n)
{
    double bytes = 0;
    double weights = 0;
    char type[32];

    (void)ctx;
    for (size_t i = 0; i < n; i++) {
        const nw_recipe_choice *ch = &choices[i];
        size_t size = 0;
        if (ch->is_vector ||
            !nw_panel_tensor_bytes(ch->type, ch->tensor->n_rows, ch->tensor->n_cols, &size)) {
            continue;
        }
        const double count = (double)ch->tensor->n_rows * ch->tensor->n_cols;
        (void)printf("%-44s %6u x %-6u %-13s %-10s %7.3f bits  %s\n", ch->tensor->name,
                     ch->tensor->n_rows, ch->tensor->n_cols, nw_panel_name(ch->type, type),
                     ch->targeted ? nw_method_name(ch->method) : "-", 8 * (double)size / count,
                     ch->why);
        bytes += (double)size;
        weights += count;
    }
    (void)printf("%.0f bytes, %.3f bits a weight of all matrices; nothing was written\n", bytes,
                 8 * bytes / weights);
    return false;
}

/* Quantizes and writes; *r and *format are set where the result is no native artifact. */
static nw_status quantize(const nw_args *args, const nw_quantize_options *o, nw_manifest *m,
                          const nw_export_format **format, nw_export_report *r, nw_error *err)
{
    const char *name = nw_args_str(args, "format");

    if (strcmp(name, "native") == 0) {
        return nw_quantize(o, m, err);
    }
    const nw_status st = nw_export_format_find(name, "native", format, err);
    return st == NW_OK ? nw_quantize_as(o, *format, m, r, err) : st;
}

static nw_status print_result(const nw_args *args, const nw_manifest *m, const char *out,
                              const nw_export_format *format, const nw_export_report *r,
                              nw_error *err)
{
    if (args->json) {
        return format == NULL
                   ? print_json(m, err)
                   : nw_print_json("quantize", nw_export_report_json(r, format->name), err);
    }
    print_text(m, out);
    if (format != NULL) {
        nw_print_export(r, out, format->name);
    }
    return NW_OK;
}

static nw_status run(const nw_args *args, int *exit_code, nw_error *err)
{
    nw_buf mistakes;
    nw_manifest m = {0};
    nw_export_report r = {0};
    const nw_export_format *format = NULL;
    const nw_quantize_options o = {.source = args->operands[0],
                                   .recipe = nw_args_str(args, "recipe"),
                                   .out = nw_args_str(args, "out"),
                                   .replace = nw_args_flag(args, "force"),
                                   .no_tokenizer = nw_args_flag(args, "no-tokenizer"),
                                   .n_threads = (unsigned)nw_args_int(args, "threads"),
                                   .no_fallback = nw_args_flag(args, "no-fallback"),
                                   .show_progress = true,
                                   .method = nw_args_str(args, "method"),
                                   .kv = nw_args_str(args, "kv"),
                                   .calibration = nw_args_str(args, "calibration"),
                                   .on_resolved = nw_args_flag(args, "show") ? show_choices : NULL,
                                   .mistakes = &mistakes};

    (void)exit_code;
    nw_buf_init(&mistakes, (size_t)1 << 20);
    nw_status st = quantize(args, &o, &m, &format, &r, err);
    if (mistakes.len > 900) { /* more than the message itself can carry */
        nw_log(NW_LOG_ERROR, "all mistakes:\n%s", mistakes.data);
    }
    nw_buf_release(&mistakes);
    if (st == NW_E_CANCELLED && o.on_resolved != NULL) {
        return NW_OK; /* as asked */
    }
    if (st == NW_OK) {
        st = print_result(args, &m, o.out, format, &r, err);
    }
    nw_manifest_release(&m);
    nw_export_report_release(&r);
    return st;
}

const nw_command nw_cmd_quantize = {
    .name = "quantize",
    .fn = run,
    .options = options,
    .n_options = NW_COUNT(options),
    .operands = "MODEL",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "write an artifact from a checkpoint and a recipe",
    .description =
        "Reads a GGUF file, a Hugging Face folder or a llama2.c file, checks the recipe against "
        "all "
        "shapes before any weight is read, rounds each targeted matrix to the nearest code and "
        "writes an artifact: packed weights, config, tokenizer, and a manifest with the error of "
        "every tensor against the source. The result is read back and verified before it gets its "
        "name. A matrix gets the layout the recipe says, or nothing is written.\n\n"
        "With --format the artifact is then handed on, as model.gguf or in safetensors of "
        "compressed-tensors (whose scales are then chosen among BF16 values), AutoAWQ or GPTQ v1: "
        "codes and scales as they "
        "are; see narrow help convert.\n\n"
        "Built-in recipes: bf16, bf16-12 (every bit of BF16 in 12, embedding and head as well), "
        "bf16-packed (the same bits entropy-coded, some 10.7 on the disk), "
        "int8-w8a8 and int8-w8a16 (one scale a row), int4-g32, int4-g64, int4-g128 (symmetric "
        "groups), int4-g32-zp, int4-g64-zp, int4-g128-zp (with zero points), int4-g32-min, "
        "int4-g64-min (with minima), int8-g32, fp8-e4m3, fp8-w8a8, nvfp4, mxfp4, and GGUF's blocks "
        "q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k (the last three need 256 columns; where "
        "there are fewer, q5_0, q5_1, q8_0 are written and said). Embedding, head and norms stay "
        "as "
        "they are otherwise. A YAML file gives targets by name: see recipes/. Its weights may also "
        "be "
        "int4 and int8 in groups of 16 to 256 columns (int4-g16, int8-g256), by row or tensor "
        "(int4-row, int4-tensor), and with zero points (int8-g64-zp, int8-row-zp, int4-row-zp): "
        "docs/formats.md has all of them.\n\n"
        "Methods: rtn rounds to nearest under searched scales; refit adds the least-squares scale "
        "and minimum of the codes; hqq minds many small errors more than a few large ones; imatrix "
        "weights the fit by what calibration saw; awq scales channels first and compares fits by "
        "the "
        "output of their group; gptq lets later "
        "columns take up the error of earlier ones; gptq-refit then refits codes and scales under "
        "the whole Hessian of the outputs. A recipe's `transform` rotates the weights or scales "
        "channels before that, the function of the model unchanged.",
};
