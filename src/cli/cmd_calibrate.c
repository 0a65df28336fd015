/* narrow calibrate: samples from a log or a text, and what the matrices of a model read on them.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "cli/command.h"
#include "cli/option_rows.h"
#include "cli/print_json.h"
#include "quant/calibrate.h"

static const nw_option options[] = {
    NW_OPTION_SAMPLE_LOG,
    NW_OPTION_SAMPLE_TEXT,
    {.name = "stratify",
     .type = NW_OPT_STRING,
     .unit = "FIELD",
     .help = "field of the log whose values get equal shares, such as intent or meta.intent"},
    NW_OPTION_SAMPLES(1048576, "256"),
    NW_OPTION_SAMPLE_TOKENS("512", "windows of a text are exactly as long"),
    NW_OPTION_SAMPLE_SEED,
    NW_OPTION_OUT,
    NW_OPTION_WORK_THREADS,
    NW_OPTION_FORCE,
};

static long long count(const json_t *obj, const char *key)
{
    return json_integer_value(json_object_get(obj, key));
}

static void print_strata(const json_t *m)
{
    const json_t *strata = json_object_get(m, "strata");

    (void)printf("%-24s %10s %10s %8s %8s %8s %10s\n", "stratum", "seen", "repeated", "empty",
                 "drawn", "cut", "tokens");
    for (size_t i = 0; i < json_array_size(strata); i++) {
        const json_t *s = json_array_get(strata, i);
        (void)printf("%-24s %10lld %10lld %8lld %8lld %8lld %10lld\n",
                     json_string_value(json_object_get(s, "name")), count(s, "seen"),
                     count(s, "repeated"), count(s, "empty"), count(s, "drawn"), count(s, "cut"),
                     count(s, "tokens"));
    }
}

/* Inputs with channels that no sample ever moved. */
static void print_dead(const json_t *m)
{
    const json_t *inputs = json_object_get(m, "inputs");
    long long n_dead = 0;
    size_t n_inputs = 0;

    for (size_t i = 0; i < json_array_size(inputs); i++) {
        const json_t *row = json_array_get(inputs, i);
        const long long dead = count(row, "n_cols") - count(row, "n_live");
        n_dead += dead;
        n_inputs += dead > 0;
    }
    (void)printf("coverage    %zu inputs", json_array_size(inputs));
    if (n_dead > 0) {
        (void)printf(", %lld channels of %zu of them were always 0\n", n_dead, n_inputs);
    } else {
        (void)printf(", every channel was seen\n");
    }
}

static void print_text(const json_t *m, const char *out)
{
    const long long asked = count(json_object_get(m, "data"), "samples");

    print_strata(m);
    (void)printf("statistics  %s: %lld samples, %lld tokens\n", out, count(m, "n_samples"),
                 count(m, "n_tokens"));
    if (count(m, "n_samples") < asked) {
        (void)printf("note        %lld samples were asked for: the data holds no more\n", asked);
    }
    print_dead(m);
    (void)printf("hash        %s\n", json_string_value(json_object_get(m, "hash")));
}

static nw_status run(const nw_args *args, int *exit_code, nw_error *err)
{
    json_t *manifest = NULL;
    const nw_calibrate_options o = {
        .model = args->operands[0],
        .out = nw_args_str(args, "out"),
        .sample = {.log = nw_args_str(args, "log"),
                   .text = nw_args_str(args, "text"),
                   .stratify = nw_args_str(args, "stratify"),
                   .n_samples = (size_t)nw_args_int(args, "samples"),
                   .seed = (uint64_t)nw_args_int(args, "seed"),
                   .n_ctx = (uint32_t)nw_args_int(args, "n-ctx")},
        .replace = nw_args_flag(args, "force"),
        .n_threads = (unsigned)nw_args_int(args, "threads"),
        .show_progress = true,
    };

    (void)exit_code;
    if ((o.sample.log == NULL) == (o.sample.text == NULL)) {
        return nw_fail(err, NW_E_USAGE, "calibrate wants --log or --text, one of the two");
    }
    if (o.sample.stratify != NULL && o.sample.log == NULL) {
        return nw_fail(err, NW_E_USAGE, "--stratify names a field of --log");
    }
    if (nw_calibrate(&o, &manifest, err) != NW_OK) {
        return err->code;
    }
    if (args->json) {
        return nw_print_json("calibrate", manifest, err);
    }
    print_text(manifest, o.out);
    json_decref(manifest);
    return NW_OK;
}

const nw_command nw_cmd_calibrate = {
    .name = "calibrate",
    .fn = run,
    .options = options,
    .n_options = NW_COUNT(options),
    .operands = "MODEL",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "draw samples and write the activation statistics that quantize uses",
    .description =
        "Draws samples from a log of production, an equal share for each value of a field, so that "
        "rare intents are not drowned by common ones: what a small stratum lacks goes to the "
        "others. The draw is seeded, rows that repeat are left out, and the report says for each "
        "stratum how many rows were seen and drawn.\n\n"
        "Then the model runs over the samples layer by layer, and for every input of a matrix the "
        "largest and mean magnitude of each channel and the mean products of all pairs of channels "
        "are written to a folder, with the hashes of model, data and files. `narrow quantize "
        "--calibration` reads it.",
};
