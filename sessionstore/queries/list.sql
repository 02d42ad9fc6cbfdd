-- name: ListNotebooks :many
SELECT id, seq, title, language, backend, created, updated, deleted, kernel, sandbox, live, queued, asking, cells, preview
FROM notebooks n
WHERE n.deleted >= 0 AND (n.deleted > 0) = CAST(sqlc.arg(trash) AS INTEGER)
  AND (n.updated < sqlc.arg(before) OR (n.updated = sqlc.arg(before) AND n.id < sqlc.arg(before_id)))
  AND (CAST(sqlc.arg(needle) AS TEXT) = ''
    OR instr(lower(n.title), lower(sqlc.arg(needle))) > 0
    OR EXISTS (SELECT 1 FROM cells c WHERE c.notebook = n.id AND c.deleted = 0 AND instr(lower(c.source), lower(sqlc.arg(needle))) > 0))
ORDER BY n.updated DESC, n.id DESC
LIMIT sqlc.arg(n);

-- name: Summary :one
SELECT id, seq, title, language, backend, created, updated, deleted, kernel, sandbox, live, queued, asking, cells, preview
FROM notebooks WHERE id = ? AND deleted >= 0;

-- name: WithSandbox :many
SELECT id FROM notebooks WHERE deleted >= 0 AND (sandbox <> '' OR kernel IN ('starting', 'ready') OR live <> '' OR queued > 0) ORDER BY id;

-- name: PutCell :exec
INSERT INTO cells (notebook, cell, kind, source, deleted) VALUES (?, ?, ?, ?, 0)
ON CONFLICT (notebook, cell) DO UPDATE SET kind = excluded.kind, source = excluded.source, deleted = 0;

-- name: EditCell :exec
UPDATE cells SET source = ? WHERE notebook = ? AND cell = ?;

-- name: SetCellKind :exec
UPDATE cells SET kind = ? WHERE notebook = ? AND cell = ?;

-- name: SetCellDeleted :exec
UPDATE cells SET deleted = ? WHERE notebook = ? AND cell = ?;

-- name: MarkPurged :execrows
UPDATE notebooks SET deleted = -1, live = '', queued = 0 WHERE deleted > 0 AND deleted < ?;

-- name: PurgeList :many
SELECT id, seq FROM notebooks WHERE deleted = -1 ORDER BY id LIMIT ?;

-- name: PurgeEvents :execrows
DELETE FROM events WHERE notebook = ? AND seq <= ?;

-- name: PurgeNotebook :execrows
DELETE FROM notebooks WHERE id = ? AND deleted = -1;
