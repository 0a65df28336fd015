/* The vocabulary's tables: texts and their hash, merges and their hash, added tokens sorted for
 * longest-match search, and what each token stands for in bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "model/tokenizer_internal.h"

#define FNV_PRIME 0x100000001B3U

/* FNV-1a from a secret start, finished by a mix (the last step of splitmix64). */
static uint64_t hash_add(uint64_t h, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (unsigned char)s[i]) * FNV_PRIME;
    }
    return h;
}

static uint64_t hash_end(uint64_t h)
{
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9U;
    h = (h ^ (h >> 27)) * 0x94D049BB133111EBU;
    return h ^ (h >> 31);
}

static size_t table_size(size_t n)
{
    size_t slots = 16;

    while (slots < n * 2) {
        slots *= 2;
    }
    return slots;
}

static nw_status no_memory(const nw_tokenizer *t, nw_error *err)
{
    return nw_fail(err, NW_E_NOMEM, "%s: no memory for a vocabulary of %u tokens", t->path, t->n);
}

nw_status nw_vocab_init(nw_tokenizer *t, uint32_t n_tokens, nw_error *err)
{
    if (n_tokens == 0 || n_tokens > INT32_MAX / 2) {
        return nw_fail(err, NW_E_RANGE, "%s: a vocabulary of %u tokens, limits 1 and %d", t->path,
                       n_tokens, INT32_MAX / 2);
    }
    t->n = n_tokens;
    t->n_slots = table_size(n_tokens);
    t->text = nw_arena_array(&t->arena, n_tokens, sizeof *t->text);
    t->bytes = nw_arena_array(&t->arena, n_tokens, sizeof *t->bytes);
    t->type = nw_arena_array(&t->arena, n_tokens, sizeof *t->type);
    t->slots = nw_arena_array(&t->arena, t->n_slots, sizeof *t->slots);
    if (t->text == NULL || t->bytes == NULL || t->type == NULL || t->slots == NULL) {
        return no_memory(t, err);
    }
    if (getrandom(&t->seed, sizeof t->seed, 0) != (ssize_t)sizeof t->seed) {
        t->seed = (uint64_t)(uintptr_t)t->slots; /* differs from run to run as well */
    }
    return NW_OK;
}

bool nw_vocab_mergeable(const nw_tokenizer *t, int32_t id)
{
    const uint8_t type = t->type[id];

    return type == NW_TYPE_NORMAL || type == NW_TYPE_UNUSED || type == NW_TYPE_USER;
}

/* The slot that holds left + right, or the empty one where it would go. */
static size_t slot_of(const nw_tokenizer *t, const char *left, size_t n_left, const char *right,
                      size_t n_right)
{
    const uint64_t h = hash_end(hash_add(hash_add(t->seed, left, n_left), right, n_right));
    size_t i = (size_t)h & (t->n_slots - 1);

    while (t->slots[i] != 0) {
        const nw_text *x = &t->text[t->slots[i] - 1];
        if (x->n == n_left + n_right && memcmp(x->s, left, n_left) == 0 &&
            (n_right == 0 || memcmp(x->s + n_left, right, n_right) == 0)) {
            break;
        }
        i = (i + 1) & (t->n_slots - 1);
    }
    return i;
}

nw_status nw_vocab_set(nw_tokenizer *t, uint32_t id, const char *s, size_t n, nw_tok_type type,
                       nw_error *err)
{
    assert(id < t->n && t->text[id].s == NULL);
    if (n > NW_TOKENIZER_MAX_TEXT) {
        return nw_fail(err, NW_E_RANGE, "%s: token %u has %zu bytes, limit %zu", t->path, id, n,
                       NW_TOKENIZER_MAX_TEXT);
    }
    char *copy = nw_arena_strndup(&t->arena, s, n);
    if (copy == NULL) {
        return no_memory(t, err);
    }
    t->text[id] = (nw_text){copy, (uint32_t)n};
    t->type[id] = (uint8_t)type;
    t->max_len = n > t->max_len ? (uint32_t)n : t->max_len;
    const size_t slot = slot_of(t, s, n, s, 0);
    const uint32_t held = t->slots[slot];
    if (held == 0 || (!nw_vocab_mergeable(t, (int32_t)held - 1) && type == NW_TYPE_NORMAL)) {
        t->slots[slot] = id + 1;
    }
    return NW_OK;
}

int32_t nw_vocab_find(const nw_tokenizer *t, const char *s, size_t n)
{
    if (n > t->max_len) {
        return -1;
    }
    return (int32_t)t->slots[slot_of(t, s, n, s, 0)] - 1;
}

nw_status nw_vocab_reserve_merges(nw_tokenizer *t, size_t n, nw_error *err)
{
    t->n_merge_slots = table_size(n);
    t->merges = nw_arena_array(&t->arena, t->n_merge_slots, sizeof *t->merges);
    t->merge_list = nw_arena_array(&t->arena, n + 1, sizeof *t->merge_list);
    if (t->merges == NULL || t->merge_list == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for %zu merges", t->path, n);
    }
    for (size_t i = 0; i < t->n_merge_slots; i++) {
        t->merges[i].key = UINT64_MAX;
    }
    return NW_OK;
}

static size_t merge_slot(const nw_tokenizer *t, uint64_t key)
{
    size_t i = (size_t)hash_end(key ^ t->seed) & (t->n_merge_slots - 1);

    while (t->merges[i].key != UINT64_MAX && t->merges[i].key != key) {
        i = (i + 1) & (t->n_merge_slots - 1);
    }
    return i;
}

bool nw_vocab_add_merge(nw_tokenizer *t, const char *left, size_t n_left, const char *right,
                        size_t n_right)
{
    const int32_t a = nw_vocab_find(t, left, n_left);
    const int32_t b = nw_vocab_find(t, right, n_right);
    const int32_t id = (int32_t)t->slots[slot_of(t, left, n_left, right, n_right)] - 1;

    if (a < 0 || b < 0 || id < 0) {
        return false;
    }
    const uint64_t key = (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
    nw_merge_slot *slot = &t->merges[merge_slot(t, key)];
    if (slot->key == UINT64_MAX) {
        *slot = (nw_merge_slot){key, (uint32_t)t->n_merges, id};
    }
    t->merge_list[t->n_merges++] = key;
    return true;
}

int32_t nw_vocab_merge(const nw_tokenizer *t, int32_t left, int32_t right, uint32_t *rank)
{
    if (left < 0 || right < 0 || t->n_merges == 0) {
        return -1;
    }
    const nw_merge_slot *slot =
        &t->merges[merge_slot(t, (uint64_t)(uint32_t)left << 32 | (uint32_t)right)];
    if (slot->key == UINT64_MAX || !nw_vocab_mergeable(t, slot->id)) {
        return -1;
    }
    *rank = slot->rank;
    return slot->id;
}

nw_status nw_vocab_add_added(nw_tokenizer *t, const nw_added *a, nw_error *err)
{
    if (a->text.n == 0) {
        return NW_OK; /* it would match everywhere */
    }
    if (t->n_added == t->cap_added) {
        const size_t cap = t->cap_added == 0 ? 64 : t->cap_added * 2;
        nw_added *items = nw_arena_array(&t->arena, cap, sizeof *items);
        if (items == NULL) {
            return no_memory(t, err);
        }
        if (t->n_added > 0) {
            memcpy(items, t->added, t->n_added * sizeof *items);
        }
        t->added = items;
        t->cap_added = cap;
    }
    t->added[t->n_added++] = *a;
    return NW_OK;
}

void nw_vocab_add_eog(nw_tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->n_eog; i++) {
        if (t->eog[i] == id) {
            return;
        }
    }
    if (id >= 0 && (uint32_t)id < t->n && t->n_eog < NW_COUNT(t->eog)) {
        t->eog[t->n_eog++] = id;
    }
}

/* "<0x4A>" -> 0x4A; -1 for any other text. */
static int byte_of_text(const nw_text *x)
{
    static const char digits[] = "0123456789ABCDEF";

    if (x->n != 6 || memcmp(x->s, "<0x", 3) != 0 || x->s[5] != '>') {
        return -1;
    }
    const char *hi = memchr(digits, x->s[3], 16);
    const char *lo = memchr(digits, x->s[4], 16);
    return hi == NULL || lo == NULL ? -1 : (int)((hi - digits) * 16 + (lo - digits));
}

/* GPT-2's alphabet back to bytes; text with any other character stands for itself. */
static size_t decode_alphabet(const nw_text *x, char *out)
{
    size_t n = 0;

    for (size_t i = 0; i < x->n;) {
        uint32_t cp = 0;
        i += nw_utf8_decode(x->s + i, x->n - i, &cp, NULL);
        const int b = nw_char_to_byte(cp);
        if (b < 0) {
            memcpy(out, x->s, x->n);
            return x->n;
        }
        out[n++] = (char)b;
    }
    return n;
}

/* U+2581 back to spaces. */
static size_t decode_spaces(const nw_text *x, char *out)
{
    size_t n = 0;

    for (size_t i = 0; i < x->n;) {
        if (x->n - i >= 3 && memcmp(x->s + i, "\xE2\x96\x81", 3) == 0) {
            out[n++] = ' ';
            i += 3;
        } else {
            out[n++] = x->s[i++];
        }
    }
    return n;
}

static nw_status decode_token(nw_tokenizer *t, uint32_t id, nw_error *err)
{
    const nw_text *x = &t->text[id];
    const int byte = byte_of_text(x);
    const bool plain = t->type[id] == NW_TYPE_NORMAL || t->type[id] == NW_TYPE_UNUSED;

    if (t->kind == NW_TOK_BYTE_BPE ? !plain : nw_tokenizer_is_control(t, (int32_t)id)) {
        t->bytes[id] = *x;
        return NW_OK;
    }
    char *out = nw_arena_alloc(&t->arena, (size_t)x->n + 1);
    if (out == NULL) {
        return no_memory(t, err);
    }
    size_t n = 0;
    if (t->kind == NW_TOK_BYTE_BPE) {
        n = decode_alphabet(x, out);
    } else if (t->type[id] == NW_TYPE_BYTE && byte >= 0) {
        out[n++] = (char)byte;
        t->byte_id[byte] = (int32_t)id;
    } else {
        n = decode_spaces(x, out);
    }
    t->bytes[id] = (nw_text){out, (uint32_t)n};
    return NW_OK;
}

static void find_bytes(nw_tokenizer *t)
{
    for (unsigned b = 0; b < 256; b++) {
        char c[4];
        const int32_t id = nw_vocab_find(t, c, nw_utf8_encode(nw_byte_to_char((uint8_t)b), c));
        t->byte_id[b] = id >= 0 && nw_vocab_mergeable(t, id) ? id : -1;
    }
}

/* Which bytes stand before a U+2581 inside a piece: a word may end after any other byte. */
static void find_joins(nw_tokenizer *t)
{
    const int32_t space = nw_vocab_find(t, "\xE2\x96\x81", 3);

    t->split_at_space = !t->ignore_merges && space >= 0 && nw_vocab_mergeable(t, space);
    for (uint32_t id = 0; id < t->n; id++) {
        const nw_text *x = &t->text[id];
        for (size_t i = 1; nw_vocab_mergeable(t, (int32_t)id) && i + 3 <= x->n; i++) {
            if (memcmp(x->s + i, "\xE2\x96\x81", 3) == 0) {
                t->joins_space[(unsigned char)x->s[i - 1]] = true;
            }
        }
    }
}

static int by_text(const void *a, const void *b)
{
    const nw_added *x = a;
    const nw_added *y = b;
    const uint32_t n = x->text.n < y->text.n ? x->text.n : y->text.n;
    const int c = memcmp(x->text.s, y->text.s, n);

    if (c != 0 || x->text.n != y->text.n) {
        return c != 0 ? c : x->text.n < y->text.n ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

static nw_status sort_added(nw_tokenizer *t, bool normalized, nw_added_set *set, nw_error *err)
{
    nw_added *items = nw_arena_array(&t->arena, t->n_added + 1, sizeof *items);
    size_t n = 0;

    if (items == NULL) {
        return no_memory(t, err);
    }
    for (size_t i = 0; i < t->n_added; i++) {
        if ((t->added[i].normalized && !t->added[i].special) == normalized) {
            items[n++] = t->added[i];
        }
    }
    qsort(items, n, sizeof *items, by_text);
    set->items = items;
    for (size_t i = 0; i < n; i++) { /* of equal texts the least id stays */
        if (i == 0 || items[i].text.n != items[i - 1].text.n ||
            memcmp(items[i].text.s, items[i - 1].text.s, items[i].text.n) != 0) {
            items[set->n++] = items[i];
        }
    }
    for (size_t b = 0, i = 0; b < 257; b++) {
        while (i < set->n && (unsigned char)items[i].text.s[0] < b) {
            i++;
        }
        set->first[b] = (uint32_t)i;
    }
    return NW_OK;
}

nw_status nw_vocab_finish(nw_tokenizer *t, nw_error *err)
{
    for (unsigned b = 0; b < 256; b++) {
        t->byte_id[b] = -1;
    }
    for (uint32_t id = 0; id < t->n; id++) {
        if (t->text[id].s == NULL) {
            t->text[id] = t->bytes[id] = (nw_text){"", 0}; /* a hole in the ids */
            t->type[id] = NW_TYPE_UNUSED;
        } else if (decode_token(t, id, err) != NW_OK) {
            return err->code;
        }
    }
    if (t->kind == NW_TOK_BYTE_BPE) {
        find_bytes(t);
    } else {
        find_joins(t);
    }
    if (sort_added(t, false, &t->raw, err) != NW_OK) {
        return err->code;
    }
    return sort_added(t, true, &t->normal, err);
}
