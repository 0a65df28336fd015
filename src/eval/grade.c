/* Graders: the rule that says whether a generated text answers its item.
 *   exact     the text without surrounding white space equals the answer
 *   contains  the answer occurs in the text, not inside a longer word or number
 *   number    the last number in the text has the answer's value ("1,024" is 1024)
 *   json      the text without a code fence is JSON and equals the answer as JSON
 * SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/suite.h"

static bool is_space(char c)
{
    return isspace((unsigned char)c) != 0;
}

static void trim(const char **text, size_t *n)
{
    while (*n > 0 && is_space((*text)[0])) {
        (*text)++;
        (*n)--;
    }
    while (*n > 0 && is_space((*text)[*n - 1])) {
        (*n)--;
    }
}

static bool grade_exact(const char *text, const char *answer)
{
    size_t n = strlen(text);
    size_t m = strlen(answer);

    trim(&text, &n);
    trim(&answer, &m);
    return n == m && memcmp(text, answer, n) == 0;
}

/* Bytes of letters beyond ASCII count as word bytes: "Oslo" is not in "Osloé". */
static bool in_word(char c)
{
    return isalnum((unsigned char)c) != 0 || (unsigned char)c >= 0x80;
}

static bool grade_contains(const char *text, const char *answer)
{
    const size_t n = strlen(answer);

    for (const char *at = strstr(text, answer); at != NULL && n > 0; at = strstr(at + 1, answer)) {
        const bool opens = at == text || !in_word(at[-1]) || !in_word(answer[0]);
        if (opens && (!in_word(at[n]) || !in_word(answer[n - 1]))) {
            return true;
        }
    }
    return false;
}

/* Reads the number that begins at s: sign, digits with thousands commas, decimal part. Returns its
 * length, 0 where none begins. */
static size_t read_number(const char *s, double *value)
{
    char digits[64];
    size_t n = 0;
    size_t i = s[0] == '-' ? 1 : 0;

    if (isdigit((unsigned char)s[i]) == 0) {
        return 0;
    }
    if (i == 1) {
        digits[n++] = '-';
    }
    while (n < sizeof digits - 1) {
        const bool comma = s[i] == ',' && isdigit((unsigned char)s[i + 1]) != 0;
        const bool point = s[i] == '.' && isdigit((unsigned char)s[i + 1]) != 0;
        if (isdigit((unsigned char)s[i]) != 0 || point) {
            digits[n++] = s[i];
        } else if (!comma) {
            break;
        }
        i++;
    }
    digits[n] = '\0';
    *value = strtod(digits, NULL);
    return i;
}

static bool grade_number(const char *text, const char *answer)
{
    double want = 0;
    double got = 0;
    bool any = false;

    if (read_number(answer, &want) == 0) {
        return false;
    }
    while (*text != '\0') {
        const size_t n = read_number(text, &got);
        any = any || n > 0;
        text += n > 0 ? n : 1;
    }
    return any && fabs(got - want) <= 1e-9 * fmax(1, fabs(want));
}

/* Cuts a ``` fence, with or without a language name, off both ends. */
static void cut_fence(const char **text, size_t *n)
{
    trim(text, n);
    if (*n < 6 || strncmp(*text, "```", 3) != 0 || strncmp(*text + *n - 3, "```", 3) != 0) {
        return;
    }
    const char *line = memchr(*text, '\n', *n);
    if (line != NULL) {
        *n -= (size_t)(line - *text) + 3;
        *text = line;
    }
}

static bool grade_json(const char *text, const char *answer)
{
    size_t n = strlen(text);

    cut_fence(&text, &n);
    json_t *got = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    json_t *want = json_loads(answer, JSON_DECODE_ANY, NULL);
    const bool equal = got != NULL && want != NULL && json_equal(got, want) != 0;
    json_decref(got);
    json_decref(want);
    return equal;
}

bool nw_grade(const nw_item *item, const char *text)
{
    switch (item->grader) {
    case NW_GRADE_EXACT:
        return grade_exact(text, item->expected);
    case NW_GRADE_CONTAINS:
        return grade_contains(text, item->expected);
    case NW_GRADE_NUMBER:
        return grade_number(text, item->expected);
    case NW_GRADE_JSON:
        return grade_json(text, item->expected);
    }
    return false;
}
