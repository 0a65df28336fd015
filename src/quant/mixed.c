/* From measured losses and a budget to a recipe: see mixed.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "quant/mixed.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/recipe_write.h"

bool nw_budget_parse(const char *text, nw_budget *out)
{
    static const struct {
        const char *unit;
        nw_budget_kind kind;
        double factor;
    } units[] = {
        {"", NW_BUDGET_BYTES, 1},     {"kB", NW_BUDGET_BYTES, 1e3}, {"MB", NW_BUDGET_BYTES, 1e6},
        {"GB", NW_BUDGET_BYTES, 1e9}, {"bits", NW_BUDGET_BITS, 1},
    };
    const bool kl = strncmp(text, "kl=", 3) == 0;
    const char *number = kl ? text + 3 : text;
    char *end = NULL;
    const double v = strtod(number, &end);

    if (end == number || !isfinite(v) || !(v > 0) || v > 1e15) {
        return false;
    }
    if (kl) {
        *out = (nw_budget){.kind = NW_BUDGET_KL, .value = v};
        return *end == '\0';
    }
    for (size_t i = 0; i < NW_COUNT(units); i++) {
        if (strcmp(end, units[i].unit) == 0) {
            *out = (nw_budget){.kind = units[i].kind, .value = v * units[i].factor};
            return true;
        }
    }
    return false;
}

/* The options of a group, and which layout each is; without one, what the artifacts keep. */
static nw_alloc_group options_of(const nw_sensitivity *s, size_t g, size_t types[NW_ALLOC_OPTIONS])
{
    const nw_sensitivity_cell *row = &s->cells[g * s->n_types];
    nw_alloc_group out = {0};

    for (size_t t = 0; t < s->n_types; t++) {
        if (isfinite(row[t].kl)) {
            types[out.n] = t;
            out.loss[out.n] = row[t].kl;
            out.bytes[out.n++] = row[t].bytes;
        }
    }
    if (out.n == 0) {
        types[0] = s->n_types;
        out.bytes[0] = row[0].bytes;
        out.n = 1;
    }
    return out;
}

static nw_status choose(const nw_sensitivity *s, nw_budget budget, nw_mix *m, nw_error *err)
{
    nw_alloc_group *groups = calloc(s->n_groups + 1, sizeof *groups);
    size_t(*types)[NW_ALLOC_OPTIONS] = calloc(s->n_groups + 1, sizeof *types);
    nw_status st = NW_OK;

    m->types = calloc(s->n_groups + 1, sizeof *m->types);
    m->kept = calloc(s->n_groups + 1, sizeof *m->kept);
    if (groups == NULL || types == NULL || m->types == NULL || m->kept == NULL) {
        st = nw_fail(err, NW_E_NOMEM, "no memory for the choices of %zu groups", s->n_groups);
        goto out;
    }
    for (size_t g = 0; g < s->n_groups; g++) {
        groups[g] = options_of(s, g, types[g]);
    }
    if (budget.kind == NW_BUDGET_KL) {
        st = nw_allocate_loss(groups, s->n_groups, budget.value, &m->chosen, err);
    } else {
        const double bytes =
            budget.kind == NW_BUDGET_BITS ? budget.value * (double)s->n_params / 8 : budget.value;
        const double left = bytes - (double)s->other_bytes;
        st = nw_allocate_bytes(groups, s->n_groups, left > 0 ? (uint64_t)left : 0, &m->chosen, err);
    }
    for (size_t g = 0; st == NW_OK && g < s->n_groups; g++) {
        const size_t t = types[g][m->chosen.pick[g]];
        m->kept[g] = t == s->n_types;
        m->types[g] = m->kept[g] ? (nw_panel_type){.kind = NW_PANEL_BF16} : s->types[t];
    }
out:
    free(groups);
    free(types);
    return st;
}

/* How far the answer can be from the best, in percent of the bound; 0 where there is no bound to divide
 * by. */
static double gap_percent(const nw_mix *m, nw_budget_kind kind)
{
    const double value = kind == NW_BUDGET_KL ? (double)m->chosen.bytes : m->chosen.loss;

    return m->chosen.bound > 0 ? 100 * fmax(0, value / m->chosen.bound - 1) : 0;
}

static nw_status write_text(const nw_sensitivity *s, nw_budget budget, const char *name,
                            const char *calibration, nw_mix *m, nw_error *err)
{
    static const char *const words[] = {"bytes", "bits a weight", "nats"};
    char comment[1024];

    (void)snprintf(
        comment, sizeof comment,
        "# Mixed layouts for a budget of %.10g %s: %" PRIu64
        " bytes of model.safetensors, %.4f bits a "
        "weight.\n"
        "# Each group's loss is its own KL divergence from the model, measured over %" PRIu64
        " tokens with it\n"
        "# alone quantized; here they add up to %.5g nats. %s; no choice can be better by more "
        "than "
        "%.3g %%.\n"
        "# Lines: sensitivity.jsonl, sha256 %.16s.\n",
        budget.value, words[budget.kind], m->file_bytes, m->bits, s->n_tokens, m->chosen.loss,
        m->chosen.exact ? "Solved exactly" : "Solved in steps", gap_percent(m, budget.kind),
        s->hash.hex);
    m->text = nw_recipe_text(&(nw_recipe_plan){.name = name,
                                               .comment = comment,
                                               .calibration = calibration,
                                               .method = s->method,
                                               .embed_method = s->embed_method,
                                               .groups = s->groups,
                                               .n_groups = s->n_groups,
                                               .types = m->types,
                                               .kept = m->kept});
    return m->text != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "no memory for a recipe");
}

nw_status nw_mix_make(const nw_sensitivity *s, nw_budget budget, const char *name,
                      const char *calibration, nw_mix *out, nw_error *err)
{
    nw_mix m = {0};
    nw_status st = choose(s, budget, &m, err);

    if (st == NW_OK) {
        m.file_bytes = m.chosen.bytes + s->other_bytes;
        m.bits = 8 * (double)m.file_bytes / fmax(1, (double)s->n_params);
        st = write_text(s, budget, name, calibration, &m, err);
    }
    if (st != NW_OK) {
        nw_mix_release(&m);
        return st;
    }
    *out = m;
    return NW_OK;
}

void nw_mix_release(nw_mix *m)
{
    free(m->chosen.pick);
    free(m->types);
    free(m->kept);
    free(m->text);
    *m = (nw_mix){0};
}
