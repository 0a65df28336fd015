/* What the tests of decide share: a record with a baseline, and a decision over it by a policy's text.
 * Bootstraps are short (1,000 and 200 draws): every margin is missed or met by a distance.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_TESTS_DECIDE_FIXTURE_H
#define NW_TESTS_DECIDE_FIXTURE_H

#include "base/file.h"
#include "decide/decide.h"
#include "synthetic_record.h"

#define SHORT "draws: 1000\nfrontier_draws: 200\n"

typedef struct {
    syn s;
    nw_policy policy;
    nw_decision d;
    bool decided;
} fixture;

static inline int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    syn_open(&f->s);
    syn_candidate(&f->s, "bf16", "bf16", 269, 16);
    *state = f;
    return 0;
}

static inline void forget(fixture *f)
{
    if (f->decided) {
        nw_decision_release(&f->d);
        nw_policy_release(&f->policy);
        f->decided = false;
    }
}

static inline int teardown(void **state)
{
    fixture *f = *state;
    forget(f);
    syn_close(&f->s);
    free(f);
    return 0;
}

static inline nw_status load_policy(fixture *f, const char *yaml, nw_error *err)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/policy.yaml", f->s.dir);
    syn_ok(nw_file_write(path, yaml, strlen(yaml), err), err);
    const nw_status st = nw_policy_load(path, &f->policy, err);
    (void)unlink(path);
    return st;
}

static inline void decide(fixture *f, const char *yaml)
{
    nw_error err = {0};
    forget(f);
    syn_ok(load_policy(f, yaml, &err), &err);
    syn_ok(nw_decide(f->s.rec, &f->policy, &f->d, &err), &err);
    f->decided = true;
}

static inline const nw_dec_verdict *verdict(const fixture *f, const char *candidate,
                                            const char *gate)
{
    for (size_t i = 0; i < f->d.n_verdicts; i++) {
        const nw_dec_verdict *v = &f->d.verdicts[i];
        if (strcmp(v->row.candidate, candidate) == 0 && strcmp(v->row.gate, gate) == 0) {
            return v;
        }
    }
    fail_msg("no verdict of gate %s on %s", gate, candidate);
    return NULL;
}

static inline void expect(const fixture *f, const char *candidate, const char *gate,
                          nw_verdict want, const char *why)
{
    const nw_dec_verdict *v = verdict(f, candidate, gate);
    if (v->verdict != want || strstr(v->row.why, why) == NULL) {
        fail_msg("%s, %s: %s '%s', want %s '%s'", candidate, gate, v->row.verdict, v->row.why,
                 nw_verdict_name(want), why);
    }
}

static inline const char *chosen(const fixture *f, nw_regime r)
{
    return f->d.candidates[f->d.regimes[r].chosen].name;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
