/* See quantize_as.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/quantize_as.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/folder.h"

/* "<out>-native", whose partial name holds the artifact for the time being: what a killed run leaves of
 * it is removed by the next one. */
static nw_status open_scratch(const char *out, nw_folder *scratch, nw_error *err)
{
    size_t n = strlen(out);
    char *path = calloc(1, n + sizeof "-native");

    if (path == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a name", out);
    }
    while (n > 1 && out[n - 1] == '/') {
        n--;
    }
    (void)snprintf(path, n + sizeof "-native", "%.*s-native", (int)n, out);
    const nw_status st = nw_folder_open(scratch, path, true, err);
    free(path);
    return st;
}

nw_status nw_quantize_as(const nw_quantize_options *o, const nw_export_format *format,
                         bool no_fallback, nw_manifest *summary, nw_export_report *report,
                         nw_error *err)
{
    nw_folder scratch = {0};
    nw_manifest m = {0};
    nw_status st = NW_OK;

    if (nw_folder_holds(o->out, o->source)) {
        return nw_fail(err, NW_E_USAGE, "%s: the result would take the place of its source",
                       o->out);
    }
    st = open_scratch(o->out, &scratch, err);
    if (st == NW_OK) {
        nw_quantize_options native = *o;
        native.out = scratch.tmp;
        st = nw_quantize(&native, &m, err);
    }
    if (st == NW_OK) {
        const nw_export_options e = {.source = scratch.tmp,
                                     .out = o->out,
                                     .format = format,
                                     .replace = o->replace,
                                     .no_tokenizer = o->no_tokenizer,
                                     .no_fallback = no_fallback,
                                     .show_progress = o->show_progress,
                                     .n_threads = o->n_threads};
        st = nw_export(&e, report, err);
    }
    nw_folder_close(&scratch);
    if (st == NW_OK) {
        *summary = m;
    } else {
        nw_manifest_release(&m);
    }
    return st;
}
