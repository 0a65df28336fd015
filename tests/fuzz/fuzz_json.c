/* Whatever the bytes, the reader returns an error that says something, or a value whose canonical
 * text reads back as the same value.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/json.h"
#include "fuzz/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *value = NULL;
    json_t *again = NULL;
    nw_error err = {0};

    if (nw_json_parse("f", size == 0 ? "" : (const char *)data, size, &value, &err) == NW_OK) {
        char *text = nw_json_canonical(value);
        NW_CHECK(text != NULL);
        NW_CHECK(nw_json_parse("g", text, strlen(text), &again, &err) == NW_OK);
        NW_CHECK(json_equal(value, again) == 1);
        free(text);
    } else {
        NW_CHECK(value == NULL && err.code != NW_OK && err.message[0] != '\0');
    }
    json_decref(value);
    json_decref(again);
    return 0;
}
