/* Chat templates: what Jinja2 3.1 gives for the same source (worked out by hand from its rules;
 * tests/interop/template_oracle.py compares many more), positions of errors, limits.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/json.h"
#include "model/template.h"
#include "table.h"

#define SMOLLM                                                                                     \
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "      \
    "'<|im_start|>system\nBe kind<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + " \
    "'\n' "                                                                                        \
    "+ message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ "    \
    "'<|im_start|>assistant\n' }}{% endif %}"

static struct row {
    const char *name, *src, *messages;
    const char *want; /* the output, or the error's text */
    nw_status status;
} rows[] = {
    {"smollm", SMOLLM, "[{\"role\":\"user\",\"content\":\"Hi\"}]",
     "<|im_start|>system\nBe "
     "kind<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
     NW_OK},
    {"trim_blocks", "a\n{% if true %}\nb\n{% endif %}\nc\n", "[]", "a\nb\nc", NW_OK},
    {"lstrip_blocks", "a\n  {% if true %}b{% endif %}", "[]", "a\nb", NW_OK},
    {"lstrip_not_inside_line", "a  {% if true %}b{% endif %}", "[]", "a  b", NW_OK},
    {"plus_keeps_blanks", "\n  {%+ if true %}b{% endif %}", "[]", "\n  b", NW_OK},
    {"minus_strips", "a \n {{- 'b' -}} \n c", "[]", "abc", NW_OK},
    {"comment", "a{# no {{ x }} #}\nb", "[]", "ab", NW_OK},
    {"variable_keeps_line_end", "{{ 'a' }}\nb", "[]", "a\nb", NW_OK},
    {"precedence", "{{ 1 + 2 * 3 - 4 // 3 }} {{ not 1 == 2 and 3 > 2 }} {{ -2 % 3 }}", "[]",
     "6 True 1", NW_OK},
    {"concat_binds_tighter_than_plus", "{{ 'a' + 'b' ~ 1 }}", "[]", "ab1", NW_OK},
    {"slices", "{{ 'abcd'[1:3] }}{{ 'abc'[::-1] }}{{ 'abc'[-1] }}", "[]", "bccbac", NW_OK},
    {"namespace_survives_loop",
     "{% set ns = namespace(n=0) %}{% set m = 0 %}{% for x in [1, 2] %}{% set ns.n = ns.n + x "
     "%}{% set m = x %}{% endfor %}{{ ns.n }}{{ m }}",
     "[]", "30", NW_OK},
    {"loop_variables",
     "{% for x in 'ab' %}{{ loop.index }}{{ loop.last }}{{ loop.previtem }}{% endfor %}", "[]",
     "1False2Truea", NW_OK},
    {"loop_filter_and_else",
     "{% for x in [1,2,3] if x > 1 %}{{ loop.index0 }}{% endfor %}{% for x in [] %}{% else %}e{% "
     "endfor %}",
     "[]", "01e", NW_OK},
    {"break_continue",
     "{% for x in [1,2,3,4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break "
     "%}{% endif %}{{ x }}{% endfor %}",
     "[]", "13", NW_OK},
    {"macro", "{% macro f(a, b='y') %}{{ a }}{{ b }}{% endmacro %}{{ f('x') }}{{ f('x', b=1) }}",
     "[]", "xyx1", NW_OK},
    {"methods", "{{ ' a b '.strip().split(' ')|join('-') }}{{ 'abc'.replace('b', 'x') }}", "[]",
     "a-baxc", NW_OK},
    {"tojson", "{{ messages|tojson }}", "[{\"a\":\"\\u00e9\\n<\",\"b\":[1,2.5,null,true]}]",
     "[{\"a\": \"\xC3\xA9\\n<\", \"b\": [1, 2.5, null, true]}]", NW_OK},
    {"str_of_values", "{{ [1, 'a', \"b'\", none, true, (2,), {'k': 1.5}] }}", "[]",
     "[1, 'a', \"b'\", None, True, (2,), {'k': 1.5}]", NW_OK},
    {"tests", "{{ x is defined }}{{ x is not defined }}{{ none is none }}{{ [] is iterable }}",
     "[]", "FalseTrueTrueTrue", NW_OK},
    {"undefined_prints_nothing", "[{{ nope }}]", "[]", "[]", NW_OK},
    {"undefined_attribute", "ab\n {{ nope.x }}", "[]", "t:2:9: 'nope' is undefined", NW_E_FORMAT},
    {"raise", "half{{ raise_exception('roles must alternate') }}", "[]", "roles must alternate",
     NW_E_FORMAT},
    {"unknown_filter", "{{ 1 }}\n{{ x|wordwrap }}", "[]",
     "t:2:6: filter 'wordwrap' is not supported", NW_E_UNSUPPORTED},
    {"unknown_test", "{{ x is lucky }}", "[]", "t:1:9: test 'lucky' is not supported",
     NW_E_UNSUPPORTED},
    {"unknown_function", "{{ lipsum() }}", "[]", "t:1:4: function 'lipsum' is not supported",
     NW_E_UNSUPPORTED},
    {"unknown_method", "{{ x.pop() }}", "[]", "t:1:5: method 'pop' is not supported",
     NW_E_UNSUPPORTED},
    {"unknown_statement", "{% include 'x' %}", "[]", "t:1:4: statement 'include' is not supported",
     NW_E_UNSUPPORTED},
    {"unclosed_if", "{% if 1 %}", "[]", "t:1:1: a block without its 'endif'", NW_E_FORMAT},
    {"stray_end", "{% endfor %}", "[]", "t:1:4: 'endfor' without its block", NW_E_FORMAT},
    {"unclosed_tag", "a {{ 1", "[]", "t:1:3: a tag without its end '}}'", NW_E_FORMAT},
    {"endless_macro", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "[]",
     "t:1:16: evaluated deeper than 400 levels", NW_E_RANGE},
};

static void renders(void **state)
{
    const struct row *r = *state;
    nw_error err = {0};
    nw_template *t = NULL;
    nw_segments segs = {.n = 0};
    json_t *messages = NULL;
    size_t len = 0;

    assert_int_equal(nw_json_parse("m", r->messages, strlen(r->messages), &messages, &err), NW_OK);
    nw_status st = nw_template_parse("t", r->src, strlen(r->src), &t, &err);
    if (st == NW_OK) {
        st = nw_template_render(t, messages, true, "<s>", "</s>", &segs, &err);
    }
    char *text = nw_segments_join(&segs, &len);
    assert_string_equal(st == NW_OK ? text : err.message, r->want);
    assert_int_equal(st, r->status);
    free(text);
    nw_segments_release(&segs);
    nw_template_free(t);
    json_decref(messages);
}

int main(void)
{
    return NW_RUN_TABLE("template", rows, renders);
}
