package static

import (
	"cmp"
	"errors"
	"html"
	"io"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/syntax"
	"github.com/filohttp/filo/middleware"
)

// maxListed is the maximum number of names in a list.
const maxListed = 10_000

// list sends a list of the names in a directory. The root's name is "".
func (f *Files) list(c *filo.Ctx, name string) error {
	dir, err := f.source.open(cmp.Or(name, "."))
	if err != nil {
		return err
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	reader, ok := dir.(fs.ReadDirFile)
	if !ok || !info.IsDir() {
		return fs.ErrNotExist
	}
	h := &c.Response.Header
	if t := info.ModTime(); known(t) {
		switch middleware.Precondition(c, noTag, t) {
		case 304:
			c.Response.SetStatus(304)
			return nil
		case 412:
			return errPrecondition
		}
		h.Set("Last-Modified", t.UTC().Format(syntax.TimeFormat))
	}
	// One more name than the list holds is read, to learn whether there are more.
	entries, err := reader.ReadDir(maxListed + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	h.SetField(&noSniff)
	return c.HTML(200, f.listHTML(name, entries))
}

// listHTML returns the list as an HTML document. It escapes all names.
func (f *Files) listHTML(dir string, entries []fs.DirEntry) string {
	more := len(entries) > maxListed
	entries = entries[:min(len(entries), maxListed)]
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	title := html.EscapeString(strings.ToValidUTF8("/"+dir, "\ufffd"))
	var b strings.Builder
	b.WriteString("<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n" +
		"<title>" + title + "</title>\n<h1>" + title + "</h1>\n<ul>\n")
	for _, e := range entries {
		name := e.Name()
		if full := path.Join(dir, name); !validName(full) || !f.options.Hidden && hidden(full) {
			continue // no client could request it
		}
		if e.IsDir() {
			name += "/"
		}
		link := url.URL{Path: name}
		b.WriteString("<li><a href=\"" + html.EscapeString(link.String()) + "\">" + html.EscapeString(name) + "</a>\n")
	}
	b.WriteString("</ul>\n")
	if more {
		b.WriteString("<p>There are more.\n")
	}
	return b.String()
}
