/* Whatever the JSON: an error that says something, or a config that passes its check and survives
 * being written as config.json and read again.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/json.h"
#include "fuzz/check.h"
#include "model/config.h"

static char *text_of(const nw_model_config *c, json_t **json)
{
    *json = nw_config_to_json(c, "float32");
    NW_CHECK(*json != NULL);
    return nw_json_canonical(*json);
}

static void round_trip(const nw_model_config *c)
{
    json_t *first = NULL;
    json_t *second = NULL;
    nw_model_config again;
    nw_error err = {0};
    char *a = text_of(c, &first);

    if (nw_config_from_json("again", first, &again, &err) != NW_OK) {
        (void)fprintf(stderr, "%s\n", err.message);
        abort();
    }
    char *b = text_of(&again, &second);
    NW_CHECK(strcmp(a, b) == 0);
    free(a);
    free(b);
    json_decref(first);
    json_decref(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *root = NULL;
    nw_model_config c;
    nw_error err = {0};

    if (nw_json_parse("fuzz", (const char *)data, size, &root, &err) != NW_OK) {
        return 0;
    }
    if (nw_config_from_json("fuzz", root, &c, &err) == NW_OK) {
        NW_CHECK(nw_config_check(&c, "fuzz", &err) == NW_OK);
        round_trip(&c);
    } else {
        NW_CHECK(err.code != NW_OK && err.message[0] != '\0');
    }
    json_decref(root);
    return 0;
}
