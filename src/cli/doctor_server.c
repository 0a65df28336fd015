/* narrow doctor URL: what can be measured on a server, for people and as JSON.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor_server.h"

#include <stdio.h>

#include "cli/print_json.h"
#include "target/target.h"

static void print_rows(const json_t *rows, const char *key, const char *yes, const char *no)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *r = json_array_get(rows, i);
        const bool ok = json_is_true(json_object_get(r, "ok"));
        const char *text = json_string_value(json_object_get(r, key));
        (void)printf("  %-32s %-14s%s%s\n", json_string_value(json_object_get(r, "name")),
                     ok ? yes : no, text != NULL && text[0] != '\0' ? " " : "",
                     text != NULL ? text : "");
    }
}

static void print_text(const json_t *o)
{
    const json_t *replicas = json_object_get(o, "replicas");
    const json_int_t len = json_integer_value(json_object_get(o, "max_model_len"));

    for (size_t i = 0; i < json_array_size(replicas); i++) {
        (void)printf("server      %s\n", json_string_value(json_array_get(replicas, i)));
    }
    (void)printf("model       %s, owner '%s'", json_string_value(json_object_get(o, "model")),
                 json_string_value(json_object_get(o, "owner")));
    if (len > 0) {
        (void)printf(", context %lld", (long long)len);
    }
    (void)printf("\n\nwhat it does\n");
    print_rows(json_object_get(o, "capabilities"), "how", "yes", "no");
    (void)printf("\nwhat can be measured\n");
    print_rows(json_object_get(o, "measures"), "why", "yes", "not measured:");
}

nw_status nw_doctor_server(const nw_args *args, nw_error *err)
{
    const nw_target_options o = {.tokenizer = nw_args_str(args, "tokenizer"),
                                 .api_key = nw_args_server_key(args),
                                 .model = nw_args_str(args, "model"),
                                 .timeout_s = (unsigned)nw_args_int(args, "timeout"),
                                 .max_retries = 2};
    nw_target *t = NULL;
    json_t *out = NULL;

    if (!nw_target_spec_is_url(args->operands[0])) {
        return nw_fail(err, NW_E_USAGE, "doctor: '%s' is no URL of a server", args->operands[0]);
    }
    nw_status st = nw_target_open(args->operands[0], &o, &t, err);

    st = st == NW_OK ? nw_target_probe(t, &out, err) : st;
    nw_target_close(t);
    if (st == NW_OK && args->json) {
        return nw_print_json("doctor", out, err);
    }
    if (st == NW_OK) {
        print_text(out);
    }
    json_decref(out);
    return st;
}
