package static

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/flight"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/setup"
)

// check panics if an argument of New or Dir is invalid.
var check = setup.Checker("static")

// Options configures New and Dir. The zero value is right for most sites.
type Options struct {
	// Index is the name of the file that is served for its directory, "index.html" if Index is empty; "-" means none. The name may begin
	// with a dot even without Hidden.
	Index string

	// Listing serves a list of names for a directory without an index. Without Listing, such a directory is 404.
	Listing bool

	// Fallback is a file, such as "index.html", that is served in place of a 404, for applications that render their pages in the
	// browser. It is served only for requests that ask for a page: the client must prefer text/html, as browsers do for a page
	// but not for its images and scripts, and the path's last segment must have no dot. Other clients get the 404.
	Fallback string

	// Hidden serves names that begin with a dot like other names.
	Hidden bool

	// Precompressed serves name.zst, name.br and name.gz as encodings of name.
	Precompressed bool

	// CacheControl returns the Cache-Control value for a file, or "" for none. CacheFingerprinted is such a function. The name has no
	// leading slash. It is called when a file is loaded, not for each request. It must be fast, and safe for concurrent use. If
	// CacheControl is nil, this package doesn't set the field.
	CacheControl func(name string) string

	// CacheBytes limits the memory for the contents of small files, and for the metadata of all files. Default 16 MB; negative:
	// no contents are kept.
	CacheBytes int64

	// CacheFileBytes is the maximum size of a file in memory. Default 256 KB, and never more than an eighth of CacheBytes.
	CacheFileBytes int64

	// CacheCheck is how long a file is assumed to be unchanged. After that, the next request for it checks the disk. Default 1 s;
	// negative: every request checks, and simultaneous requests share a check.
	CacheCheck time.Duration

	// OpenFiles is how many files that aren't in memory stay open, so that the next request needn't open and close its file.
	// OpenFiles has an effect only on Linux, and only for files of the operating system. A file that isn't requested is closed
	// after 10 to 20 s. Default 64; negative: none.
	OpenFiles int

	// Frozen declares that no file changes while the server runs. Each file is then checked only once, when it is loaded, and
	// every entity tag is a hash of the content; for a large file, the first request computes it. An embed.FS is always treated
	// as frozen, but not the result of fs.Sub for one.
	Frozen bool
}

const (
	defaultCacheBytes     = 16 << 20
	defaultCacheFileBytes = 256 << 10
	defaultCacheCheck     = time.Second
	defaultOpenFiles      = 64
	// knownBytes limits the memory for entries if no contents are kept.
	knownBytes = 1 << 20
)

// Files serves files. Several goroutines may call its methods at once.
type Files struct {
	source   source
	options  Options // with the defaults
	memory   memory
	open     openFiles
	loading  flight.Group[loaded]
	fileSize int64 // the maximum size of a file that is kept in memory; negative: none is kept
}

// New returns a Files for an fs.FS. Ranges of a file are available only if the file is an io.Seeker or fits in memory; sendfile
// is used only for an *os.File. New panics if an option is wrong.
//
// For a directory, prefer Dir to os.DirFS, which follows symbolic links out of the directory.
func New(fsys fs.FS, options ...Options) *Files {
	o := setup.One("static: New", options)
	if _, ok := fsys.(embed.FS); ok {
		o.Frozen = true
	}
	return newFiles(anyFS{fsys}, o)
}

// Dir returns a Files for a directory. It opens the directory at once, so the directory is served even after it is renamed.
// Symbolic links are followed as long as they stay in the directory. Dir returns an error if the directory can't be opened. Dir
// panics if an option is wrong.
func Dir(path string, options ...Options) (*Files, error) {
	o := setup.One("static: Dir", options)
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return newFiles(newRootDir(root), o), nil
}

func newFiles(source source, options Options) *Files {
	options.setDefaults()
	f := &Files{source: source, options: options, fileSize: min(options.CacheFileBytes, options.CacheBytes/8)}
	f.memory.limit, f.open.limit = options.CacheBytes, options.OpenFiles
	if options.CacheBytes < 0 {
		f.memory.limit, f.fileSize = knownBytes, -1
	}
	return f
}

func (o *Options) setDefaults() {
	switch o.Index {
	case "":
		o.Index = "index.html"
	case "-":
		o.Index = ""
	}
	check(o.Index == "" || validName(o.Index) && !strings.Contains(o.Index, "/"), "Index: %q isn't a file name", o.Index)
	check(o.Fallback == "" || validName(o.Fallback), "Fallback: %q isn't the name of a file in the tree", o.Fallback)
	check(o.CacheFileBytes >= 0, "CacheFileBytes is negative; a negative CacheBytes keeps no contents")
	o.CacheBytes = cmp.Or(o.CacheBytes, defaultCacheBytes)
	o.CacheFileBytes = cmp.Or(o.CacheFileBytes, defaultCacheFileBytes)
	o.CacheCheck = cmp.Or(o.CacheCheck, defaultCacheCheck)
	o.OpenFiles = cmp.Or(o.OpenFiles, defaultOpenFiles)
}

// Close closes the directory that Dir has opened, and the files that are kept open. Later requests for files of the directory get
// 500. Answers in progress are completed.
func (f *Files) Close() error {
	f.open.close()
	return f.source.close()
}

var (
	errNotFound     = filo.Error(404, "")
	errMethod       = filo.Error(405, "")
	errPrecondition = filo.Error(412, "")
	errRange        = filo.Error(416, "")
	errEncoding     = filo.Error(406, "none of the content codings that are accepted is available")

	allow = filo.NewField("Allow", "GET, HEAD")
)

// Serve answers with the file that the path names: it is a filo.Handler. In a route whose pattern ends in {name...} or a slash,
// the name is only the part of the path that this end matches.
func (f *Files) Serve(c *filo.Ctx) error {
	if err := checkMethod(c); err != nil {
		return err
	}
	name, ok := requestName(c)
	if !ok {
		return errNotFound
	}
	if last := name[bytes.LastIndexByte(name, '/')+1:]; len(last) > 0 && string(last) == f.options.Index {
		return redirect(c, "./")
	}
	var buffer [128]byte
	file := name
	if namesDirectory(name) {
		file = append(append(buffer[:0], name...), f.options.Index...)
	}
	if e := f.fresh(file); e != nil {
		// The name of the index file may be hidden, since the program has chosen it; what the client has named may not.
		if e.hidden && !f.options.Hidden && len(name) > 0 && hidden(strings.TrimSuffix(string(name), "/")) {
			return errNotFound
		}
		return f.answer(c, e)
	}
	return f.find(c, string(name))
}

// ServeFile answers with the file called name in the tree, whatever the path of the request. A directory is 404. Names that begin
// with a dot are allowed, because the program has chosen them. ServeFile keeps a status and a Content-Type that were set before,
// for example for an error page.
func (f *Files) ServeFile(c *filo.Ctx, name string) error {
	if err := checkMethod(c); err != nil {
		return err
	}
	if !validName(name) {
		return errNotFound
	}
	return f.serveFile(c, name)
}

func (f *Files) serveFile(c *filo.Ctx, name string) error {
	if e := f.fresh([]byte(name)); e != nil {
		return f.answer(c, e)
	}
	if err := inside.Offload(c); err != nil {
		return err
	}
	e, err := f.entry(name)
	if err != nil {
		return f.source.httpError(err)
	}
	return f.answer(c, e)
}

func checkMethod(c *filo.Ctx) error {
	if method := c.Request.MethodBytes(); string(method) == "GET" || string(method) == "HEAD" {
		return nil
	}
	c.Response.Header.SetField(&allow)
	return errMethod
}

// find serves a file that has no current entry in memory. The name of a directory ends in a slash, or is empty.
func (f *Files) find(c *filo.Ctx, name string) error {
	plain := strings.TrimSuffix(name, "/")
	if plain != "" && (!validName(plain) || !f.options.Hidden && hidden(plain)) {
		return errNotFound
	}
	if err := inside.Offload(c); err != nil {
		return err
	}
	err := error(nil)
	if plain == name && plain != "" {
		err = f.findFile(c, plain)
	} else {
		err = f.findDirectory(c, plain)
	}
	if err == nil {
		return nil
	}
	if err = f.source.httpError(err); isNotFound(err) && f.options.Fallback != "" && wantsPage(c, plain) {
		return f.serveFile(c, f.options.Fallback)
	}
	return err
}

func (f *Files) findFile(c *filo.Ctx, name string) error {
	e, err := f.entry(name)
	if err == nil {
		return f.answer(c, e)
	}
	if !errors.Is(err, errDirectory) {
		return err
	}
	if !f.options.Listing {
		// A redirect would reveal a directory that has nothing to show.
		if _, err := f.indexOf(name); err != nil {
			return err
		}
	}
	return redirect(c, relative(path.Base(name)+"/"))
}

// findDirectory serves a directory. The name of the tree's root is empty.
func (f *Files) findDirectory(c *filo.Ctx, name string) error {
	e, err := f.indexOf(name)
	if err == nil {
		return f.answer(c, e)
	}
	if !isNotFound(f.source.httpError(err)) {
		return err
	}
	if name != "" {
		if info, err := f.source.stat(name); err == nil && info.Mode().IsRegular() {
			return redirect(c, "../"+strings.TrimPrefix(relative(path.Base(name)), "./"))
		}
	}
	if !f.options.Listing {
		return err
	}
	return f.list(c, name)
}

// indexOf returns the entry of a directory's index file.
func (f *Files) indexOf(name string) (*entry, error) {
	if f.options.Index == "" {
		return nil, fs.ErrNotExist
	}
	return f.entry(path.Join(name, f.options.Index))
}

// redirect answers with a relative Location, since a mounted handler doesn't know the prefix at which it is mounted.
func redirect(c *filo.Ctx, location string) error {
	if query := c.Request.URI().RawQueryBytes(); len(query) > 0 {
		location += "?" + string(query)
	}
	return c.Redirect(301, location)
}

// relative returns a reference to another name in the directory of the request's path.
func relative(name string) string {
	u := url.URL{Path: name}
	return u.String()
}

// wantsPage reports whether the client asks for a page, so that the fallback may be served.
func wantsPage(c *filo.Ctx, name string) bool {
	if strings.Contains(path.Base(name), ".") && name != "" {
		return false
	}
	// For a client that accepts any type, Negotiate returns the first offer, so such a client isn't served the page.
	return c.Negotiate("application/octet-stream", "text/html") == "text/html"
}

func isNotFound(err error) bool {
	var e *filo.HTTPError
	return errors.As(err, &e) && e.Status == 404
}
