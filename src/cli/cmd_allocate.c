/* narrow allocate: measures what each group of matrices costs in each layout, and writes the recipe that a
 * budget leaves.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/command.h"
#include "cli/option_rows.h"
#include "cli/print_json.h"
#include "quant/mixed.h"

static const nw_option options[] = {
    {.name = "budget",
     .letter = 'b',
     .type = NW_OPT_STRING,
     .unit = "BUDGET",
     .required = true,
     .help = "105.5MB of model.safetensors (kB, MB, GB or bytes), 4.85bits a weight of the whole "
             "model, or kl=0.03: the smallest model whose losses add up to no more"},
    {.name = "out",
     .letter = 'o',
     .type = NW_OPT_STRING,
     .unit = "FILE",
     .required = true,
     .help = "recipe to be written"},
    {.name = "work",
     .type = NW_OPT_STRING,
     .unit = "DIR",
     .help = "folder that keeps what was measured and one artifact a layout; by default the "
             "recipe's name and .work"},
    {.name = "types",
     .type = NW_OPT_STRING,
     .unit = "TYPE,...",
     .fallback = "int4-g64-min,int4-g32-min,int8",
     .help = "layouts to choose from"},
    NW_OPTION_SAMPLE_LOG,
    NW_OPTION_SAMPLE_TEXT,
    NW_OPTION_SAMPLES(4096, "8"),
    NW_OPTION_SAMPLE_TOKENS("256", "the second half of each is scored"),
    NW_OPTION_SAMPLE_SEED,
    {.name = "method",
     .type = NW_OPT_STRING,
     .unit = "METHOD",
     .fallback = "refit",
     .help = "how codes are chosen, as for quantize"},
    {.name = "calibration",
     .letter = 'c',
     .type = NW_OPT_STRING,
     .unit = "DIR",
     .help = "statistics that narrow calibrate wrote, for methods that need them"},
    {.name = "per-tensor",
     .type = NW_OPT_FLAG,
     .help = "choose for each matrix by itself; otherwise q, k, v share a layout, and so do gate "
             "and up, as engines that fuse them need"},
    NW_OPTION_WORK_THREADS,
    NW_OPTION_FORCE,
};

static nw_status parse_types(const char *text, nw_sensitivity_options *o, nw_error *err)
{
    char one[32];

    for (size_t n = 0; *text != '\0'; text += n + (text[n] == ',')) {
        n = strcspn(text, ",");
        if (o->n_types == NW_SENSITIVITY_TYPES) {
            return nw_fail(err, NW_E_USAGE, "--types names more than %d layouts",
                           NW_SENSITIVITY_TYPES);
        }
        (void)snprintf(one, sizeof one, "%.*s", (int)(n < sizeof one ? n : sizeof one - 1), text);
        if (!nw_panel_parse(one, &o->types[o->n_types]) ||
            !nw_method_writes(o->types[o->n_types])) {
            return nw_fail(err, NW_E_USAGE, "--types: unknown layout '%s'", one);
        }
        o->n_types++;
    }
    return o->n_types > 0 ? NW_OK : nw_fail(err, NW_E_USAGE, "--types names no layout");
}

static nw_status check_args(const nw_args *args, nw_sensitivity_options *o, nw_budget *budget,
                            nw_error *err)
{
    const char *method = nw_args_str(args, "method");

    if ((o->sample.log == NULL) == (o->sample.text == NULL)) {
        return nw_fail(err, NW_E_USAGE, "allocate wants --log or --text, one of the two");
    }
    if (!nw_budget_parse(nw_args_str(args, "budget"), budget)) {
        return nw_fail(err, NW_E_USAGE, "--budget '%s' is none of 105.5MB, 4.85bits and kl=0.03",
                       nw_args_str(args, "budget"));
    }
    if (!nw_method_parse(method, &o->method)) {
        return nw_fail(err, NW_E_USAGE, "--method: unknown method '%s'", method);
    }
    if (nw_method_needs_stats(o->method) && o->calibration == NULL) {
        return nw_fail(err, NW_E_USAGE, "method %s needs --calibration", method);
    }
    if (nw_file_exists(nw_args_str(args, "out")) && !nw_args_flag(args, "force")) {
        return nw_fail(err, NW_E_IO, "%s: exists (--force replaces it)", nw_args_str(args, "out"));
    }
    return parse_types(nw_args_str(args, "types"), o, err);
}

static bool same_type(nw_panel_type a, nw_panel_type b)
{
    char x[32];
    char y[32];

    return strcmp(nw_panel_name(a, x), nw_panel_name(b, y)) == 0;
}

/* One line a layout: how many groups got it, their bytes and losses. */
static json_t *layout_rows(const nw_sensitivity *s, const nw_mix *m)
{
    json_t *rows = json_array();
    char name[32];

    for (size_t t = 0; t < s->n_types; t++) {
        json_int_t n = 0;
        json_int_t bytes = 0;
        double kl = 0;
        for (size_t g = 0; g < s->n_groups; g++) {
            const nw_sensitivity_cell *c = &s->cells[g * s->n_types + t];
            if (!m->kept[g] && same_type(m->types[g], s->types[t])) {
                n++;
                bytes += (json_int_t)c->bytes;
                kl += c->kl;
            }
        }
        (void)json_array_append_new(rows, json_pack("{s:s, s:I, s:I, s:f}", "type",
                                                    nw_panel_name(s->types[t], name), "groups", n,
                                                    "bytes", bytes, "kl", kl));
    }
    return rows;
}

static json_t *group_rows(const nw_sensitivity *s, const nw_mix *m)
{
    json_t *rows = json_array();
    char name[32];

    for (size_t g = 0; g < s->n_groups; g++) {
        json_t *kl = json_object();
        for (size_t t = 0; t < s->n_types; t++) {
            const double v = s->cells[g * s->n_types + t].kl;
            (void)json_object_set_new(kl, nw_panel_name(s->types[t], name),
                                      isfinite(v) ? json_real(v) : json_null());
        }
        (void)json_array_append_new(rows,
                                    json_pack("{s:s, s:s, s:o}", "group", s->groups[g].name, "type",
                                              nw_panel_name(m->types[g], name), "kl", kl));
    }
    return rows;
}

static json_t *result_json(const nw_sensitivity *s, const nw_mix *m, const char *out)
{
    return json_pack("{s:s, s:I, s:f, s:f, s:f, s:b, s:I, s:I, s:s, s:o, s:o}", "recipe", out,
                     "file_bytes", (json_int_t)m->file_bytes, "bits_per_weight", m->bits, "kl",
                     m->chosen.loss, "bound", m->chosen.bound, "exact", m->chosen.exact, "unit",
                     (json_int_t)m->chosen.unit, "tokens", (json_int_t)s->n_tokens, "sensitivity",
                     s->hash.hex, "layouts", layout_rows(s, m), "groups", group_rows(s, m));
}

static void print_text(const json_t *result)
{
    const json_t *layouts = json_object_get(result, "layouts");

    (void)printf("%-16s %8s %14s %12s\n", "layout", "groups", "bytes", "KL");
    for (size_t i = 0; i < json_array_size(layouts); i++) {
        const json_t *row = json_array_get(layouts, i);
        (void)printf("%-16s %8lld %14lld %12.6f\n", json_string_value(json_object_get(row, "type")),
                     (long long)json_integer_value(json_object_get(row, "groups")),
                     (long long)json_integer_value(json_object_get(row, "bytes")),
                     json_number_value(json_object_get(row, "kl")));
    }
    (void)printf("file        %lld bytes of model.safetensors, %.4f bits a weight\n",
                 (long long)json_integer_value(json_object_get(result, "file_bytes")),
                 json_number_value(json_object_get(result, "bits_per_weight")));
    (void)printf("loss        %.6f nats a token, the groups' added up over %lld tokens\n",
                 json_number_value(json_object_get(result, "kl")),
                 (long long)json_integer_value(json_object_get(result, "tokens")));
    (void)printf("solved      %s; no choice goes below %.6g\n",
                 json_is_true(json_object_get(result, "exact")) ? "exactly" : "in steps",
                 json_number_value(json_object_get(result, "bound")));
    (void)printf("recipe      %s\n", json_string_value(json_object_get(result, "recipe")));
}

/* Measures, chooses, writes the recipe. */
static nw_status make_recipe(const nw_sensitivity_options *o, nw_budget budget, const char *out,
                             json_t **result, nw_error *err)
{
    const char *slash = strrchr(out, '/');
    const char *base = slash != NULL ? slash + 1 : out;
    char *name = strndup(base, strcspn(base, "."));
    nw_sensitivity s = {0};
    nw_mix m = {0};
    nw_status st = name != NULL ? nw_sensitivity_measure(o, &s, err)
                                : nw_fail(err, NW_E_NOMEM, "no memory for a name");

    st = st == NW_OK ? nw_mix_make(&s, budget, name, o->calibration, &m, err) : st;
    st = st == NW_OK ? nw_file_write(out, m.text, strlen(m.text), err) : st;
    if (st == NW_OK) {
        *result = result_json(&s, &m, out);
    }
    nw_mix_release(&m);
    nw_sensitivity_release(&s);
    free(name);
    return st;
}

static nw_status run(const nw_args *args, int *exit_code, nw_error *err)
{
    const char *out = nw_args_str(args, "out");
    const char *asked = nw_args_str(args, "work");
    const size_t n = strlen(out) + sizeof ".work";
    char *work = calloc(1, n);
    json_t *result = NULL;
    nw_budget budget = {0};
    nw_sensitivity_options o = {.model = args->operands[0],
                                .work = asked != NULL ? asked : work,
                                .sample = {.log = nw_args_str(args, "log"),
                                           .text = nw_args_str(args, "text"),
                                           .n_samples = (size_t)nw_args_int(args, "samples"),
                                           .seed = (uint64_t)nw_args_int(args, "seed"),
                                           .n_ctx = (uint32_t)nw_args_int(args, "n-ctx")},
                                .calibration = nw_args_str(args, "calibration"),
                                .per_tensor = nw_args_flag(args, "per-tensor"),
                                .replace = nw_args_flag(args, "force"),
                                .n_threads = (unsigned)nw_args_int(args, "threads"),
                                .show_progress = true};

    (void)exit_code;
    if (work == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for a name");
    }
    (void)snprintf(work, n, "%s.work", out);
    nw_status st = check_args(args, &o, &budget, err);
    st = st == NW_OK ? make_recipe(&o, budget, out, &result, err) : st;
    free(work);
    if (st != NW_OK) {
        return st;
    }
    if (args->json) {
        return nw_print_json("allocate", result, err);
    }
    print_text(result);
    json_decref(result);
    return NW_OK;
}

const nw_command nw_cmd_allocate = {
    .name = "allocate",
    .fn = run,
    .options = options,
    .n_options = NW_COUNT(options),
    .operands = "MODEL",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "write a recipe of mixed layouts for a budget of bytes, bits or loss",
    .description =
        "Quantizes the model once in each layout, then runs it with one group of matrices at a "
        "time taken from there, and measures how far its next-token distributions move: the KL "
        "divergence of the whole model, not the error of the weights. With these losses it "
        "chooses a layout for each group, so that their sum is least within the budget, and "
        "writes a plain recipe for `narrow quantize`.\n\n"
        "What was measured stays in the work folder: another budget costs no new measurement, and "
        "a run that was stopped or killed goes on where it ended. The budget's losses are sums; "
        "`narrow eval` says what the mix really costs.",
};
