-- The schema of the outbox, version 1.
CREATE TABLE stream (
    number INTEGER PRIMARY KEY,
    stream TEXT NOT NULL UNIQUE,
    lane TEXT NOT NULL,
    open INTEGER NOT NULL,
    head INTEGER NOT NULL,
    settled INTEGER NOT NULL,
    settled_commit_id BLOB NOT NULL,
    acknowledged INTEGER NOT NULL,
    stored INTEGER NOT NULL,
    duplicate INTEGER NOT NULL,
    dead INTEGER NOT NULL,
    sent INTEGER NOT NULL,
    settled_events INTEGER NOT NULL,
    quarantined INTEGER NOT NULL,
    reason TEXT,
    dropped_upto INTEGER NOT NULL DEFAULT 0,
    filtered INTEGER NOT NULL DEFAULT 0,
    dropped INTEGER NOT NULL DEFAULT 0,
    rules TEXT NOT NULL DEFAULT '{}'
);
CREATE TABLE event (
    place INTEGER PRIMARY KEY,
    commit_id BLOB NOT NULL,
    body BLOB NOT NULL,
    message BLOB,
    stream INTEGER AS (place >> 40),
    sequence INTEGER AS (place & 1099511627775)
);
CREATE TABLE passed (
    stream INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    commit_id BLOB NOT NULL,
    PRIMARY KEY (stream, sequence)
) WITHOUT ROWID;
CREATE TABLE unsynced (
    stream INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    boot TEXT NOT NULL,
    boottime_ms INTEGER NOT NULL,
    PRIMARY KEY (stream, first)
) WITHOUT ROWID;
CREATE TABLE quarantine (
    stream INTEGER,
    sequence INTEGER,
    condition TEXT,
    description TEXT,
    body BLOB,
    quarantined_at TEXT,
    PRIMARY KEY (stream, sequence)
);
CREATE TABLE memory (
    key BLOB PRIMARY KEY,
    device TEXT NOT NULL,
    stored_s INTEGER NOT NULL,
    value BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX idx_memory_device_stored_s ON memory (device, stored_s);
CREATE TABLE resend (number INTEGER PRIMARY KEY, entries BLOB NOT NULL);
CREATE TABLE window_state (
    number INTEGER PRIMARY KEY,
    source BLOB NOT NULL,
    start_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    open INTEGER NOT NULL,
    state BLOB NOT NULL
);
CREATE UNIQUE INDEX idx_window_state_source ON window_state (source, start_ms);
CREATE INDEX idx_window_state_due ON window_state (due_ms);
CREATE TABLE command (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    device TEXT NOT NULL,
    name TEXT NOT NULL,
    content_type TEXT,
    data BLOB NOT NULL,
    reply INTEGER NOT NULL,
    durable INTEGER NOT NULL,
    idempotent INTEGER NOT NULL,
    correlation TEXT NOT NULL,
    boot TEXT NOT NULL,
    deadline_ms INTEGER NOT NULL,
    digest BLOB NOT NULL,
    state TEXT NOT NULL,
    changed_s INTEGER NOT NULL,
    status INTEGER,
    answer_digest BLOB
);
CREATE INDEX idx_command_state ON command (state);
CREATE TABLE kept (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT);
