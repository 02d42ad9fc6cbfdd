package web

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"sandbook/kernel/notebook"
)

// access says what a route asks of whoever calls it.
type access struct {
	public bool
	scope  notebook.Scope
	socket bool // an upgrade: a browser must present its Origin
}

var (
	open   = access{public: true}
	read   = access{scope: notebook.ScopeRead}
	edit   = access{scope: notebook.ScopeEdit}
	admin  = access{scope: notebook.ScopeAdmin}
	socket = access{scope: notebook.ScopeRead, socket: true}
)

// route is one row of the table. There is no other way to add a route, so none
// can be without a declared access.
type route struct {
	method, path string
	access       access
	handler      echo.HandlerFunc
}

func (s *Server) routes() []route {
	const nb = "/api/v1/notebooks/:id"
	return []route{
		{http.MethodGet, "/healthz", open, s.health},
		{http.MethodGet, "/readyz", open, s.ready},
		{http.MethodGet, "/login", open, s.loginPage},
		{http.MethodPost, "/login", open, s.login},
		{http.MethodPost, "/logout", open, s.logout},
		{http.MethodGet, "/static/*", open, s.static},
		{http.MethodGet, "/favicon.ico", open, s.favicon},

		{http.MethodGet, "/", read, s.listPage},
		{http.MethodGet, "/n/:id", read, s.notebookPage},
		{http.MethodGet, "/n/:id/blob/:hash", read, s.blob},
		{http.MethodGet, "/n/:id/files/*", read, s.apiFileGet},
		{http.MethodGet, "/n/:id/export.ipynb", read, s.export},
		{http.MethodPost, "/notebooks", edit, s.createForm},
		{http.MethodPost, "/import", edit, s.importForm},
		{http.MethodPost, "/n/:id/rename", edit, s.renameForm},
		{http.MethodPost, "/n/:id/duplicate", edit, s.duplicateForm},
		{http.MethodPost, "/n/:id/delete", edit, s.deleteForm},
		{http.MethodPost, "/n/:id/restore", edit, s.restoreForm},
		{http.MethodGet, "/gallery", admin, s.gallery},
		{http.MethodGet, "/docs", read, s.docs},
		{http.MethodGet, "/docs/*", read, s.docs},

		{http.MethodGet, "/api/v1/status", read, s.apiStatus},
		{http.MethodGet, "/api/v1/notebooks", read, s.apiList},
		{http.MethodPost, "/api/v1/notebooks", edit, s.apiCreate},
		{http.MethodPost, "/api/v1/import", edit, s.apiImport},
		{http.MethodGet, nb, read, s.apiState},
		{http.MethodPost, nb + "/ops", read, s.apiOp}, // policy judges each op
		{http.MethodGet, nb + "/events", read, s.apiEvents},
		{http.MethodGet, nb + "/live", socket, s.apiLive},
		{http.MethodPost, nb + "/ask", read, s.apiAsk},
		{http.MethodPost, nb + "/duplicate", edit, s.apiDuplicate},
		{http.MethodGet, nb + "/export.ipynb", read, s.export},
		{http.MethodGet, nb + "/runs", read, s.apiRuns},
		{http.MethodGet, nb + "/runs/:run/output", read, s.apiRunOutput},
		{http.MethodGet, nb + "/blobs/:hash", read, s.blob},
		{http.MethodGet, nb + "/files", read, s.apiFiles},
		{http.MethodGet, nb + "/files/*", read, s.apiFileGet},
		{http.MethodPut, nb + "/files/*", edit, s.apiFilePut},
		{http.MethodDelete, nb + "/files/*", edit, s.apiFileDelete},

		{http.MethodGet, "/api/v1/tokens", admin, s.apiTokens},
		{http.MethodPost, "/api/v1/tokens", admin, s.apiTokenCreate},
		{http.MethodDelete, "/api/v1/tokens/:token", admin, s.apiTokenRevoke},
	}
}

// Routes lists the table as "METHOD path", for documentation.
func Routes() []string {
	var out []string
	for _, r := range (&Server{}).routes() {
		out = append(out, r.method+" "+r.path)
	}
	return out
}
