package templates

import (
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// content is the name by which a layout calls the page.
const content = "content"

// file is a template file in the state in which it was last read.
type file struct {
	path     string
	modified time.Time
	size     int64
	shared   bool
}

// set holds the templates that were parsed from files.
type set struct {
	files []file
	pages map[string]*template.Template
	err   error
}

// isOf reports whether the set was made from these files, and they are unchanged.
func (s *set) isOf(files []file) bool {
	return slices.EqualFunc(s.files, files, func(a, b file) bool {
		return a.path == b.path && a.size == b.size && a.modified.Equal(b.modified)
	})
}

// find returns the files that the patterns match, in the order of their paths.
func (t *Templates) find() ([]file, error) {
	var files []file
	err := fs.WalkDir(t.fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		shared, err := matches(t.options.Shared, name)
		if err != nil {
			return err
		}
		isPage, err := matches(t.options.Pages, name)
		if err != nil || !shared && !isPage {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			// The target of a symbolic link may change, be a directory, or be missing: Emacs locks page.html by the link .#page.html.
			if info, err = fs.Stat(t.fsys, name); errors.Is(err, fs.ErrNotExist) {
				return nil
			}
		}
		if err != nil || info.IsDir() {
			return err
		}
		files = append(files, file{name, info.ModTime(), info.Size(), shared})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	return files, nil
}

func matches(patterns []string, name string) (bool, error) {
	for _, pattern := range patterns {
		subject := name
		if !strings.Contains(pattern, "/") {
			subject = path.Base(name)
		}
		if ok, err := path.Match(pattern, subject); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// parse parses the files into a set. Its err is the error of the first file that has one.
func (t *Templates) parse(files []file) *set {
	s := &set{files: files, pages: make(map[string]*template.Template)}
	s.err = t.parseInto(s)
	return s
}

func (t *Templates) parseInto(s *set) error {
	shared := template.New("").Funcs(t.options.Funcs).Delims(t.options.LeftDelim, t.options.RightDelim)
	for _, f := range s.files {
		if f.shared {
			if _, err := t.parseFile(shared, f.path); err != nil {
				return err
			}
		}
	}
	if t.options.Layout != "" && shared.Lookup(t.options.Layout) == nil {
		return fmt.Errorf("templates: the Layout %q is none of the shared files%s", t.options.Layout, elsewhere(s.files, t.options.Layout))
	}
	for _, f := range s.files {
		page, err := t.page(shared, f)
		if err != nil {
			if missing := noTemplate.FindStringSubmatch(err.Error()); missing != nil {
				err = fmt.Errorf("%w%s", err, elsewhere(s.files, missing[1]))
			}
			return err
		}
		s.pages[f.path] = page
	}
	return nil
}

// noTemplate finds the name in html/template's error for a template that isn't there.
var noTemplate = regexp.MustCompile(`no such template "([^"]*)"`)

// elsewhere says where a missing file is, if it is in a subdirectory: an embed.FS contains the embedded directory itself.
func elsewhere(files []file, name string) string {
	for _, f := range files {
		if directory, ok := strings.CutSuffix(f.path, "/"+name); ok {
			return fmt.Sprintf(", but there is %q: give New what fs.Sub(files, %q) returns", f.path, directory)
		}
	}
	return ""
}

// page returns the template to execute for a file, with a copy of the shared templates.
func (t *Templates) page(shared *template.Template, f file) (*template.Template, error) {
	all, err := shared.Clone()
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	if f.shared {
		// A layout without a page lacks the templates that pages define. That is an error only if the layout is rendered without a page.
		return all.Lookup(f.path), nil
	}
	layoutsOwn := all.Lookup(content)
	page, err := t.parseFile(all, f.path)
	if err != nil {
		return nil, err
	}
	if t.options.Layout == "" {
		return page, escape(all, f.path)
	}
	// Unless the page defines content itself, the page is the content.
	if defined := all.Lookup(content); defined == nil || layoutsOwn != nil && defined.Tree == layoutsOwn.Tree {
		if _, err := all.AddParseTree(content, page.Tree.Copy()); err != nil {
			return nil, fmt.Errorf("templates: %w", err)
		}
	}
	return all.Lookup(t.options.Layout), escape(all, t.options.Layout)
}

func (t *Templates) parseFile(into *template.Template, name string) (*template.Template, error) {
	text, err := fs.ReadFile(t.fsys, name)
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	parsed, err := into.New(name).Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	return parsed, nil
}

// escape makes html/template escape the templates now instead of at the first execution, which would find mistakes late. To do so, it
// executes an extra template that calls root inside of {{if false}}: html/template then checks all templates that root reaches, without
// executing them.
func escape(all *template.Template, root string) error {
	caller, err := all.New("escape").Delims("", "").Parse(fmt.Sprintf(`{{if false}}{{template %q .}}{{end}}`, root))
	if err == nil {
		err = caller.Execute(io.Discard, nil)
	}
	if err != nil {
		return fmt.Errorf("templates: %w", err)
	}
	return nil
}
