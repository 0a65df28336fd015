/* What the words on the page mean, for a reader who meets them here first. Definitions are those of
 * docs/methods.md, shorter.
 * SPDX-License-Identifier: Apache-2.0 */
#include "report/page.h"

typedef struct {
    const char *term, *what;
} term;

static const term speed[] = {
    {"TTFT", "time to first token: from the arrival of a request to the first token of its answer. "
             "Under load it begins when the request was due, so that waiting counts"},
    {"TPOT", "time per output token: from the first token to the last, over the tokens after the "
             "first"},
    {"p50, p90, p99", "percentiles: so many percent of the values lie at or below. They are values "
                      "that were measured, never interpolated"},
    {"offered, goodput",
     "requests a second that arrive; those of them that are answered within the "
     "limits of the policy"},
    {"useful goodput", "goodput times the share of right answers. \"Imputed\" where the requests "
                       "themselves carry no grade: the share is that of the task suites"},
    {"throughput", "tokens received a second, whether in time or not"},
    {"in flight", "requests sent and not yet answered, the mean over the window"},
    {"machine time per request", "what one good request takes of the machine: 1 / useful goodput"},
};

static const term quality[] = {
    {"perplexity",
     "e to the mean of minus the logarithm of the probability that the model gives to "
     "the token that follows. Lower is better; only models with the same tokenizer "
     "compare"},
    {"bits per byte", "the same in bits, for each byte of the text: it compares across tokenizers"},
    {"ln of the ratio, nats",
     "the difference of the mean logarithms, which is the logarithm of the "
     "ratio of two perplexities; 0.01 is about 1%. A nat is the unit of "
     "the natural logarithm"},
    {"KL divergence", "how far the candidate's probabilities of the next token lie from the "
                      "baseline's; 0 is no difference"},
    {"top-1 flips", "share of tokens at which the most likely next token is another one"},
    {"pp", "percentage points: from 80% to 78% are 2 points, and 2.5% of the baseline's score"},
    {"gained, lost", "items that only the candidate, or only the baseline, answers rightly"},
    {"design effect", "by how much the variance grows since related items (a document, a template) "
                      "rise and fall together; 1 is independent"},
};

static const term decision[] = {
    {"gate, margin", "a test that the candidate is not worse than the baseline by more than the "
                     "margin; the policy names gates and margins before any data is seen"},
    {"PASS, FAIL, INCONCLUSIVE", "certain to be inside the margin; certain to be outside; not "
                                 "enough items to tell, which is not a pass"},
    {"n needed", "items with which a candidate that loses nothing passes in 8 cases of 10"},
    {"advisory", "shown, and never decides"},
    {"Holm", "a correction of several tests for the chance that one comes out by luck: over the "
             "candidates for a pass, over the slices for a regression"},
    {"draw", "one of many random resamples of the same items and requests, alike for all "
             "candidates. What comes out in 95% of them is called certain"},
    {"dominated", "another candidate is nowhere worse and somewhere better, by more than a "
                  "difference that counts. What nobody dominates is on the frontier"},
};

static const term formats[] = {
    {"weights, activations (a16, a8)",
     "the numbers of the model; what flows through it, in 16 or 8 "
     "bits. Fewer bits of weights are fewer bytes to read; of "
     "activations, cheaper multiplications"},
    {"keys and values, KV", "what the model keeps of each token it has read; it grows with every "
                            "request and token"},
    {"effective bits a weight", "bits with scales and padding, as the artifact counts them"},
    {"peak resident, workspace", "the most memory that the process held; what the engine needs for "
                                 "intermediate results"},
    {"fallback",
     "a kernel other than the one that the format calls for, so slower than it could be"},
};

static void write_terms(const nw_page *p, const char *title, const term *terms, size_t n)
{
    (void)nw_html(p->out, "<h3>%s</h3>\n<dl class=\"facts\">\n", title);
    for (size_t i = 0; i < n; i++) {
        (void)nw_html(p->out, "<dt>%s</dt><dd>%s.</dd>\n", terms[i].term, terms[i].what);
    }
    (void)nw_buf_puts(p->out, "</dl>\n");
}

void nw_section_terms(const nw_page *p)
{
    (void)nw_buf_puts(p->out,
                      "<p>The baseline is the model as it was; a candidate is the same model "
                      "in a narrower format, or another model that might replace it.</p>\n");
    write_terms(p, "Decisions", decision, NW_COUNT(decision));
    write_terms(p, "Quality", quality, NW_COUNT(quality));
    write_terms(p, "Speed", speed, NW_COUNT(speed));
    write_terms(p, "Formats", formats, NW_COUNT(formats));
}
