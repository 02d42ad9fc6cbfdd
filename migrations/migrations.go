// Package migrations embeds the schema of the database, one step a file. It is
// not what runs them: sessionstore does. Steps go forward only and never change
// once released.
package migrations

import "embed"

// FS holds NNNN_name.sql.
//
//go:embed *.sql
var FS embed.FS
