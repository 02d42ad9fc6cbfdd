-- name: CountNotebooks :one
SELECT COUNT(*) FROM notebooks WHERE deleted = 0;

-- name: CountTrash :one
SELECT COUNT(*) FROM notebooks WHERE deleted > 0;

-- name: CountRuns :one
SELECT COUNT(*) FROM runs;

-- name: CountBlobs :one
SELECT COUNT(*) FROM blobs WHERE hash IS NOT NULL;

-- name: CountEvents :one
SELECT CAST(COALESCE(SUM(seq), 0) AS INTEGER) FROM notebooks;
