-- name: InsertNotebook :execrows
INSERT INTO notebooks (id, seq, boot, taken, title, language, backend, created, updated, deleted, kernel, sandbox, live, queued, asking, cells, preview)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING;

-- name: Advance :execrows
UPDATE notebooks SET seq = sqlc.arg(last) WHERE id = sqlc.arg(id) AND seq = sqlc.arg(before) AND deleted >= 0;

-- name: AdvanceCursor :execrows
UPDATE notebooks SET seq = sqlc.arg(last), boot = sqlc.arg(boot), taken = sqlc.arg(taken)
WHERE id = sqlc.arg(id) AND seq = sqlc.arg(before) AND deleted >= 0;

-- name: SetCursor :execrows
UPDATE notebooks SET boot = ?, taken = ? WHERE id = ? AND deleted >= 0;

-- name: Describe :exec
UPDATE notebooks SET title = ?, language = ?, backend = ?, updated = ?, deleted = ?, kernel = ?, sandbox = ?, live = ?, queued = ?, asking = ?, cells = ?, preview = ?
WHERE id = ?;

-- name: Position :one
SELECT seq, boot, taken FROM notebooks WHERE id = ? AND deleted >= 0;

-- name: InsertEvent :exec
INSERT INTO events (notebook, seq, at, by_kind, by_id, by_name, type, run, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: EventsAfter :many
SELECT seq, at, by_kind, by_id, by_name, type, body FROM events
WHERE notebook = ? AND seq > ? ORDER BY seq LIMIT ?;

-- name: LogBytes :one
SELECT CAST(COALESCE(SUM(LENGTH(body)), 0) AS INTEGER) FROM events WHERE notebook = ?;

-- name: PrintedAfter :many
SELECT seq, type, body FROM events
WHERE notebook = sqlc.arg(notebook) AND run = sqlc.arg(run) AND run IS NOT NULL AND seq > sqlc.arg(since)
ORDER BY seq LIMIT sqlc.arg(n);

-- name: PutSnapshot :exec
INSERT INTO snapshots (notebook, seq, at, format, codec, body) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (notebook) DO UPDATE SET seq = excluded.seq, at = excluded.at, format = excluded.format, codec = excluded.codec, body = excluded.body
WHERE excluded.seq >= snapshots.seq OR excluded.format <> snapshots.format;

-- name: Snapshot :one
SELECT seq, format, codec, body FROM snapshots WHERE notebook = ?;

-- name: InsertReceipt :execrows
INSERT INTO receipts (notebook, actor, key, hash, first, last, ids, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (notebook, actor, key) DO NOTHING;

-- name: Receipt :one
SELECT hash, first, last, ids FROM receipts WHERE notebook = ? AND actor = ? AND key = ?;

-- name: DropReceipts :execrows
DELETE FROM receipts WHERE at < ?;
