/* builtin:basics, a choice suite written for narrow: everyday facts, word classes, opposites,
 * agreement, sequences and small sums, made from word lists and a seed. It is meant to sit between
 * chance and ceiling for models of 0.1 to 1 billion parameters, where rounding shows first.
 * Item i of a seed is always the same. Cluster = template and subject, so that two items which ask
 * for the same fact count as one source.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "eval/suite.h"

enum { MAX_CHOICES = 4, TEXT = 160 };

typedef struct {
    char prompt[TEXT];
    char choices[MAX_CHOICES][48]; /* the right one first; shuffled when the item is closed */
    uint32_t n_choices;
    const char *kind;
    const char *subject;
} draft;

typedef struct {
    const char *a, *b;
} pair;

static const pair capitals[] = {
    {"France", "Paris"},
    {"Germany", "Berlin"},
    {"Italy", "Rome"},
    {"Spain", "Madrid"},
    {"Japan", "Tokyo"},
    {"China", "Beijing"},
    {"Russia", "Moscow"},
    {"Egypt", "Cairo"},
    {"Greece", "Athens"},
    {"Austria", "Vienna"},
    {"Poland", "Warsaw"},
    {"Hungary", "Budapest"},
    {"Portugal", "Lisbon"},
    {"Ireland", "Dublin"},
    {"Norway", "Oslo"},
    {"Sweden", "Stockholm"},
    {"Finland", "Helsinki"},
    {"Denmark", "Copenhagen"},
    {"Cuba", "Havana"},
    {"Kenya", "Nairobi"},
    {"Iraq", "Baghdad"},
    {"Iran", "Tehran"},
    {"Canada", "Ottawa"},
    {"Australia", "Canberra"},
    {"Argentina", "Buenos Aires"},
    {"Chile", "Santiago"},
    {"Peru", "Lima"},
    {"Turkey", "Ankara"},
    {"Thailand", "Bangkok"},
    {"South Korea", "Seoul"},
    {"Belgium", "Brussels"},
    {"Ukraine", "Kyiv"},
    {"Romania", "Bucharest"},
    {"Bulgaria", "Sofia"},
    {"Vietnam", "Hanoi"},
    {"Indonesia", "Jakarta"},
};

static const pair classes[] = {
    {"carrot", "vegetable"},
    {"potato", "vegetable"},
    {"spinach plant", "vegetable"},
    {"robin", "bird"},
    {"sparrow", "bird"},
    {"hawk", "bird"},
    {"penguin", "bird"},
    {"salmon", "fish"},
    {"trout", "fish"},
    {"shark", "fish"},
    {"hammer", "tool"},
    {"wrench", "tool"},
    {"screwdriver", "tool"},
    {"bus", "vehicle"},
    {"truck", "vehicle"},
    {"bicycle", "vehicle"},
    {"tram", "vehicle"},
    {"violin", "instrument"},
    {"trumpet", "instrument"},
    {"flute", "instrument"},
    {"sofa", "piece of furniture"},
    {"wardrobe", "piece of furniture"},
    {"desk", "piece of furniture"},
    {"rose", "flower"},
    {"tulip", "flower"},
    {"daisy", "flower"},
    {"banana", "fruit"},
    {"peach", "fruit"},
    {"cherry", "fruit"},
    {"nurse", "job"},
    {"plumber", "job"},
    {"beetle", "insect"},
    {"mosquito", "insect"},
    {"oak", "tree"},
    {"pine", "tree"},
    {"jacket", "piece of clothing"},
    {"scarf", "piece of clothing"},
    {"whale", "mammal"},
    {"wolf", "mammal"},
    {"lizard", "reptile"},
};

static const pair opposites[] = {
    {"hot", "cold"},        {"big", "small"},      {"up", "down"},           {"early", "late"},
    {"fast", "slow"},       {"rich", "poor"},      {"open", "closed"},       {"light", "dark"},
    {"full", "empty"},      {"happy", "sad"},      {"strong", "weak"},       {"young", "old"},
    {"wet", "dry"},         {"hard", "soft"},      {"high", "low"},          {"long", "short"},
    {"good", "bad"},        {"clean", "dirty"},    {"loud", "quiet"},        {"near", "far"},
    {"thick", "thin"},      {"wide", "narrow"},    {"deep", "shallow"},      {"cheap", "expensive"},
    {"brave", "cowardly"},  {"tight", "loose"},    {"sharp", "dull"},        {"rough", "smooth"},
    {"public", "private"},  {"ancient", "modern"}, {"awake", "asleep"},      {"guilty", "innocent"},
    {"victory", "defeat"},  {"arrive", "depart"},  {"increase", "decrease"}, {"buy", "sell"},
    {"remember", "forget"}, {"accept", "refuse"},  {"attack", "defend"},     {"float", "sink"},
};

/* What follows from a small situation; b is the fitting end. Ends of the others are the decoys. */
static const pair situations[] = {
    {"The boy was thirsty, so he drank a glass of", "water"},
    {"It started to rain, so she opened her", "umbrella"},
    {"The room was dark, so he turned on the", "lamp"},
    {"She wanted to cut the bread, so she looked for a", "knife"},
    {"He was cold, so he put on a warm", "coat"},
    {"The car ran out of", "fuel"},
    {"To write the letter she needed paper and a", "pen"},
    {"The dog buried its", "bone"},
    {"The fisherman caught a large", "fish"},
    {"He could not open the door because he had lost his", "key"},
    {"The farmer milked the", "cow"},
    {"She swept the floor with a", "broom"},
    {"The baker took the bread out of the", "oven"},
    {"The doctor listened to his heart with a", "stethoscope"},
    {"They crossed the river over the old stone", "bridge"},
    {"The bird laid three eggs in its", "nest"},
    {"The pilot landed the", "plane"},
    {"He dug a hole in the garden with a", "shovel"},
    {"She looked up the word in a", "dictionary"},
    {"The children built a castle out of", "sand"},
    {"The spider caught the fly in its", "web"},
    {"He hung the picture on the", "wall"},
    {"She brushed her hair with a", "comb"},
    {"The judge sent the thief to", "prison"},
    {"The train stopped at the", "station"},
    {"She paid the bill with her credit", "card"},
    {"The sailor raised the", "sail"},
    {"He took a photograph with his", "camera"},
    {"The king wore a golden", "crown"},
    {"She measured the table with a", "ruler"},
};

static const pair subjects[] = {
    {"key", "keys"},       {"teacher", "teachers"},     {"picture", "pictures"},
    {"report", "reports"}, {"neighbour", "neighbours"}, {"window", "windows"},
    {"author", "authors"}, {"engine", "engines"},       {"doctor", "doctors"},
    {"letter", "letters"}, {"farmer", "farmers"},       {"horse", "horses"},
    {"bridge", "bridges"}, {"student", "students"},     {"book", "books"},
    {"guest", "guests"},
};

static const char *const links[] = {"near", "behind", "next to", "in front of", "across from"};
static const char *const ends[] = {"very old", "quite famous", "not here", "missing", "well known"};
static const char *const days[] = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                   "Friday", "Saturday", "Sunday"};
static const char *const months[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};

/* Fills choices 1..n-1 with other right sides of the table. */
static void decoys(draft *d, nw_rng *r, const pair *table, size_t n, size_t right)
{
    (void)snprintf(d->choices[0], sizeof d->choices[0], " %s", table[right].b);
    d->n_choices = 1;
    while (d->n_choices < MAX_CHOICES) {
        const char *word = table[nw_rng_below(r, n)].b;
        bool taken = false;
        for (uint32_t i = 0; i < d->n_choices; i++) {
            taken = taken || strcmp(d->choices[i] + 1, word) == 0;
        }
        if (!taken) {
            (void)snprintf(d->choices[d->n_choices], sizeof d->choices[0], " %s", word);
            d->n_choices++;
        }
    }
}

static void make_capital(draft *d, nw_rng *r)
{
    const size_t i = nw_rng_below(r, NW_COUNT(capitals));
    const bool question = nw_rng_below(r, 2) == 0;
    d->kind = "capital";
    d->subject = capitals[i].a;
    (void)snprintf(d->prompt, sizeof d->prompt,
                   question ? "Question: What is the capital city of %s? Answer:"
                            : "The capital of %s is",
                   capitals[i].a);
    decoys(d, r, capitals, NW_COUNT(capitals), i);
}

static void make_class(draft *d, nw_rng *r)
{
    const size_t i = nw_rng_below(r, NW_COUNT(classes));
    const bool an = strchr("aeiou", classes[i].a[0]) != NULL;
    d->kind = "class";
    d->subject = classes[i].a;
    (void)snprintf(d->prompt, sizeof d->prompt, "%s %s is a kind of", an ? "An" : "A",
                   classes[i].a);
    decoys(d, r, classes, NW_COUNT(classes), i);
}

static void make_opposite(draft *d, nw_rng *r)
{
    const size_t i = nw_rng_below(r, NW_COUNT(opposites));
    const bool turned = nw_rng_below(r, 2) == 0;
    d->kind = "opposite";
    d->subject = opposites[i].a;
    decoys(d, r, opposites, NW_COUNT(opposites), i);
    if (turned) {
        (void)snprintf(d->choices[0], sizeof d->choices[0], " %s", opposites[i].a);
    }
    (void)snprintf(d->prompt, sizeof d->prompt, "The opposite of \"%s\" is",
                   turned ? opposites[i].b : opposites[i].a);
}

static void make_situation(draft *d, nw_rng *r)
{
    const size_t i = nw_rng_below(r, NW_COUNT(situations));
    d->kind = "situation";
    d->subject = situations[i].b;
    (void)snprintf(d->prompt, sizeof d->prompt, "%s", situations[i].a);
    decoys(d, r, situations, NW_COUNT(situations), i);
}

/* Number agreement across a noun of the other number: "The keys near the window are ...". */
static void make_agreement(draft *d, nw_rng *r)
{
    const size_t i = nw_rng_below(r, NW_COUNT(subjects));
    const size_t j = (i + 1 + nw_rng_below(r, NW_COUNT(subjects) - 1)) % NW_COUNT(subjects);
    const bool plural = nw_rng_below(r, 2) == 0;
    const char *end = ends[nw_rng_below(r, NW_COUNT(ends))];
    d->kind = "agreement";
    d->subject = subjects[i].a;
    d->n_choices = 2;
    (void)snprintf(d->prompt, sizeof d->prompt, "The %s %s the %s",
                   plural ? subjects[i].b : subjects[i].a, links[nw_rng_below(r, NW_COUNT(links))],
                   plural ? subjects[j].a : subjects[j].b);
    (void)snprintf(d->choices[0], sizeof d->choices[0], " %s %s.", plural ? "are" : "is", end);
    (void)snprintf(d->choices[1], sizeof d->choices[0], " %s %s.", plural ? "is" : "are", end);
}

/* Days, months or numbers in steps; the decoys are other members of the same list. */
static void make_sequence(draft *d, nw_rng *r)
{
    const bool use_days = nw_rng_below(r, 2) == 0;
    const char *const *list = use_days ? days : months;
    const size_t n = use_days ? NW_COUNT(days) : NW_COUNT(months);
    const size_t i = nw_rng_below(r, n);
    const size_t step = 1 + nw_rng_below(r, 2);
    d->kind = "sequence";
    d->subject = list[i];
    (void)snprintf(d->prompt, sizeof d->prompt, "%s, %s, %s,", list[i], list[(i + step) % n],
                   list[(i + 2 * step) % n]);
    for (size_t c = 0; c < MAX_CHOICES; c++) {
        (void)snprintf(d->choices[c], sizeof d->choices[0], " %s", list[(i + 3 * step + c) % n]);
    }
    d->n_choices = MAX_CHOICES;
}

static void make_sum(draft *d, nw_rng *r)
{
    const int a = 1 + (int)nw_rng_below(r, 9);
    const int b = 1 + (int)nw_rng_below(r, 9);
    const bool minus = nw_rng_below(r, 3) == 0;
    const int right = minus ? a : a + b;
    static const int off[MAX_CHOICES] = {0, 1, -1, 2};
    d->kind = "sum";
    d->subject = minus ? "minus" : "plus";
    (void)snprintf(d->prompt, sizeof d->prompt,
                   "Question: What is %d %s %d? Answer:", minus ? a + b : a,
                   minus ? "minus" : "plus", b);
    for (size_t c = 0; c < MAX_CHOICES; c++) {
        (void)snprintf(d->choices[c], sizeof d->choices[0], " %d", right + off[c]);
    }
    d->n_choices = MAX_CHOICES;
}

/* Shuffles the choices with the item's own stream and writes the object. */
static json_t *close_item(draft *d, nw_rng *r, size_t i)
{
    uint32_t order[MAX_CHOICES] = {0, 1, 2, 3};
    uint32_t answer = 0;
    char id[32];
    char cluster[96];
    json_t *choices = json_array();

    for (uint32_t k = d->n_choices - 1; k > 0; k--) {
        const uint32_t j = (uint32_t)nw_rng_below(r, k + 1);
        const uint32_t t = order[k];
        order[k] = order[j];
        order[j] = t;
    }
    for (uint32_t k = 0; k < d->n_choices; k++) {
        answer = order[k] == 0 ? k : answer;
        (void)json_array_append_new(choices, json_string(d->choices[order[k]]));
    }
    (void)snprintf(id, sizeof id, "basics-%05zu", i);
    (void)snprintf(cluster, sizeof cluster, "%s/%s", d->kind, d->subject);
    return json_pack("{s:s, s:s, s:s, s:o, s:i}", "id", id, "cluster", cluster, "prompt", d->prompt,
                     "choices", choices, "answer", (int)answer);
}

json_t *nw_suite_make_basics(uint64_t seed, size_t i)
{
    static void (*const makers[])(draft *, nw_rng *) = {
        make_capital,   make_class,    make_opposite, make_situation,
        make_agreement, make_sequence, make_sum,
    };
    nw_rng r = nw_rng_stream(seed, i);
    draft d = {.n_choices = 0};

    makers[i % NW_COUNT(makers)](&d, &r);
    return close_item(&d, &r, i);
}
