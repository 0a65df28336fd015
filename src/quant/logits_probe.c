/* Logits of a model, kept and compared: see logits_probe.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/logits_probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "model/config.h"
#include "model/tokenizer.h"

/* Prose, a question, code, digits and other scripts: the places where models differ. */
static const char prompt[] =
    "The lighthouse keeper wrote 3 letters in 1897; none of them was answered.\n"
    "Q: What is 17 + 25? A: 42. for (int i = 0; i < n; i++) { sum += x[i]; }\n"
    "La mer est calme. Das Wetter bleibt gut.";

#define MAX_POSITIONS 32

struct nw_logits_probe {
    nw_ids ids;
    unsigned n_threads;
    uint32_t n_vocab;
    float *logits; /* [ids.n][n_vocab] */
};

/* What a pass writes to or reads from. */
typedef struct {
    const nw_logits_probe *probe;
    float *keep; /* NULL when comparing */
    double max_kl, sum_kl;
} pass;

double nw_logits_kl(const float *p, const float *q, size_t n)
{
    double max_p = -HUGE_VAL;
    double max_q = -HUGE_VAL;
    double sum_p = 0;
    double sum_q = 0;
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        max_p = fmax(max_p, (double)p[i]);
        max_q = fmax(max_q, (double)q[i]);
    }
    for (size_t i = 0; i < n; i++) {
        const double x = (double)p[i] - max_p;
        const double y = (double)q[i] - max_q;
        const double e = exp(x);
        sum_p += e;
        sum_q += exp(y);
        sum += e * (x - y);
    }
    return fmax(0, sum / sum_p + log(sum_q) - log(sum_p));
}

static bool take_logits(void *ctx, size_t pos, const float *logits)
{
    pass *s = ctx;
    const size_t n = s->probe->n_vocab;

    if (s->keep != NULL) {
        memcpy(s->keep + pos * n, logits, n * sizeof *logits);
        return true;
    }
    const double kl = nw_logits_kl(s->probe->logits + pos * n, logits, n);
    s->max_kl = fmax(s->max_kl, kl);
    s->sum_kl += kl;
    return true;
}

static nw_status open_engine(const char *path, bool with_tokenizer, unsigned n_threads,
                             nw_engine **out, nw_error *err)
{
    nw_engine_options o = nw_engine_options_default();

    nw_engine_kv_plain(&o);
    o.n_threads = n_threads;
    o.tier = "ref";
    o.act = 0;
    o.max_seqs = 1;
    o.max_step_tokens = MAX_POSITIONS;
    o.n_ctx = MAX_POSITIONS;
    o.no_tokenizer = !with_tokenizer;
    return nw_engine_open(path, &o, out, err);
}

static nw_status make_ids(nw_logits_probe *p, const nw_engine *e, bool with_tokenizer,
                          nw_error *err)
{
    if (with_tokenizer) {
        const nw_status st = nw_tokenizer_encode(nw_engine_tokenizer(e), prompt, strlen(prompt),
                                                 NW_TOK_BOS, &p->ids, err);
        if (st != NW_OK) {
            return st;
        }
    }
    for (uint32_t i = 0; !with_tokenizer && i < MAX_POSITIONS; i++) {
        /* a stride that shares no factor with small vocabularies visits it all over */
        if (!nw_ids_push(&p->ids, (int32_t)((uint64_t)i * 7919 % p->n_vocab))) {
            return nw_fail(err, NW_E_NOMEM, "no memory for a prompt");
        }
    }
    if (p->ids.n > MAX_POSITIONS) {
        p->ids.n = MAX_POSITIONS;
    }
    return NW_OK;
}

static nw_status run(const nw_logits_probe *p, nw_engine *e, pass *s, nw_error *err)
{
    return nw_engine_score(e, p->ids.ids, p->ids.n, 0, take_logits, s, err);
}

nw_status nw_logits_probe_open(const char *path, bool with_tokenizer, unsigned n_threads,
                               nw_logits_probe **out, nw_error *err)
{
    nw_logits_probe *p = calloc(1, sizeof *p);
    nw_engine *e = NULL;
    nw_status st = NW_OK;

    *out = NULL;
    if (p == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a probe", path);
    }
    p->n_threads = n_threads;
    st = open_engine(path, with_tokenizer, n_threads, &e, err);
    if (st == NW_OK) {
        p->n_vocab = nw_engine_config(e)->n_vocab;
        st = make_ids(p, e, with_tokenizer, err);
    }
    if (st == NW_OK) {
        p->logits = calloc(p->ids.n, p->n_vocab * sizeof *p->logits);
        st = p->logits != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "%s: no memory for logits", path);
    }
    if (st == NW_OK) {
        pass s = {.probe = p, .keep = p->logits};
        st = run(p, e, &s, err);
    }
    nw_engine_close(e);
    if (st != NW_OK) {
        nw_logits_probe_close(p);
        return st;
    }
    *out = p;
    return NW_OK;
}

void nw_logits_probe_close(nw_logits_probe *p)
{
    if (p != NULL) {
        nw_ids_release(&p->ids);
        free(p->logits);
        free(p);
    }
}

size_t nw_logits_probe_positions(const nw_logits_probe *p)
{
    return p->ids.n;
}

nw_status nw_logits_probe_compare(const nw_logits_probe *p, const char *path, double *max_kl,
                                  double *mean_kl, nw_error *err)
{
    pass s = {.probe = p};
    nw_engine *e = NULL;
    nw_status st = open_engine(path, false, p->n_threads, &e, err);

    if (st == NW_OK && nw_engine_config(e)->n_vocab != p->n_vocab) {
        st = nw_fail(err, NW_E_FORMAT, "%s: vocabulary of %u, the source has %u", path,
                     (unsigned)nw_engine_config(e)->n_vocab, (unsigned)p->n_vocab);
    }
    if (st == NW_OK) {
        st = run(p, e, &s, err);
    }
    nw_engine_close(e);
    if (st == NW_OK) {
        *max_kl = s.max_kl;
        *mean_kl = s.sum_kl / (double)p->ids.n;
    }
    return st;
}
