/* Patterns of tokenizer.json that no scanner covers, run by PCRE2 with UTF, UCP and JIT. The text is
 * valid UTF-8 (the encoder repaired it), so PCRE2 need not check it again at every call, which would
 * make a long text quadratic. Both pattern and text are hostile: steps and memory are limited.
 * SPDX-License-Identifier: Apache-2.0 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <inttypes.h>
#include <pcre2.h>
#include <stdlib.h>

#include "model/tokenizer_pretok.h"

#define HEAP_LIMIT_KIB 65536
#define DEPTH_LIMIT    1000000

struct nw_regex {
    pcre2_code *code;
    pcre2_match_context *limits;
};

nw_status nw_regex_new(const char *pattern, size_t n, nw_regex **out, nw_error *err)
{
    int code = 0;
    size_t offset = 0;
    nw_regex *r = calloc(1, sizeof *r);

    if (r == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for a pattern");
    }
    r->code = pcre2_compile((PCRE2_SPTR)pattern, n, PCRE2_UTF | PCRE2_UCP, &code, &offset, NULL);
    if (r->code == NULL) {
        unsigned char text[128] = "";
        (void)pcre2_get_error_message(code, text, sizeof text);
        free(r);
        return nw_fail(err, NW_E_FORMAT, "pattern of %zu bytes, at byte %zu: %s", n, offset,
                       (const char *)text);
    }
    r->limits = pcre2_match_context_create(NULL);
    if (r->limits == NULL) {
        nw_regex_free(r);
        return nw_fail(err, NW_E_NOMEM, "no memory for a pattern");
    }
    (void)pcre2_set_match_limit(r->limits, NW_REGEX_MATCH_LIMIT);
    (void)pcre2_set_depth_limit(r->limits, DEPTH_LIMIT);
    (void)pcre2_set_heap_limit(r->limits, HEAP_LIMIT_KIB);
    (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE); /* without JIT it only is slower */
    *out = r;
    return NW_OK;
}

void nw_regex_free(nw_regex *r)
{
    if (r != NULL) {
        pcre2_match_context_free(r->limits);
        pcre2_code_free(r->code);
        free(r);
    }
}

nw_status nw_regex_find(const nw_regex *r, const char *s, size_t n, size_t from, size_t *start,
                        size_t *end, bool *found, nw_error *err)
{
    pcre2_match_data *m = pcre2_match_data_create(1, NULL);

    if (m == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory to match a pattern");
    }
    int rc = pcre2_match(r->code, (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK, m, r->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc = pcre2_match(r->code, (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m,
                         r->limits);
    }
    const size_t *at = pcre2_get_ovector_pointer(m);
    /* \K inside a lookahead can end a match before its start: no such pattern is a pre-tokenizer's */
    const bool sane = rc < 0 || (at[0] >= from && at[0] <= at[1]);
    *found = rc >= 0;
    if (*found && sane) {
        *start = at[0];
        *end = at[1];
    }
    pcre2_match_data_free(m);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) {
        return nw_fail(err, NW_E_RANGE,
                       "the tokenizer's pattern gave up at byte %zu of %zu (PCRE2 code %d, limit "
                       "%d steps)",
                       from, n, rc, NW_REGEX_MATCH_LIMIT);
    }
    return sane ? NW_OK
                : nw_fail(err, NW_E_UNSUPPORTED, "the tokenizer's pattern matches backwards");
}
