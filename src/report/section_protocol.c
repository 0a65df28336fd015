/* How it was measured and on what, so that a figure can be doubted: shortfalls first, then runs with
 * their settings and hashes, the machine, the policy in full, and where the rows are.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "report/page.h"
#include "stats/summary.h"

/* List items are opened lazily, so that an empty list is no list. */
static void item_open(const nw_page *p, bool *any)
{
    (void)nw_buf_puts(p->out, *any ? "<li>" : "<ul>\n<li>");
    *any = true;
}

/* "; " between the notes about one candidate. */
static void note_open(const nw_page *p, const char *name, bool *any, bool *first)
{
    if (*first) {
        item_open(p, any);
        (void)nw_html(p->out, "<strong>%s</strong>: ", name);
    } else {
        (void)nw_buf_puts(p->out, "; ");
    }
    *first = false;
}

/* The numbers of requests that are too few for a 99th percentile. */
static void note_p99(const nw_page *p, const nw_facts_candidate *c, bool *any, bool *first)
{
    bool some = c->ttft1.n > 0 && c->ttft1.n < NW_P99_MIN_N;

    for (size_t k = 0; k < c->n_load; k++) {
        some = some || c->load[k].ttft.n < NW_P99_MIN_N;
    }
    if (!some) {
        return;
    }
    note_open(p, c->row.name, any, first);
    (void)nw_html(p->out, "a 99th percentile needs %d requests", NW_P99_MIN_N);
    if (c->ttft1.n > 0 && c->ttft1.n < NW_P99_MIN_N) {
        (void)nw_html(p->out, ", batch 1 has %zu", c->ttft1.n);
    }
    for (size_t k = 0; k < c->n_load; k++) {
        if (c->load[k].ttft.n < NW_P99_MIN_N) {
            (void)nw_html(p->out, ", load at %.3g/s has %zu", c->load[k].offered_rps,
                          c->load[k].ttft.n);
        }
    }
}

static void note_load(const nw_page *p, const nw_facts_candidate *c, bool *any, bool *first)
{
    for (size_t k = 0; k < c->n_load; k++) {
        const nw_load_point *q = &c->load[k];
        if (q->steady != 1) {
            note_open(p, c->row.name, any, first);
            (void)nw_html(p->out, "load at %.3g/s was %s", q->offered_rps,
                          q->steady == 0 ? "not steady" : "not tested for a steady state");
        }
        if (q->n_ok < q->n) {
            note_open(p, c->row.name, any, first);
            (void)nw_html(p->out, "load at %.3g/s left %zu of %zu requests unanswered",
                          q->offered_rps, q->n - q->n_ok, q->n);
        }
    }
}

static void note_gates(const nw_page *p, const nw_facts_candidate *c, bool *any, bool *first)
{
    for (size_t i = 0; i < p->f->n_verdicts; i++) {
        const nw_rec_verdict *v = &p->f->verdicts[i];
        if (v->n_needed > v->n && !v->advisory && strcmp(v->candidate, c->row.name) == 0) {
            note_open(p, c->row.name, any, first);
            (void)nw_html(p->out, "%s on %s has n = %lld and needs %lld", v->gate, v->slice,
                          (long long)v->n, (long long)v->n_needed);
        }
    }
}

static void note_runs(const nw_page *p, const nw_facts_candidate *c, bool *any, bool *first)
{
    for (size_t i = 0; i < p->f->n_runs; i++) {
        const nw_rec_run *r = &p->f->runs[i];
        if (strcmp(r->status, "done") != 0 && strcmp(r->candidate, c->row.name) == 0) {
            note_open(p, c->row.name, any, first);
            (void)nw_html(p->out, "run %lld (%s %s) is %s and not used", (long long)r->id, r->stage,
                          r->suite, r->status);
        }
    }
}

static void write_shortfalls(const nw_page *p)
{
    bool any = false;

    (void)nw_buf_puts(p->out, "<h3>What falls short</h3>\n");
    for (size_t i = 0; i < p->f->n; i++) {
        const nw_facts_candidate *c = &p->f->c[i];
        bool first = true;
        note_p99(p, c, &any, &first);
        note_load(p, c, &any, &first);
        note_gates(p, c, &any, &first);
        note_runs(p, c, &any, &first);
        (void)nw_buf_puts(p->out, first ? "" : ".</li>\n");
    }
    (void)nw_buf_puts(p->out, any ? "</ul>\n" : "<p>Nothing that was checked.</p>\n");
}

static void write_runs(const nw_page *p)
{
    char a[16];
    char b[16];
    char c[16];

    (void)nw_html(p->out, "<details><summary>All %zu runs, with their hashes</summary>\n",
                  p->f->n_runs);
    nw_page_table_open(p, "numbers runs", "Every run in the record");
    (void)nw_buf_puts(p->out,
                      "<thead><tr><th scope=\"col\">Run</th><th scope=\"col\">Candidate</th><th "
                      "scope=\"col\">Stage</th><th scope=\"col\">Status</th><th scope=\"col\">Ended"
                      "</th><th scope=\"col\">Threads</th><th scope=\"col\">Seed</th><th "
                      "scope=\"col\">Settings</th><th scope=\"col\">Data</th><th scope=\"col\">"
                      "Artifact</th></tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < p->f->n_runs; i++) {
        const nw_rec_run *r = &p->f->runs[i];
        nw_num threads;
        nw_num seed;
        (void)nw_html(p->out,
                      "<tr><th scope=\"row\">%lld</th><td>%s</td><td>%s <small>%s</small></td>"
                      "<td>%s</td><td>%s</td><td>%s</td><td>%s</td>",
                      (long long)r->id, r->candidate, r->stage, r->suite, r->status, r->ended,
                      nw_count(r->threads, &threads), nw_count(r->seed, &seed));
        (void)nw_html(p->out,
                      "<td><code>%s</code></td><td><code>%s</code></td><td><code>%s</code></td>"
                      "</tr>\n",
                      nw_page_short(r->settings_hash, a), nw_page_short(r->data_hash, b),
                      nw_page_short(r->artifact_hash, c));
    }
    (void)nw_buf_puts(p->out, "</tbody>\n");
    nw_page_table_close(p);
    (void)nw_buf_puts(p->out, "</details>\n");
}

/* Settings that several runs share are shown once. */
static void write_settings(const nw_page *p)
{
    (void)nw_buf_puts(p->out, "<details><summary>Settings of the runs</summary>\n<dl>\n");
    for (size_t i = 0; i < p->f->n_runs; i++) {
        const nw_rec_run *r = &p->f->runs[i];
        bool seen = r->settings_json == NULL;
        char hash[16];
        for (size_t k = 0; k < i && !seen; k++) {
            seen = strcmp(p->f->runs[k].settings_hash, r->settings_hash) == 0;
        }
        if (!seen) {
            (void)nw_html(p->out, "<dt>%s %s <code>%s</code></dt><dd><pre>%s</pre></dd>\n",
                          r->stage, r->suite, nw_page_short(r->settings_hash, hash),
                          r->settings_json);
        }
    }
    (void)nw_buf_puts(p->out, "</dl>\n</details>\n");
}

static void write_value(const nw_page *p, const char *key, const json_t *v)
{
    char *text = json_is_string(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);

    (void)nw_html(p->out, "<dt>%s</dt><dd>%s</dd>\n", key,
                  text != NULL ? text : json_string_value(v));
    free(text);
}

static void write_machine(const nw_page *p)
{
    nw_error ignored = {0};
    json_t *doc = NULL;
    const char *key = NULL;
    json_t *value = NULL;

    (void)nw_buf_puts(p->out, "<h3>Machine</h3>\n");
    if (p->machine == NULL ||
        nw_json_parse("machine", p->machine, strlen(p->machine), &doc, &ignored) != NW_OK) {
        (void)nw_buf_puts(p->out, "<p>The record does not describe its machine.</p>\n");
        return;
    }
    (void)nw_buf_puts(p->out, "<dl class=\"facts\">\n");
    json_object_foreach(doc, key, value)
    {
        write_value(p, key, value);
    }
    (void)nw_buf_puts(p->out, "</dl>\n");
    json_decref(doc);
}

static void write_artifacts(const nw_page *p)
{
    nw_page_table_open(p, "numbers runs", "Artifacts");
    (void)nw_buf_puts(p->out, "<thead><tr><th scope=\"col\">Candidate</th><th scope=\"col\">Hash"
                              "</th><th scope=\"col\">About it</th></tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < p->f->n; i++) {
        const nw_rec_candidate *c = &p->f->c[i].row;
        (void)nw_html(p->out, "<tr><th scope=\"row\">%s</th><td><code class=\"long\">%s</code>",
                      c->name, c->artifact_hash);
        /* a server's hash is often its model's name only; paths of this machine are not shown */
        if (c->artifact != NULL && strstr(c->artifact, "://") != NULL) {
            (void)nw_html(p->out, " <small>%s</small>", c->artifact);
        }
        (void)nw_html(p->out, "</td><td><code class=\"long\">%s</code></td></tr>\n", c->json);
    }
    (void)nw_buf_puts(p->out, "</tbody>\n");
    nw_page_table_close(p);
}

static void write_policy(const nw_page *p)
{
    const nw_rec_policy *policy = p->f->policy;

    if (policy == NULL) {
        return;
    }
    (void)nw_html(p->out,
                  "<h3>Policy</h3>\n<p>%s, decided %s, hash <code class=\"long\">%s</code>. Its "
                  "text, as it was:</p>\n<pre class=\"policy\" tabindex=\"0\">%s</pre>\n",
                  policy->name, policy->decided, policy->policy_hash, policy->text);
}

static void write_versions(const nw_page *p)
{
    (void)nw_buf_puts(p->out, "<p>Measured by narrow");
    for (size_t i = 0; i < p->f->n_runs; i++) {
        const char *version = p->f->runs[i].tool_version;
        bool seen = version == NULL;
        for (size_t k = 0; k < i && !seen; k++) {
            const char *before = p->f->runs[k].tool_version;
            seen = before != NULL && strcmp(before, version) == 0;
        }
        if (!seen) {
            (void)nw_html(p->out, " %s", version);
        }
    }
    (void)nw_buf_puts(p->out, ".</p>\n");
}

void nw_section_protocol(const nw_page *p)
{
    write_shortfalls(p);
    (void)nw_buf_puts(p->out, "<h3>Runs</h3>\n");
    write_versions(p);
    write_runs(p);
    write_settings(p);
    write_artifacts(p);
    write_machine(p);
    write_policy(p);
}

void nw_section_raw(const nw_page *p)
{
    static const struct {
        const char *what, *sql;
    } rows[] = {
        {"every request with its times", "SELECT * FROM request WHERE run_id = 1"},
        {"every answer to a task", "SELECT item_id, score, output FROM item WHERE run_id = 1"},
        {"every scored token", "SELECT \"window\", pos, nll, kl FROM token WHERE run_id = 1"},
        {"every verdict", "SELECT candidate, gate, slice, verdict, why FROM verdict"},
    };

    (void)nw_html(
        p->out,
        "<p>The record is the SQLite file <code>%s</code>; nothing on this page comes from "
        "elsewhere. Another policy is applied to the same rows by <code>narrow decide %s "
        "--policy FILE</code>, and this page is written again by <code>narrow report "
        "%s</code>.</p>\n<dl class=\"sql\">\n",
        p->record, p->record, p->record);
    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        (void)nw_html(p->out, "<dt>%s</dt><dd><code>sqlite3 %s '%s'</code></dd>\n", rows[i].what,
                      p->record, rows[i].sql);
    }
    (void)nw_buf_puts(p->out, "</dl>\n");
}
