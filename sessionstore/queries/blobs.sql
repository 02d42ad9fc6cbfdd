-- name: BlobByHash :one
SELECT id, size FROM blobs WHERE hash = ?;

-- name: TouchBlob :execrows
UPDATE blobs SET at = ? WHERE hash = ?;

-- name: StartBlob :one
INSERT INTO blobs (hash, size, at) VALUES (NULL, 0, ?) RETURNING id;

-- name: PutChunk :exec
INSERT INTO blob_chunks (blob, n, data) VALUES (?, ?, ?);

-- name: FinishBlob :exec
UPDATE blobs SET hash = ?, size = ?, at = ? WHERE id = ?;

-- name: Chunk :one
SELECT data FROM blob_chunks WHERE blob = ? AND n = ?;

-- name: DropChunks :execrows
DELETE FROM blob_chunks WHERE blob = sqlc.arg(blob) AND n >= sqlc.arg(first) AND n < sqlc.arg(last);

-- name: DropBlob :exec
DELETE FROM blobs WHERE id = ?;

-- name: UnfinishedBlobs :many
SELECT b.id, CAST(COALESCE((SELECT MAX(c.n) + 1 FROM blob_chunks c WHERE c.blob = b.id), 0) AS INTEGER) AS chunks
FROM blobs b WHERE b.hash IS NULL ORDER BY b.id LIMIT ?;

-- name: UnnamedBlobs :many
SELECT b.id, b.size FROM blobs b
WHERE b.hash IS NOT NULL AND b.at < ? AND NOT EXISTS (SELECT 1 FROM blob_refs r WHERE r.hash = b.hash)
ORDER BY b.id LIMIT ?;

-- name: ForgetUnnamedBlob :execrows
UPDATE blobs SET hash = NULL WHERE id = sqlc.arg(id) AND at < sqlc.arg(before)
  AND NOT EXISTS (SELECT 1 FROM blob_refs r WHERE r.hash = blobs.hash);

-- name: RefBlob :exec
INSERT INTO blob_refs (notebook, hash, seq) VALUES (?, ?, ?) ON CONFLICT (notebook, hash) DO NOTHING;

-- name: HasRef :one
SELECT EXISTS (SELECT 1 FROM blob_refs WHERE notebook = ? AND hash = ?);

-- name: BlobBytes :one
SELECT CAST(COALESCE(SUM(size), 0) AS INTEGER) FROM blobs;

-- name: NotebookBlobBytes :one
SELECT CAST(COALESCE(SUM(b.size), 0) AS INTEGER) FROM blob_refs r JOIN blobs b ON b.hash = r.hash WHERE r.notebook = ?;
