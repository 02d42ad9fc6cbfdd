-- name: InsertRun :exec
INSERT INTO runs (notebook, run, seq, cell, sha256, status, queued) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (notebook, run) DO NOTHING;

-- name: RunSent :exec
UPDATE runs SET status = ?, started = ?, count = ?, gen = ? WHERE notebook = ? AND run = ?;

-- name: RunEnded :exec
UPDATE runs SET status = ?, reason = ?, ename = ?, evalue = ?, ended = ?, wall_ms = ?, cpu_ms = ?, peak_memory = ?
WHERE notebook = ? AND run = ?;

-- name: RunsOfNotebook :many
SELECT r.run, r.seq, r.cell, r.sha256, r.status, r.reason, r.ename, r.evalue, r.queued, r.started, r.ended, r.wall_ms, r.cpu_ms, r.peak_memory, r.count, r.gen,
  e.by_kind, e.by_id, e.by_name, e.body
FROM runs r JOIN events e ON e.notebook = r.notebook AND e.seq = r.seq
WHERE r.notebook = ? AND r.seq < ? ORDER BY r.seq DESC LIMIT ?;

-- name: RunsOfCell :many
SELECT r.run, r.seq, r.cell, r.sha256, r.status, r.reason, r.ename, r.evalue, r.queued, r.started, r.ended, r.wall_ms, r.cpu_ms, r.peak_memory, r.count, r.gen,
  e.by_kind, e.by_id, e.by_name, e.body
FROM runs r JOIN events e ON e.notebook = r.notebook AND e.seq = r.seq
WHERE r.notebook = ? AND r.cell = ? AND r.seq < ? ORDER BY r.seq DESC LIMIT ?;

-- name: Run :one
SELECT r.run, r.seq, r.cell, r.sha256, r.status, r.reason, r.ename, r.evalue, r.queued, r.started, r.ended, r.wall_ms, r.cpu_ms, r.peak_memory, r.count, r.gen,
  e.by_kind, e.by_id, e.by_name, e.body
FROM runs r JOIN events e ON e.notebook = r.notebook AND e.seq = r.seq
WHERE r.notebook = ? AND r.run = ?;

-- name: PutArtifact :exec
INSERT INTO artifacts (notebook, run, path, blob, size, mime, w, h, why, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (notebook, run, path) DO UPDATE SET blob = excluded.blob, size = excluded.size, mime = excluded.mime, w = excluded.w, h = excluded.h, why = excluded.why, at = excluded.at;

-- name: Artifacts :many
SELECT run, path, blob, size, mime, w, h, why, at FROM artifacts WHERE notebook = ? AND run = ? ORDER BY path;

-- name: Artifact :one
SELECT run, path, blob, size, mime, w, h, why, at FROM artifacts WHERE notebook = ? AND run = ? AND path = ?;
