/* See quantize_as.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/quantize_as.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/folder.h"
#include "base/file.h"

/* A fixed name, so that a killed run is gone on with (quantize.h). The caller frees it. */
static char *work_name(const char *out, nw_error *err)
{
    static const char ending[] = ".native-work";
    size_t n = strlen(out);
    char *path = calloc(1, n + sizeof ending);

    while (n > 1 && out[n - 1] == '/') {
        n--;
    }
    if (path == NULL) {
        (void)nw_fail(err, NW_E_NOMEM, "%s: no memory for a name", out);
    } else {
        (void)snprintf(path, n + sizeof ending, "%.*s%s", (int)n, out, ending);
    }
    return path;
}

/* What would stop the result from getting its name is found before the work. */
static nw_status check_out(const nw_quantize_options *o, nw_error *err)
{
    nw_folder probe = {0};
    nw_status st = NW_OK;

    if (nw_folder_holds(o->out, o->source)) {
        return nw_fail(err, NW_E_USAGE, "%s: the result would take the place of its source",
                       o->out);
    }
    st = nw_folder_open(&probe, o->out, o->replace, err);
    nw_folder_close(&probe);
    return st;
}

static nw_status run(const nw_quantize_options *o, const char *work, const nw_export_options *e,
                     nw_manifest *m, nw_export_report *report, nw_error *err)
{
    nw_quantize_options native = *o;

    native.out = work;
    native.replace = true;
    native.bf16_scales = e->format->bf16_scales || o->bf16_scales;
    nw_status st = nw_quantize(&native, m, err);
    if (st != NW_OK) {
        return st;
    }
    st = nw_export(e, report, err);
    if (nw_file_is_dir(work)) {
        nw_error ignored = {0};
        const nw_status removed = nw_folder_remove(work, st == NW_OK ? err : &ignored);
        st = st == NW_OK ? removed : st;
    }
    return st;
}

nw_status nw_quantize_as(const nw_quantize_options *o, const nw_export_format *format,
                         nw_manifest *summary, nw_export_report *report, nw_error *err)
{
    char *work = work_name(o->out, err);
    nw_manifest m = {0};
    nw_status st = work == NULL ? err->code : check_out(o, err);

    if (st == NW_OK) {
        const nw_export_options e = {.source = work,
                                     .out = o->out,
                                     .format = format,
                                     .replace = o->replace,
                                     .no_tokenizer = o->no_tokenizer,
                                     .no_fallback = o->no_fallback,
                                     .show_progress = o->show_progress,
                                     .n_threads = o->n_threads};
        st = run(o, work, &e, &m, report, err);
    }
    free(work);
    if (st == NW_OK) {
        *summary = m;
    } else {
        nw_manifest_release(&m);
    }
    return st;
}
