/* Opening a record, its transactions, and the small tables: meta, machine, candidate, run.
 *
 * A record may come from a stranger. Triggers, views and functions in its schema are switched off,
 * its pages are checked once when it is opened, and a file that is not ours is refused by its
 * application id before anything is read from it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "record/record.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "record/db.h"

#define APPLICATION_ID  0x6e617277 /* "narw" */
#define BUSY_MS         30000
#define MAX_VALUE_BYTES (64 << 20) /* longest text SQLite may hand out */

#define TEXT(t, f)                      \
    {                                   \
#f, NW_COL_TEXT, offsetof(t, f) \
    }
#define COUNT(t, f)                      \
    {                                    \
#f, NW_COL_COUNT, offsetof(t, f) \
    }
#define REAL(t, f)                      \
    {                                   \
#f, NW_COL_REAL, offsetof(t, f) \
    }

static const nw_db_column candidate_columns[] = {
    TEXT(nw_rec_candidate, name),          TEXT(nw_rec_candidate, role),
    TEXT(nw_rec_candidate, artifact),      TEXT(nw_rec_candidate, artifact_hash),
    TEXT(nw_rec_candidate, weights),       TEXT(nw_rec_candidate, kv),
    TEXT(nw_rec_candidate, act),           COUNT(nw_rec_candidate, file_bytes),
    COUNT(nw_rec_candidate, weight_bytes), REAL(nw_rec_candidate, effective_bits),
    TEXT(nw_rec_candidate, json),
};
static const nw_db_table candidate_table = {"candidate",
                                            candidate_columns,
                                            NW_COUNT(candidate_columns),
                                            sizeof(nw_rec_candidate),
                                            "role, name",
                                            false};

static const nw_db_column run_columns[] = {
    {"id", NW_COL_RAW, offsetof(nw_rec_run, id)},
    TEXT(nw_rec_run, candidate),
    TEXT(nw_rec_run, stage),
    TEXT(nw_rec_run, suite),
    TEXT(nw_rec_run, status),
    TEXT(nw_rec_run, started),
    TEXT(nw_rec_run, ended),
    TEXT(nw_rec_run, settings_hash),
    TEXT(nw_rec_run, settings_json),
    TEXT(nw_rec_run, data_hash),
    TEXT(nw_rec_run, artifact_hash),
    TEXT(nw_rec_run, machine_hash),
    TEXT(nw_rec_run, kernel_map),
    COUNT(nw_rec_run, threads),
    COUNT(nw_rec_run, seed),
    TEXT(nw_rec_run, tool_version),
};
static const nw_db_table run_table = {"run", run_columns, NW_COUNT(run_columns), sizeof(nw_rec_run),
                                      "id",  false};

/* ---- opening ---- */

static nw_status pragma_number(nw_record *r, const char *sql, int64_t *out, nw_error *err)
{
    return nw_db_number(r, sql, NULL, 0, out, err);
}

/* Makes the tables in an empty file; another process may be doing the same. */
static nw_status create_schema(nw_record *r, nw_error *err)
{
    char ids[96];
    int64_t version = 0;
    nw_status st = nw_db_exec(r, "PRAGMA journal_mode = WAL", err);

    if (st == NW_OK) {
        st = nw_db_exec(r, "BEGIN IMMEDIATE", err);
    }
    if (st != NW_OK) {
        return st;
    }
    st = pragma_number(r, "PRAGMA user_version", &version, err);
    if (st == NW_OK && version == 0) {
        (void)snprintf(ids, sizeof ids, "PRAGMA application_id = %d; PRAGMA user_version = %d",
                       APPLICATION_ID, NW_RECORD_VERSION);
        st = nw_db_exec(r, nw_record_schema, err);
        if (st == NW_OK) {
            st = nw_db_exec(r, ids, err);
        }
    }
    if (st == NW_OK) {
        return nw_db_exec(r, "COMMIT", err);
    }
    (void)sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
    return st;
}

static nw_status check_pages(nw_record *r, nw_error *err)
{
    nw_arena arena = {0};
    const char *found = NULL;
    nw_status st = nw_db_text(r, "PRAGMA quick_check(1)", NULL, 0, &arena, &found, err);

    if (st == NW_OK && (found == NULL || strcmp(found, "ok") != 0)) {
        st = nw_fail(err, NW_E_FORMAT, "%s: damaged: %.200s", r->path, found ? found : "no answer");
    }
    nw_arena_release(&arena);
    return st;
}

/* Accepts our file, makes one of an empty file when we may write, refuses the rest. A database with
 * nothing in it is empty too: it is left where the disk was full before the tables were made. */
static nw_status check_identity(nw_record *r, nw_record_mode mode, nw_error *err)
{
    int64_t things = 0;
    int64_t application = 0;
    int64_t version = 0;
    nw_status st = pragma_number(r, "PRAGMA application_id", &application, err);

    if (st == NW_OK) {
        st = pragma_number(r, "SELECT count(*) FROM sqlite_schema", &things, err);
    }
    if (st == NW_OK && application == 0 && things == 0 && mode == NW_RECORD_WRITE) {
        return create_schema(r, err);
    }
    if (st == NW_OK) {
        st = pragma_number(r, "PRAGMA user_version", &version, err);
    }
    if (st != NW_OK) {
        return st;
    }
    if (application != APPLICATION_ID) {
        return nw_fail(err, NW_E_FORMAT, "%s: not a record of narrow", r->path);
    }
    if (version != NW_RECORD_VERSION) {
        return nw_fail(err, NW_E_UNSUPPORTED,
                       "%s: record version %" PRId64 ", this program reads version %d", r->path,
                       version, NW_RECORD_VERSION);
    }
    return check_pages(r, err);
}

static void harden(sqlite3 *db)
{
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    (void)sqlite3_limit(db, SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES);
    (void)sqlite3_busy_timeout(db, BUSY_MS);
}

nw_status nw_record_open(const char *path, nw_record_mode mode, nw_record **out, nw_error *err)
{
    nw_record *r = calloc(1, sizeof *r);

    *out = NULL;
    if (r == NULL || (r->path = strdup(path)) == NULL) {
        free(r);
        return nw_fail(err, NW_E_NOMEM, "%s: no memory for a record", path);
    }
    if (mode == NW_RECORD_READ && !nw_file_exists(path)) {
        nw_record_close(r);
        return nw_fail(err, NW_E_IO, "%s: no such file", path);
    }
    const int flags =
        mode == NW_RECORD_READ ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    const int rc = sqlite3_open_v2(path, &r->db, flags, NULL);
    if (rc != SQLITE_OK) {
        (void)nw_fail(err, rc == SQLITE_NOMEM ? NW_E_NOMEM : NW_E_IO, "%s: %s", path,
                      r->db != NULL ? sqlite3_errmsg(r->db) : "no memory");
        nw_record_close(r);
        return err->code;
    }
    harden(r->db);
    nw_status st = check_identity(r, mode, err);
    if (st == NW_OK) {
        st = nw_db_exec(r, "PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL", err);
    }
    if (st != NW_OK) {
        nw_record_close(r);
        return st;
    }
    *out = r;
    return NW_OK;
}

void nw_record_close(nw_record *r)
{
    if (r != NULL) {
        (void)sqlite3_close(r->db); /* no statement outlives a call of ours */
        free(r->path);
        free(r);
    }
}

const char *nw_record_path(const nw_record *r)
{
    return r->path;
}

nw_status nw_record_begin(nw_record *r, nw_error *err)
{
    return nw_db_exec(r, "BEGIN IMMEDIATE", err);
}

nw_status nw_record_commit(nw_record *r, nw_error *err)
{
    return nw_db_exec(r, "COMMIT", err);
}

void nw_record_rollback(nw_record *r)
{
    if (sqlite3_get_autocommit(r->db) == 0) {
        (void)sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
    }
}

/* ---- meta, machine ---- */

nw_status nw_record_meta_put(nw_record *r, const char *key, const char *value, nw_error *err)
{
    const nw_db_arg args[] = {{key, 0}, {value, 0}};
    return nw_db_run(r, "INSERT OR REPLACE INTO meta(key, value) VALUES(?1, ?2)", args, 2, err);
}

nw_status nw_record_meta_get(nw_record *r, const char *key, nw_arena *arena, const char **value,
                             nw_error *err)
{
    const nw_db_arg args[] = {{key, 0}};
    return nw_db_text(r, "SELECT value FROM meta WHERE key = ?1", args, 1, arena, value, err);
}

nw_status nw_record_machine_put(nw_record *r, const char *hash, const char *json, nw_error *err)
{
    const nw_db_arg args[] = {{hash, 0}, {json, 0}};
    return nw_db_run(r, "INSERT OR REPLACE INTO machine(hash, json) VALUES(?1, ?2)", args, 2, err);
}

nw_status nw_record_machine_get(nw_record *r, const char *hash, nw_arena *arena, const char **json,
                                nw_error *err)
{
    const nw_db_arg args[] = {{hash, 0}};
    return nw_db_text(r, "SELECT json FROM machine WHERE hash = ?1", args, 1, arena, json, err);
}

/* ---- candidates ---- */

static const char *known_text(const char *put, const char *had)
{
    return put != NULL ? put : had;
}

/* Two stages may know different things of one artifact: what the later one does not know stays. */
static void keep_known(nw_rec_candidate *c, const nw_rec_candidate *had)
{
    c->artifact = known_text(c->artifact, had->artifact);
    c->artifact_hash = known_text(c->artifact_hash, had->artifact_hash);
    c->weights = known_text(c->weights, had->weights);
    c->kv = known_text(c->kv, had->kv);
    c->act = known_text(c->act, had->act);
    c->json = known_text(c->json, had->json);
    c->file_bytes = c->file_bytes >= 0 ? c->file_bytes : had->file_bytes;
    c->weight_bytes = c->weight_bytes >= 0 ? c->weight_bytes : had->weight_bytes;
    c->effective_bits = isnan(c->effective_bits) ? had->effective_bits : c->effective_bits;
}

nw_status nw_record_candidate_put(nw_record *r, const nw_rec_candidate *c, nw_error *err)
{
    nw_arena arena = {0};
    nw_rec_candidate row = *c;
    const nw_rec_candidate *had = NULL;
    nw_status st = nw_record_candidate_get(r, c->name, &arena, &had, err);

    if (st == NW_OK && had != NULL &&
        (c->artifact_hash == NULL || had->artifact_hash == NULL ||
         strcmp(c->artifact_hash, had->artifact_hash) == 0)) {
        keep_known(&row, had);
    }
    st = st == NW_OK ? nw_db_insert(r, &candidate_table, 0, &row, 1, err) : st;
    nw_arena_release(&arena);
    return st;
}

nw_status nw_record_candidate_get(nw_record *r, const char *name, nw_arena *arena,
                                  const nw_rec_candidate **out, nw_error *err)
{
    const nw_db_arg args[] = {{name, 0}};
    nw_rec_candidate row;
    void *rows = NULL;
    size_t n = 0;
    nw_status st =
        nw_db_list(r, &candidate_table, "name = ?1", args, 1, &row, arena, &rows, &n, err);

    if (st == NW_OK) {
        *out = n == 0 ? NULL : rows;
    }
    return st;
}

nw_status nw_record_candidates(nw_record *r, nw_arena *arena, nw_rec_candidate **out, size_t *n,
                               nw_error *err)
{
    nw_rec_candidate row;
    void *rows = NULL;
    nw_status st = nw_db_list(r, &candidate_table, NULL, NULL, 0, &row, arena, &rows, n, err);

    if (st == NW_OK) {
        *out = rows;
    }
    return st;
}

/* ---- runs ---- */

/* NULL stands for any value in a comparison; the key columns of a run are never NULL themselves. */
static const char *or_empty(const char *s)
{
    return s == NULL ? "" : s;
}

static nw_status insert_run(nw_record *r, const nw_rec_run *run, int64_t *id, nw_error *err)
{
    char now[21];
    nw_rec_run row = *run;
    int64_t last = 0;
    nw_status st = pragma_number(r, "SELECT max(id) FROM run", &last, err);

    if (st != NW_OK) {
        return st;
    }
    row.id = last + 1;
    row.status = "running";
    row.started = nw_utc_now(now);
    row.ended = NULL;
    row.settings_hash = or_empty(run->settings_hash);
    row.artifact_hash = or_empty(run->artifact_hash);
    st = nw_db_insert(r, &run_table, 0, &row, 1, err);
    if (st == NW_OK) {
        *id = row.id;
    }
    return st;
}

static nw_status begin_run(nw_record *r, const nw_rec_run *run, bool resume, int64_t *id,
                           bool *resumed, nw_error *err)
{
    const nw_db_arg key[] = {{run->candidate, 0},
                             {run->stage, 0},
                             {run->suite, 0},
                             {or_empty(run->settings_hash), 0},
                             {or_empty(run->artifact_hash), 0}};
    int64_t open = 0;
    nw_status st =
        nw_db_number(r,
                     "SELECT id FROM run WHERE candidate = ?1 AND stage = ?2 AND suite = ?3 AND "
                     "settings_hash = ?4 AND artifact_hash = ?5 AND status <> 'done' "
                     "ORDER BY id DESC LIMIT 1",
                     key, NW_COUNT(key), &open, err);

    if (st == NW_OK && resume && open > 0) {
        const nw_db_arg which[] = {{NULL, open}};
        st = nw_db_run(r, "UPDATE run SET status = 'running', ended = NULL WHERE id = ?1", which, 1,
                       err);
        *id = open;
        *resumed = true;
        return st;
    }
    if (st == NW_OK) {
        st = nw_db_run(r,
                       "DELETE FROM run WHERE candidate = ?1 AND stage = ?2 AND suite = ?3 AND "
                       "settings_hash = ?4 AND artifact_hash = ?5 AND status <> 'done'",
                       key, NW_COUNT(key), err);
    }
    if (st == NW_OK) {
        *resumed = false;
        st = insert_run(r, run, id, err);
    }
    return st;
}

nw_status nw_record_run_begin(nw_record *r, const nw_rec_run *run, bool resume, int64_t *id,
                              bool *resumed, nw_error *err)
{
    bool again = false;
    nw_status st = nw_db_exec(r, "SAVEPOINT nw_run", err);

    if (st != NW_OK) {
        return st;
    }
    st = begin_run(r, run, resume, id, &again, err);
    if (st == NW_OK) {
        st = nw_db_exec(r, "RELEASE nw_run", err);
    }
    if (st != NW_OK) {
        (void)sqlite3_exec(r->db, "ROLLBACK TO nw_run; RELEASE nw_run", NULL, NULL, NULL);
        return nw_context(err, "starting a run of '%s', %s %s", run->candidate, run->stage,
                          run->suite);
    }
    if (resumed != NULL) {
        *resumed = again;
    }
    return NW_OK;
}

nw_status nw_record_run_end(nw_record *r, int64_t id, const char *status, nw_error *err)
{
    char now[21];
    const nw_db_arg args[] = {{status, 0}, {nw_utc_now(now), 0}, {NULL, id}};
    nw_status st =
        nw_db_run(r, "UPDATE run SET status = ?1, ended = ?2 WHERE id = ?3", args, 3, err);

    if (st == NW_OK && sqlite3_changes(r->db) != 1) {
        st = nw_fail(err, NW_E_RANGE, "%s: no run %" PRId64, r->path, id);
    }
    return st;
}

nw_status nw_record_run_done(nw_record *r, const char *candidate, const char *stage,
                             const char *suite, const char *settings_hash,
                             const char *artifact_hash, const char *kernel_map, int64_t *id,
                             nw_error *err)
{
    const nw_db_arg key[] = {{candidate, 0},
                             {stage, 0},
                             {suite, 0},
                             {or_empty(settings_hash), 0},
                             {or_empty(artifact_hash), 0},
                             {or_empty(kernel_map), 0}};
    return nw_db_number(r,
                        "SELECT id FROM (SELECT id, coalesce(kernel_map, '') AS map FROM run WHERE "
                        "candidate = ?1 AND stage = ?2 AND suite = ?3 AND settings_hash = ?4 AND "
                        "artifact_hash = ?5 AND status = 'done' ORDER BY id DESC LIMIT 1) "
                        "WHERE map = ?6",
                        key, NW_COUNT(key), id, err);
}

nw_status nw_record_runs(nw_record *r, const char *candidate, const char *stage, const char *suite,
                         const char *status, nw_arena *arena, nw_rec_run **out, size_t *n,
                         nw_error *err)
{
    const nw_db_arg args[] = {{or_empty(candidate), 0},
                              {or_empty(stage), 0},
                              {or_empty(suite), 0},
                              {or_empty(status), 0}};
    nw_rec_run row;
    void *rows = NULL;
    nw_status st = nw_db_list(r, &run_table,
                              "(?1 = '' OR candidate = ?1) AND (?2 = '' OR stage = ?2) AND "
                              "(?3 = '' OR suite = ?3) AND (?4 = '' OR status = ?4)",
                              args, NW_COUNT(args), &row, arena, &rows, n, err);

    if (st == NW_OK) {
        *out = rows;
    }
    return st;
}
