-- The record of a study: every raw row that a gate, a frontier or a figure is computed from.
-- One SQLite file in WAL mode. PRAGMA user_version holds the version of this schema (1).
-- Times ending in _ns are CLOCK_MONOTONIC of the machine of the run; NULL is "not measured".
-- SPDX-License-Identifier: Apache-2.0
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE machine (hash TEXT PRIMARY KEY, json TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE candidate (
    name TEXT PRIMARY KEY,
    role TEXT NOT NULL CHECK (role IN ('baseline', 'candidate')),
    artifact TEXT,
    artifact_hash TEXT,
    weights TEXT,          -- format of the weights: "bf16" "int8" "int4-g64" ...
    kv TEXT,               -- format of keys and values: "bf16" "int8" "int4"
    act TEXT,              -- activations of the linear layers: "a16" "a8"
    file_bytes INTEGER,
    weight_bytes INTEGER,  -- in memory, with scales and copies
    effective_bits REAL,   -- bits a quantized weight, scales included
    json TEXT
) WITHOUT ROWID;

CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    candidate TEXT NOT NULL REFERENCES candidate (name),
    stage TEXT NOT NULL CHECK (stage IN ('quality', 'micro', 'load')),
    suite TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('running', 'done', 'failed', 'cancelled')),
    started TEXT,
    ended TEXT,
    settings_hash TEXT NOT NULL, -- what must be equal for two runs to be compared
    settings_json TEXT,
    data_hash TEXT,
    artifact_hash TEXT NOT NULL,
    machine_hash TEXT,
    kernel_map TEXT,
    threads INTEGER,
    seed INTEGER,
    tool_version TEXT
);
CREATE INDEX run_key ON run (candidate, stage, suite, status);

-- Rows of tasks: one an item and sample.
CREATE TABLE item (
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    item_id TEXT NOT NULL,
    cluster TEXT,            -- source document, template or conversation; NULL: the item itself
    sample INTEGER NOT NULL DEFAULT 0,
    score REAL,              -- in [0, 1]; NULL: not scored (the reason is in json)
    correct INTEGER,
    n_prompt INTEGER,
    n_output INTEGER,
    finish TEXT,
    output TEXT,
    expected TEXT,
    json TEXT,
    PRIMARY KEY (run_id, item_id, sample)
) WITHOUT ROWID;

-- Rows of perplexity and of logits: one a scored token. Nats.
CREATE TABLE token (
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    "window" INTEGER NOT NULL, -- the cluster of the bootstrap
    pos INTEGER NOT NULL,
    nll REAL NOT NULL,       -- -ln p(token | before)
    kl REAL,                 -- KL(baseline || candidate)
    top1 INTEGER,            -- 1: same most likely token as the baseline
    rank_base INTEGER,       -- rank, here, of the baseline's most likely token; 0 is first
    PRIMARY KEY (run_id, "window", pos)
) WITHOUT ROWID;

-- Rows of load and of batch 1: one a request.
CREATE TABLE request (
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    idx INTEGER NOT NULL,    -- number of the request in its arrival file
    file_no INTEGER NOT NULL DEFAULT 0,
    s_ns INTEGER,            -- scheduled
    d_ns INTEGER,            -- dispatched: last request byte written
    f_ns INTEGER,            -- first non-empty token
    l_ns INTEGER,            -- last token
    n_prompt INTEGER,
    n_asked INTEGER,
    n_output INTEGER,
    status TEXT NOT NULL,    -- "ok" "error" "timeout" "rejected" "cancelled"
    finish TEXT,
    error TEXT,
    events TEXT,             -- JSON [[t_ns, tokens], ...] of the non-empty events
    item_id TEXT,            -- the task item this request asked, when it was graded
    correct INTEGER,
    PRIMARY KEY (run_id, file_no, idx)
) WITHOUT ROWID;

-- The measured window of each arrival file of a load run: warm-up before it, drain after it.
CREATE TABLE "window" (
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    file_no INTEGER NOT NULL,
    start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL,
    offered_rps REAL,
    steady INTEGER,          -- 1 steady, 0 not, NULL not tested
    json TEXT,
    PRIMARY KEY (run_id, file_no)
) WITHOUT ROWID;

CREATE TABLE metric (
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    value REAL,
    unit TEXT,
    json TEXT,
    PRIMARY KEY (run_id, name)
) WITHOUT ROWID;

CREATE TABLE kernel (
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    op TEXT NOT NULL,
    layer INTEGER NOT NULL,  -- -1: not of a layer
    shape TEXT NOT NULL,
    phase TEXT NOT NULL,     -- "prefill" "decode"
    intended TEXT NOT NULL,
    used TEXT NOT NULL,
    calls INTEGER NOT NULL,
    ns INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    bytes_converted INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, op, layer, shape, phase, used)
) WITHOUT ROWID;

CREATE TABLE series (
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    t_ns INTEGER NOT NULL,
    value REAL NOT NULL
);
CREATE INDEX series_run ON series (run_id, name, t_ns);

-- What decide concluded, under which policy. The policy's text is kept as it was.
CREATE TABLE policy (
    policy_hash TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    text TEXT NOT NULL,
    decided TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE verdict (
    policy_hash TEXT NOT NULL REFERENCES policy (policy_hash),
    candidate TEXT NOT NULL,
    gate TEXT NOT NULL,
    metric TEXT NOT NULL,
    slice TEXT NOT NULL,
    advisory INTEGER NOT NULL DEFAULT 0, -- 1: printed, never decides
    unit TEXT,
    estimate REAL,
    lo REAL,                 -- one-sided 95% bounds
    hi REAL,
    margin REAL,
    p REAL,                  -- one-sided p of "worse than the margin", before Holm
    n INTEGER,
    n_needed INTEGER,
    verdict TEXT NOT NULL CHECK (verdict IN ('PASS', 'FAIL', 'INCONCLUSIVE')),
    why TEXT NOT NULL,
    PRIMARY KEY (policy_hash, candidate, gate, slice)
) WITHOUT ROWID;

CREATE TABLE decision (
    policy_hash TEXT NOT NULL REFERENCES policy (policy_hash),
    regime TEXT NOT NULL CHECK (regime IN ('batch1', 'saturated')),
    candidate TEXT NOT NULL,
    why TEXT NOT NULL,
    json TEXT NOT NULL,      -- points of the frontier, mechanism, what is missing
    PRIMARY KEY (policy_hash, regime)
) WITHOUT ROWID;
