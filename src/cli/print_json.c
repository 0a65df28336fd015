/* See print_json.h. SPDX-License-Identifier: Apache-2.0 */
#include "cli/print_json.h"

#include <stdio.h>
#include <stdlib.h>

enum { DIGITS = 9 }; /* of reals: more than any measurement carries */

nw_status nw_print_json(const char *command, json_t *result, nw_error *err)
{
    char *text =
        result == NULL ? NULL : json_dumps(result, JSON_INDENT(2) | JSON_REAL_PRECISION(DIGITS));
    nw_status st = NW_OK;

    json_decref(result);
    if (text == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for the result", command);
    }
    if (printf("%s\n", text) < 0) {
        st = nw_fail(err, NW_E_IO, "stdout: cannot write");
    }
    free(text);
    return st;
}
