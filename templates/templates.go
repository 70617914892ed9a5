// Package templates renders HTML pages with html/template, with layouts and partials, for filo.Server.Renderer.
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
// Each page is a template set of its own, so all pages can define the same blocks. The set has the page and the files of
// Options.Shared, which are layouts and partials. Templates are named by the paths of their files, such as {{template
// "partials/nav.html" .}}, and by the names in define and block.
//
// The page replaces {{template "content" .}} in Options.Layout, and the page's definitions replace the layout's blocks. Without
// a Layout a page names its own layout, with {{template "layouts/main.html" .}}.
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

// Options are the options of New. The zero value is for pages that name their layouts.
//
// Patterns follow path.Match. A pattern without a slash matches file names in any directory; any other pattern matches whole
// paths.
type Options struct {
	// Pages are patterns of the files to render. Default "*.html". A file that Shared matches is not a page.
	Pages []string
	// Shared are patterns of the layouts and partials that all pages can use. Default "layouts/*.html" and "partials/*.html".
	// Shared files can also be rendered, without the Layout: for fragments, and for pages with no layout.
	Shared []string
	// Layout is the shared file that wraps each page. Default none.
	Layout string
	// Funcs are functions for the templates. Many goroutines call them at once.
	Funcs template.FuncMap
	// LeftDelim and RightDelim enclose actions. Default "{{" and "}}".
	LeftDelim, RightDelim string
	// Reload is for development. Changed files are parsed again before the next page is rendered, and an error is an HTTPError that shows
	// the file and the line. Each call to Render then checks all files.
	Reload bool
}

// Templates renders pages. It is safe for use by many goroutines. Make one with New.
type Templates struct {
	fsys    fs.FS
	options Options
	// parsed holds the parsed templates, which are never changed.
	parsed atomic.Pointer[set]
	// reloading is held while the files are checked for changes.
	reloading sync.Mutex
}

// New parses the files in fsys. The error names the file and the line that can't be parsed, or can't be escaped for HTML. With
// Options.Reload the pages show the error instead.
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

// Render writes the page or shared file with the given name, its path in the file system. It writes all of the output at once,
// or nothing if there is an error.
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
		return t.explained(fmt.Errorf("templates: there is no %q%s", name, elsewhere(s.files, name)))
	}
	buffer := bytebufferpool.Get()
	defer bytebufferpool.Put(buffer)
	if err := page.Execute(buffer, data); err != nil {
		return t.explained(fmt.Errorf("templates: %w", err))
	}
	_, err := w.Write(buffer.B)
	return err
}

// reload parses the files again if they have changed, and returns the current templates, or the reason why there are none.
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
