/* Quality in detail: divergence token by token, tasks by kind, and what the outputs look like where a
 * candidate answers otherwise than the baseline.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "report/page.h"
#include "stats/summary.h"

#define MAX_KINDS     24
#define MAX_EXAMPLES  2   /* a candidate and suite */
#define EXAMPLE_BYTES 600 /* of an output that is shown */

static void write_kl_row(const nw_page *p, size_t i)
{
    static const double q[] = {0.5, 0.9, 0.99, 0.999};
    const nw_text_quality *t = &p->f->c[i].text;
    nw_num a;

    (void)nw_buf_puts(p->out, "<tr><th scope=\"row\">");
    nw_page_mark(p, i);
    (void)nw_html(p->out, "%s</th><td>", p->f->c[i].row.name);
    nw_page_estimate(p, &t->kl_mean);
    (void)nw_buf_puts(p->out, "</td>");
    for (size_t k = 0; k < NW_COUNT(q); k++) {
        /* a percentile needs more values than it leaves above it */
        const bool enough = (double)t->n_kl * (1 - q[k]) >= 10;
        (void)nw_html(p->out, "<td>%s</td>",
                      enough ? nw_sig(nw_percentile(t->kl, t->n_kl, q[k]), &a)
                             : nw_sig((double)NAN, &a));
    }
    (void)nw_html(p->out, "<td>%s</td><td>%s</td><td>%s</td></tr>\n",
                  nw_sig(t->kl[t->n_kl - 1], &a), nw_count((int64_t)t->n_kl, &(nw_num){""}),
                  nw_count((int64_t)t->n_windows, &(nw_num){""}));
}

void nw_section_divergence(const nw_page *p)
{
    bool some = false;

    for (size_t i = 0; i < p->f->n; i++) {
        some = some || p->f->c[i].text.n_kl > 0;
    }
    if (!some) {
        (void)nw_buf_puts(p->out, "<p>No run compares the distributions of a candidate with the "
                                  "baseline's.</p>\n");
        return;
    }
    (void)nw_buf_puts(
        p->out, "<p>At every scored token, how far the candidate's distribution lies from the "
                "baseline's. Far away it shows that something is broken; close to the "
                "baseline it says little about tasks, and no gate that decides uses it.</p>\n");
    nw_page_figure(p, "kl", "Kullback-Leibler divergence from the baseline by candidate",
                   "Divergence from the baseline, logarithmic; values below 1e-7 stand at 1e-7.");
    nw_page_table_open(p, "numbers", "KL divergence from the baseline, nats a token");
    (void)nw_buf_puts(p->out,
                      "<thead><tr><th scope=\"col\">Candidate</th><th scope=\"col\">mean</th>"
                      "<th scope=\"col\">p50</th><th scope=\"col\">p90</th><th scope=\"col\">p99"
                      "</th><th scope=\"col\">p99.9</th><th scope=\"col\">largest</th><th "
                      "scope=\"col\">tokens</th><th scope=\"col\">windows</th></tr></thead>\n"
                      "<tbody>\n");
    for (size_t i = 0; i < p->f->n; i++) {
        if (p->f->c[i].text.n_kl > 0) {
            write_kl_row(p, i);
        }
    }
    (void)nw_buf_puts(p->out, "</tbody>\n");
    nw_page_table_close(p);
}

/* The kind of a cluster is what stands before its first slash. */
static size_t kind_length(const char *cluster)
{
    return strcspn(cluster, "/");
}

static bool same_kind(const char *a, const char *b)
{
    return kind_length(a) == kind_length(b) && strncmp(a, b, kind_length(a)) == 0;
}

static const nw_task *task_of(const nw_facts_candidate *c, const char *suite)
{
    for (size_t i = 0; i < c->n_tasks; i++) {
        if (strcmp(c->tasks[i].suite, suite) == 0) {
            return &c->tasks[i];
        }
    }
    return NULL;
}

/* The kinds of a suite, as clusters of it, in order of their first item; at most MAX_KINDS. */
static size_t kinds_of(const nw_task *t, const char *kinds[MAX_KINDS])
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++) {
        bool seen = false;
        for (size_t k = 0; k < n && !seen; k++) {
            seen = same_kind(kinds[k], t->items[i].cluster);
        }
        if (!seen && n < MAX_KINDS) {
            kinds[n++] = t->items[i].cluster;
        }
    }
    return n;
}

static void write_kind_cell(const nw_page *p, const nw_task *t, const char *kind)
{
    double sum = 0;
    size_t n = 0;
    nw_num a;

    for (size_t i = 0; t != NULL && i < t->n; i++) {
        if (same_kind(t->items[i].cluster, kind) && !isnan(t->items[i].score)) {
            sum += t->items[i].score;
            n++;
        }
    }
    (void)nw_html(p->out, "<td>%s <small>n = %zu</small></td>",
                  nw_fixed(n > 0 ? 100 * sum / (double)n : (double)NAN, 1, &a), n);
}

static void write_change(const nw_page *p, const nw_task *t)
{
    nw_num a;
    nw_num b;
    nw_num c;

    if (t == NULL || isnan(t->change.value)) {
        (void)nw_buf_puts(p->out, "<td>" NW_EN_DASH "</td>");
        return;
    }
    (void)nw_html(p->out, "<td>%s", nw_signed(100 * t->change.value, 1, &a));
    if (!isnan(t->change.lo)) {
        (void)nw_html(p->out, " <small>%s to %s</small>", nw_signed(100 * t->change.lo, 1, &b),
                      nw_signed(100 * t->change.hi, 1, &c));
    }
    (void)nw_html(p->out, "<small>%zu gained, %zu lost of %zu pairs</small></td>", t->gain, t->loss,
                  t->n_pairs);
}

static void write_lengths(const nw_page *p, const char *suite)
{
    nw_num a;
    nw_num b;

    (void)nw_buf_puts(p->out, "<tr><th scope=\"row\">length of a reply <small>tokens; share that "
                              "stopped by itself</small></th>");
    for (size_t i = 0; i < p->f->n; i++) {
        const nw_task *t = task_of(&p->f->c[i], suite);
        const double stop = t != NULL ? 100 * t->stop_share : (double)NAN;
        (void)nw_html(p->out, "<td>%s <small>%s%%</small></td>",
                      nw_sig(t != NULL ? t->mean_output : (double)NAN, &a), nw_fixed(stop, 0, &b));
    }
    (void)nw_buf_puts(p->out, "</tr>\n");
}

static void write_suite_table(const nw_page *p, const nw_task *base)
{
    const char *kinds[MAX_KINDS];
    const size_t n = kinds_of(base, kinds);

    nw_page_table_open(p, "numbers", "Score by kind of task, %");
    (void)nw_buf_puts(p->out, "<thead><tr><th scope=\"col\">Kind</th>");
    nw_page_candidate_heads(p);
    (void)nw_buf_puts(p->out, "</tr></thead>\n<tbody>\n");
    for (size_t k = 0; k < n; k++) {
        (void)nw_html(p->out, "<tr><th scope=\"row\">%.*s</th>", (int)kind_length(kinds[k]),
                      kinds[k]);
        for (size_t i = 0; i < p->f->n; i++) {
            write_kind_cell(p, task_of(&p->f->c[i], base->suite), kinds[k]);
        }
        (void)nw_buf_puts(p->out, "</tr>\n");
    }
    (void)nw_buf_puts(p->out,
                      "<tr><th scope=\"row\">change of the whole suite <small>points</small></th>");
    for (size_t i = 0; i < p->f->n; i++) {
        write_change(p, task_of(&p->f->c[i], base->suite));
    }
    (void)nw_buf_puts(p->out, "</tr>\n");
    if (!isnan(base->mean_output) && !isnan(base->stop_share)) {
        write_lengths(p, base->suite);
    }
    (void)nw_buf_puts(p->out, "</tbody>\n");
    nw_page_table_close(p);
}

static void write_output(const nw_page *p, const char *who, const nw_task_item *it)
{
    nw_num a;
    const char *text = it->output != NULL ? it->output : "";
    const bool cut = strlen(text) > EXAMPLE_BYTES;

    (void)nw_html(p->out, "<dt>%s <small>score %s</small></dt><dd><pre>%.*s", who,
                  nw_sig(it->score, &a), EXAMPLE_BYTES, text);
    (void)nw_buf_puts(p->out, cut ? "\xE2\x80\xA6</pre></dd>\n" : "</pre></dd>\n");
}

static void write_example(const nw_page *p, const nw_task_item *base, const nw_task_item *cand,
                          const char *name)
{
    (void)nw_html(p->out, "<dl class=\"example\">\n<dt>item</dt><dd><code>%s</code></dd>\n",
                  cand->item_id);
    if (cand->expected != NULL) {
        (void)nw_html(p->out, "<dt>expected</dt><dd><pre>%.*s</pre></dd>\n", EXAMPLE_BYTES,
                      cand->expected);
    }
    write_output(p, p->f->c[0].row.name, base);
    write_output(p, name, cand);
    (void)nw_buf_puts(p->out, "</dl>\n");
}

/* Pairs of outputs that differ: first those where the score does. Both lists are in order of id. */
static size_t write_examples(const nw_page *p, const nw_task *base, const nw_task *t,
                             const char *name)
{
    size_t n = 0;

    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0, j = 0; i < t->n && n < MAX_EXAMPLES; i++) {
            const nw_task_item *c = &t->items[i];
            while (j < base->n && strcmp(base->items[j].item_id, c->item_id) < 0) {
                j++;
            }
            const nw_task_item *b = j < base->n ? &base->items[j] : NULL;
            if (b == NULL || strcmp(b->item_id, c->item_id) != 0 || b->output == NULL ||
                c->output == NULL || strcmp(b->output, c->output) == 0 ||
                (b->score != c->score) != (pass == 0)) {
                continue;
            }
            write_example(p, b, c, name);
            n++;
        }
    }
    return n;
}

static void write_suite_examples(const nw_page *p, const nw_task *base)
{
    for (size_t i = 1; i < p->f->n; i++) {
        const nw_task *t = task_of(&p->f->c[i], base->suite);
        if (t == NULL) {
            continue;
        }
        (void)nw_html(p->out, "<details><summary>Where %s answers otherwise</summary>\n",
                      p->f->c[i].row.name);
        if (write_examples(p, base, t, p->f->c[i].row.name) == 0) {
            (void)nw_buf_puts(p->out, "<p>Nowhere: all kept outputs are equal.</p>\n");
        }
        (void)nw_buf_puts(p->out, "</details>\n");
    }
}

void nw_section_tasks(const nw_page *p)
{
    const nw_facts_candidate *base = &p->f->c[0];

    if (base->n_tasks == 0) {
        (void)nw_buf_puts(p->out, "<p>The baseline has no task runs in this record.</p>\n");
        return;
    }
    (void)nw_buf_puts(p->out, "<p>Items are paired: every candidate answers what the baseline "
                              "answered. Intervals draw whole clusters of related items.</p>\n");
    for (size_t i = 0; i < base->n_tasks; i++) {
        (void)nw_html(p->out, "<h3>%s</h3>\n", base->tasks[i].suite);
        write_suite_table(p, &base->tasks[i]);
        write_suite_examples(p, &base->tasks[i]);
    }
}
