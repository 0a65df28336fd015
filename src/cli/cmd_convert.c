/* narrow convert: any checkpoint to a Hugging Face folder in BF16 or F32, or an artifact or checkpoint to
 * another format, with a loss report.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact.h"
#include "cli/command.h"
#include "cli/export_print.h"
#include "cli/option_rows.h"
#include "cli/print_json.h"
#include "quant/convert.h"

static const nw_option options[] = {
    NW_OPTION_OUT,
    {.name = "format",
     .letter = 'f',
     .type = NW_OPT_STRING,
     .fallback = "hf",
     .unit = "FORMAT",
     .help =
         "hf, which decodes to --dtype; gguf, compressed-tensors, awq, gptq, native, which carry "
         "codes as they are; fp8-block, which rounds wide matrices"},
    {.name = "dtype",
     .type = NW_OPT_CHOICE,
     .fallback = "bf16",
     .choices = "bf16|f16|f32",
     .help = "type of the written weights; other formats: of tensors that are not quantized, by "
             "default as "
             "they are"},
    NW_OPTION_NO_FALLBACK,
    {.name = "off-grid",
     .type = NW_OPT_INT,
     .lo = 0,
     .hi = 9007199254740992.0,
     .help = "rescale channels so that the function stays and the grid of an earlier quantization "
             "is left; checks that logits agree"},
    {.name = "no-check",
     .type = NW_OPT_FLAG,
     .help = "with --off-grid: leave out the comparison of logits"},
    {.name = "no-tokenizer",
     .type = NW_OPT_FLAG,
     .help = "for a model that has none; otherwise a missing tokenizer is an error"},
    {.name = "shard-bytes",
     .type = NW_OPT_INT,
     .fallback = "5000000000",
     .lo = 1,
     .hi = 9007199254740992.0,
     .unit = "bytes",
     .help = "weights of one safetensors file; more make shards with an index"},
    NW_OPTION_WORK_THREADS,
    NW_OPTION_FORCE,
};

static nw_status print_json(const nw_convert_report *r, nw_error *err)
{
    return nw_print_json("convert", nw_convert_report_json(r), err);
}

static void print_text(const nw_convert_report *r, const char *out)
{
    (void)printf(
        "written     %s: %zu tensors, %" PRIu64 " weights, %" PRIu64 " bytes in %zu file%s\n", out,
        r->n_tensors, r->n_params, r->n_bytes, r->n_shards, r->n_shards > 1 ? "s" : "");
    if (r->note[0] != '\0') {
        (void)printf("note        %s\n", r->note);
    }
    (void)printf("loss        %zu of %zu tensors are exact\n", r->n_exact, r->n_tensors);
    if (r->worst_name != NULL) {
        (void)printf("            largest error %.3g, lowest SQNR %.2f dB in %s\n", r->max_abs_err,
                     r->worst_sqnr_db, r->worst_name);
    }
    for (size_t i = 0; i < json_array_size(r->dropped); i++) {
        (void)printf("dropped     %s\n", json_string_value(json_array_get(r->dropped, i)));
    }
    if (r->logits_checked) {
        (void)printf("logits      rescaled in F32: largest KL %.3g nats over %zu positions "
                     "(limit %g)\n",
                     r->max_kl_f32, r->n_positions, NW_CONVERT_MAX_KL_F32);
        (void)printf("            as written:      largest KL %.3g, mean %.3g nats\n",
                     r->max_kl_out, r->mean_kl_out);
    }
}

static nw_format_id dtype_of(const nw_args *args)
{
    const char *name = nw_args_str(args, "dtype");

    return strcmp(name, "f32") == 0   ? NW_FMT_F32
           : strcmp(name, "f16") == 0 ? NW_FMT_F16
                                      : NW_FMT_BF16;
}

/* Options that speak of what an export does not do. */
static nw_status check_export(const nw_args *args, nw_error *err)
{
    static const char *const others[] = {"off-grid", "no-check", "shard-bytes"};
    const char *format = nw_args_str(args, "format");
    const bool hf = strcmp(format, "hf") == 0; /* of an artifact */

    for (size_t i = 0; i < NW_COUNT(others) - hf; i++) {
        if (nw_args_given(args, others[i])) {
            return nw_fail(err, NW_E_USAGE, "--%s has no meaning with --format %s%s", others[i],
                           format, hf ? " of an artifact" : "");
        }
    }
    return NW_OK;
}

static nw_status run_export(const nw_args *args, nw_error *err)
{
    const char *format = nw_args_str(args, "format");
    nw_export_report r = {0};
    nw_export_options o = {.source = args->operands[0],
                           .out = nw_args_str(args, "out"),
                           .replace = nw_args_flag(args, "force"),
                           .no_tokenizer = nw_args_flag(args, "no-tokenizer"),
                           .no_fallback = nw_args_flag(args, "no-fallback"),
                           .has_dtype = nw_args_given(args, "dtype"),
                           .dtype = dtype_of(args),
                           .show_progress = true,
                           .n_threads = (unsigned)nw_args_int(args, "threads"),
                           .shard_bytes = (uint64_t)nw_args_int(args, "shard-bytes")};
    const bool hf = strcmp(format, "hf") == 0;
    nw_status st = nw_export_format_find(format, hf ? "" : "hf", &o.format, err);

    if (st == NW_OK) {
        st = check_export(args, err);
    }
    if (st == NW_OK) {
        st = nw_export(&o, &r, err);
    }
    if (st == NW_OK && args->json) {
        st = nw_print_json("convert", nw_export_report_json(&r, format), err);
    } else if (st == NW_OK) {
        nw_print_export(&r, o.out, format);
    }
    nw_export_report_release(&r);
    return st;
}

static nw_status run(const nw_args *args, int *exit_code, nw_error *err)
{
    nw_convert_report r = {0};
    const nw_convert_options o = {.source = args->operands[0],
                                  .out = nw_args_str(args, "out"),
                                  .dtype = dtype_of(args),
                                  .off_grid = nw_args_given(args, "off-grid"),
                                  .seed = (uint64_t)nw_args_int(args, "off-grid"),
                                  .no_check = nw_args_flag(args, "no-check"),
                                  .no_tokenizer = nw_args_flag(args, "no-tokenizer"),
                                  .replace = nw_args_flag(args, "force"),
                                  .show_progress = true,
                                  .n_threads = (unsigned)nw_args_int(args, "threads"),
                                  .shard_bytes = (uint64_t)nw_args_int(args, "shard-bytes")};

    (void)exit_code;
    if (strcmp(nw_args_str(args, "format"), "hf") != 0 ||
        nw_artifact_is_native(args->operands[0])) {
        return run_export(args, err);
    }
    if (o.dtype == NW_FMT_F16 || nw_args_flag(args, "no-fallback")) {
        return nw_fail(err, NW_E_USAGE, "%s has no meaning with --format hf",
                       o.dtype == NW_FMT_F16 ? "--dtype f16" : "--no-fallback");
    }
    if (o.no_check && !o.off_grid) {
        return nw_fail(err, NW_E_USAGE, "--no-check has no meaning without --off-grid");
    }
    nw_status st = nw_convert(&o, &r, err);
    if (st == NW_OK) {
        if (args->json) {
            st = print_json(&r, err);
        } else {
            print_text(&r, o.out);
        }
    }
    nw_convert_report_release(&r);
    return st;
}

const nw_command nw_cmd_convert = {
    .name = "convert",
    .fn = run,
    .options = options,
    .n_options = NW_COUNT(options),
    .operands = "MODEL",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "write a checkpoint or an artifact in another format, with a loss report",
    .description =
        "Reads a GGUF file, a Hugging Face folder, a llama2.c file or an artifact and writes a "
        "folder "
        "that "
        "transformers loads: safetensors, config.json, generation_config.json and the tokenizer. "
        "Quantized formats are decoded exactly; what rounding to the written type costs is "
        "reported, and is zero where that type holds the values. narrow.json keeps where the "
        "weights came from, which every later result repeats.\n\n"
        "With --format gguf the folder holds model.gguf, which llama.cpp loads: codes, scales and "
        "minima of an artifact or of a quantized checkpoint are carried as they are where a block "
        "type holds them, a GGUF source byte for byte, metadata included. What no block type holds "
        "is written as BF16 and said, or refused with --no-fallback. native makes an artifact of "
        "the "
        "codes of a checkpoint, ready to be mapped. compressed-tensors, awq and "
        "gptq give the safetensors that vLLM and transformers load, by the same rules: codes and "
        "scales as they are, or said. q, k and v of a layer, and gate and up, must then have one "
        "layout, since these engines make one matrix of them.\n\n"
        "fp8-block is compressed-tensors too: wide matrices of the layers become E4M3 in blocks "
        "of 128 x 128 that share a scale, beside activations in E4M3 with a scale for every 128 "
        "columns of a token.\n\n"
        "With --off-grid the weights are rescaled by channel without changing the function: norm "
        "gains against the columns that read them, rows of up against columns of down, rows of v "
        "against columns of o, by factors from 0.8 to 1.25. Quantizing them again then costs what "
        "it costs genuine weights. The rescaled model is held to the source's logits in F32 before "
        "it is rounded.",
};
