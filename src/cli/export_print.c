/* See export_print.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/export_print.h"

#include <inttypes.h>
#include <stdio.h>

void nw_print_loss(const nw_loss *l)
{
    (void)printf("loss        %zu of %zu tensors are exact\n", l->n_exact, l->n_tensors);
    if (l->worst_name != NULL) {
        (void)printf(
            "            largest error %.3g, rms %.3g over all weights, lowest SQNR %.2f dB "
            "in %s\n",
            l->max_abs_err, nw_loss_rms(l), l->worst_sqnr_db, l->worst_name);
    }
    for (size_t i = 0; i < json_array_size(l->dropped); i++) {
        (void)printf("dropped     %s\n", json_string_value(json_array_get(l->dropped, i)));
    }
    if (l->n_fallbacks > 0) {
        (void)printf("fallback    %zu tensor%s in another type; the first is %s\n", l->n_fallbacks,
                     l->n_fallbacks > 1 ? "s" : "",
                     l->first_fallback != NULL ? l->first_fallback : "?");
    }
}

void nw_print_export(const nw_export_report *r, const char *out, const char *format)
{
    (void)printf("written     %s as %s: %zu tensors, %" PRIu64 " weights, %" PRIu64 " bytes\n", out,
                 format, r->loss.n_tensors, r->loss.n_params, r->n_bytes);
    if (r->note[0] != '\0') {
        (void)printf("note        %s\n", r->note);
    }
    nw_print_loss(&r->loss);
}

json_t *nw_export_report_json(const nw_export_report *r, const char *format)
{
    return json_pack("{s:s, s:s, s:I, s:o}", "format", format, "note", r->note, "n_bytes",
                     (json_int_t)r->n_bytes, "loss", nw_loss_json(&r->loss));
}
