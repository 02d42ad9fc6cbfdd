CREATE TABLE goose_db_version (
		id INTEGER PRIMARY KEY AUTOINCREMENT,
		version_id INTEGER NOT NULL,
		is_applied INTEGER NOT NULL,
		tstamp TIMESTAMP DEFAULT (datetime('now'))
	);
CREATE TABLE instance (
  one     INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
  fence   INTEGER NOT NULL, -- counts opens; a server whose number is older may not write
  host    TEXT    NOT NULL,
  pid     INTEGER NOT NULL,
  started INTEGER NOT NULL
) STRICT;
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
CREATE TABLE cells (
  notebook TEXT    NOT NULL REFERENCES notebooks (id) ON DELETE CASCADE,
  cell     TEXT    NOT NULL,
  kind     TEXT    NOT NULL,
  source   TEXT    NOT NULL,
  deleted  INTEGER NOT NULL,
  PRIMARY KEY (notebook, cell)
) STRICT, WITHOUT ROWID;
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
CREATE TABLE blob_refs (
  notebook TEXT    NOT NULL REFERENCES notebooks (id) ON DELETE CASCADE,
  hash     TEXT    NOT NULL,
  seq      INTEGER NOT NULL, -- first event that names it
  PRIMARY KEY (notebook, hash)
) STRICT, WITHOUT ROWID;
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
CREATE INDEX notebooks_updated ON notebooks (updated, id);
CREATE INDEX events_printed ON events (notebook, run, seq) WHERE run IS NOT NULL;
CREATE INDEX receipts_at ON receipts (at);
CREATE INDEX runs_by_notebook ON runs (notebook, seq);
CREATE INDEX runs_by_cell ON runs (notebook, cell, seq);
CREATE INDEX blob_refs_hash ON blob_refs (hash);
CREATE INDEX tokens_created ON tokens (created, jti);
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (1, 0, 1, '2026-12-01 05:06:22');
INSERT INTO goose_db_version (id, version_id, is_applied, tstamp) VALUES (2, 1, 1, '2026-12-01 05:06:22');
INSERT INTO instance (one, fence, host, pid, started) VALUES (1, 1, 'vm', 9954, 1796112000000);
INSERT INTO settings (name, value) VALUES ('install_id', '0123456789abcdef');
INSERT INTO notebooks (id, seq, boot, taken, title, language, backend, created, updated, deleted, kernel, sandbox, live, queued, asking, cells, preview) VALUES ('n1', 9, 1, 9, 'Title of n1', 'python', '', 1796112001000, 1796112003000, 0, 'none', '', '', 0, 0, 2, 'print(''hä'')');
INSERT INTO notebooks (id, seq, boot, taken, title, language, backend, created, updated, deleted, kernel, sandbox, live, queued, asking, cells, preview) VALUES ('n2', 1, 0, 0, 'Title of n2', 'python', '', 1796112001000, 1796112001000, 0, 'none', '', '', 0, 0, 0, '');
INSERT INTO events (notebook, seq, at, by_kind, by_id, by_name, type, run, body) VALUES ('n1', 1, 1796112001000, 'person', 'ann', 'Ann', 'notebook.created', NULL, X'7B227469746C65223A225469746C65206F66206E31222C226C616E6775616765223A22707974686F6E227D');
INSERT INTO events (notebook, seq, at, by_kind, by_id, by_name, type, run, body) VALUES ('n1', 2, 1796112002000, 'person', 'ann', 'Ann', 'cell.inserted', NULL, X'7B2263656C6C223A226331222C226166746572223A22222C226B696E64223A22636F6465222C22736F75726365223A227072696E74282768C3A42729227D');
INSERT INTO events (notebook, seq, at, by_kind, by_id, by_name, type, run, body) VALUES ('n1', 3, 1796112003000, 'person', 'ann', 'Ann', 'cell.inserted', NULL, X'7B2263656C6C223A226332222C226166746572223A226331222C226B696E64223A226D61726B646F776E222C22736F75726365223A22232069742773227D');
INSERT INTO events (notebook, seq, at, by_kind, by_id, by_name, type, run, body) VALUES ('n1', 4, 1796112004000, 'person', 'ann', 'Ann', 'run.queued', NULL, X'7B2272756E223A227231222C2263656C6C223A226331222C22736F75726365223A227072696E74282768C3A42729222C22736861323536223A226162222C226261746368223A226231227D');
INSERT INTO events (notebook, seq, at, by_kind, by_id, by_name, type, run, body) VALUES ('n1', 5, 1796112005000, 'person', 'ann', 'Ann', 'run.sent', NULL, X'7B2272756E223A227231222C2267656E223A312C22636F756E74223A317D');
INSERT INTO events (notebook, seq, at, by_kind, by_id, by_name, type, run, body) VALUES ('n1', 6, 1796112006000, 'person', 'ann', 'Ann', 'output.stream', 'r1', X'7B2272756E223A227231222C226E616D65223A227374646F7574222C2274657874223A2268C3A45C6E227D');
INSERT INTO events (notebook, seq, at, by_kind, by_id, by_name, type, run, body) VALUES ('n1', 7, 1796112007000, 'person', 'ann', 'Ann', 'output.added', NULL, X'7B2272756E223A227231222C226F7574707574223A7B226B696E64223A22646973706C6179222C2264617461223A7B22696D6167652F706E67223A7B22626C6F62223A2263323537316661313464303736376266656437306530393466316562636337373061323334656165363230383566633865653937313966653435373735343064222C2273697A65223A367D7D7D7D');
INSERT INTO events (notebook, seq, at, by_kind, by_id, by_name, type, run, body) VALUES ('n1', 8, 1796112008000, 'person', 'ann', 'Ann', 'run.ended', NULL, X'7B2272756E223A227231222C22737461747573223A226F6B222C2277616C6C5F6D73223A31322C226370755F6D73223A332C227065616B5F6D656D6F7279223A343039367D');
INSERT INTO events (notebook, seq, at, by_kind, by_id, by_name, type, run, body) VALUES ('n1', 9, 1796112009000, 'person', 'ann', 'Ann', 'files.changed', NULL, X'7B2272756E223A227231222C2266696C6573223A7B226368616E676564223A5B7B2270617468223A22706C6F742E706E67222C2273697A65223A362C22626C6F62223A2263323537316661313464303736376266656437306530393466316562636337373061323334656165363230383566633865653937313966653435373735343064222C226D696D65223A22696D6167652F706E67222C227769647468223A322C22686569676874223A337D5D7D7D');
INSERT INTO events (notebook, seq, at, by_kind, by_id, by_name, type, run, body) VALUES ('n2', 1, 1796112001000, 'person', 'ann', 'Ann', 'notebook.created', NULL, X'7B227469746C65223A225469746C65206F66206E32222C226C616E6775616765223A22707974686F6E227D');
INSERT INTO snapshots (notebook, seq, at, format, codec, body) VALUES ('n1', 3, 1796112000000, 1, 'json', X'7B226964223A226E31222C22736571223A332C227469746C65223A225469746C65206F66206E31222C226C616E6775616765223A22707974686F6E222C226261636B656E64223A22222C2263726561746564223A22323032362D31322D30315430383A30303A30315A222C2275706461746564223A22323032362D31322D30315430383A30303A30335A222C2263656C6C73223A5B7B226964223A226331222C226B696E64223A22636F6465222C22736F75726365223A227072696E74282768C3A42729222C2276657273696F6E223A312C226279223A7B226B696E64223A22706572736F6E222C226964223A22616E6E222C226E616D65223A22416E6E227D2C226174223A22323032362D31322D30315430383A30303A30325A227D2C7B226964223A226332222C226B696E64223A226D61726B646F776E222C22736F75726365223A22232069742773222C2276657273696F6E223A312C226279223A7B226B696E64223A22706572736F6E222C226964223A22616E6E222C226E616D65223A22416E6E227D2C226174223A22323032362D31322D30315430383A30303A30335A227D5D2C2272756E73223A7B7D2C226B65726E656C223A7B22737461747573223A226E6F6E65222C2267656E223A302C22626F6F74223A302C2273616E64626F78223A22227D2C22636F756E74223A302C226F72646572223A307D');
INSERT INTO receipts (notebook, actor, key, hash, first, last, ids, at) VALUES ('n1', 'ann', 'k', 'h', 4, 9, '["r1"]', 1796112000000);
INSERT INTO cells (notebook, cell, kind, source, deleted) VALUES ('n1', 'c1', 'code', 'print(''hä'')', 0);
INSERT INTO cells (notebook, cell, kind, source, deleted) VALUES ('n1', 'c2', 'markdown', '# it''s', 0);
INSERT INTO runs (notebook, run, seq, cell, sha256, status, reason, ename, evalue, queued, started, ended, wall_ms, cpu_ms, peak_memory, count, gen) VALUES ('n1', 'r1', 4, 'c1', 'ab', 'ok', '', '', '', 1796112004000, 1796112005000, 1796112008000, 12, 3, 4096, 1, 1);
INSERT INTO blobs (id, hash, size, at) VALUES (1, 'c2571fa14d0767bfed70e094f1ebcc770a234eae62085fc8ee9719fe4577540d', 6, 1796112000000);
INSERT INTO blob_chunks (blob, n, data) VALUES (1, 0, X'6120706C6F74');
INSERT INTO blob_refs (notebook, hash, seq) VALUES ('n1', 'c2571fa14d0767bfed70e094f1ebcc770a234eae62085fc8ee9719fe4577540d', 7);
INSERT INTO artifacts (notebook, run, path, blob, size, mime, w, h, why, at) VALUES ('n1', 'r1', 'plot.png', 'c2571fa14d0767bfed70e094f1ebcc770a234eae62085fc8ee9719fe4577540d', 6, 'image/png', 2, 3, '', 1796112009000);
INSERT INTO tokens (jti, kind, subject, name, audience, notebook, scopes, created, expires, revoked) VALUES ('j1', 'agent', 'agent:a', 'a', '', '', '["read","run"]', 1796112000000, 1796115600000, 1796112000000);
