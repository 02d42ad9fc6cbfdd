-- +goose Up

-- Times are unix milliseconds; 0 means never. Everything but events, receipts,
-- tokens, settings and blobs can be made again from events.

CREATE TABLE instance (
  one     INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
  fence   INTEGER NOT NULL, -- counts opens; a server whose number is older may not write
  host    TEXT    NOT NULL,
  pid     INTEGER NOT NULL,
  started INTEGER NOT NULL
) STRICT;

INSERT INTO instance (one, fence, host, pid, started) VALUES (1, 0, '', 0, 0);

CREATE TABLE settings (
  name  TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE notebooks (
  id       TEXT    NOT NULL PRIMARY KEY,
  seq      INTEGER NOT NULL,           -- of the newest event
  boot     INTEGER NOT NULL DEFAULT 0, -- guest cursor: sandbox
  taken    INTEGER NOT NULL DEFAULT 0, -- guest cursor: how far its events are in the log
  title    TEXT    NOT NULL,
  language TEXT    NOT NULL,
  backend  TEXT    NOT NULL,
  created  INTEGER NOT NULL,
  updated  INTEGER NOT NULL,
  deleted  INTEGER NOT NULL,           -- 0: no; -1: for good, and being removed
  kernel   TEXT    NOT NULL,
  sandbox  TEXT    NOT NULL,           -- backend's id of the live one, or ''
  live     TEXT    NOT NULL,           -- run the kernel has, or ''
  queued   INTEGER NOT NULL,           -- runs that wait
  asking   INTEGER NOT NULL,           -- 1: the live run waits for input
  cells    INTEGER NOT NULL,
  preview  TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX notebooks_updated ON notebooks (updated, id);

CREATE TABLE events (
  notebook TEXT    NOT NULL REFERENCES notebooks (id) ON DELETE CASCADE,
  seq      INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  by_kind  TEXT    NOT NULL,
  by_id    TEXT    NOT NULL,
  by_name  TEXT    NOT NULL,
  type     TEXT    NOT NULL,
  run      TEXT,            -- the run that printed this; NULL for all but printed text
  body     BLOB    NOT NULL, -- JSON
  PRIMARY KEY (notebook, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX events_printed ON events (notebook, run, seq) WHERE run IS NOT NULL;

CREATE TABLE snapshots (
  notebook TEXT    NOT NULL PRIMARY KEY REFERENCES notebooks (id) ON DELETE CASCADE,
  seq      INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  format   INTEGER NOT NULL, -- another format than the server's is not read
  codec    TEXT    NOT NULL CHECK (codec IN ('json', 'deflate')),
  body     BLOB    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE receipts (
  notebook TEXT    NOT NULL REFERENCES notebooks (id) ON DELETE CASCADE,
  actor    TEXT    NOT NULL,
  key      TEXT    NOT NULL,
  hash     TEXT    NOT NULL,
  first    INTEGER NOT NULL,
  last     INTEGER NOT NULL,
  ids      TEXT    NOT NULL, -- JSON array
  at       INTEGER NOT NULL,
  PRIMARY KEY (notebook, actor, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX receipts_at ON receipts (at);

-- The present document, for search.
CREATE TABLE cells (
  notebook TEXT    NOT NULL REFERENCES notebooks (id) ON DELETE CASCADE,
  cell     TEXT    NOT NULL,
  kind     TEXT    NOT NULL,
  source   TEXT    NOT NULL,
  deleted  INTEGER NOT NULL,
  PRIMARY KEY (notebook, cell)
) STRICT, WITHOUT ROWID;

-- Every run there was. Its source is in the event number seq.
CREATE TABLE runs (
  notebook    TEXT    NOT NULL REFERENCES notebooks (id) ON DELETE CASCADE,
  run         TEXT    NOT NULL,
  seq         INTEGER NOT NULL,
  cell        TEXT    NOT NULL,
  sha256      TEXT    NOT NULL,
  status      TEXT    NOT NULL,
  reason      TEXT    NOT NULL DEFAULT '',
  ename       TEXT    NOT NULL DEFAULT '',
  evalue      TEXT    NOT NULL DEFAULT '',
  queued      INTEGER NOT NULL,
  started     INTEGER NOT NULL DEFAULT 0,
  ended       INTEGER NOT NULL DEFAULT 0,
  wall_ms     INTEGER NOT NULL DEFAULT 0,
  cpu_ms      INTEGER NOT NULL DEFAULT 0,
  peak_memory INTEGER NOT NULL DEFAULT 0,
  count       INTEGER NOT NULL DEFAULT 0,
  gen         INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (notebook, run)
) STRICT, WITHOUT ROWID;

CREATE INDEX runs_by_notebook ON runs (notebook, seq);
CREATE INDEX runs_by_cell ON runs (notebook, cell, seq);

-- A blob without a hash is still being written.
CREATE TABLE blobs (
  id   INTEGER NOT NULL PRIMARY KEY,
  hash TEXT UNIQUE,
  size INTEGER NOT NULL,
  at   INTEGER NOT NULL -- last time somebody put it
) STRICT;

CREATE TABLE blob_chunks (
  blob INTEGER NOT NULL REFERENCES blobs (id) ON DELETE CASCADE,
  n    INTEGER NOT NULL,
  data BLOB    NOT NULL,
  PRIMARY KEY (blob, n)
) STRICT, WITHOUT ROWID;

-- Which notebook's events name which blobs: whoever may read the notebook may
-- read these, and a blob nobody names is garbage.
CREATE TABLE blob_refs (
  notebook TEXT    NOT NULL REFERENCES notebooks (id) ON DELETE CASCADE,
  hash     TEXT    NOT NULL,
  seq      INTEGER NOT NULL, -- first event that names it
  PRIMARY KEY (notebook, hash)
) STRICT, WITHOUT ROWID;

CREATE INDEX blob_refs_hash ON blob_refs (hash);

-- Workspace files that runs left.
CREATE TABLE artifacts (
  notebook TEXT    NOT NULL REFERENCES notebooks (id) ON DELETE CASCADE,
  run      TEXT    NOT NULL,
  path     TEXT    NOT NULL,
  blob     TEXT    NOT NULL, -- '': not kept, why says why
  size     INTEGER NOT NULL,
  mime     TEXT    NOT NULL,
  w        INTEGER NOT NULL,
  h        INTEGER NOT NULL,
  why      TEXT    NOT NULL,
  at       INTEGER NOT NULL,
  PRIMARY KEY (notebook, run, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE tokens (
  jti      TEXT    NOT NULL PRIMARY KEY,
  kind     TEXT    NOT NULL, -- person, agent
  subject  TEXT    NOT NULL, -- author id of whoever holds it
  name     TEXT    NOT NULL,
  audience TEXT    NOT NULL,
  notebook TEXT    NOT NULL, -- '': all
  scopes   TEXT    NOT NULL, -- JSON array
  created  INTEGER NOT NULL,
  expires  INTEGER NOT NULL,
  revoked  INTEGER NOT NULL  -- when; 0: it was not
) STRICT, WITHOUT ROWID;

CREATE INDEX tokens_created ON tokens (created, jti);
