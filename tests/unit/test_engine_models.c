/* Engine on real weights: the perplexities that the shared data's NOTICE states for two small models,
 * within 0.1 %, in FP32 with the best tier. Skipped where the shared data is absent.
 * SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/sampler.h"
#include "model/config.h"
#include "model/tokenizer.h"
#include "shared.h"
#include "table.h"

#define N_STORIES 30

static struct row {
    const char *name;
    const char *model;
    size_t cut;        /* tokens of a story, BOS included */
    size_t n_scored;   /* tokens over all stories that have one before them */
    double perplexity; /* a token; three decimals in the notice */
} rows[] = {
    {"tiny1m", "data/models/tiny1m", 256, 7529, 2.902},
    {"stories260K", "data/models/stories260K/stories260K.bin", 512, 9686, 3.720},
};

typedef struct {
    const int32_t *ids;
    size_t n, n_scored;
    uint32_t n_vocab;
    double nll;
} score;

static bool on_logits(void *ctx, size_t pos, const float *logits)
{
    score *s = ctx;
    if (pos + 1 < s->n) {
        const double lse = nw_log_sum_exp(logits, s->n_vocab);
        s->nll += lse - (double)logits[s->ids[pos + 1]];
        s->n_scored++;
    }
    return true;
}

static void score_story(nw_engine *e, const char *text, size_t cut, score *s)
{
    nw_error err = {0};
    nw_ids ids;
    nw_ids_init(&ids);
    assert_int_equal(
        nw_tokenizer_encode(nw_engine_tokenizer(e), text, strlen(text), NW_TOK_BOS, &ids, &err),
        NW_OK);
    s->ids = ids.ids;
    s->n = ids.n < cut ? ids.n : cut;
    assert_int_equal(nw_engine_score(e, ids.ids, s->n, 0, on_logits, s, &err), NW_OK);
    nw_ids_release(&ids);
}

static void perplexity_is_as_stated(void **state)
{
    const struct row *r = *state;
    char path[512];
    char stories_path[512];
    if (!nw_shared_path(r->model, path, sizeof path) ||
        !nw_shared_path("data/text/tinystories_1000.json", stories_path, sizeof stories_path)) {
        skip();
    }
    const nw_engine_options o = nw_engine_options_default();
    nw_engine *e = NULL;
    nw_error err = {0};
    if (nw_engine_open(path, &o, &e, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
    json_t *stories = json_load_file(stories_path, 0, NULL);
    assert_true(json_array_size(stories) >= N_STORIES);
    score s = {.n_vocab = nw_engine_config(e)->n_vocab};
    for (size_t i = 0; i < N_STORIES; i++) {
        score_story(e, json_string_value(json_array_get(stories, i)), r->cut, &s);
    }
    const double ppl = exp(s.nll / (double)s.n_scored);
    assert_int_equal(s.n_scored, r->n_scored);
    if (fabs(ppl / r->perplexity - 1) > 0.001) {
        fail_msg("perplexity %.5f, stated %.3f", ppl, r->perplexity);
    }
    json_decref(stories);
    nw_engine_close(e);
}

int main(void)
{
    char path[512];
    if (!nw_shared_path("data/models", path, sizeof path)) {
        return NW_TEST_SKIPPED;
    }
    return NW_RUN_TABLE("perplexity_is_as_stated", rows, perplexity_is_as_stated);
}
