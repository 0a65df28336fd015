/* Whatever the source, parsing says what is wrong or gives a template; rendering it says what is wrong
 * or gives segments whose provenance alternates; content never counts as the template's.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fuzz/check.h"
#include "model/template.h"

#define SECRET "\xE2\x98\x83" /* stands in the message only, unless the source has it */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_error err = {0};
    nw_template *t = NULL;
    nw_segments segs = {.n = 0};
    const char *src = size == 0 ? "" : (const char *)data;

    if (nw_template_parse("t", src, size, &t, &err) != NW_OK) {
        NW_CHECK(t == NULL && err.message[0] != '\0');
        return 0;
    }
    json_t *m = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content", "a " SECRET " b",
                          "role", "assistant", "content", SECRET);
    if (nw_template_render(t, m, true, "<s>", "</s>", &segs, &err) == NW_OK) {
        for (size_t i = 0; i < segs.n; i++) {
            NW_CHECK(segs.segs[i].n > 0);
            NW_CHECK(i == 0 || segs.segs[i].is_template != segs.segs[i - 1].is_template);
        }
        if (memchr(src, 0xE2, size) == NULL && memchr(src, '\\', size) == NULL) {
            for (size_t i = 0; i < segs.n; i++) {
                NW_CHECK(!segs.segs[i].is_template ||
                         memchr(segs.segs[i].text, 0xE2, segs.segs[i].n) == NULL);
            }
        }
    } else {
        NW_CHECK(segs.n == 0 && err.code != NW_OK);
    }
    nw_segments_release(&segs);
    nw_template_free(t);
    json_decref(m);
    return 0;
}
