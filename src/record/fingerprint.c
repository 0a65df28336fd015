/* Machine fingerprint from /proc, uname and the base layer's view of the processor. Clock speeds and
 * load are left out: they change while the machine stays the same.
 * SPDX-License-Identifier: Apache-2.0 */
#include "record/fingerprint.h"

#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/json.h"

static int64_t memory_bytes(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page = sysconf(_SC_PAGESIZE);
    size_t bytes = 0;

    if (pages <= 0 || page <= 0 || !nw_size_mul((size_t)pages, (size_t)page, &bytes)) {
        return -1;
    }
    return (int64_t)bytes;
}

nw_status nw_fingerprint_take(nw_fingerprint *out, nw_error *err)
{
    struct utsname os;
    const char *why = "";
    const unsigned threads = nw_cpu_threads(&why);

    if (uname(&os) != 0) {
        return nw_fail(err, NW_E_IO, "uname: no answer");
    }
    json_t *facts = json_pack("{s:s, s:i, s:i, s:s, s:I, s:s, s:s, s:s}", "cpu", nw_cpu_describe(),
                              "features", (int)nw_cpu_features(), "threads", (int)threads,
                              "threads_why", why, "memory_bytes", (json_int_t)memory_bytes(), "os",
                              os.sysname, "release", os.release, "machine", os.machine);
    char *json = facts == NULL ? NULL : nw_json_canonical(facts);
    json_decref(facts);
    if (json == NULL) {
        return nw_fail(err, NW_E_NOMEM, "no memory for the machine's fingerprint");
    }
    nw_digest hash;
    if (nw_digest_bytes(json, strlen(json), &hash, err) != NW_OK) {
        free(json);
        return err->code;
    }
    out->json = json;
    out->hash = hash;
    return NW_OK;
}

void nw_fingerprint_release(nw_fingerprint *f)
{
    free(f->json);
    f->json = NULL;
}
