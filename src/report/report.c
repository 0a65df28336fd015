/* From a record to a page: facts, figures, HTML, one atomic write.
 * SPDX-License-Identifier: Apache-2.0 */
#include "report/report.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "report/page.h"

#define MAX_PAGE_BYTES (128U << 20)

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* The machine of the newest run that names one. */
static nw_status find_machine(nw_record *r, nw_facts *f, const char **json, nw_error *err)
{
    for (size_t i = f->n_runs; i-- > 0;) {
        if (f->runs[i].machine_hash != NULL) {
            return nw_record_machine_get(r, f->runs[i].machine_hash, &f->arena, json, err);
        }
    }
    return NW_OK;
}

static nw_status write_page(const nw_report_options *o, const nw_facts *f, const nw_figures *g,
                            const char *machine, nw_report_result *out, nw_error *err)
{
    nw_buf b;
    nw_buf_init(&b, MAX_PAGE_BYTES);
    const nw_page page = {.out = &b,
                          .f = f,
                          .g = g,
                          .title = o->title != NULL ? o->title : file_name(o->record),
                          .record = file_name(o->record),
                          .machine = machine};
    nw_status st = NW_OK;

    nw_page_write(&page);
    if (b.failed) {
        st = nw_fail(err, NW_E_RANGE, "%s: the page would exceed %u MiB", o->record,
                     MAX_PAGE_BYTES >> 20);
    } else {
        out->n_bytes = b.len;
        st = nw_file_write(o->out, b.data, b.len, err);
    }
    nw_buf_release(&b);
    return st;
}

static nw_status make_report(nw_record *r, const nw_report_options *o, nw_report_result *out,
                             nw_error *err)
{
    nw_facts f;
    nw_figures g = {.specs = NULL};
    const char *machine = NULL;

    if (nw_facts_load(r, o->policy, &f, err) != NW_OK) {
        return err->code;
    }
    nw_status st = find_machine(r, &f, &machine, err);
    st = st == NW_OK ? nw_figures_build(&f, &g, err) : st;
    st = st == NW_OK ? nw_figures_render(&g, o->render, err) : st;
    st = st == NW_OK ? write_page(o, &f, &g, machine, out, err) : st;
    if (st == NW_OK && o->svg_dir != NULL && g.svgs != NULL) {
        st = nw_figures_write(&g, o->svg_dir, err);
    }
    out->n_figures = json_object_size(g.svgs);
    (void)snprintf(out->why_no_figures, sizeof out->why_no_figures, "%s", g.why_none);
    nw_figures_release(&g);
    nw_facts_release(&f);
    return st;
}

nw_status nw_report_write(const nw_report_options *o, nw_report_result *out, nw_error *err)
{
    nw_record *r = NULL;

    *out = (nw_report_result){.n_bytes = 0};
    if (nw_record_open(o->record, NW_RECORD_READ, &r, err) != NW_OK) {
        return err->code;
    }
    const nw_status st = make_report(r, o, out, err);
    nw_record_close(r);
    return st;
}
