package web

import (
	"bytes"
	"compress/gzip"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"sandbook/kernel/notebook"
	"sandbook/sessionstore"
	"sandbook/web/auth"
	"sandbook/web/docs"
	"sandbook/web/live"
	"sandbook/web/pages"
	"sandbook/web/render"
	"sandbook/web/view"
)

// chrome is what every page needs: language, theme, assets and who is there.
func (s *Server) chrome(c echo.Context) pages.Chrome {
	cookie := func(name string) string {
		if ck, err := c.Cookie(name); err == nil {
			return ck.Value
		}
		return ""
	}
	lang := pages.ChooseLang(c.QueryParam("lang"), cookie("lang"), c.Request().Header.Get("Accept-Language"))
	if q := c.QueryParam("lang"); q == string(lang) && q != cookie("lang") {
		c.SetCookie(&http.Cookie{Name: "lang", Value: q, Path: "/", MaxAge: 365 * 24 * 3600, SameSite: http.SameSiteLaxMode, HttpOnly: true}) //nolint:gosec // a language is no secret
	}
	w, _ := c.Get(whoKey).(who)
	return pages.Chrome{
		Lang: lang, Theme: pages.ParseTheme(cookie("theme")), User: w.claims.Actor.Name, Path: c.Request().URL.Path,
		Assets: pages.Assets{
			Style: s.assets.URL("app.css"), Script: s.assets.URL("notebook.js"), Small: s.assets.URL("small.js"), Math: s.assets.URL("katex.css"), Icon: s.assets.URL("mark.svg"),
		},
	}
}

// show writes a page, whole or not at all.
func show(c echo.Context, status int, page templ.Component) error {
	return showSized(c, status, page, func(int) {})
}

// showSized is show, and says how large the answer is before it is sent.
func showSized(c echo.Context, status int, page templ.Component, sized func(n int)) error {
	var b bytes.Buffer
	if err := page.Render(c.Request().Context(), &b); err != nil {
		return err
	}
	h := c.Response().Header()
	h.Add("Vary", "Accept-Encoding")
	if b.Len() < 2<<10 || !strings.Contains(c.Request().Header.Get("Accept-Encoding"), "gzip") {
		sized(b.Len())
		return c.HTMLBlob(status, b.Bytes())
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, err := w.Write(b.Bytes())
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	h.Set("Content-Encoding", "gzip")
	sized(z.Len())
	b = bytes.Buffer{} // only what is sent is kept while a slow reader takes it
	return c.HTMLBlob(status, z.Bytes())
}

func (s *Server) errorPage(c echo.Context, p problem) error {
	return show(c, p.Status, pages.ErrorPage(pages.Failure{Chrome: s.chrome(c), Status: p.Status, Message: p.Message, RequestID: p.Request}))
}

func (s *Server) listPage(c echo.Context) error { return s.list(c, http.StatusOK, "", "") }

// list shows the notebooks; problem says why a form did nothing.
func (s *Server) list(c echo.Context, status int, problem, deleted string) error {
	ctx := c.Request().Context()
	v := pages.List{Chrome: s.chrome(c), Query: c.QueryParam("q"), Problem: problem}
	v.Path = "/"
	if deleted == "" {
		deleted = c.QueryParam("deleted")
	}
	found, err := s.store.List(ctx, sessionstore.ListQuery{Search: v.Query, Limit: 500})
	if err != nil {
		return err
	}
	trash, err := s.store.List(ctx, sessionstore.ListQuery{Deleted: true, Limit: 100})
	if err != nil {
		return err
	}
	stats, err := s.store.Stats(ctx)
	if err != nil {
		return err
	}
	v.Total = int(stats.Notebooks)
	now := time.Now()
	row := func(n sessionstore.Summary) pages.Row {
		return view.Row(v.Lang, string(n.ID), n.Title, n.Cells, n.Kernel, n.Live != "", n.Asking, n.Updated, now)
	}
	for _, n := range found.Notebooks {
		v.Rows = append(v.Rows, row(n))
	}
	for _, n := range trash.Notebooks {
		r := row(n)
		if string(n.ID) == deleted {
			v.Deleted = &r
		}
		v.Trash = append(v.Trash, r)
	}
	return show(c, status, pages.ListPage(v))
}

func (s *Server) viewOptions(c echo.Context) view.Options {
	a := actor(c)
	return view.Options{
		Chrome: s.chrome(c), Now: time.Now(), Build: s.build, FrameOrigin: s.frameOriginFor(c),
		ReadOnly: !a.May(notebook.ScopeEdit), Rendered: s.bounds.rendered, Work: s.work(c),
	}
}

// work is what one page may take to format, as long as somebody waits for it.
func (s *Server) work(c echo.Context) *render.Work {
	ctx := c.Request().Context()
	return render.NewWork(render.PageWork, func() bool { return ctx.Err() != nil })
}

// frameOriginFor keeps the name by which the browser reached us: a page under
// localhost talks to the frame under localhost.
func (s *Server) frameOriginFor(c echo.Context) string {
	u, err := url.Parse(s.frameOrigin)
	if err != nil || u.Hostname() != "127.0.0.1" || !strings.HasPrefix(c.Request().Host, "localhost") {
		return s.frameOrigin
	}
	return "http://localhost:" + u.Port()
}

func (s *Server) notebookPage(c echo.Context) error {
	ses, err := s.session(c)
	if err != nil {
		return err
	}
	done, err := s.turn(c.Request().Context(), claimsOf(c).ID)
	if err != nil {
		return err
	}
	defer done()
	return showSized(c, http.StatusOK, pages.NotebookPage(view.Page(ses.State(), s.viewOptions(c))), func(n int) {
		if n < smallAnswer {
			done()
		}
	})
}

// patcher makes the patches of one page's socket.
func (s *Server) patcher(c echo.Context) live.Patcher {
	o := s.viewOptions(c)
	return func(before, after notebook.State, evs []notebook.Event) (any, string) {
		o.Now, o.Work = time.Now(), s.work(c)
		return view.Patches(before, after, evs, o), view.Notice(after, evs, o)
	}
}

// gallery shows every component in every state.
func (s *Server) gallery(c echo.Context) error {
	return show(c, http.StatusOK, pages.GalleryPage(s.chrome(c)))
}

// loginPage takes the link the server printed, or asks for its token.
func (s *Server) loginPage(c echo.Context) error {
	next := safeNext(c.QueryParam("next"))
	if token := c.QueryParam("token"); token != "" && visited(c.Request()) {
		return s.signIn(c, token, next)
	}
	if _, _, err := s.door.Who(c.Request(), time.Now()); err == nil {
		return c.Redirect(http.StatusSeeOther, next)
	}
	return show(c, http.StatusOK, pages.LoginPage(pages.Login{Chrome: s.chrome(c), Next: next}))
}

// visited reports whether somebody opens the address, rather than that a page
// loads it as a picture or the like: any page could use up the attempts.
func visited(r *http.Request) bool {
	dest := r.Header.Get("Sec-Fetch-Dest")
	return dest == "" || dest == "document"
}

func (s *Server) login(c echo.Context) error {
	if _, err := s.site.From(c.Request()); err != nil {
		return s.refuse(c, err)
	}
	token, err := field(c, "token")
	if err != nil {
		return err
	}
	next, err := field(c, "next")
	if err != nil {
		return err
	}
	token = strings.TrimSpace(token)
	if u, err := url.Parse(token); err == nil && u.Query().Get("token") != "" {
		token = u.Query().Get("token") // the whole link was pasted
	}
	return s.signIn(c, token, safeNext(next))
}

func (s *Server) signIn(c echo.Context, token, next string) error {
	cookie, err := s.door.SignIn(c.Request().RemoteAddr, token, time.Now())
	v := pages.Login{Chrome: s.chrome(c), Next: next}
	if too, ok := errors.AsType[*auth.TooManyError](err); ok {
		c.Response().Header().Set("Retry-After", strconv.Itoa(int(too.RetryAfter.Seconds())+1))
		v.Problem = v.Lang.T("Too many wrong tokens from this address. Wait a minute and try again.")
		return show(c, http.StatusTooManyRequests, pages.LoginPage(v))
	}
	if err != nil {
		v.Problem = v.Lang.T("That is not this server's token. Copy the whole link that it printed when it started, or run: web link")
		return show(c, http.StatusUnauthorized, pages.LoginPage(v))
	}
	c.SetCookie(cookie)
	return c.Redirect(http.StatusSeeOther, next)
}

func (s *Server) logout(c echo.Context) error {
	claims, via, err := s.door.Who(c.Request(), time.Now())
	if err != nil {
		via = auth.ViaCookie
	}
	// Also of a request without a credential, for the answer takes the cookie
	// away: browsers send none along with a form of another site.
	if err := s.site.CheckMutation(c.Request(), via); err != nil {
		return s.refuse(c, err)
	}
	if err == nil {
		if err := s.signedOut(c.Request().Context(), claims); err != nil {
			return err
		}
	}
	c.SetCookie(s.door.SignOut())
	return c.Redirect(http.StatusSeeOther, "/login")
}

// safeNext allows only a path of this site.
func safeNext(next string) string {
	u, err := url.Parse(next)
	if err != nil || len(next) > maxNext || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t") ||
		u.Host != "" || u.Scheme != "" || strings.HasPrefix(next, "/login") {
		return "/"
	}
	return next
}

func (s *Server) static(c echo.Context) error {
	c.Response().Header().Del("Cache-Control")
	s.assets.ServeHTTP(c.Response(), c.Request())
	return nil
}

// favicon leads browsers that ask by themselves to the mark.
func (s *Server) favicon(c echo.Context) error {
	return c.Redirect(http.StatusFound, s.assets.URL("mark.svg"))
}

func (s *Server) docs(c echo.Context) error {
	page, ok := docs.Find(c.Param("*"))
	if !ok {
		return notebook.Errorf(notebook.NotFound, "There is no such page in the documentation.")
	}
	v := pages.Docs{Chrome: s.chrome(c), Title: page.Title, Body: render.Markdown(page.Text, render.Options{FilesBase: "/docs/", Cache: s.bounds.rendered})}
	for _, p := range docs.Pages() {
		v.Nav = append(v.Nav, pages.DocLink{Title: p.Title, Href: "/docs/" + p.Path, Current: p.Path == page.Path})
	}
	return show(c, http.StatusOK, pages.DocsPage(v))
}

// form runs an op asked for by a form and goes back to the list.
func (s *Server) form(c echo.Context, op notebook.Op, next string) error {
	ses, err := s.session(c)
	if err != nil {
		return err
	}
	if _, err := ses.Do(c.Request().Context(), actor(c), op, ""); err != nil {
		if notebook.CodeOf(err) == notebook.Internal {
			return err
		}
		return s.list(c, problemOf(err).Status, notebook.MessageOf(err), "")
	}
	return c.Redirect(http.StatusSeeOther, next)
}

// field reads one field of a small form. What an address says after its
// question mark is no part of a form.
func field(c echo.Context, name string) (string, error) {
	r := c.Request()
	if r.PostForm == nil {
		r.Body = http.MaxBytesReader(c.Response(), r.Body, maxForm)
		err := r.ParseForm()
		if err == nil && strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/form-data") {
			err = r.ParseMultipartForm(maxForm)
		}
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			return "", err
		}
		if err != nil {
			return "", notebook.Errorf(notebook.Invalid, "The form cannot be read. Go back and send it again.")
		}
	}
	return r.PostFormValue(name), nil
}

func (s *Server) renameForm(c echo.Context) error {
	title, err := field(c, "title")
	if err != nil {
		return err
	}
	return s.form(c, notebook.Rename{Title: title}, "/")
}

func (s *Server) deleteForm(c echo.Context) error {
	return s.form(c, notebook.DeleteNotebook{}, "/?deleted="+url.QueryEscape(c.Param("id")))
}

func (s *Server) restoreForm(c echo.Context) error {
	return s.form(c, notebook.RestoreNotebook{}, "/")
}
