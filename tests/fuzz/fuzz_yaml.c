/* Whatever the bytes, the reader returns an error that says something, or a document in which every
 * member has a place and which is valid JSON.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/yaml.h"
#include "fuzz/check.h"

/* libfyaml 0.7.12 loses the buffer of a long quoted string when the document then fails; it is bounded
 * by the text. Our own blocks are still held to account. */
const char *__lsan_default_suppressions(void); /* NOLINT(bugprone-reserved-identifier) */
const char *__lsan_default_suppressions(void)  /* NOLINT(bugprone-reserved-identifier) */
{
    return "leak:libfyaml";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_yaml *y = NULL;
    nw_error err = {0};
    char where[128];
    /* an empty file has no bytes to point to */
    const char *text = size == 0 ? "" : (const char *)data;

    if (nw_yaml_parse("f", text, size, &y, &err) == NW_OK) {
        const char *key = NULL;
        json_t *value = NULL;
        json_object_foreach(nw_yaml_root(y), key, value)
        {
            char pointer[64] = "/";
            strncat(pointer, key, sizeof pointer - 2);
            NW_CHECK(strncmp(nw_yaml_where(y, pointer, where, sizeof where), "f:", 2) == 0);
        }
        char *json = nw_json_canonical(nw_yaml_root(y));
        NW_CHECK(json != NULL);
        free(json);
    } else {
        NW_CHECK(y == NULL && err.code != NW_OK && err.message[0] != '\0');
    }
    nw_yaml_close(y);
    return 0;
}
