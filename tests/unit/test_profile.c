/* The ledger as a profile and as a trace: shape of the JSON, sums that must agree, islands, and what the
 * engine's own speed measure leaves behind. No times are compared with anything fixed.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/file.h"
#include "base/signal.h"
#include "engine/profile.h"
#include "engine/speed.h"
#include "engine_fixture.h"

enum { LLAMA = 0, INT4 = 3 };

static nw_engine *run_steps(int model)
{
    nw_engine_options o = fixture_options();
    nw_error err = {0};
    nw_speed *s = NULL;
    double seconds = -1;

    o.max_seqs = 3;
    nw_engine *e = fixture_engine(model, &o);
    assert_int_equal(nw_speed_open(e, 3, 10, &s, &err), NW_OK);
    nw_ledger_reset(nw_engine_ledger(e));
    assert_int_equal(nw_ledger_trace(nw_engine_ledger(e), 1000, &err), NW_OK);
    assert_int_equal(nw_speed_prefill(s, 20, &seconds, &err), NW_OK);
    assert_true(seconds > 0);
    assert_int_equal(nw_speed_decode(s, 4, 3, &seconds, &err), NW_OK);
    assert_true(seconds > 0);
    assert_int_equal(nw_speed_decode(s, 1, 4, &seconds, &err), NW_E_RANGE);
    nw_speed_close(s);
    assert_int_equal(nw_engine_pages_free(e), nw_engine_pages_total(e));
    return e;
}

static double num(const json_t *o, const char *key)
{
    assert_true(json_is_number(json_object_get(o, key)));
    return json_number_value(json_object_get(o, key));
}

static const char *str(const json_t *o, const char *key)
{
    assert_non_null(json_string_value(json_object_get(o, key)));
    return json_string_value(json_object_get(o, key));
}

static const json_t *find(const json_t *list, const char *key, const char *value)
{
    const json_t *item = NULL;
    size_t i = 0;
    json_array_foreach(list, i, item)
    {
        if (strcmp(str(item, key), value) == 0) {
            return item;
        }
    }
    return NULL;
}

static void the_profile_adds_up(void **state)
{
    (void)state;
    nw_engine *e = run_steps(LLAMA);
    const nw_roofs roofs = {.read_bytes_s = 1e9, .f32_macs_s = 2e9, .bf16_macs_s = 2e9};
    json_t *p = nw_profile_json(e, &roofs);
    const json_t *phases = json_object_get(p, "phases");
    const json_t *op = NULL;
    size_t i = 0;

    assert_non_null(p);
    assert_true(num(json_object_get(p, "roofs"), "read_gb_per_s") == 1);
    assert_true(json_is_null(json_object_get(json_object_get(p, "roofs"), "int8_gmac_per_s")));
    assert_int_equal(json_array_size(phases), 2);
    const json_t *prefill = find(phases, "phase", "prefill");
    const json_t *decode = find(phases, "phase", "decode");
    assert_true(num(prefill, "tokens") == 20);
    assert_true(num(decode, "tokens") == 12);
    double share = 0;
    double bytes = 0;
    json_array_foreach(json_object_get(p, "ops"), i, op)
    {
        const bool decodes = strcmp(str(op, "phase"), "decode") == 0;
        share += decodes ? num(op, "share_of_time") : 0;
        bytes += decodes ? num(op, "bytes") : 0;
        assert_true(json_is_boolean(json_object_get(op, "fallback")));
        assert_string_equal(str(op, "used"), str(op, "intended"));
        assert_true(num(op, "calls") > 0 && num(op, "layers") > 0);
    }
    assert_true(fabs(share - 1) < 1e-9);
    assert_true(bytes == num(decode, "bytes"));
    assert_true(num(decode, "fallback_share") == 0);
    const json_t *head = find(json_object_get(p, "ops"), "op", "head");
    assert_true(num(head, "share_of_peak") > 0);
    assert_int_equal(json_array_size(json_object_get(p, "islands")), 0);
    json_decref(p);
    nw_engine_close(e);
}

/* 2 layers of the tiny llama: each matrix once a token; attention: 2 products a pair of query and key. */
static void multiply_adds_are_those_of_the_shapes(void **state)
{
    (void)state;
    const nw_model_config c = nw_tiny_llama();
    nw_engine *e = run_steps(LLAMA);
    json_t *p = nw_profile_json(e, &(nw_roofs){0});
    const double q_rows = (double)c.n_heads * c.d_head;
    const double kv_rows = (double)c.n_kv_heads * c.d_head;
    const double layer = (2 * q_rows + 2 * kv_rows + 3.0 * c.d_ff) * c.d_model;
    double pairs = 0;
    for (int i = 0; i < 4; i++) {
        pairs += 3 * (10 + i + 1); /* three sequences after 10 tokens */
    }
    const double attention = 2 * pairs * q_rows * c.n_layers;
    const double head = 12.0 * c.n_vocab * c.d_model;

    const json_t *decode = find(json_object_get(p, "phases"), "phase", "decode");
    assert_true(num(decode, "macs") == 12 * layer * c.n_layers + attention + head);
    assert_true(json_is_null(json_object_get(decode, "share_of_read")));
    json_decref(p);
    nw_engine_close(e);
}

static void matrices_of_another_kind_are_islands(void **state)
{
    (void)state;
    nw_engine *e = run_steps(INT4); /* its head stays BF16 */
    json_t *p = nw_profile_json(e, &(nw_roofs){.read_bytes_s = 1e9});
    const json_t *islands = json_object_get(p, "islands");

    const json_t *head = find(islands, "op", "head");
    assert_non_null(head);
    assert_non_null(strstr(str(head, "used"), "bf16"));
    assert_non_null(strstr(str(head, "among"), "int4-g32"));
    assert_true(num(head, "bytes") > 0);
    assert_null(find(islands, "op", "down"));
    json_decref(p);
    nw_engine_close(e);
}

static void a_trace_has_every_op(void **state)
{
    (void)state;
    char path[300];
    char *text = NULL;
    size_t len = 0;
    nw_error err = {0};
    nw_engine *e = run_steps(LLAMA);
    const nw_model_config c = nw_tiny_llama();

    (void)nw_tmpdir_file(&fixture_dir, "trace.json", path, sizeof path);
    assert_int_equal(nw_ledger_trace_write(nw_engine_ledger(e), path, &err), NW_OK);
    assert_int_equal(nw_file_read(path, (size_t)1 << 24, &text, &len, &err), NW_OK);
    json_t *root = json_loadb(text, len, 0, NULL);
    assert_non_null(root);
    const json_t *events = json_object_get(root, "traceEvents");
    /* a track for each of 3 phases; 5 steps of embed, 10 ops a layer, norm and head */
    assert_int_equal(json_array_size(events), 3 + 5 * (3 + 10 * (size_t)c.n_layers));
    double last = -1;
    for (size_t i = 3; i < json_array_size(events); i++) {
        const json_t *ev = json_array_get(events, i);
        assert_string_equal(str(ev, "ph"), "X");
        assert_true(num(ev, "ts") >= last && num(ev, "dur") >= 0);
        last = num(ev, "ts");
        assert_non_null(json_object_get(json_object_get(ev, "args"), "kernel"));
    }
    json_decref(root);
    free(text);
    nw_engine_close(e);
}

static void a_full_trace_counts_what_it_drops(void **state)
{
    (void)state;
    char path[300];
    char *text = NULL;
    size_t len = 0;
    nw_error err = {0};
    const nw_engine_options o = fixture_options();
    nw_engine *e = fixture_engine(LLAMA, &o);
    nw_session *s = open_session(e);
    int32_t id = 3;

    assert_int_equal(nw_ledger_trace(nw_engine_ledger(e), 5, &err), NW_OK);
    feed(e, s, &id, 1, NULL);
    (void)nw_tmpdir_file(&fixture_dir, "short.json", path, sizeof path);
    assert_int_equal(nw_ledger_trace_write(nw_engine_ledger(e), path, &err), NW_OK);
    assert_int_equal(nw_file_read(path, 1 << 16, &text, &len, &err), NW_OK);
    assert_non_null(strstr(text, "\"events_dropped\": \"16\"")); /* of 21 */
    free(text);
    nw_session_close(s);
    nw_engine_close(e);
}

static void stopping_ends_a_measurement(void **state)
{
    nw_engine_options o = fixture_options();
    nw_engine *e = fixture_engine(LLAMA, &o);
    nw_error err = {0};
    nw_speed *s = NULL;
    double seconds = 0;

    (void)state;
    assert_int_equal(nw_speed_open(e, 1, 0, &s, &err), NW_OK);
    nw_stop_request(); /* for good: the last test */
    assert_int_equal(nw_speed_prefill(s, 20, &seconds, &err), NW_E_CANCELLED);
    assert_int_equal(nw_speed_decode(s, 4, 1, &seconds, &err), NW_E_CANCELLED);
    nw_speed_close(s);
    nw_engine_close(e);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_profile_adds_up),
        cmocka_unit_test(multiply_adds_are_those_of_the_shapes),
        cmocka_unit_test(matrices_of_another_kind_are_islands),
        cmocka_unit_test(a_trace_has_every_op),
        cmocka_unit_test(a_full_trace_counts_what_it_drops),
        cmocka_unit_test(stopping_ends_a_measurement),
    };
    (void)fixture_setup(NULL);
    fixture_quantize();
    const int failed = cmocka_run_group_tests_name("profile", tests, NULL, NULL);
    (void)fixture_teardown(NULL);
    return failed;
}
