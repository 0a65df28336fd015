/* Entropy-coded BF16 of a native artifact becomes panels in memory: panel by panel on all threads, each
 * alone. The bytes are those that the plain layout of the same weights has.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "artifact/artifact_parts.h"
#include "formats/bf16_stored.h"

typedef struct {
    nw_bf16_stored stored;
    uint8_t *out;
    size_t panel_bytes;
    uint8_t *scratch; /* [n_threads][scratch_bytes] */
    size_t scratch_bytes;
    atomic_bool bad;
} unpack_job;

static void unpack_panel(void *ctx, size_t item, unsigned worker)
{
    unpack_job *job = ctx;

    if (!nw_bf16_stored_panel(&job->stored, (uint32_t)item, job->out + item * job->panel_bytes,
                              job->scratch + worker * job->scratch_bytes)) {
        atomic_store(&job->bad, true);
    }
}

/* Allocates and runs; job->stored is open. */
static nw_status run_job(nw_artifact *a, const nw_manifest_tensor *t, unpack_job *job,
                         size_t *n_bytes, nw_error *err)
{
    const unsigned n_threads = nw_pool_threads(a->pool);

    if (!nw_panel_bytes(job->stored.type, t->n_cols, &job->panel_bytes) ||
        !nw_panel_tensor_bytes(job->stored.type, t->n_rows, t->n_cols, n_bytes)) {
        return nw_fail(err, NW_E_RANGE, "%s: tensor '%s' does not fit an address", a->path,
                       t->name);
    }
    job->scratch_bytes = (nw_bf16_packed_scratch(t->n_cols) + 63) / 64 * 64;
    job->out = nw_arena_alloc(&a->arena, *n_bytes);
    job->scratch = calloc(n_threads, job->scratch_bytes);
    if (job->out == NULL || job->scratch == NULL) {
        return nw_fail(err, NW_E_NOMEM, "%s: tensor '%s': no memory for %zu bytes", a->path,
                       t->name, *n_bytes);
    }
    nw_pool_run(a->pool, job->stored.n_panels, unpack_panel, job);
    return atomic_load(&job->bad)
               ? nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' has a panel that does not decode",
                         a->path, t->name)
               : NW_OK;
}

nw_status nw_artifact_place_packed(nw_artifact *a, const nw_manifest_tensor *t,
                                   const nw_st_tensor *st, nw_artifact_slot *slot, nw_error *err)
{
    unpack_job job = {.out = NULL};
    nw_panel_type want = t->type;
    size_t n_bytes = 0;
    nw_status status = a->pool != NULL ? NW_OK : nw_pool_open(0, &a->pool, err);

    want.packed = false;
    if (status != NW_OK) {
        return status;
    }
    if (!nw_bf16_stored_open(&job.stored, st->data, st->n_bytes, t->n_rows, t->n_cols) ||
        job.stored.type.kind != want.kind || job.stored.type.escapes != want.escapes) {
        status = nw_fail(err, NW_E_FORMAT, "%s: tensor '%s' has a head that does not fit its type",
                         a->path, t->name);
    } else {
        status = run_job(a, t, &job, &n_bytes, err);
    }
    free(job.scratch);
    nw_bf16_stored_close(&job.stored);
    if (status != NW_OK) {
        return status;
    }
    a->facts.weight_bytes += n_bytes;
    slot->matrix = (nw_artifact_matrix){.name = st->name,
                                        .type = want,
                                        .data = job.out,
                                        .n_rows = t->n_rows,
                                        .n_cols = t->n_cols,
                                        .n_bytes = n_bytes};
    return NW_OK;
}
