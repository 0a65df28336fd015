/* config.json in the spellings of transformers 4 and 5, what is refused in it, and its writing.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "model/checkpoint.h"
#include "table.h"
#include "tmpdir.h"

#define DIMS                                                                \
    "\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":12," \
    "\"num_attention_heads\":4,\"vocab_size\":100"
#define LLAMA  "{\"architectures\":[\"LlamaForCausalLM\"]," DIMS
#define GEMMA3 "{\"architectures\":[\"Gemma3ForCausalLM\"],\"model_type\":\"gemma3_text\"," DIMS

#define QWEN2   "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\"," DIMS
#define QWEN3   "{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\"," DIMS
#define MISTRAL "{\"architectures\":[\"MistralForCausalLM\"],\"model_type\":\"mistral\"," DIMS

static nw_status parse(const char *text, nw_model_config *c, nw_error *err)
{
    json_t *root = NULL;

    assert_int_equal(nw_json_parse("config.json", text, strlen(text), &root, err), NW_OK);
    const nw_status st = nw_config_from_json("config.json", root, c, err);
    json_decref(root);
    return st;
}

static void llama_defaults(void **state)
{
    nw_model_config c;
    nw_error err = {0};

    (void)state;
    assert_int_equal(parse(LLAMA "}", &c, &err), NW_OK);
    assert_true(c.arch == NW_ARCH_LLAMA && c.d_model == 64 && c.d_ff == 96 && c.n_layers == 12);
    assert_true(c.n_kv_heads == 4 && c.d_head == 16 && c.n_ctx == 2048 && !c.tied);
    assert_true(c.rope_base == 10000 && c.rope_scaling.kind == NW_ROPE_SCALE_NONE);
    assert_true(c.attn_scale == 0.25F && c.embed_scale == 1 && c.norm_eps == 1e-6F);
    assert_true(c.bos == -1 && c.pad == -1 && c.n_eos == 0 && !c.act_gelu && !c.norm_plus_one);
    assert_true(nw_config_layer_is_global(&c, 0));
}

static void gemma3_defaults(void **state)
{
    nw_model_config c;
    nw_error err = {0};

    (void)state;
    assert_int_equal(
        parse(GEMMA3 ",\"query_pre_attn_scalar\":256,\"sliding_window\":512}", &c, &err), NW_OK);
    assert_true(c.arch == NW_ARCH_GEMMA3 && c.d_head == 256 && c.n_kv_heads == 4 && c.tied);
    assert_true(c.rope_base == 1e6F && c.rope_base_local == 10000 && c.sliding_window == 512);
    assert_true(c.attn_scale == 0.0625F && c.embed_scale == sqrtf(64) && c.act_gelu);
    assert_true(c.qk_norm && c.post_norms && c.norm_plus_one);
    assert_false(nw_config_layer_is_global(&c, 4));
    assert_true(nw_config_layer_is_global(&c, 5) && nw_config_layer_is_global(&c, 11));
}

static void qwen_defaults(void **state)
{
    nw_model_config c;
    nw_error err = {0};

    (void)state;
    assert_int_equal(parse(QWEN2 "}", &c, &err), NW_OK);
    assert_true(c.arch == NW_ARCH_QWEN2 && c.qkv_bias && !c.qk_norm && c.d_head == 16);
    assert_true(c.sliding_window == 0 && nw_config_layer_is_global(&c, 11));
    assert_int_equal(
        parse(QWEN3 ",\"sliding_window\":4096,\"use_sliding_window\":false}", &c, &err), NW_OK);
    assert_true(c.arch == NW_ARCH_QWEN3 && c.qk_norm && !c.qkv_bias && c.d_head == 128);
    assert_true(c.sliding_window == 0 && c.attn_scale == 1.0F / sqrtf(128));
}

/* What says that layers have a window, and which. */
static void windows_are_read(void **state)
{
    nw_model_config c;
    nw_error err = {0};

    (void)state;
    assert_int_equal(parse(QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":32,"
                                 "\"max_window_layers\":10}",
                           &c, &err),
                     NW_OK);
    assert_true(c.sliding_window == 32 && nw_config_layer_is_global(&c, 9));
    assert_false(nw_config_layer_is_global(&c, 10) || nw_config_layer_is_global(&c, 11));
    assert_int_equal(parse(MISTRAL ",\"num_key_value_heads\":4}", &c, &err), NW_OK);
    assert_true(c.arch == NW_ARCH_MISTRAL && c.sliding_window == 4096 && c.one_rope);
    for (uint32_t i = 0; i < c.n_layers; i++) {
        assert_false(nw_config_layer_is_global(&c, i));
    }
    assert_int_equal(parse(MISTRAL ",\"num_key_value_heads\":4,\"sliding_window\":null}", &c, &err),
                     NW_OK);
    assert_true(c.sliding_window == 0 && nw_config_layer_is_global(&c, 0));
}

static void nested_text_config_is_read(void **state)
{
    nw_model_config c;
    nw_error err = {0};

    (void)state;
    assert_int_equal(parse("{\"architectures\":[\"Gemma3ForConditionalGeneration\"],"
                           "\"model_type\":\"gemma3\",\"eos_token_id\":[1,106],\"text_config\":{"
                           "\"hidden_size\":2560,\"intermediate_size\":10240,"
                           "\"num_hidden_layers\":34,\"sliding_window\":1024,"
                           "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8.0}}}",
                           &c, &err),
                     NW_OK);
    assert_true(c.n_heads == 8 && c.n_kv_heads == 4 && c.n_vocab == 262208 && c.n_ctx == 131072);
    assert_true(c.rope_scaling.kind == NW_ROPE_SCALE_LINEAR && c.rope_scaling.factor == 8);
    assert_true(c.n_eos == 2 && c.eos[0] == 1 && c.eos[1] == 106);
}

static void both_spellings_of_rope_are_one(void **state)
{
    nw_model_config a;
    nw_model_config b;
    nw_error err = {0};

    (void)state;
    assert_int_equal(parse(LLAMA
                           ",\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\","
                           "\"factor\":32.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                           "\"original_max_position_embeddings\":8192}}",
                           &a, &err),
                     NW_OK);
    assert_int_equal(parse(LLAMA
                           ",\"rope_parameters\":{\"rope_theta\":500000.0,\"rope_type\":\"llama3\","
                           "\"factor\":32.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                           "\"original_max_position_embeddings\":8192}}",
                           &b, &err),
                     NW_OK);
    assert_true(a.rope_base == 500000 && b.rope_base == 500000);
    assert_true(a.rope_scaling.kind == NW_ROPE_SCALE_LLAMA3 && a.rope_scaling.factor == 32);
    assert_memory_equal(&a.rope_scaling, &b.rope_scaling, sizeof a.rope_scaling);
    assert_int_equal(parse(GEMMA3
                           ",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":2e6,"
                           "\"rope_type\":\"linear\",\"factor\":8},\"sliding_attention\":{"
                           "\"rope_theta\":20000.0,\"rope_type\":\"default\"}},\"head_dim\":16}",
                           &b, &err),
                     NW_OK);
    assert_true(b.rope_base == 2e6F && b.rope_base_local == 20000 && b.rope_scaling.factor == 8);
}

static struct bad {
    const char *name;
    const char *text;
    nw_status code;
    const char *says;
} bad[] = {
    {"other_architecture", "{\"architectures\":[\"MambaForCausalLM\"]}", NW_E_UNSUPPORTED,
     "architecture 'MambaForCausalLM', expected one of LlamaForCausalLM, Gemma3ForCausalLM, "
     "Qwen2ForCausalLM, Qwen3ForCausalLM, MistralForCausalLM"},
    {"layer_types_against_the_switch",
     QWEN2 ",\"use_sliding_window\":true,\"max_window_layers\":1,"
           "\"layer_types\":[\"sliding_attention\"]}",
     NW_E_UNSUPPORTED, "entry 0 is 'sliding_attention'"},
    {"window_of_zero", MISTRAL ",\"sliding_window\":0}", NW_E_RANGE, "'sliding_window' is 0"},
    {"no_architecture", "{}", NW_E_UNSUPPORTED, "(not named)"},
    {"no_object", "[]", NW_E_UNSUPPORTED, "(not named)"},
    {"missing_dim", "{\"model_type\":\"llama\",\"hidden_size\":64}", NW_E_FORMAT,
     "'num_hidden_layers' is missing"},
    {"layers_past_any_model", "{\"model_type\":\"llama\",\"num_hidden_layers\":100000}", NW_E_RANGE,
     "'num_hidden_layers' is 100000, must be 1 to 1024"},
    {"dim_is_text", "{\"model_type\":\"llama\",\"num_hidden_layers\":\"4\"}", NW_E_FORMAT,
     "expected an integer"},
    {"heads_do_not_share", LLAMA ",\"num_key_value_heads\":3}", NW_E_RANGE, "(4 and 3)"},
    {"odd_head", LLAMA ",\"head_dim\":15}", NW_E_RANGE, "odd size"},
    {"unknown_scaling", LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2}}",
     NW_E_UNSUPPORTED, "RoPE scaling 'yarn'"},
    {"scaling_without_factor", LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}", NW_E_FORMAT,
     "without 'factor'"},
    {"llama3_without_numbers", LLAMA ",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8}}",
     NW_E_FORMAT, "a number is missing"},
    {"partial_rotary", LLAMA ",\"partial_rotary_factor\":0.5}", NW_E_UNSUPPORTED, "is 0.5"},
    {"other_activation", LLAMA ",\"hidden_act\":\"gelu\"}", NW_E_UNSUPPORTED, "'gelu'"},
    {"attention_bias", LLAMA ",\"attention_bias\":true}", NW_E_UNSUPPORTED, "'attention_bias'"},
    {"layer_types_of_another_length", GEMMA3 ",\"layer_types\":[\"full_attention\"]}", NW_E_FORMAT,
     "has 1 entries, the model 12 layers"},
};

static void unsupported_config_is_refused(void **state)
{
    const struct bad *r = *state;
    nw_model_config c;
    nw_error err = {0};

    assert_int_equal(parse(r->text, &c, &err), r->code);
    assert_non_null(strstr(err.message, "config.json: "));
    assert_non_null(strstr(err.message, r->says));
}

static void layer_types_give_the_period(void **state)
{
    static const char *const words[] = {"\"sliding_attention\"", "\"full_attention\""};
    nw_model_config c;
    nw_error err = {0};
    char text[1024];

    (void)state;
    for (int broken = 0; broken < 2; broken++) {
        size_t n = (size_t)snprintf(text, sizeof text, "%s,\"layer_types\":[", GEMMA3);
        for (int i = 0; i < 12; i++) {
            const bool full = i % 4 == 3 && !(broken == 1 && i == 7);
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i > 0 ? "," : "", words[full]);
        }
        (void)snprintf(text + n, sizeof text - n, "]}");
        const nw_status st = parse(text, &c, &err);
        assert_int_equal(st, broken == 1 ? NW_E_UNSUPPORTED : NW_OK);
    }
    assert_int_equal(c.global_every, 4);
    assert_non_null(strstr(err.message, "layer 7 breaks it"));
}

static void written_config_reads_back(void **state)
{
    static const char *const texts[] = {
        LLAMA ",\"eos_token_id\":[2,5],\"bos_token_id\":1,\"rms_norm_eps\":1e-5}",
        GEMMA3 ",\"query_pre_attn_scalar\":168,\"final_logit_softcapping\":30.0,\"head_dim\":64}",
        LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5},\"head_dim\":32}",
        QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":32,\"max_window_layers\":10}",
        QWEN2 ",\"tie_word_embeddings\":true}",
        QWEN3 ",\"head_dim\":80,\"rope_theta\":1e6}",
        MISTRAL ",\"num_key_value_heads\":2}",
        MISTRAL ",\"num_key_value_heads\":2,\"sliding_window\":null}",
    };

    (void)state;
    for (size_t i = 0; i < NW_COUNT(texts); i++) {
        nw_model_config a;
        nw_model_config b;
        nw_error err = {0};
        assert_int_equal(parse(texts[i], &a, &err), NW_OK);
        json_t *o = nw_config_to_json(&a, "bfloat16");
        assert_int_equal(nw_config_from_json("again", o, &b, &err), NW_OK);
        assert_memory_equal(&a, &b, sizeof a);
        json_decref(o);
    }
}

/* A folder: config.json that is none of Hugging Face's makes room for hf_config.json, and the
 * generation config adds its end tokens. */
static void folder_is_read(void **state)
{
    const nw_tmpdir dir = nw_tmpdir_make();
    static const struct {
        const char *name, *text;
    } files[] = {
        {"config.json", "{\"architecture\":\"LlamaForCausalLM\",\"num_layers\":4}"},
        {"hf_config.json", LLAMA ",\"eos_token_id\":2,\"bos_token_id\":1}"},
        {"generation_config.json", "{\"eos_token_id\":[2,7,1000000],\"pad_token_id\":0}"},
    };
    nw_model_config c;
    nw_error err = {0};

    (void)state;
    assert_int_equal(nw_config_load(dir.path, &c, &err), NW_E_FORMAT);
    assert_non_null(strstr(err.message, "no config.json with"));
    for (size_t i = 0; i < NW_COUNT(files); i++) {
        char path[512];
        (void)nw_tmpdir_put(&dir, files[i].name, files[i].text, strlen(files[i].text), path,
                            sizeof path);
    }
    assert_int_equal(nw_config_load(dir.path, &c, &err), NW_OK);
    assert_true(c.n_eos == 2 && c.eos[0] == 2 && c.eos[1] == 7 && c.bos == 1 && c.pad == 0);
    nw_tmpdir_remove(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_defaults),
        cmocka_unit_test(gemma3_defaults),
        cmocka_unit_test(qwen_defaults),
        cmocka_unit_test(windows_are_read),
        cmocka_unit_test(nested_text_config_is_read),
        cmocka_unit_test(both_spellings_of_rope_are_one),
        cmocka_unit_test(layer_types_give_the_period),
        cmocka_unit_test(written_config_reads_back),
        cmocka_unit_test(folder_is_read),
    };

    return NW_RUN_TABLE("refused", bad, unsupported_config_is_refused) +
           cmocka_run_group_tests(tests, NULL, NULL);
}
