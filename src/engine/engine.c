/* Opening and closing an engine.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "engine/forward.h"
#include "engine/state.h"

/* A default for the context: longer sessions are asked for by name, their KV is not free. */
#define NW_DEFAULT_CTX 8192u

nw_engine_options nw_engine_options_default(void)
{
    return (nw_engine_options){
        .act = -1,
        .kv_k = -1,
        .kv_v = -1,
        .max_seqs = 8,
        .max_step_tokens = 512,
    };
}

nw_status nw_engine_act_parse(const char *name, nw_engine_options *o, nw_error *err)
{
    nw_act_rule rule = NW_ACT_RULE_A16;

    if (!nw_act_rule_parse(name, &rule)) {
        return nw_fail(err, NW_E_USAGE, "activations '%.40s': one of %s is expected", name,
                       NW_ACT_RULE_NAMES);
    }
    o->act = (int)rule;
    return NW_OK;
}

static bool is_kv_kind(int kind)
{
    return kind == -1 || nw_kv_kind_name((nw_kv_kind)kind) != NULL;
}

static nw_status check_options(const nw_engine_options *o, nw_error *err)
{
    if (o->max_seqs < 1 || o->max_seqs > NW_ENGINE_MAX_SEQS) {
        return nw_fail(err, NW_E_RANGE, "max_seqs is %u, not in [1, %d]", o->max_seqs,
                       NW_ENGINE_MAX_SEQS);
    }
    if (o->max_step_tokens < o->max_seqs || o->max_step_tokens > 65536) {
        return nw_fail(err, NW_E_RANGE, "max_step_tokens is %u, not in [max_seqs = %u, 65536]",
                       o->max_step_tokens, o->max_seqs);
    }
    if (o->act < -1 || o->act >= NW_ACT_RULE_COUNT || !is_kv_kind(o->kv_k) ||
        !is_kv_kind(o->kv_v)) {
        return nw_fail(err, NW_E_RANGE, "act %d, KV kinds %d and %d: no such kind", o->act, o->kv_k,
                       o->kv_v);
    }
    return NW_OK;
}

static nw_status pick_kernels(nw_engine *e, nw_error *err)
{
    const uint32_t have = nw_cpu_features();

    e->kernels = e->opt.tier == NULL ? nw_kernels_pick(have) : nw_kernels_by_name(e->opt.tier);
    if (e->kernels == NULL) {
        return nw_fail(err, NW_E_RANGE, "kernel tier '%s' is none of narrow's", e->opt.tier);
    }
    if ((e->kernels->need & have) != e->kernels->need) {
        return nw_fail(err, NW_E_UNSUPPORTED, "kernel tier '%s' needs more than this CPU has: %s",
                       e->opt.tier, nw_cpu_describe());
    }
    e->facts.tier = e->kernels->tier;
    return NW_OK;
}

/* The model's context, or what was asked for: positions past the model's have no meaning. */
static nw_status pick_context(nw_engine *e, nw_error *err)
{
    const uint32_t model = e->config->n_ctx;
    const uint32_t most = model < NW_DEFAULT_CTX ? model : NW_DEFAULT_CTX;

    if (e->opt.n_ctx > model) {
        return nw_fail(err, NW_E_RANGE, "n_ctx is %u, the model was made for at most %u tokens",
                       e->opt.n_ctx, model);
    }
    if (e->config->d_head > 512 || e->config->n_heads / e->config->n_kv_heads > 64) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "heads of %u values, %u query heads a kv head: at most 512 and 64",
                       e->config->d_head, e->config->n_heads / e->config->n_kv_heads);
    }
    e->facts.n_ctx = e->opt.n_ctx > 0 ? e->opt.n_ctx : most;
    e->facts.max_seqs = e->opt.max_seqs;
    e->facts.max_step_tokens = e->opt.max_step_tokens;
    e->facts.page_tokens = NW_KV_PAGE;
    return NW_OK;
}

static nw_status open_threads(nw_engine *e, nw_error *err)
{
    const char *why = NULL;
    const unsigned n = nw_cpu_threads(&why);

    if (nw_pool_open(e->opt.n_threads > 0 ? e->opt.n_threads : n, &e->pool, err) != NW_OK) {
        return nw_context(err, "threads of the engine");
    }
    e->facts.n_threads = nw_pool_threads(e->pool);
    (void)snprintf(e->asked, sizeof e->asked, "%u as asked", e->facts.n_threads);
    e->facts.threads_why = e->opt.n_threads > 0 ? e->asked : why;
    return NW_OK;
}

static nw_status open_rope(nw_engine *e, nw_error *err)
{
    const nw_model_config *c = e->config;

    if (nw_rope_build(&e->arena, e->facts.n_ctx, c->d_head, c->rope_base, &c->rope_scaling,
                      &e->rope_global, err) != NW_OK) {
        return err->code;
    }
    if (c->global_every == 0) {
        return NW_OK;
    }
    if (c->one_rope) {
        e->rope_local = e->rope_global;
        return NW_OK;
    }
    return nw_rope_build(&e->arena, e->facts.n_ctx, c->d_head, c->rope_base_local, NULL,
                         &e->rope_local, err);
}

/* A rule that rounds values does so for all matrices that read them. */
static nw_status check_rule(const nw_engine *e, nw_error *err)
{
    for (uint32_t i = 0; nw_act_rule_rounds(e->facts.act) && i < e->config->n_layers; i++) {
        const nw_layer *l = &e->weights.layers[i];
        if (l->q_coded != l->k_coded || l->q_coded != l->v_coded || l->gate_coded != l->up_coded) {
            return nw_fail(err, NW_E_UNSUPPORTED,
                           "activations '%s': q, k and v, and gate and up, of layer %u must all be "
                           "quantized or none of them",
                           nw_act_rule_name(e->facts.act), i);
        }
    }
    return NW_OK;
}

static bool is_fp8(const nw_engine *e)
{
    return e->opt.kv_k == NW_KV_FP8 || e->opt.kv_v == NW_KV_FP8;
}

static const char *kv_scales(const nw_engine *e)
{
    if (e->opt.kv_k <= NW_KV_BF16 && e->opt.kv_v <= NW_KV_BF16) {
        return "none";
    }
    if (!is_fp8(e)) {
        return "a token and head, which needs no calibration";
    }
    if (e->kv_said->n_scales == 0) {
        return "a token and head: uncalibrated, an engine with fixed scales would take 1";
    }
    return e->opt.kv_dynamic          ? "a token and head, in place of the calibrated ones"
           : e->kv_said->n_scales > 1 ? "calibrated, one a layer and kv head"
                                      : "calibrated, one a layer";
}

/* Keys and values as wide as the model's numbers: an F32 checkpoint keeps its embedding in F32. */
static const char *usual_kv(const nw_artifact *a)
{
    return nw_artifact_get_matrix(a, NW_ROLE_EMBED, -1)->type.kind == NW_PANEL_F32 ? "f32" : "bf16";
}

/* A format of keys and values against what the artifact has. */
static nw_status check_kv(const nw_engine *e, nw_error *err)
{
    const nw_engine_options *o = &e->opt;
    const bool wide = o->kv_window > 0 || o->kv_sinks > 0;

    if (wide && o->kv_k <= NW_KV_BF16 && o->kv_v <= NW_KV_BF16) {
        return nw_fail(
            err, NW_E_USAGE,
            "KV format: a window or sinks are kept in BF16 beside a narrower format, %s is none",
            nw_kv_kind_name((nw_kv_kind)o->kv_k));
    }
    if (o->kv_dynamic && !is_fp8(e)) {
        return nw_fail(
            err, NW_E_USAGE,
            "KV format: +dynamic is for fp8, whose scales may be fixed ones; those of %s "
            "never are",
            nw_kv_kind_name((nw_kv_kind)o->kv_k));
    }
    if (o->kv_channel && e->kv_said->k_factor == NULL) {
        return nw_fail(
            err, NW_E_USAGE,
            "KV format: +channel needs what calibration says of the keys, and the artifact "
            "has none: quantize it with --calibration and --kv");
    }
    if (o->kv_channel && e->config->attn_softcap > 0) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "KV format: +channel shifts scores, which a cap of scores does not allow");
    }
    return NW_OK;
}

/* What was asked for of keys and values, or else what the artifact says, held to what it has. */
static nw_status pick_kv(nw_engine *e, nw_error *err)
{
    nw_engine_options *o = &e->opt;
    char text[NW_ENGINE_KV_TEXT];

    e->kv_said = nw_artifact_get_kv(e->artifact);
    if (o->kv_k < 0 || o->kv_v < 0) {
        const bool said = !o->kv_as_model && e->kv_said->format[0] != '\0';
        if (nw_engine_kv_parse(said ? e->kv_said->format : usual_kv(e->artifact), o, err) !=
            NW_OK) {
            return nw_context(err, "the artifact's keys and values");
        }
    }
    if (check_kv(e, err) != NW_OK) {
        return err->code;
    }
    /* a scale a token is what FP8 has without fixed ones: its name says so */
    o->kv_dynamic = o->kv_dynamic || (is_fp8(e) && e->kv_said->n_scales == 0);
    nw_engine_kv_text(o, text);
    e->facts.kv = nw_arena_strndup(&e->arena, text, strlen(text));
    e->facts.kv_scales = kv_scales(e);
    return e->facts.kv != NULL ? NW_OK : nw_fail(err, NW_E_NOMEM, "no memory for a name");
}

/* One input of the layer against the rule: what it must have, what it may not have. */
static nw_status check_fixed(const nw_engine *e, uint32_t layer, const char *name, bool coded,
                             const nw_artifact_input *in, nw_error *err)
{
    const bool given = e->has_fixed && in != NULL && in->fixed.scale > 0;

    if (e->facts.act == NW_ACT_RULE_NVFP4 && coded && !given) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "activations 'nvfp4' need a scale of every input, and %s of layer %u has "
                       "none",
                       name, layer);
    }
    if (e->a8 && given && in->fixed.zero != 0) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "activations 'a8': the input of %s in layer %u has the zero point %d, which "
                       "INT8 kernels do not know; 'a8-ct' rounds the values",
                       name, layer, (int)in->fixed.zero);
    }
    return NW_OK;
}

static nw_status check_inputs(const nw_engine *e, nw_error *err)
{
    nw_status st = NW_OK;

    for (uint32_t i = 0; st == NW_OK && i < e->config->n_layers; i++) {
        const nw_layer *l = &e->weights.layers[i];
        st = check_fixed(e, i, "q", l->q_coded, l->q_in, err);
        st = st == NW_OK ? check_fixed(e, i, "o", l->o_coded, l->o_in, err) : st;
        st = st == NW_OK ? check_fixed(e, i, "gate", l->gate_coded, l->gate_in, err) : st;
        st = st == NW_OK ? check_fixed(e, i, "down", l->down_coded, l->down_in, err) : st;
    }
    return st == NW_OK ? check_fixed(e, 0, "head", e->weights.head_coded, NULL, err) : st;
}

static nw_status open_memory(nw_engine *e, nw_error *err)
{
    nw_engine_facts *f = &e->facts;

    if (nw_weights_bind(e->artifact, &e->arena, &e->weights, err) != NW_OK ||
        check_rule(e, err) != NW_OK || check_inputs(e, err) != NW_OK ||
        open_rope(e, err) != NW_OK ||
        nw_kv_pool_open(&e->kv, &e->arena, e->config, &e->opt, f->n_ctx, err) != NW_OK ||
        nw_work_open(e, err) != NW_OK) {
        return err->code;
    }
    e->ledger = nw_ledger_new(e->config->n_layers);
    if (e->ledger == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for the kernel ledger");
    }
    f->kv_k = nw_kv_kind_name(e->kv.type.k);
    f->kv_v = nw_kv_kind_name(e->kv.type.v);
    f->weight_bytes = e->weights.step_bytes;
    f->embed_bytes = e->weights.embed_bytes;
    f->kv_wide_bytes = e->kv.wide.mem_bytes;
    f->kv_pool_bytes = e->kv.mem_bytes + e->kv.wide.mem_bytes;
    f->kv_bytes_per_token = e->kv.page_stride / NW_KV_PAGE;
    f->kv_capacity_tokens = (uint64_t)e->kv.n_pages * NW_KV_PAGE;
    return nw_describe_kernels(e, err);
}

static nw_status open_all(nw_engine *e, const char *path, nw_error *err)
{
    if (check_options(&e->opt, err) != NW_OK || pick_kernels(e, err) != NW_OK ||
        nw_artifact_open(path, &e->artifact, err) != NW_OK) {
        return err->code;
    }
    e->embed = e->artifact;
    e->config = nw_artifact_config(e->artifact);
    e->facts.act =
        e->opt.act < 0 ? nw_artifact_get_facts(e->artifact)->act : (nw_act_rule)e->opt.act;
    e->a8 = e->facts.act == NW_ACT_RULE_A8;
    e->has_fixed = nw_act_rule_shares(e->facts.act, nw_artifact_get_facts(e->artifact)->act);
    if (pick_context(e, err) != NW_OK || pick_kv(e, err) != NW_OK ||
        open_threads(e, err) != NW_OK || open_memory(e, err) != NW_OK) {
        return err->code;
    }
    e->is_moving = true;
    if (e->opt.no_tokenizer) {
        return NW_OK;
    }
    return nw_tokenizer_open(path, &e->tokenizer, err);
}

nw_status nw_engine_open(const char *path, const nw_engine_options *o, nw_engine **out,
                         nw_error *err)
{
    const double start = nw_now_s();
    nw_engine *e = calloc(1, sizeof *e);

    *out = NULL;
    if (e == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for an engine");
    }
    e->opt = *o;
    if (open_all(e, path, err) != NW_OK) {
        nw_engine_close(e);
        return nw_context(err, "engine for %s", path);
    }
    e->opt.tier = e->facts.tier; /* the caller's string may die */
    e->facts.load_s = nw_now_s() - start;
    *out = e;
    return NW_OK;
}

void nw_engine_close(nw_engine *e)
{
    if (e != NULL) {
        free(e->score_logits);
        nw_tokenizer_close(e->tokenizer);
        nw_ledger_free(e->ledger);
        nw_kv_pool_close(&e->kv);
        nw_pool_close(e->pool);
        nw_arena_release(&e->arena);
        nw_artifact_close(e->artifact);
        free(e);
    }
}

const nw_model_config *nw_engine_config(const nw_engine *e)
{
    return e->config;
}

const nw_tokenizer *nw_engine_tokenizer(const nw_engine *e)
{
    return e->tokenizer;
}

const nw_artifact *nw_engine_artifact(const nw_engine *e)
{
    return e->artifact;
}

const nw_engine_facts *nw_engine_get_facts(const nw_engine *e)
{
    return &e->facts;
}

nw_ledger *nw_engine_ledger(nw_engine *e)
{
    return e->ledger;
}
