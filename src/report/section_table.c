/* Everything in one table: a column is a candidate, the baseline first; a row is a figure with its
 * unit, with its interval where there is one. A best value is marked only where its interval touches
 * no other.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page.h"
#include "stats/interval.h"
#include "stats/summary.h"

#define TWO_SIDED 0.025

typedef enum { NEITHER, LOWER, HIGHER } better;

/* A row of numbers: what it is, and its value for candidate i. */
typedef struct {
    const char *name, *unit;
    better is;
    nw_estimate (*get)(const nw_facts *f, size_t i);
} figure_row;

static nw_estimate bare(double v)
{
    return (nw_estimate){v, (double)NAN, (double)NAN};
}

static nw_estimate in_percent(const nw_estimate *e)
{
    return (nw_estimate){100 * e->value, 100 * e->lo, 100 * e->hi};
}

/* Nearest rank, with the order-statistic interval where it exists. */
static nw_estimate quantile(const nw_latency *l, double p)
{
    if (l == NULL || l->n == 0) {
        return bare((double)NAN);
    }
    const nw_ranks r = nw_quantile_ranks(l->n, p, TWO_SIDED);
    return (nw_estimate){nw_percentile(l->ms, l->n, p), r.lo > 0 ? l->ms[r.lo - 1] : (double)NAN,
                         r.hi > 0 ? l->ms[r.hi - 1] : (double)NAN};
}

static const nw_latency *load_ttft(const nw_facts *f, size_t i)
{
    const nw_load_point *p = nw_facts_point(f, &f->c[i]);
    return p != NULL ? &p->ttft : NULL;
}

static const nw_latency *load_tpot(const nw_facts *f, size_t i)
{
    const nw_load_point *p = nw_facts_point(f, &f->c[i]);
    return p != NULL ? &p->tpot : NULL;
}

static double load_throughput(const nw_facts *f, const nw_facts_candidate *c)
{
    const nw_load_point *p = nw_facts_point(f, c);
    return p != NULL ? p->throughput_tps : (double)NAN;
}

static nw_estimate load_goodput(const nw_facts *f, const nw_facts_candidate *c)
{
    const nw_load_point *p = nw_facts_point(f, c);
    return p != NULL ? p->goodput_rps : bare((double)NAN);
}

#define GETTER(name, expression)                               \
    static nw_estimate get_##name(const nw_facts *f, size_t i) \
    {                                                          \
        const nw_facts_candidate *c = &f->c[i];                \
        (void)c;                                               \
        return expression;                                     \
    }
GETTER(bits, bare(c->row.effective_bits))
GETTER(file, bare(c->row.file_bytes < 0 ? (double)NAN : (double)c->row.file_bytes / 1048576))
GETTER(weights, bare(c->weight_bytes / 1048576))
GETTER(ppl, c->text.ppl)
GETTER(bits_per_byte, bare(c->text.bits_per_byte))
GETTER(ln_ratio, c->text.ln_ratio)
GETTER(kl, c->text.kl_mean)
GETTER(top1, in_percent(&c->text.top1))
GETTER(ttft1_p50, quantile(&c->ttft1, 0.5))
GETTER(ttft1_p90, quantile(&c->ttft1, 0.9))
GETTER(tpot1_p50, quantile(&c->tpot1, 0.5))
GETTER(tpot1_p90, quantile(&c->tpot1, 0.9))
GETTER(decode, c->decode_tps)
GETTER(prefill, c->prefill_tps)
GETTER(ttft_p50, quantile(load_ttft(f, i), 0.5))
GETTER(ttft_p90, quantile(load_ttft(f, i), 0.9))
GETTER(tpot_p50, quantile(load_tpot(f, i), 0.5))
GETTER(tpot_p90, quantile(load_tpot(f, i), 0.9))
GETTER(throughput, bare(load_throughput(f, c)))
GETTER(goodput, load_goodput(f, c))
GETTER(peak, bare(c->peak_rss_bytes / 1048576))
GETTER(kv, bare(c->kv_bytes_per_token / 1024))
GETTER(load_s, bare(c->load_s))
#undef GETTER

static const figure_row format_rows[] = {
    {"effective bits a weight", "bits", NEITHER, get_bits},
    {"file", "MiB", NEITHER, get_file},
    {"weights in memory", "MiB", NEITHER, get_weights},
};
static const figure_row text_rows[] = {
    {"perplexity", "", LOWER, get_ppl},
    {"bits per byte of the text", "bits", LOWER, get_bits_per_byte},
    {"ln of the ratio to the baseline", "nats", LOWER, get_ln_ratio},
    {"mean KL divergence of a token", "nats", LOWER, get_kl},
    {"same most likely token", "%", HIGHER, get_top1},
};
static const figure_row batch1_rows[] = {
    {"TTFT p50", "ms", LOWER, get_ttft1_p50},   {"TTFT p90", "ms", LOWER, get_ttft1_p90},
    {"TPOT p50", "ms", LOWER, get_tpot1_p50},   {"TPOT p90", "ms", LOWER, get_tpot1_p90},
    {"decode", "tokens/s", HIGHER, get_decode}, {"prefill", "tokens/s", HIGHER, get_prefill},
};
static const figure_row load_rows[] = {
    {"TTFT p50", "ms", LOWER, get_ttft_p50},
    {"TTFT p90", "ms", LOWER, get_ttft_p90},
    {"TPOT p50", "ms", LOWER, get_tpot_p50},
    {"TPOT p90", "ms", LOWER, get_tpot_p90},
    {"throughput", "tokens/s", NEITHER, get_throughput},
    {"goodput", "requests/s", HIGHER, get_goodput},
};
static const figure_row cost_rows[] = {
    {"peak resident memory", "MiB", NEITHER, get_peak},
    {"keys and values of a token", "KiB", NEITHER, get_kv},
    {"time to load", "s", NEITHER, get_load_s},
};

/* The candidate whose interval is better than all others' and touches none; n: no such one. */
static size_t best_of(const nw_facts *f, const figure_row *row)
{
    for (size_t i = 0; row->is != NEITHER && f->n > 1 && i < f->n; i++) {
        const nw_estimate a = row->get(f, i);
        bool best = !isnan(a.lo) && !isnan(a.hi);
        size_t n_others = 0;
        for (size_t k = 0; k < f->n && best; k++) {
            const nw_estimate b = row->get(f, k);
            if (k == i || isnan(b.value)) {
                continue;
            }
            n_others++;
            best = row->is == LOWER ? a.hi < b.lo : a.lo > b.hi; /* false for NaN */
        }
        if (best && n_others > 0) {
            return i;
        }
    }
    return f->n;
}

static bool any(const nw_facts *f, const figure_row *row)
{
    for (size_t i = 0; i < f->n; i++) {
        if (!isnan(row->get(f, i).value)) {
            return true;
        }
    }
    return false;
}

static void open_group(const nw_page *p, const char *title)
{
    (void)nw_html(
        p->out,
        "<tbody>\n<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"%zu\">%s</th></tr>\n",
        p->f->n + 1, title);
}

static void open_row(const nw_page *p, const char *name, const char *unit)
{
    (void)nw_html(p->out, "<tr><th scope=\"row\">%s", name);
    if (unit[0] != '\0') {
        (void)nw_html(p->out, " <small>%s</small>", unit);
    }
    (void)nw_buf_puts(p->out, "</th>");
}

static void write_row(const nw_page *p, const figure_row *row)
{
    const size_t best = best_of(p->f, row);

    if (!any(p->f, row)) {
        return;
    }
    open_row(p, row->name, row->unit);
    for (size_t i = 0; i < p->f->n; i++) {
        const nw_estimate e = row->get(p->f, i);
        (void)nw_buf_puts(p->out, i == best ? "<td class=\"best\">" : "<td>");
        nw_page_estimate(p, &e);
        (void)nw_buf_puts(p->out, i == best ? "<span class=\"sr\"> best, and no other interval "
                                              "touches it</span></td>"
                                            : "</td>");
    }
    (void)nw_buf_puts(p->out, "</tr>\n");
}

static void write_rows(const nw_page *p, const char *title, const figure_row *rows, size_t n)
{
    bool some = false;

    for (size_t i = 0; i < n; i++) {
        some = some || any(p->f, &rows[i]);
    }
    if (!some) {
        return;
    }
    open_group(p, title);
    for (size_t i = 0; i < n; i++) {
        write_row(p, &rows[i]);
    }
    (void)nw_buf_puts(p->out, "</tbody>\n");
}

/* The 99th percentile is shown from n = 299 on: below, its 95% bound does not exist. */
static void write_p99(const nw_page *p, const char *name,
                      const nw_latency *(*get)(const nw_facts *f, size_t i))
{
    nw_num n;

    open_row(p, name, "ms");
    for (size_t i = 0; i < p->f->n; i++) {
        const nw_latency *l = get(p->f, i);
        (void)nw_buf_puts(p->out, "<td>");
        if (l == NULL || l->n == 0) {
            (void)nw_buf_puts(p->out, NW_EN_DASH);
        } else if (l->n < NW_P99_MIN_N) {
            (void)nw_html(p->out, "<small>n = %s, %d needed</small>", nw_count((int64_t)l->n, &n),
                          NW_P99_MIN_N);
        } else {
            const nw_estimate e = quantile(l, 0.99);
            nw_page_estimate(p, &e);
        }
        (void)nw_buf_puts(p->out, "</td>");
    }
    (void)nw_buf_puts(p->out, "</tr>\n");
}

static const nw_latency *micro_ttft(const nw_facts *f, size_t i)
{
    return &f->c[i].ttft1;
}

static const nw_latency *micro_tpot(const nw_facts *f, size_t i)
{
    return &f->c[i].tpot1;
}

static void write_formats(const nw_page *p)
{
    static const struct {
        const char *name;
        size_t offset;
    } rows[] = {{"weights", offsetof(nw_rec_candidate, weights)},
                {"keys and values", offsetof(nw_rec_candidate, kv)},
                {"activations", offsetof(nw_rec_candidate, act)}};

    open_group(p, "Format");
    for (size_t k = 0; k < NW_COUNT(rows); k++) {
        open_row(p, rows[k].name, "");
        for (size_t i = 0; i < p->f->n; i++) {
            const char *text = NULL;
            memcpy(&text, (const char *)&p->f->c[i].row + rows[k].offset, sizeof text);
            (void)nw_html(p->out, "<td>%s</td>", text);
        }
        (void)nw_buf_puts(p->out, "</tr>\n");
    }
    for (size_t k = 0; k < NW_COUNT(format_rows); k++) {
        write_row(p, &format_rows[k]);
    }
    (void)nw_buf_puts(p->out, "</tbody>\n");
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

static void write_task(const nw_page *p, const char *suite)
{
    char name[160];

    (void)snprintf(name, sizeof name, "score, %.120s", suite);
    open_row(p, name, "%");
    for (size_t i = 0; i < p->f->n; i++) {
        const nw_task *t = task_of(&p->f->c[i], suite);
        (void)nw_buf_puts(p->out, "<td>");
        if (t == NULL) {
            (void)nw_buf_puts(p->out, NW_EN_DASH);
        } else {
            const nw_estimate e = in_percent(&t->score);
            nw_page_estimate(p, &e);
        }
        (void)nw_buf_puts(p->out, "</td>");
    }
    (void)nw_buf_puts(p->out, "</tr>\n");
}

static void write_tasks(const nw_page *p)
{
    const nw_facts_candidate *base = &p->f->c[0];

    if (base->n_tasks == 0) {
        return;
    }
    open_group(p, "Quality on tasks");
    for (size_t i = 0; i < base->n_tasks; i++) {
        write_task(p, base->tasks[i].suite);
    }
    (void)nw_buf_puts(p->out, "</tbody>\n");
}

static void write_speed(const nw_page *p)
{
    const nw_facts *f = p->f;
    char title[128];

    if (f->c[0].ttft1.n + f->c[0].tpot1.n > 0) {
        open_group(p, "One request at a time");
        for (size_t i = 0; i < NW_COUNT(batch1_rows); i++) {
            write_row(p, &batch1_rows[i]);
        }
        write_p99(p, "TTFT p99", micro_ttft);
        write_p99(p, "TPOT p99", micro_tpot);
        (void)nw_buf_puts(p->out, "</tbody>\n");
    }
    if (f->has_load) {
        (void)snprintf(title, sizeof title, "Under load, %.3g requests/s offered",
                       f->c[0].load[f->operating].offered_rps);
        open_group(p, title);
        for (size_t i = 0; i < NW_COUNT(load_rows); i++) {
            write_row(p, &load_rows[i]);
        }
        write_p99(p, "TTFT p99", load_ttft);
        write_p99(p, "TPOT p99", load_tpot);
        (void)nw_buf_puts(p->out, "</tbody>\n");
    }
}

void nw_section_table(const nw_page *p)
{
    (void)nw_buf_puts(p->out,
                      "<p>Small figures are 95% intervals: cluster bootstrap for quality, order "
                      "statistics for percentiles, Wilson for goodput. A value is set in bold only "
                      "where it is better than all others and no interval touches its own.</p>\n");
    nw_page_table_open(p, "numbers", "Candidates side by side");
    (void)nw_buf_puts(p->out, "<thead><tr><th scope=\"col\">Figure</th>");
    nw_page_candidate_heads(p);
    (void)nw_buf_puts(p->out, "</tr></thead>\n");
    write_formats(p);
    write_rows(p, "Quality on text", text_rows, NW_COUNT(text_rows));
    write_tasks(p);
    write_speed(p);
    write_rows(p, "Cost", cost_rows, NW_COUNT(cost_rows));
    nw_page_table_close(p);
}
