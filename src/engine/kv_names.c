/* Names of KV formats, as options give them: kinds, then words after a plus sign.
 * SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "kernels/attention.h"

#define NW_KV_MOST_WIDE 4096U /* tokens of a window, or of sinks */

static bool parse_kind(const char *name, size_t n, int *out)
{
    for (int kind = 0; kind < (int)NW_KV_KINDS; kind++) {
        const char *text = nw_kv_kind_name((nw_kv_kind)kind);
        if (strlen(text) == n && memcmp(text, name, n) == 0) {
            *out = kind;
            return true;
        }
    }
    return false;
}

/* "window128": a whole number of pages behind a word, once. */
static bool parse_tokens(const char *word, size_t n, const char *name, uint32_t *out)
{
    const size_t skip = strlen(name);
    uint32_t tokens = 0;

    if (n <= skip || memcmp(word, name, skip) != 0 || *out != 0) {
        return false;
    }
    for (size_t i = skip; i < n; i++) {
        if (word[i] < '0' || word[i] > '9' || tokens > NW_KV_MOST_WIDE) {
            return false;
        }
        tokens = tokens * 10 + (uint32_t)(word[i] - '0');
    }
    *out = tokens;
    return tokens > 0 && tokens <= NW_KV_MOST_WIDE && tokens % NW_KV_PAGE == 0;
}

static bool parse_flag(const char *word, size_t n, const char *name, bool *out)
{
    if (strlen(name) != n || memcmp(word, name, n) != 0 || *out) {
        return false;
    }
    *out = true;
    return true;
}

static nw_status parse_word(const char *word, size_t n, nw_engine_options *o, nw_error *err)
{
    if (parse_tokens(word, n, "window", &o->kv_window) ||
        parse_tokens(word, n, "sinks", &o->kv_sinks) ||
        parse_flag(word, n, "channel", &o->kv_channel) ||
        parse_flag(word, n, "dynamic", &o->kv_dynamic)) {
        return NW_OK;
    }
    return nw_fail(err, NW_E_RANGE,
                   "KV format: '+%.*s' is none of windowN, sinksN (N a multiple of %u up to %u), "
                   "channel, dynamic, or is there twice",
                   (int)(n < 40 ? n : 40), word, NW_KV_PAGE, NW_KV_MOST_WIDE);
}

nw_status nw_engine_kv_parse(const char *name, nw_engine_options *o, nw_error *err)
{
    const size_t kinds = strcspn(name, "+");
    const char *slash = memchr(name, '/', kinds);
    const size_t k_len = slash != NULL ? (size_t)(slash - name) : kinds;
    const char *v_name = slash != NULL ? slash + 1 : name;
    const size_t v_len = slash != NULL ? kinds - k_len - 1 : kinds;
    nw_engine_options x = *o;

    if (!parse_kind(name, k_len, &x.kv_k) || !parse_kind(v_name, v_len, &x.kv_v)) {
        return nw_fail(err, NW_E_RANGE, "KV format '%.40s' is none of " NW_ENGINE_KV_NAMES, name);
    }
    x.kv_window = x.kv_sinks = 0;
    x.kv_channel = x.kv_dynamic = false;
    for (const char *at = name + kinds; *at == '+';) {
        const size_t n = strcspn(at + 1, "+");
        if (parse_word(at + 1, n, &x, err) != NW_OK) {
            return err->code;
        }
        at += 1 + n;
    }
    *o = x;
    return NW_OK;
}

bool nw_engine_kv_needs_numbers(const nw_engine_options *o)
{
    return o->kv_channel || ((o->kv_k == NW_KV_FP8 || o->kv_v == NW_KV_FP8) && !o->kv_dynamic);
}

void nw_engine_kv_plain(nw_engine_options *o)
{
    o->kv_k = o->kv_v = NW_KV_F32;
    o->kv_window = o->kv_sinks = 0;
    o->kv_channel = o->kv_dynamic = false;
}

static size_t add_tokens(char *out, size_t at, const char *name, uint32_t n)
{
    if (n > 0) {
        (void)snprintf(out + at, NW_ENGINE_KV_TEXT - at, "+%s%" PRIu32, name, n);
    }
    return strlen(out);
}

const char *nw_engine_kv_text(const nw_engine_options *o, char *out)
{
    (void)snprintf(out, NW_ENGINE_KV_TEXT, "%s%s%s%s%s", nw_kv_kind_name((nw_kv_kind)o->kv_k),
                   o->kv_k == o->kv_v ? "" : "/",
                   o->kv_k == o->kv_v ? "" : nw_kv_kind_name((nw_kv_kind)o->kv_v),
                   o->kv_channel ? "+channel" : "", o->kv_dynamic ? "+dynamic" : "");
    const size_t at = add_tokens(out, strlen(out), "window", o->kv_window);
    (void)add_tokens(out, at, "sinks", o->kv_sinks);
    return out;
}
