-- name: InsertToken :execrows
INSERT INTO tokens (jti, kind, subject, name, audience, notebook, scopes, created, expires, revoked)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0) ON CONFLICT (jti) DO NOTHING;

-- name: Tokens :many
SELECT jti, kind, subject, name, audience, notebook, scopes, created, expires, revoked FROM tokens
ORDER BY created DESC, jti DESC LIMIT ?;

-- name: Token :one
SELECT jti, kind, subject, name, audience, notebook, scopes, created, expires, revoked FROM tokens WHERE jti = ?;

-- name: RevokeToken :execrows
UPDATE tokens SET revoked = sqlc.arg(at) WHERE jti = sqlc.arg(jti) AND revoked = 0;

-- name: DropTokens :execrows
DELETE FROM tokens WHERE expires > 0 AND expires < ?;

-- name: Revoked :one
SELECT EXISTS (SELECT 1 FROM tokens WHERE jti = ? AND revoked > 0);
