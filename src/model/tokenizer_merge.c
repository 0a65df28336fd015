/* The merge loop that BPE and SentencePiece share: symbols in a doubly linked list, candidate pairs
 * in a binary heap ordered by (priority, position), stale entries dropped when they come up. Every
 * merge adds at most two entries, so a word of n symbols costs O(n log n) whatever it holds.
 * SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_internal.h"

#define NONE UINT32_MAX

void nw_merger_release(nw_merger *m)
{
    free(m->sym);
    free(m->heap);
    *m = (nw_merger){0};
}

void nw_merger_begin(nw_merger *m, const char *word, size_t n_word)
{
    m->n_sym = 0;
    m->n_heap = 0;
    m->word = word;
    m->n_word = n_word;
}

/* Doubles *items (of `size` bytes each) when n reaches *cap. */
static bool grow(void **items, size_t *cap, size_t n, size_t size)
{
    size_t bytes = 0;

    if (n < *cap) {
        return true;
    }
    const size_t want = *cap < 64 ? 64 : *cap * 2;
    if (!nw_size_mul(want, size, &bytes)) {
        return false;
    }
    void *p = realloc(*items, bytes);
    if (p == NULL) {
        return false;
    }
    *items = p;
    *cap = want;
    return true;
}

bool nw_merger_add(nw_merger *m, size_t pos, size_t len, int32_t id)
{
    void *items = m->sym;
    const bool ok = grow(&items, &m->cap_sym, m->n_sym, sizeof *m->sym);

    m->sym = items;
    if (!ok) {
        return false;
    }
    const uint32_t i = (uint32_t)m->n_sym;
    m->sym[i] = (nw_symbol){i == 0 ? NONE : i - 1, NONE, (uint32_t)pos, (uint32_t)len, id};
    if (i > 0) {
        m->sym[i - 1].next = i;
    }
    m->n_sym++;
    return true;
}

static bool push(nw_merger *m, nw_pair p)
{
    void *items = m->heap;
    const bool ok = grow(&items, &m->cap_heap, m->n_heap, sizeof *m->heap);

    m->heap = items;
    if (!ok) {
        return false;
    }
    size_t i = m->n_heap++;
    while (i > 0 && p.key < m->heap[(i - 1) / 2].key) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = p;
    return true;
}

static nw_pair pop(nw_merger *m)
{
    const nw_pair top = m->heap[0];
    const nw_pair last = m->heap[--m->n_heap];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= m->n_heap) {
            break;
        }
        if (child + 1 < m->n_heap && m->heap[child + 1].key < m->heap[child].key) {
            child++;
        }
        if (last.key <= m->heap[child].key) {
            break;
        }
        m->heap[i] = m->heap[child];
        i = child;
    }
    m->heap[i] = last;
    return top;
}

/* Scores order pieces from high to low; maps a float to an integer that orders them from low to
 * high. The bits of an IEEE 754 float order like a sign-magnitude integer. */
static uint32_t priority_of(float score)
{
    uint32_t u = 0;

    score = 0.0F - score; /* and so -0 becomes 0 */
    memcpy(&u, &score, sizeof u);
    return (u & 0x80000000U) != 0 ? ~u : u | 0x80000000U;
}

/* Enters the pair (left, its right neighbour) if it merges. */
static bool propose(nw_merger *m, const nw_tokenizer *t, uint32_t left)
{
    const uint32_t right = left == NONE ? NONE : m->sym[left].next;
    uint32_t priority = 0;
    int32_t id = -1;

    if (right == NONE) {
        return true;
    }
    const nw_symbol *a = &m->sym[left];
    const nw_symbol *b = &m->sym[right];
    if (t->kind == NW_TOK_SPM) {
        id = nw_vocab_find(t, m->word + a->pos, (size_t)a->len + b->len);
        if (id >= 0 && !nw_vocab_mergeable(t, id)) {
            id = -1;
        }
        priority = id < 0 ? 0 : priority_of(t->score[id]);
    } else {
        id = nw_vocab_merge(t, a->id, b->id, &priority);
    }
    if (id < 0) {
        return true;
    }
    return push(m, (nw_pair){(uint64_t)priority << 32 | left, left, right, a->len + b->len, id});
}

bool nw_merger_run(nw_merger *m, const nw_tokenizer *t)
{
    assert(m->n_word <= NW_TOKENIZER_MAX_TEXT * 4);
    for (uint32_t i = 0; i + 1 < m->n_sym; i++) {
        if (!propose(m, t, i)) {
            return false;
        }
    }
    while (m->n_heap > 0) {
        const nw_pair p = pop(m);
        nw_symbol *a = &m->sym[p.left];
        nw_symbol *b = &m->sym[p.right];
        if (a->len == 0 || b->len == 0 || a->next != p.right || a->len + b->len != p.len) {
            continue; /* one of the two has changed since */
        }
        a->len = p.len;
        a->id = p.id;
        a->next = b->next;
        b->len = 0;
        if (a->next != NONE) {
            m->sym[a->next].prev = p.left;
        }
        if (!propose(m, t, a->prev) || !propose(m, t, p.left)) {
            return false;
        }
    }
    return true;
}
