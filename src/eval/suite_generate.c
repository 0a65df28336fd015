/* builtin:assistant, a generate suite written for narrow: look a value up in a list, copy a
 * sentence, pull a field out of a text, pick a word of a class, add two numbers. All answers are
 * known, all graders are exact rules. Item i of a seed is always the same.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "eval/suite.h"

enum { TEXT = 640, WORD = 96 };

typedef struct {
    char question[TEXT];
    char expected[WORD];
    const char *kind;
    const char *grader;
    uint32_t max_tokens;
} draft;

static const char *const names[] = {
    "Mara",  "Tom",  "Ines", "Paul", "Nora", "Felix", "Lena", "Omar", "Ruth", "Simon",
    "Clara", "Hugo", "Ada",  "Leo",  "Vera", "Karl",  "Iris", "Noah", "Emma", "Oscar",
};
static const char *const cities[] = {"Lisbon", "Oslo",   "Vienna",  "Dublin",  "Prague", "Athens",
                                     "Geneva", "Naples", "Hamburg", "Seville", "Turin",  "Bergen"};
static const char *const things[] = {"lamp",  "chair", "kettle", "bicycle", "tent",
                                     "radio", "clock", "jacket", "ladder",  "basket"};
static const char *const colours[] = {"red", "blue", "green", "yellow", "black", "white"};
static const char *const animals[] = {"horse", "tiger",  "rabbit", "eagle", "dolphin",
                                      "snake", "monkey", "goat",   "bear",  "duck"};
static const char *const verbs[] = {"carried", "painted", "repaired", "sold", "found", "borrowed"};

static const char *pick(nw_rng *r, const char *const *list, size_t n)
{
    return list[nw_rng_below(r, n)];
}
#define PICK(r, list) pick(r, list, NW_COUNT(list))

/* Three to six names with codes; one is asked for. */
static void make_lookup(draft *d, nw_rng *r)
{
    const size_t n = 3 + nw_rng_below(r, 4);
    const size_t first = nw_rng_below(r, NW_COUNT(names));
    const size_t asked = nw_rng_below(r, n);
    size_t at = 0;

    d->kind = "lookup";
    d->grader = "contains";
    d->max_tokens = 24;
    at += (size_t)snprintf(d->question, sizeof d->question, "Here are the access codes.\n");
    for (size_t i = 0; i < n; i++) {
        const unsigned code = 1000 + (unsigned)nw_rng_below(r, 9000);
        const char *name = names[(first + 3 * i) % NW_COUNT(names)];
        at += (size_t)snprintf(d->question + at, sizeof d->question - at, "%s: %u\n", name, code);
        if (i == asked) {
            (void)snprintf(d->expected, sizeof d->expected, "%u", code);
        }
    }
    (void)snprintf(d->question + at, sizeof d->question - at, "What is the access code of %s?",
                   names[(first + 3 * asked) % NW_COUNT(names)]);
}

static void make_copy(draft *d, nw_rng *r)
{
    char sentence[WORD];
    (void)snprintf(sentence, sizeof sentence, "%s %s the %s %s in %s", PICK(r, names),
                   PICK(r, verbs), PICK(r, colours), PICK(r, things), PICK(r, cities));
    d->kind = "copy";
    d->grader = "contains";
    d->max_tokens = 32;
    (void)snprintf(d->expected, sizeof d->expected, "%s", sentence);
    (void)snprintf(d->question, sizeof d->question, "Repeat this sentence exactly: %s.", sentence);
}

static void make_field(draft *d, nw_rng *r)
{
    const char *name = PICK(r, names);
    const char *city = PICK(r, cities);
    const char *thing = PICK(r, things);
    const char *colour = PICK(r, colours);
    static const char *const asks[] = {"Which city", "What colour", "Who"};
    const size_t which = nw_rng_below(r, 3);

    d->kind = "field";
    d->grader = "contains";
    d->max_tokens = 24;
    (void)snprintf(d->expected, sizeof d->expected, "%s",
                   which == 0   ? city
                   : which == 1 ? colour
                                : name);
    (void)snprintf(d->question, sizeof d->question,
                   "%s lives in %s and bought a %s %s last week. %s %s?", name, city, colour, thing,
                   asks[which],
                   which == 0   ? "is mentioned in this text"
                   : which == 1 ? "does the thing have"
                                : "bought something");
}

static void make_pick(draft *d, nw_rng *r)
{
    const char *animal = PICK(r, animals);
    const char *words[3] = {PICK(r, things), animal, PICK(r, cities)};
    const size_t shift = nw_rng_below(r, 3);

    d->kind = "pick";
    d->grader = "contains";
    d->max_tokens = 24;
    (void)snprintf(d->expected, sizeof d->expected, "%s", animal);
    (void)snprintf(d->question, sizeof d->question,
                   "Which of these words is an animal: %s, %s or %s? Answer with one word.",
                   words[shift], words[(shift + 1) % 3], words[(shift + 2) % 3]);
}

static void make_sum(draft *d, nw_rng *r)
{
    const unsigned a = 1 + (unsigned)nw_rng_below(r, 12);
    const unsigned b = 1 + (unsigned)nw_rng_below(r, 12);

    d->kind = "sum";
    d->grader = "number";
    d->max_tokens = 32;
    (void)snprintf(d->expected, sizeof d->expected, "%u", a + b);
    (void)snprintf(d->question, sizeof d->question, "What is %u plus %u?", a, b);
}

json_t *nw_suite_make_assistant(uint64_t seed, size_t i)
{
    static void (*const makers[])(draft *, nw_rng *) = {make_lookup, make_copy, make_field,
                                                        make_pick, make_sum};
    nw_rng r = nw_rng_stream(seed, i);
    draft d = {.question = ""};
    char id[32];
    char cluster[32];

    makers[i % NW_COUNT(makers)](&d, &r);
    (void)snprintf(id, sizeof id, "assistant-%05zu", i);
    (void)snprintf(cluster, sizeof cluster, "%s/%zu", d.kind, i / NW_COUNT(makers));
    return json_pack("{s:s, s:s, s:[{s:s, s:s}], s:s, s:s, s:i}", "id", id, "cluster", cluster,
                     "messages", "role", "user", "content", d.question, "grader", d.grader,
                     "answer", d.expected, "max_tokens", (int)d.max_tokens);
}
