/* Writes a synthetic record for tests that start the program: make_study_record FILE [KEY...] with the
 * keys hostile, undecided, small.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "study_record.h"

static int has(int argc, char **argv, const char *key)
{
    int found = 0;

    for (int i = 2; i < argc; i++) {
        found = found || strcmp(argv[i], key) == 0;
    }
    return found;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        (void)fprintf(stderr, "usage: make_study_record FILE [hostile] [undecided] [small]\n");
        return 2;
    }
    const nw_study_record o = {.name = has(argc, argv, "hostile") ? "<script>alert(1)</script>\xff"
                                                                  : NULL,
                               .hostile = has(argc, argv, "hostile") != 0,
                               .decided = !has(argc, argv, "undecided"),
                               .n_items = has(argc, argv, "small") ? 48 : 600,
                               .n_micro = has(argc, argv, "small") ? 30 : 310,
                               .n_load = has(argc, argv, "small") ? 40 : 310};
    nw_study_record_make(argv[1], &o);
    return 0;
}
