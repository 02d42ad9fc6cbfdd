-- name: TakeOver :one
UPDATE instance SET fence = fence + 1, host = ?, pid = ?, started = ? WHERE one = 1 RETURNING fence;

-- name: Fence :one
SELECT fence FROM instance WHERE one = 1;

-- name: Setting :one
SELECT value FROM settings WHERE name = ?;

-- name: PutSetting :exec
INSERT INTO settings (name, value) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: PutSettingOnce :exec
INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING;
