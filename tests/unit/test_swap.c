/* An engine whose matrices come from another artifact, one after the other, gives that artifact's logits
 * when all are swapped, and its own again when they are put back.
 * SPDX-License-Identifier: Apache-2.0 */
#include "artifact/artifact.h"
#include "engine_fixture.h"

#define N_IDS 100

static const nw_role layer_roles[] = {NW_ROLE_Q,    NW_ROLE_K,  NW_ROLE_V,   NW_ROLE_O,
                                      NW_ROLE_GATE, NW_ROLE_UP, NW_ROLE_DOWN};

static bool keep_logits(void *ctx, size_t pos, const float *logits)
{
    float *out = ctx;

    memcpy(out + pos * NW_TINY_VOCAB, logits, NW_TINY_VOCAB * sizeof *logits);
    return true;
}

static void score(nw_engine *e, const int32_t *ids, float *logits)
{
    nw_error err = {0};

    if (nw_engine_score(e, ids, N_IDS, 0, keep_logits, logits, &err) != NW_OK) {
        fail_msg("%s", err.message);
    }
}

static void swap_all(nw_engine *e, const nw_artifact *from)
{
    nw_error err = {0};
    const nw_model_config *c = nw_engine_config(e);

    for (int32_t l = 0; l < (int32_t)c->n_layers; l++) {
        for (size_t i = 0; i < NW_COUNT(layer_roles); i++) {
            assert_int_equal(nw_engine_swap(e, from, (int)layer_roles[i], l, &err), NW_OK);
        }
    }
    assert_int_equal(nw_engine_swap(e, from, NW_ROLE_EMBED, -1, &err), NW_OK);
    if (!c->tied) {
        assert_int_equal(nw_engine_swap(e, from, NW_ROLE_HEAD, -1, &err), NW_OK);
    }
}

static void swapped_matrices_give_their_artifacts_logits(void **state)
{
    nw_engine_options o = fixture_options();
    int32_t ids[N_IDS];
    float *own = new_logits(N_IDS);
    float *other = new_logits(N_IDS);
    float *got = new_logits(N_IDS);

    (void)state;
    o.act = 0;
    random_ids(5, ids, N_IDS);
    for (int model = 2; model < 4; model++) { /* int8, int4 into bf16 */
        nw_error err = {0};
        nw_artifact *from = NULL;
        o.swaps = false;
        nw_engine *e = fixture_engine(model, &o);
        score(e, ids, other);
        assert_int_equal(nw_engine_swap(e, NULL, NW_ROLE_Q, 0, &err), NW_E_USAGE);
        nw_engine_close(e);
        o.swaps = true;
        e = fixture_engine(4, &o);
        score(e, ids, own);
        assert_int_equal(nw_artifact_open(fixture_path[model], &from, &err), NW_OK);
        swap_all(e, from);
        score(e, ids, got);
        assert_memory_equal(got, other, N_IDS * NW_TINY_VOCAB * sizeof *got);
        assert_memory_not_equal(got, own, N_IDS * NW_TINY_VOCAB * sizeof *got);
        swap_all(e, NULL);
        score(e, ids, got);
        assert_memory_equal(got, own, N_IDS * NW_TINY_VOCAB * sizeof *got);
        /* one matrix alone, scored from a position on, so that pages of the same text would be found:
         * they hold what other weights made */
        assert_int_equal(nw_engine_swap(e, from, NW_ROLE_V, 0, &err), NW_OK);
        score(e, ids, other);
        memset(got, 0, N_IDS * NW_TINY_VOCAB * sizeof *got);
        assert_int_equal(nw_engine_score(e, ids, N_IDS, N_IDS - 1, keep_logits, got, &err), NW_OK);
        assert_memory_equal(got + (N_IDS - 1) * NW_TINY_VOCAB, other + (N_IDS - 1) * NW_TINY_VOCAB,
                            NW_TINY_VOCAB * sizeof *got);
        assert_int_equal(nw_engine_swap(e, from, NW_ROLE_V, 99, &err), NW_E_RANGE);
        assert_int_equal(nw_engine_swap(e, from, NW_ROLE_ATTN_NORM, 0, &err), NW_E_RANGE);
        nw_engine_close(e);
        nw_artifact_close(from);
    }
    free(own);
    free(other);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(swapped_matrices_give_their_artifacts_logits),
    };
    (void)fixture_setup(NULL);
    fixture_quantize();
    const int failed = cmocka_run_group_tests_name("swap", tests, NULL, NULL);
    (void)fixture_teardown(NULL);
    return failed;
}
