/* narrow verify: holds a native artifact to its manifest, and names the tensor at fault.
 * SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "artifact/artifact.h"
#include "cli/command.h"
#include "cli/print_json.h"

static const nw_option options[] = {
    {.name = "source",
     .type = NW_OPT_STRING,
     .unit = "MODEL",
     .help = "the checkpoint the artifact was made from: SQNR and largest error of each tensor are "
             "computed again"},
};

typedef struct {
    size_t n, n_bad;
    bool json;
    json_t *faults;
} tally;

static void on_tensor(void *ctx, const nw_manifest_tensor *t, const char *problem)
{
    tally *s = ctx;

    s->n++;
    if (problem == NULL) {
        return;
    }
    s->n_bad++;
    (void)json_array_append_new(s->faults,
                                json_pack("{s:s, s:s}", "tensor", t->name, "problem", problem));
    if (!s->json) {
        (void)printf("%s: %s\n", t->name, problem);
    }
}

static nw_status print_json(const tally *s, bool ok, nw_error *err)
{
    json_t *row =
        json_pack("{s:b, s:I, s:O}", "ok", ok, "n_tensors", (json_int_t)s->n, "faults", s->faults);
    return nw_print_json("verify", row, err);
}

static nw_status run(const nw_args *args, int *exit_code, nw_error *err)
{
    tally s = {.json = args->json, .faults = json_array()};
    const char *path = args->operands[0];
    const char *source = nw_args_str(args, "source");
    nw_status st = nw_artifact_verify(path, source, on_tensor, &s, err);

    (void)exit_code;
    if (args->json && (st == NW_OK || s.n_bad > 0)) {
        nw_error print_err = {0};
        const nw_status printed = print_json(&s, st == NW_OK, &print_err);
        if (st == NW_OK && printed != NW_OK) {
            *err = print_err;
            st = printed;
        }
    } else if (st == NW_OK) {
        (void)printf("%s: %zu tensors in order: present, shapes, sizes, sha256, values finite, "
                     "non-zero share and rms%s\n",
                     path, s.n, source != NULL ? ", error against the source" : "");
    }
    json_decref(s.faults);
    return st;
}

const nw_command nw_cmd_verify = {
    .name = "verify",
    .fn = run,
    .options = options,
    .n_options = NW_COUNT(options),
    .operands = "ARTIFACT",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "check an artifact against its manifest, tensor by tensor",
    .description =
        "Opens an artifact again and holds every tensor to the manifest: presence, shape, size, "
        "sha256, finite values, share of values that are not zero, rms; with --source also the "
        "error against the checkpoint it was made from. Each fault is printed with the tensor's "
        "name. Ends with 0 when all is in order and with 3 otherwise.",
};
