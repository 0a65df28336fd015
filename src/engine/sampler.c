/* Sampler. The candidates that top-k, top-p and min-p leave are a prefix of the descending order, so
 * a heap gives them up one by one and the rest of the vocabulary is never sorted.
 * Sources: top-p, Holtzman et al., ICLR 2020; min-p, Nguyen et al., ICLR 2025; repetition penalty,
 * Keskar et al. 2019 (CTRL), applied to each id seen once, as Hugging Face does.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/sampler.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"

typedef struct {
    float p; /* exp((logit - max) / temperature), not normalised */
    int32_t id;
} nw_candidate;

struct nw_sampler_scratch {
    uint32_t n_vocab;
    nw_candidate cand[]; /* [n_vocab] */
};

struct nw_sampler {
    nw_sampling s;
    uint32_t n_vocab;
    uint64_t *seen; /* a bit an id; NULL without a repetition penalty */
};

nw_sampling nw_sampling_greedy(void)
{
    return (nw_sampling){.top_p = 1.0F, .repeat_penalty = 1.0F};
}

nw_status nw_sampling_check(const nw_sampling *s, nw_error *err)
{
    const struct {
        const char *name;
        float value, lo, hi;
        bool open_lo; /* lo itself is not allowed */
    } fields[] = {
        {"temperature", s->temperature, 0, 100, false},
        {"top_p", s->top_p, 0, 1, true},
        {"min_p", s->min_p, 0, 1, false},
        {"repeat_penalty", s->repeat_penalty, 0, 10, true},
    };
    for (size_t i = 0; i < NW_COUNT(fields); i++) {
        const float v = fields[i].value;
        const bool above = fields[i].open_lo ? v > fields[i].lo : v >= fields[i].lo;
        if (!above || !(v <= fields[i].hi)) {
            return nw_fail(err, NW_E_RANGE, "%s is %g, not in %c%g, %g]", fields[i].name, (double)v,
                           fields[i].open_lo ? '(' : '[', (double)fields[i].lo,
                           (double)fields[i].hi);
        }
    }
    return NW_OK;
}

nw_status nw_sampler_scratch_open(uint32_t n_vocab, nw_sampler_scratch **out, nw_error *err)
{
    *out = calloc(1, sizeof **out + n_vocab * sizeof(nw_candidate));
    if (*out == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for %u sampling candidates", n_vocab);
    }
    (*out)->n_vocab = n_vocab;
    return NW_OK;
}

void nw_sampler_scratch_close(nw_sampler_scratch *s)
{
    free(s);
}

nw_status nw_sampler_open(const nw_sampling *s, uint32_t n_vocab, nw_sampler **out, nw_error *err)
{
    *out = NULL;
    if (nw_sampling_check(s, err) != NW_OK) {
        return nw_context(err, "sampling");
    }
    nw_sampler *m = calloc(1, sizeof *m);
    const bool penalty = s->repeat_penalty < 1 || s->repeat_penalty > 1;
    if (m != NULL && penalty) {
        m->seen = calloc(n_vocab / 64 + 1, sizeof *m->seen);
    }
    if (m == NULL || (penalty && m->seen == NULL)) {
        nw_sampler_close(m);
        return nw_fail(err, NW_E_NOMEM, "no memory for a sampler of %u ids", n_vocab);
    }
    m->s = *s;
    m->n_vocab = n_vocab;
    *out = m;
    return NW_OK;
}

void nw_sampler_close(nw_sampler *s)
{
    if (s != NULL) {
        free(s->seen);
        free(s);
    }
}

void nw_sampler_saw(nw_sampler *s, const int32_t *ids, size_t n)
{
    for (size_t i = 0; s->seen != NULL && i < n; i++) {
        const uint32_t id = (uint32_t)ids[i];
        assert(id < s->n_vocab);
        s->seen[id / 64] |= UINT64_C(1) << (id % 64);
    }
}

static float penalised(const nw_sampler *s, const float *logits, uint32_t id)
{
    const float x = logits[id];
    if (s->seen == NULL || (s->seen[id / 64] >> (id % 64) & 1) == 0) {
        return x;
    }
    return x > 0 ? x / s->s.repeat_penalty : x * s->s.repeat_penalty;
}

/* The lowest id among the largest logits after the penalty. */
static uint32_t greedy(const nw_sampler *s, const float *logits)
{
    if (s->seen == NULL) {
        return (uint32_t)nw_argmax(logits, s->n_vocab);
    }
    uint32_t best = 0;
    float max = penalised(s, logits, 0);
    for (uint32_t i = 1; i < s->n_vocab; i++) {
        const float x = penalised(s, logits, i);
        if (x > max) {
            max = x;
            best = i;
        }
    }
    return best;
}

static bool before(nw_candidate a, nw_candidate b)
{
    return a.p > b.p || (a.p >= b.p && a.id < b.id);
}

static void sift_down(nw_candidate *heap, size_t n, size_t i)
{
    const nw_candidate v = heap[i];
    for (size_t c = 2 * i + 1; c < n; c = 2 * i + 1) {
        if (c + 1 < n && before(heap[c + 1], heap[c])) {
            c++;
        }
        if (!before(heap[c], v)) {
            break;
        }
        heap[i] = heap[c];
        i = c;
    }
    heap[i] = v;
}

/* Fills the candidates and returns the sum of their p. */
static double weigh(const nw_sampler *s, const float *logits, nw_candidate *c)
{
    const float max = penalised(s, logits, greedy(s, logits));
    double total = 0;
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        c[i].p = expf((penalised(s, logits, i) - max) / s->s.temperature);
        c[i].id = (int32_t)i;
        total += (double)c[i].p;
    }
    return total;
}

/* Moves the candidates that survive to the end of c, the most likely last; returns how many, and
 * their sum. `total` is the sum over all. */
static size_t truncate_tail(const nw_sampling *s, nw_candidate *c, size_t n, double total,
                            double *kept_sum)
{
    for (size_t i = n / 2; i-- > 0;) {
        sift_down(c, n, i);
    }
    const float floor_p = s->min_p * c[0].p;
    const size_t most = s->top_k > 0 && s->top_k < n ? s->top_k : n;
    double sum = 0;
    size_t kept = 0;
    bool open = true; /* still without a top-k sum, top-p can stop the walk by itself */
    while (kept < most && open) {
        const nw_candidate top = c[0];
        const size_t last = n - kept - 1;
        c[0] = c[last];
        c[last] = top;
        sift_down(c, last, 0);
        sum += (double)top.p;
        kept++;
        open = most < n || (sum < (double)s->top_p * total && c[0].p >= floor_p);
    }
    const double mass = most < n ? sum : total;
    double cum = 0;
    for (size_t i = 0; i < kept; i++) {
        const float p = c[n - 1 - i].p;
        if (i > 0 && (cum >= (double)s->top_p * mass || p < floor_p)) {
            kept = i;
            break;
        }
        cum += (double)p;
    }
    *kept_sum = cum;
    return kept;
}

static uint32_t draw(const nw_sampler *s, nw_candidate *c, const float *logits, uint64_t index)
{
    const size_t n = s->n_vocab;
    nw_rng rng = nw_rng_stream(s->s.seed, index);
    const double u = nw_rng_unit(&rng);
    double total = weigh(s, logits, c);
    const bool cut = (s->s.top_k > 0 && s->s.top_k < n) || s->s.top_p < 1 || s->s.min_p > 0;
    const size_t kept = cut ? truncate_tail(&s->s, c, n, total, &total) : n;
    const double target = u * total;
    double cum = 0;
    size_t last = n - 1; /* the last with p > 0: what rounding of the sum may leave over */
    for (size_t i = 0; i < kept; i++) {
        const size_t at = cut ? n - 1 - i : i;
        if (c[at].p > 0) {
            last = at;
        }
        cum += (double)c[at].p;
        if (cum > target) {
            break;
        }
    }
    return (uint32_t)c[last].id;
}

/* The n_top largest logits, most likely first, by insertion: n_top is small. */
static uint32_t top_logits(const float *logits, uint32_t n, uint32_t n_top, double lse,
                           nw_logprob *top)
{
    uint32_t have = 0;
    for (uint32_t i = 0; i < n && n_top > 0; i++) {
        if (have == n_top && logits[i] <= logits[top[have - 1].id]) {
            continue;
        }
        uint32_t at = have < n_top ? have++ : have - 1;
        while (at > 0 && logits[top[at - 1].id] < logits[i]) {
            top[at].id = top[at - 1].id;
            at--;
        }
        top[at].id = (int32_t)i;
    }
    for (uint32_t i = 0; i < have; i++) {
        top[i].logprob = (float)((double)logits[top[i].id] - lse);
    }
    return have;
}

static nw_status check_finite(const float *logits, uint32_t n, nw_error *err)
{
    uint32_t i = 0;

    if (nw_all_finite(logits, n)) {
        return NW_OK;
    }
    while (isfinite(logits[i])) {
        i++;
    }
    return nw_fail(err, NW_E_RANGE, "logit of id %u is %g, not finite", i, (double)logits[i]);
}

static void measure(const float *logits, uint32_t n, int32_t id, uint32_t n_top, nw_pick *out)
{
    const double lse = nw_log_sum_exp(logits, n);

    assert(n_top <= NW_TOP_LOGPROBS_MAX);
    out->id = id;
    out->logprob = (float)((double)logits[id] - lse);
    out->n_top = top_logits(logits, n, n_top, lse, out->top);
}

nw_status nw_sampler_pick(const nw_sampler *s, nw_sampler_scratch *scratch, const float *logits,
                          uint64_t index, uint32_t n_top, nw_pick *out, nw_error *err)
{
    assert(scratch->n_vocab == s->n_vocab);
    if (check_finite(logits, s->n_vocab, err) != NW_OK) {
        return nw_context(err, "output %llu", (unsigned long long)index);
    }
    const uint32_t id =
        s->s.temperature > 0 ? draw(s, scratch->cand, logits, index) : greedy(s, logits);
    measure(logits, s->n_vocab, (int32_t)id, n_top, out);
    return NW_OK;
}

nw_status nw_logits_score(const float *logits, uint32_t n_vocab, int32_t id, uint32_t n_top,
                          nw_pick *out, nw_error *err)
{
    assert(id >= 0 && (uint32_t)id < n_vocab);
    if (check_finite(logits, n_vocab, err) != NW_OK) {
        return nw_context(err, "before token %d", (int)id);
    }
    measure(logits, n_vocab, id, n_top, out);
    return NW_OK;
}
