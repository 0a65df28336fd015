/* Inside report: a page under construction. A section writes its part from the facts and the figures;
 * an append that does not fit is remembered by the buffer and checked once, at the end.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_REPORT_PAGE_H
#define NW_REPORT_PAGE_H

#include "report/figures.h"
#include "report/html.h"

typedef struct {
    nw_buf *out;
    const nw_facts *f;
    const nw_figures *g;
    const char *title;
    const char *record;  /* name of the record's file, without its folders */
    const char *machine; /* JSON of the machine of the newest run; NULL unknown */
} nw_page;

void nw_section_decision(const nw_page *p);
void nw_section_gates(const nw_page *p);
void nw_section_table(const nw_page *p);
void nw_section_latency(const nw_page *p);
void nw_section_load(const nw_page *p);
void nw_section_frontier(const nw_page *p);
void nw_section_divergence(const nw_page *p);
void nw_section_tasks(const nw_page *p);
void nw_section_kernels(const nw_page *p);
void nw_section_memory(const nw_page *p);
void nw_section_terms(const nw_page *p);
void nw_section_protocol(const nw_page *p);
void nw_section_raw(const nw_page *p);

/* The whole page, head to foot. */
void nw_page_write(const nw_page *p);

/* <figure> with the SVG and a caption; without an SVG, the reason. `alt` says what is drawn. */
void nw_page_figure(const nw_page *p, const char *id, const char *alt, const char *caption);
/* A table that scrolls inside itself on a narrow screen: opened with its caption, closed. */
void nw_page_table_open(const nw_page *p, const char *classes, const char *caption);
void nw_page_table_close(const nw_page *p);
/* <th scope="col"> of each candidate, with its mark. */
void nw_page_candidate_heads(const nw_page *p);
/* The coloured mark of candidate i: shape in the colour that figures use. */
void nw_page_mark(const nw_page *p, size_t i);
/* "12.3 <small>11.9 to 12.7</small>" in three significant digits; the interval where there is one. */
void nw_page_estimate(const nw_page *p, const nw_estimate *e);
/* Index of the candidate, or f->n. */
size_t nw_page_index(const nw_page *p, const char *candidate);
/* The JSON of the decision about `regime`, parsed; NULL: none. The caller owns it. */
json_t *nw_page_decision(const nw_page *p, const char *regime, const nw_rec_decision **row);
/* The first 12 characters of a hash. */
const char *nw_page_short(const char *hash, char buf[16]);

extern const char nw_report_css[]; /* web/report.css, put into the program by the build */

#endif
