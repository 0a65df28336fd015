/* What ran on the machine: kernels intended and used, and where the memory went.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/page.h"

#define MAX_ROWS 12 /* kernels listed of a candidate: the rest is summed */

static int slowest_first(const void *a, const void *b)
{
    const nw_rec_kernel *x = a;
    const nw_rec_kernel *y = b;
    return x->ns != y->ns ? (x->ns < y->ns ? 1 : -1) : strcmp(x->op, y->op);
}

static bool fell_back(const nw_rec_kernel *k)
{
    return strcmp(k->intended, k->used) != 0;
}

static void write_kernel(const nw_page *p, const nw_rec_kernel *k, double total_ns)
{
    nw_num a;
    nw_num b;

    (void)nw_html(p->out, "<tr><th scope=\"row\">%s</th><td class=\"t\">%s</td><td class=\"t\">",
                  k->op, k->phase);
    if (fell_back(k)) {
        (void)nw_html(p->out, "<b>fallback</b>: %s <small>intended %s</small>", k->used,
                      k->intended);
    } else {
        (void)nw_html(p->out, "%s", k->used);
    }
    (void)nw_html(
        p->out, "</td><td>%s</td><td>%s</td><td>%s</td>",
        nw_fixed(total_ns > 0 ? 100 * (double)k->ns / total_ns : (double)NAN, 1, &a),
        nw_count(k->calls, &b),
        nw_sig(k->ns > 0 ? (double)k->bytes / (double)k->ns : (double)NAN, &(nw_num){""}));
    (void)nw_html(p->out, "<td>%s</td></tr>\n", nw_mib((double)k->bytes_converted, &a));
}

static void write_candidate(const nw_page *p, nw_facts_candidate *c)
{
    double total = 0;
    double fallback = 0;
    nw_num a;

    for (size_t i = 0; i < c->n_kernels; i++) {
        total += (double)c->kernels[i].ns;
        fallback += fell_back(&c->kernels[i]) ? (double)c->kernels[i].ns : 0;
    }
    qsort(c->kernels, c->n_kernels, sizeof *c->kernels, slowest_first);
    (void)nw_html(p->out, "<h3>%s</h3>\n<p>", c->row.name);
    if (fallback > 0) {
        (void)nw_html(
            p->out,
            "<strong>%s%%</strong> of the time went to kernels that were not the intended "
            "ones.</p>\n",
            nw_fixed(100 * fallback / total, 1, &a));
    } else {
        (void)nw_buf_puts(p->out, "Every kernel ran as intended.</p>\n");
    }
    (void)nw_html(p->out, "<details%.*s><summary>%zu rows of the kernel ledger</summary>\n",
                  fallback > 0 ? 5 : 0, " open", c->n_kernels);
    nw_page_table_open(p, "numbers", "Kernels by time, summed over layers");
    (void)nw_buf_puts(p->out,
                      "<thead><tr><th scope=\"col\">Operation</th><th scope=\"col\" "
                      "class=\"t\">Phase</th><th scope=\"col\" class=\"t\">Kernel</th><th "
                      "scope=\"col\">time <small>%</small></th><th "
                      "scope=\"col\">calls</th><th scope=\"col\">read <small>GB/s</small></th><th "
                      "scope=\"col\">converted <small>MiB</small></th></tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < c->n_kernels && i < MAX_ROWS; i++) {
        write_kernel(p, &c->kernels[i], total);
    }
    (void)nw_buf_puts(p->out, "</tbody>\n");
    nw_page_table_close(p);
    if (c->n_kernels > MAX_ROWS) {
        (void)nw_html(p->out,
                      "<p class=\"note\">%zu faster rows are left out; the record has "
                      "them.</p>\n",
                      c->n_kernels - MAX_ROWS);
    }
    (void)nw_buf_puts(p->out, "</details>\n");
}

void nw_section_kernels(const nw_page *p)
{
    bool some = false;

    (void)nw_buf_puts(p->out,
                      "<p>Counted by the engine while it ran, not read from logs. A fallback "
                      "is a kernel other than the one that the format calls for.</p>\n");
    for (size_t i = 0; i < p->f->n; i++) {
        if (p->f->c[i].n_kernels > 0) {
            write_candidate(p, &p->f->c[i]);
            some = true;
        }
    }
    if (!some) {
        (void)nw_buf_puts(p->out, "<p>The record has no kernel ledger: nothing was run on narrow's "
                                  "own engine yet, or the server did not give one.</p>\n");
    }
}

void nw_section_memory(const nw_page *p)
{
    nw_page_figure(p, "memory", "Peak resident memory and weights by candidate",
                   "Peak resident memory of the serving process; the dark part is the weights.");
    nw_page_table_open(p, "numbers", "Memory by candidate");
    (void)nw_buf_puts(p->out,
                      "<thead><tr><th scope=\"col\">Candidate</th><th scope=\"col\">file <small>MiB"
                      "</small></th><th scope=\"col\">weights <small>MiB</small></th><th "
                      "scope=\"col\">KV of a token <small>KiB</small></th><th "
                      "scope=\"col\">workspace <small>MiB</small></th><th scope=\"col\">peak "
                      "resident <small>MiB</small></th></tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < p->f->n; i++) {
        const nw_facts_candidate *c = &p->f->c[i];
        nw_num n[5];
        (void)nw_buf_puts(p->out, "<tr><th scope=\"row\">");
        nw_page_mark(p, i);
        (void)nw_html(p->out,
                      "%s</th><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n",
                      c->row.name, nw_mib((double)c->row.file_bytes, &n[0]),
                      nw_mib(c->weight_bytes, &n[1]), nw_sig(c->kv_bytes_per_token / 1024, &n[2]),
                      nw_mib(c->workspace_bytes, &n[3]), nw_mib(c->peak_rss_bytes, &n[4]));
    }
    (void)nw_buf_puts(p->out, "</tbody>\n");
    nw_page_table_close(p);
}
