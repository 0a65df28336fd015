/* Reports on servers (G1 to G9), each by its number, against a running server: what it cannot do it
 * refuses by the parameter's name, equal requests get equal answers, and no answer is cut in a character.
 * SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <math.h>

#include "base/buf.h"
#include "base/clock.h"
#include "server_fixture.h"

#define ANSWER_MAX ((size_t)4 << 20)
#define MSG        "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

/* The text of an answer, headers included; HTTP/1.0, so that a stream comes as it is. */
static char *talk(const char *path, const char *body)
{
    char *answer = calloc(1, ANSWER_MAX);
    char line[96];

    assert_non_null(answer);
    (void)snprintf(line, sizeof line, "POST %s HTTP/1.0", path);
    const int fd = ask(line, "", body, false);
    assert_true(read_to_close(fd, PATIENT, answer, ANSWER_MAX));
    (void)close(fd);
    return answer;
}

static const char *body_of(const char *answer)
{
    const char *end = strstr(answer, "\r\n\r\n");
    assert_non_null(end);
    return end + 4;
}

/* The JSON of an answer with this status. */
static json_t *talk_json(const char *path, const char *body, long status)
{
    char *answer = talk(path, body);
    json_error_t at;

    if (strtol(answer + strlen("HTTP/1.x "), NULL, 10) != status) {
        fail_msg("status %ld is wanted: %s", status, answer);
    }
    json_t *root = json_loads(body_of(answer), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &at);
    assert_non_null(root);
    free(answer);
    return root;
}

static void refused(const char *path, const char *body, const char *param)
{
    json_t *root = talk_json(path, body, 400);
    const char *found = json_string_value(json_object_get(json_object_get(root, "error"), "param"));

    assert_string_equal(found != NULL ? found : "", param);
    json_decref(root);
}

/* The text of a completion or of one event of it, which may hold bytes of 0. */
static const json_t *text_of(const json_t *root)
{
    return json_object_get(json_array_get(json_object_get(root, "choices"), 0), "text");
}

/* G1: a schema that cannot be enforced is no free text with status 200. */
static void g1_schema_is_refused(void **state)
{
    (void)state;
    refused("/v1/chat/completions",
            "{" MSG
            ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\","
            "\"schema\":{\"type\":\"string\",\"pattern\":\"^(?=a)b$\"}}}}",
            "response_format.type");
    refused("/v1/chat/completions", "{" MSG ",\"response_format\":{\"type\":\"json_object\"}}",
            "response_format.type");
    refused("/v1/completions", "{\"prompt\":\"a\",\"grammar\":\"root ::= x\"}", "grammar");
}

/* G2: nesting inside a schema, and of the body itself, ends in a refusal and no overflow. */
static void g2_nested_patterns_are_refused(void **state)
{
    const size_t n = 60000;
    char *body = calloc(1, n + 1024);

    (void)state;
    assert_non_null(body);
    int at = snprintf(body, 1024,
                      "{" MSG ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":"
                      "{\"schema\":{\"properties\":{\"a\":{\"maxLength\":65536,\"pattern\":\"");
    memset(body + at, '(', n);
    (void)snprintf(body + at + n, 16, "\"}}}}}}");
    refused("/v1/chat/completions", body, "response_format.type");
    at = snprintf(body, 1024, "{" MSG ",\"metadata\":");
    memset(body + at, '[', n);
    body[(size_t)at + n] = '\0';
    refused("/v1/chat/completions", body, "");
    free(body);
}

/* G3: tool calls are refused where they stand, in the request and in the talk so far. */
static void g3_tool_calls_are_refused(void **state)
{
    (void)state;
    refused("/v1/chat/completions",
            "{" MSG ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}", "tools");
    refused("/v1/chat/completions",
            "{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":[{\"id\":"
            "\"1\"}]}]}",
            "messages[0].tool_calls");
    assert_int_equal(atomic_load(&server->n_jobs), 0);
}

/* G4: the same greedy request three times, also where its beginning stands in pages from before. */
static void g4_equal_requests_get_equal_answers(void **state)
{
    static const char ask_a[] =
        "{\"prompt\":\"the same long prompt, which is longer than one page of keys and values, so "
        "that "
        "its beginning is shared with whoever asks the same again, ok\",\"temperature\":0,"
        "\"max_tokens\":60,\"ignore_eos\":true,\"logprobs\":3}";
    char *first = NULL;

    (void)state;
    for (int i = 0; i < 3; i++) {
        json_t *root = talk_json("/v1/completions", ask_a, 200);
        char *choices = json_dumps(json_object_get(root, "choices"), JSON_SORT_KEYS);
        if (first == NULL) {
            first = strdup(choices);
        }
        assert_string_equal(choices, first);
        free(choices);
        json_decref(root);
    }
    free(first);
}

/* G5: natural logarithms of probabilities before sampling: they sum to at most 1, and top_p moves none. */
static void g5_logprobs_are_logs_before_sampling(void **state)
{
    static const char *const asks[] = {
        "{" MSG ",\"max_tokens\":1,\"logprobs\":true,\"top_logprobs\":20,\"seed\":1,\"top_p\":0.3}",
        "{" MSG ",\"max_tokens\":1,\"logprobs\":true,\"top_logprobs\":20,\"seed\":1}",
    };
    char *tops[2];

    (void)state;
    for (size_t i = 0; i < NW_COUNT(asks); i++) {
        json_t *root = talk_json("/v1/chat/completions", asks[i], 200);
        const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
        const json_t *entry =
            json_array_get(json_object_get(json_object_get(choice, "logprobs"), "content"), 0);
        const json_t *top = json_object_get(entry, "top_logprobs");
        double sum = 0;
        assert_int_equal(json_array_size(top), 20);
        for (size_t k = 0; k < 20; k++) {
            const double x = json_number_value(json_object_get(json_array_get(top, k), "logprob"));
            assert_true(x <= 0);
            sum += exp(x);
        }
        assert_true(sum > 0.05 && sum <= 1 + 1e-6);
        tops[i] = json_dumps(top, JSON_SORT_KEYS);
        json_decref(root);
    }
    assert_string_equal(tops[0], tops[1]);
    free(tops[0]);
    free(tops[1]);
}

/* G6: both names of one limit are honoured, the lower wins. */
static void g6_the_lower_limit_wins(void **state)
{
    static const char *const asks[] = {
        "{" MSG ",\"ignore_eos\":true,\"max_tokens\":9,\"max_completion_tokens\":4}",
        "{" MSG ",\"ignore_eos\":true,\"max_tokens\":4,\"max_completion_tokens\":9}",
        "{" MSG ",\"ignore_eos\":true,\"max_completion_tokens\":4}",
    };
    (void)state;
    for (size_t i = 0; i < NW_COUNT(asks); i++) {
        json_t *root = talk_json("/v1/chat/completions", asks[i], 200);
        const json_t *usage = json_object_get(root, "usage");
        assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), 4);
        json_decref(root);
    }
}

/* Adds the text of a stream's events; each must be JSON, whose strings are UTF-8. */
static void join_events(const char *at, nw_buf *out)
{
    json_error_t why;

    for (; strncmp(at, "data: [DONE]", 12) != 0; at = strstr(at, "\n\n") + 2) {
        const char *end = strstr(at, "\n\n");
        assert_non_null(end);
        assert_int_equal(strncmp(at, "data: ", 6), 0);
        json_t *root = json_loadb(at + 6, (size_t)(end - at) - 6, JSON_ALLOW_NUL, &why);
        assert_non_null(root);
        const json_t *text = text_of(root);
        assert_true(nw_buf_add(out, json_string_value(text), json_string_length(text)));
        json_decref(root);
    }
}

/* G7: the bytes of a model that says noise, to a reader with room for next to nothing: every event is
 * whole characters, and together they are the whole answer. */
static void g7_no_character_is_cut(void **state)
{
    static const char noise[] = "\"prompt\":\"a\",\"temperature\":3,\"seed\":5,\"max_tokens\":200,"
                                "\"ignore_eos\":true}";
    char body[256];
    char *raw = calloc(1, ANSWER_MAX);
    nw_buf joined;

    (void)state;
    (void)snprintf(body, sizeof body, "{%s", noise);
    json_t *root = talk_json("/v1/completions", body, 200);
    (void)snprintf(body, sizeof body, "{\"stream\":true,%s", noise);
    const int fd = ask("POST /v1/completions HTTP/1.0", "", body, true);
    nw_sleep_until_ns(nw_now_ns() + 300000000);
    assert_true(read_to_close(fd, PATIENT, raw, ANSWER_MAX));
    (void)close(fd);
    nw_buf_init(&joined, ANSWER_MAX);
    join_events(body_of(raw), &joined);
    assert_int_equal(joined.len, json_string_length(text_of(root)));
    assert_memory_equal(joined.data, json_string_value(text_of(root)), joined.len);
    assert_non_null(strstr(raw, "\xEF\xBF\xBD")); /* some of it was no text */
    json_decref(root);
    free(raw);
    nw_buf_release(&joined);
}

/* G8: a mistake of the client is 4xx with the parameter's name. */
static void g8_mistakes_are_4xx_by_name(void **state)
{
    (void)state;
    refused("/v1/chat/completions", "{" MSG ",\"response_format\":{\"type\":\"xml\"}}",
            "response_format.type");
    refused("/v1/chat/completions", "{" MSG ",\"frobnicate\":1}", "frobnicate");
    refused("/v1/completions", "{\"prompt\":[1,99999]}", "prompt");
    refused("/v1/completions", "{\"prompt\":\"\",\"max_tokens\":300}", "prompt");
    assert_int_equal(atomic_load(&server->answers[5]), 0);
}

/* G9: a body of 64 MiB is refused before any of it is read. */
static void g9_long_bodies_are_refused_at_the_door(void **state)
{
    static const char head[] = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: "
                               "67108864\r\n\r\n";
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(nw_server_port(server)),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char answer[4096] = "";
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    (void)state;
    assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(send(fd, head, sizeof head - 1, 0), sizeof head - 1);
    assert_true(read_to_close(fd, PATIENT, answer, sizeof answer));
    assert_int_equal(strncmp(answer, "HTTP/1.1 413", 12), 0);
    assert_non_null(strstr(answer, "67108864 bytes, at most 4194304"));
    (void)close(fd);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(g1_schema_is_refused),
        cmocka_unit_test(g2_nested_patterns_are_refused),
        cmocka_unit_test(g3_tool_calls_are_refused),
        cmocka_unit_test(g4_equal_requests_get_equal_answers),
        cmocka_unit_test(g5_logprobs_are_logs_before_sampling),
        cmocka_unit_test(g6_the_lower_limit_wins),
        cmocka_unit_test(g7_no_character_is_cut),
        cmocka_unit_test(g8_mistakes_are_4xx_by_name),
        cmocka_unit_test(g9_long_bodies_are_refused_at_the_door),
    };
    if (open_server(30) != 0) {
        return 1;
    }
    const int failed = cmocka_run_group_tests_name("reports_g", tests, NULL, NULL);
    return close_server() + failed;
}
