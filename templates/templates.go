// Package templates renders HTML pages by html/template, with layouts and partials, for filo.Server.Renderer.
//
//	//go:embed views
//	var views embed.FS
//
//	fsys, _ := fs.Sub(views, "views")
//	pages, err := templates.New(fsys, templates.Options{Layout: "layouts/main.html"})
//	…
//	server := filo.Server{Renderer: pages, Handler: func(c *filo.Ctx) error {
//		return c.Render(200, "users/show.html", user)
//	}}
//
// Each page is a set of templates of its own, so that all of them can define the same blocks: the files of Options.Shared,
// which are layouts and partials, and the page. Templates go by the paths of their files, such as
// {{template "partials/nav.html" .}}, beside the names that define and block give.
//
// A page is put into Options.Layout where that says {{template "content" .}}; what the page defines takes the place of the
// layout's blocks. Without a Layout a page names its own, by {{template "layouts/main.html" .}}.
package templates

import (
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/filohttp/filo/internal/setup"
	"github.com/valyala/bytebufferpool"
)

// Options says what the files are. The zero value is for pages that name their layouts.
//
// Patterns are those of path.Match. One without a slash is for the names of files in any directory, another one for whole paths.
type Options struct {
	// Pages are patterns of the files to render. Default "*.html". What Shared matches is no page.
	Pages []string
	// Shared are patterns of the layouts and partials that all pages can use. Default "layouts/*.html" and "partials/*.html".
	// They can be rendered too, as they are: for fragments, and for pages without the Layout.
	Shared []string
	// Layout is the shared file that pages are put into. Default none.
	Layout string
	// Funcs are functions for the templates. They are called by many goroutines at once.
	Funcs template.FuncMap
	// LeftDelim and RightDelim enclose actions. Default "{{" and "}}".
	LeftDelim, RightDelim string
	// Reload is for development: files that have changed are parsed again before the next page is rendered, and errors are an
	// HTTPError that shows where in which file they are. Each page looks at all files then.
	Reload bool
}

// Templates renders pages. It is safe for use by many goroutines. New makes one.
type Templates struct {
	fsys    fs.FS
	options Options
	// parsed is what pages are rendered from; nothing in it is changed.
	parsed atomic.Pointer[set]
	// reloading is held while files are looked at again.
	reloading sync.Mutex
}

// New parses the files in fsys. The error says which of them can't be parsed, or escaped for HTML, and in which line; with
// Options.Reload pages show it instead.
func New(fsys fs.FS, options ...Options) (*Templates, error) {
	o := setup.One("templates: New", options)
	if len(o.Pages) == 0 {
		o.Pages = []string{"*.html"}
	}
	if len(o.Shared) == 0 {
		o.Shared = []string{"layouts/*.html", "partials/*.html"}
	}
	t := &Templates{fsys: fsys, options: o}
	files, err := t.find()
	if err != nil {
		return nil, err
	}
	s := t.parse(files)
	if s.err != nil && !o.Reload {
		return nil, s.err
	}
	t.parsed.Store(s)
	return t, nil
}

// Render writes the page, or shared file, of that name: its path in the file system. It writes all of it at once, and nothing
// if there is an error.
func (t *Templates) Render(w io.Writer, name string, data any) error {
	s := t.parsed.Load()
	if t.options.Reload {
		var err error
		if s, err = t.reload(); err != nil {
			return t.explained(err)
		}
	}
	page := s.pages[name]
	if page == nil {
		return t.explained(fmt.Errorf("templates: there is no %q", name))
	}
	buffer := bytebufferpool.Get()
	defer bytebufferpool.Put(buffer)
	if err := page.Execute(buffer, data); err != nil {
		return t.explained(fmt.Errorf("templates: %w", err))
	}
	_, err := w.Write(buffer.B)
	return err
}

// reload parses the files again if they have changed, and returns what is right now, or why there is nothing.
func (t *Templates) reload() (*set, error) {
	t.reloading.Lock()
	defer t.reloading.Unlock()
	files, err := t.find()
	if err != nil {
		return nil, err
	}
	s := t.parsed.Load()
	if !s.isOf(files) {
		s = t.parse(files)
		t.parsed.Store(s)
	}
	return s, s.err
}
