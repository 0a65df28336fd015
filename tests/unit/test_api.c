/* Request bodies of the API: what is taken, and which parameter a refusal names.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "serve/api.h"
#include "table.h"

#define MSG "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

#define EM_DASHES_4  "\xE2\x80\x94\xE2\x80\x94\xE2\x80\x94\xE2\x80\x94"
#define EM_DASHES_20 EM_DASHES_4 EM_DASHES_4 EM_DASHES_4 EM_DASHES_4 EM_DASHES_4
#define EM_DASHES    EM_DASHES_20 EM_DASHES_4

static struct refusal {
    const char *name;
    bool chat;
    const char *body;
    const char *param;
    const char *message; /* part of it */
} refusals[] = {
    {"empty_body", true, "", "", "not JSON"},
    {"cut_json", true, "{\"messages\":", "", "not JSON"},
    {"array_body", true, "[]", "", "object is expected"},
    {"key_twice", true, "{\"model\":\"a\",\"model\":\"b\"}", "", "not JSON"},
    {"no_messages", true, "{}", "messages", "missing"},
    {"messages_empty", true, "{\"messages\":[]}", "messages", "at least one"},
    {"messages_object", true, "{\"messages\":{}}", "messages", "an object is given, a list"},
    {"message_is_string", true, "{\"messages\":[\"hi\"]}", "messages[0].role", "string"},
    {"role_missing", true, "{\"messages\":[{\"content\":\"x\"}]}", "messages[0].role", "string"},
    {"content_number", true, "{\"messages\":[{\"role\":\"user\",\"content\":5}]}",
     "messages[0].content", "5 is given, a string or a list"},
    {"image_part", true,
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
     "messages[0].content[0]", "type 'text'"},
    {"tool_calls_in_message", true,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[1]}]}",
     "messages[0].tool_calls", "not supported"},
    {"unknown_parameter", true, "{" MSG ",\"frobnicate\":1}", "frobnicate", "unknown"},
    /* the message takes 60 bytes of the key, the parameter 63: both end inside a character */
    {"key_cut_in_a_character", true, "{" MSG ",\"a" EM_DASHES "\":1}", "a" EM_DASHES_20, "unknown"},
    {"value_cut_in_a_character", true, "{" MSG ",\"seed\":\"ab" EM_DASHES "\"}", "seed",
     "... is given, a whole number"},
    {"prompt_is_for_completions", true, "{" MSG ",\"prompt\":\"x\"}", "prompt", "unknown"},
    {"max_tokens_zero", true, "{" MSG ",\"max_tokens\":0}", "max_tokens", "out of range"},
    {"max_tokens_string", true, "{" MSG ",\"max_tokens\":\"5\"}", "max_tokens",
     "\"5\" is given, a whole number is expected"},
    {"max_tokens_fraction", true, "{" MSG ",\"max_tokens\":1.5}", "max_tokens",
     "1.5 is given, a whole number is expected"},
    {"max_completion_tokens_negative", true, "{" MSG ",\"max_completion_tokens\":-1}",
     "max_completion_tokens", "out of range"},
    {"temperature_negative", true, "{" MSG ",\"temperature\":-0.1}", "temperature", "out of range"},
    {"temperature_text", true, "{" MSG ",\"temperature\":\"hot\"}", "temperature",
     "\"hot\" is given, a number is expected"},
    {"top_p_zero", true, "{" MSG ",\"top_p\":0}", "top_p", "no token"},
    {"top_p_above_1", true, "{" MSG ",\"top_p\":1.01}", "top_p", "out of range"},
    {"n_two", true, "{" MSG ",\"n\":2}", "n", "2 is given, only 1"},
    {"tools", true, "{" MSG ",\"tools\":[{\"type\":\"function\"}]}", "tools",
     "a list is not supported"},
    {"presence_penalty", true, "{" MSG ",\"presence_penalty\":0.5}", "presence_penalty",
     "0.5 is not supported"},
    {"response_format_unknown_type", true, "{" MSG ",\"response_format\":{\"type\":\"xml\"}}",
     "response_format.type", "'xml' is not supported"},
    {"response_format_schema", true,
     "{" MSG ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{}}}",
     "response_format.type", "not supported"},
    {"response_format_number", true, "{" MSG ",\"response_format\":7}", "response_format",
     "7 is given, an object"},
    {"stream_number", true, "{" MSG ",\"stream\":1}", "stream",
     "1 is given, true or false is expected"},
    {"stream_options_without_stream", true, "{" MSG ",\"stream_options\":{\"include_usage\":true}}",
     "stream_options", "needs stream"},
    {"stream_options_unknown", true, "{" MSG ",\"stream\":true,\"stream_options\":{\"x\":true}}",
     "stream_options.x", "not supported"},
    {"stop_empty_string", true, "{" MSG ",\"stop\":\"\"}", "stop",
     "string 0 has 0 bytes, 1 to 256"},
    {"stop_number", true, "{" MSG ",\"stop\":[\"a\",1]}", "stop", "stop[1]: 1 is given, a string"},
    {"stop_too_many", true,
     "{" MSG ",\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\","
     "\"12\",\"13\",\"14\",\"15\",\"16\",\"17\"]}",
     "stop", "17 strings, at most 16"},
    {"top_logprobs_alone", true, "{" MSG ",\"top_logprobs\":3}", "top_logprobs", "needs logprobs"},
    {"top_logprobs_21", true, "{" MSG ",\"logprobs\":true,\"top_logprobs\":21}", "top_logprobs",
     "out of range"},
    {"echo_number", false, "{\"prompt\":\"x\",\"echo\":1}", "echo", "true or false"},
    {"logprobs_flag_of_completions", false, "{\"prompt\":\"x\",\"logprobs\":true}", "logprobs",
     "whole number"},
    {"logprobs_21_of_completions", false, "{\"prompt\":\"x\",\"logprobs\":21}", "logprobs",
     "out of range"},
    {"nothing_to_answer", false, "{\"prompt\":\"x\",\"max_tokens\":0}", "max_tokens",
     "without echo"},
    {"stream_of_two_prompts", false, "{\"prompt\":[\"a\",\"b\"],\"stream\":true}", "stream",
     "2 are given"},
    {"prompt_missing", false, "{}", "prompt", "missing"},
    {"prompt_number", false, "{\"prompt\":5}", "prompt", "5 is given, a string"},
    {"second_prompt_is_empty", false, "{\"prompt\":[\"a\",[]]}", "prompt",
     "prompt[1]: an empty list is given, a string"},
    {"id_in_second_prompt", false, "{\"prompt\":[[1],[-1]]}", "prompt[1]", "prompt[1][0]"},
    {"prompt_ids_mixed", false, "{\"prompt\":[1,\"b\"]}", "prompt", "prompt[1]"},
    {"prompt_id_negative", false, "{\"prompt\":[1,-1]}", "prompt",
     "prompt[1]: -1 is given, a token id"},
    {"nul_in_text", false, "{\"prompt\":\"a\\u0000b\"}", "", "not JSON"},
    {"half_a_surrogate", false, "{\"prompt\":\"\\ud800\"}", "", "not JSON"},
    {"nested_too_deep", true, "{" MSG ",\"metadata\":[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]}", "",
     "deeper than 16"},
};

static void refuses(void **state)
{
    const struct refusal *t = *state;
    nw_api_request r;
    nw_api_error e = {0};

    assert_int_not_equal(nw_api_parse(t->body, strlen(t->body), t->chat, 16, &r, &e), NW_OK);
    assert_int_equal(e.http_status, 400);
    assert_string_equal(e.param, t->param);
    assert_non_null(strstr(e.message, t->message));
    assert_true(r.messages == NULL && r.prompts == NULL);
    char *text = nw_api_error_json(&e);
    assert_non_null(text);
    assert_null(strstr(text, "the request was refused")); /* never without its reason */
    assert_non_null(strstr(text, "\"type\":\"invalid_request_error\""));
    free(text);
}

static nw_api_request parse(const char *body, bool chat)
{
    nw_api_request r;
    nw_api_error e = {0};
    const nw_status st = nw_api_parse(body, strlen(body), chat, 16, &r, &e);
    if (st != NW_OK) {
        print_error("%s: %s\n", e.param, e.message);
    }
    assert_int_equal(st, NW_OK);
    return r;
}

static void lower_of_both_limits_wins(void **state)
{
    (void)state;
    nw_api_request r = parse("{" MSG ",\"max_tokens\":9,\"max_completion_tokens\":4}", true);
    assert_int_equal(r.max_tokens, 4);
    nw_api_release(&r);
    r = parse("{" MSG ",\"max_tokens\":3,\"max_completion_tokens\":4}", true);
    assert_int_equal(r.max_tokens, 3);
    nw_api_release(&r);
}

static void settings_arrive(void **state)
{
    (void)state;
    nw_api_request r = parse(
        "{\"model\":\"m\"," MSG ",\"temperature\":0.5,\"top_p\":0.9,\"top_k\":40,\"min_p\":0.1,"
        "\"seed\":-3,\"repetition_penalty\":1.25,\"ignore_eos\":true,\"stop\":[\"a\",\"bc\"],"
        "\"stream\":true,\"stream_options\":{\"include_usage\":true},\"logprobs\":true,"
        "\"top_logprobs\":5,\"user\":\"me\"}",
        true);
    assert_string_equal(r.model, "m");
    assert_true(r.sampling.temperature == 0.5F && r.sampling.top_p == 0.9F);
    assert_true(r.sampling.min_p == 0.1F && r.sampling.repeat_penalty == 1.25F);
    assert_int_equal(r.sampling.top_k, 40);
    assert_true(r.has_seed && r.sampling.seed == (uint64_t)-3);
    assert_true(r.ignore_eos && r.stream && r.include_usage && !r.event_usage && r.logprobs);
    assert_int_equal(r.n_top_logprobs, 5);
    assert_int_equal(r.n_stop, 2);
    assert_string_equal(r.stop[1], "bc");
    nw_api_release(&r);
}

/* What OpenAI's own client sends without being asked: nulls and values that change nothing. */
static void neutral_values_are_taken(void **state)
{
    (void)state;
    nw_api_request r =
        parse("{" MSG ",\"n\":1,\"presence_penalty\":0,\"frequency_penalty\":0.0,\"logit_bias\":{},"
              "\"tools\":[],\"stop\":null,\"seed\":null,\"response_format\":{\"type\":\"text\"},"
              "\"top_k\":-1,\"store\":false,\"some_future_key\":null}",
              true);
    assert_false(r.has_seed);
    assert_int_equal(r.sampling.top_k, 0);
    assert_true(r.sampling.temperature == 1.0F); /* the API's default */
    nw_api_release(&r);
}

static void parts_are_joined(void **state)
{
    (void)state;
    nw_api_request r = parse("{\"messages\":[{\"role\":\"user\",\"content\":["
                             "{\"type\":\"text\",\"text\":\"one \"},{\"type\":\"text\","
                             "\"text\":\"two\"}],\"name\":\"x\"}]}",
                             true);
    const json_t *m = json_array_get(r.messages, 0);
    assert_string_equal(json_string_value(json_object_get(m, "content")), "one two");
    assert_int_equal(json_object_size(m), 2);
    nw_api_release(&r);
}

static void prompt_forms(void **state)
{
    (void)state;
    nw_api_request r = parse("{\"prompt\":[\"one\"],\"stop\":\"x\"}", false);
    assert_string_equal(r.prompts[0].text, "one");
    assert_int_equal(r.n_stop, 1);
    nw_api_release(&r);
    r = parse("{\"prompt\":[5,6,7]}", false);
    assert_int_equal(r.prompts[0].n_ids, 3);
    assert_int_equal(r.prompts[0].ids[2], 7);
    nw_api_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lower_of_both_limits_wins),
        cmocka_unit_test(settings_arrive),
        cmocka_unit_test(neutral_values_are_taken),
        cmocka_unit_test(parts_are_joined),
        cmocka_unit_test(prompt_forms),
    };

    return NW_RUN_TABLE("refuses", refusals, refuses) + cmocka_run_group_tests(tests, NULL, NULL);
}
