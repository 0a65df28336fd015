/* The report: one HTML page that needs nothing else, written from a record alone. Readable without
 * scripts; the figures are SVG made when the page is written, and where they cannot be made the page
 * keeps its tables and says why.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_REPORT_REPORT_H
#define NW_REPORT_REPORT_H

#include "base/status.h"

typedef struct {
    const char *record;  /* path of study.db */
    const char *out;     /* path of the page */
    const char *title;   /* NULL: the file's name */
    const char *policy;  /* hash, at least its first 8 characters; NULL or "newest" */
    const char *svg_dir; /* NULL: no figures beside the page */
    const char *render;  /* script; NULL: looked for beside the program */
} nw_report_options;

typedef struct {
    size_t n_bytes, n_figures;
    char why_no_figures[512]; /* empty where there are figures */
} nw_report_result;

NW_MUST_USE nw_status nw_report_write(const nw_report_options *o, nw_report_result *out,
                                      nw_error *err);

#endif
