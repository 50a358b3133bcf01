// Package web is the page of lastword serve: rendered on the server and readable without JavaScript; a script of our own patches it
// from the event stream. Everything shown goes through html/template or textContent: sources and messages are hostile.
package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/lastword-go/lastword"
	"github.com/lastword-go/lastword/app/internal/api"
)

//go:embed templates/*.html
var templates embed.FS

//go:embed assets
var assets embed.FS

// Reader reads what the pages show.
type Reader interface {
	Submissions(ctx context.Context, before int64, limit int) (api.Page, error)
	// Submission returns an error that matches lastword.ErrNotFound when there is none.
	Submission(ctx context.Context, id int64) (api.Submission, error)
	Refusals(ctx context.Context) ([]api.Refusal, error)
	Status(ctx context.Context) (api.Status, error)
}

// Config is what the pages stand on.
type Config struct {
	Reader    Reader
	Problems  []api.Problem
	Languages []api.Language
	Log       *slog.Logger
}

const rowsShown = 100

type pages struct {
	Config
	templates *template.Template
	assetTags map[string]string // by name: a hash of the content
}

// New returns the handler of the pages and their files. Headers that protect them are the caller's.
func New(config Config) http.Handler {
	p := &pages{Config: config, assetTags: map[string]string{}}
	for _, name := range []string{"page.css", "page.js", "icon.svg"} {
		content, err := assets.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		sum := sha256.Sum256(content)
		p.assetTags[name] = hex.EncodeToString(sum[:8])
	}
	p.templates = template.Must(template.New("").Funcs(p.functions()).ParseFS(templates, "templates/*.html"))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.submissions)
	mux.HandleFunc("GET /submissions/{id}", p.submission)
	mux.HandleFunc("GET /problems", p.problems)
	mux.HandleFunc("GET /refusals", p.refusals)
	mux.HandleFunc("GET /status", p.status)
	mux.HandleFunc("GET /assets/{name}", p.asset)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		p.fail(w, r, lastword.ErrNotFound, "There is no such page.")
	})
	return mux
}

func (p *pages) asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	tag, ok := p.assetTags[name]
	if !ok {
		p.fail(w, r, lastword.ErrNotFound, "There is no such file.")
		return
	}
	content, err := assets.ReadFile("assets/" + name)
	if err != nil {
		p.fail(w, r, err, "")
		return
	}
	w.Header().Set("ETag", `"`+tag+`"`)
	w.Header().Set("Cache-Control", "no-cache")
	if r.URL.Query().Get("v") == tag {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
}

// frame is what each page has.
type frame struct {
	Title  string
	Place  string // the entry of the bar that is current
	Server string // base of the calls to copy
	Now    time.Time
}

func (p *pages) frame(r *http.Request, title, place string) frame {
	return frame{Title: title, Place: place, Server: serverOf(r), Now: time.Now()}
}

// safeHost is what may stand in a command that somebody copies into a shell.
const safeHost = `^[A-Za-z0-9.\-]+(:[0-9]+)?$|^\[[0-9a-fA-F:.]+\](:[0-9]+)?$`

func serverOf(r *http.Request) string {
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	if ok, err := regexp.MatchString(safeHost, r.Host); err != nil || !ok {
		return scheme + "127.0.0.1:8080"
	}
	return scheme + r.Host
}

type submissionsPage struct {
	frame
	Query     string
	Before    int64
	Rows      []row
	Shown     int
	Next      int64
	Problems  []api.Problem
	Languages []api.Language
}

func (p *pages) submissions(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	before, _ := strconv.ParseInt(query.Get("before"), 10, 64)
	list, err := p.Reader.Submissions(r.Context(), max(before, 0), rowsShown)
	if err != nil {
		p.fail(w, r, err, "")
		return
	}
	page := submissionsPage{frame: p.frame(r, "Submissions", "submissions"), Query: query.Get("q"), Before: max(before, 0), Next: list.Next, Problems: p.Problems, Languages: p.Languages}
	for _, s := range list.Submissions {
		row := rowOf(s, page.Now)
		row.Hidden = !row.matches(page.Query)
		if !row.Hidden {
			page.Shown++
		}
		page.Rows = append(page.Rows, row)
	}
	p.render(w, r, http.StatusOK, "submissions", page)
}

type submissionPage struct {
	frame
	Detail detail
}

func (p *pages) submission(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		p.fail(w, r, lastword.ErrNotFound, "A submission's id is a number.")
		return
	}
	s, err := p.Reader.Submission(r.Context(), id)
	if err != nil {
		p.fail(w, r, err, "There is no submission "+strconv.FormatInt(id, 10)+".")
		return
	}
	page := submissionPage{frame: p.frame(r, "Submission "+strconv.FormatInt(id, 10), "submissions")}
	page.Detail = detailOf(s, page.Now, page.Server)
	name := "submission"
	if r.URL.Query().Get("part") == "detail" { // what a row opens to
		name = "detail-part"
	}
	p.render(w, r, http.StatusOK, name, page)
}

func (p *pages) problems(w http.ResponseWriter, r *http.Request) {
	p.render(w, r, http.StatusOK, "problems", struct {
		frame
		Problems []api.Problem
	}{p.frame(r, "Problems", "problems"), p.Problems})
}

func (p *pages) refusals(w http.ResponseWriter, r *http.Request) {
	refusals, err := p.Reader.Refusals(r.Context())
	if err != nil {
		p.fail(w, r, err, "")
		return
	}
	p.render(w, r, http.StatusOK, "refusals", struct {
		frame
		Refusals []api.Refusal
	}{p.frame(r, "Refusals", "refusals"), refusals})
}

func (p *pages) status(w http.ResponseWriter, r *http.Request) {
	status, err := p.Reader.Status(r.Context())
	if err != nil {
		p.fail(w, r, err, "")
		return
	}
	p.render(w, r, http.StatusOK, "status", struct {
		frame
		Status    api.Status
		Languages []api.Language
	}{p.frame(r, "Status", "status"), status, p.Languages})
}

// fail answers with a page that says what is wrong; missing is for what is not there.
func (p *pages) fail(w http.ResponseWriter, r *http.Request, err error, missing string) {
	page := struct {
		frame
		Sentence string
	}{p.frame(r, "Not found", ""), missing}
	status := http.StatusNotFound
	if !errors.Is(err, lastword.ErrNotFound) {
		status = http.StatusInternalServerError
		page.Title, page.Sentence = "Failed", "The server failed: its log says why. Trying again is harmless."
		if r.Context().Err() == nil {
			p.Log.Error("page failed", "path", r.URL.Path, "error", err)
		}
	}
	p.render(w, r, status, "failed", page)
}

func (p *pages) render(w http.ResponseWriter, r *http.Request, status int, name string, page any) {
	var out bytes.Buffer
	if err := p.templates.ExecuteTemplate(&out, name, page); err != nil {
		p.Log.Error("page failed", "path", r.URL.Path, "error", err)
		http.Error(w, "the server failed: its log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes())
}
