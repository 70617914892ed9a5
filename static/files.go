package static

import (
	"bytes"
	"embed"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/setup"
)

// Options are the options of New and Dir. The zero value is right for most sites.
type Options struct {
	// Index is the name of the file that is the answer for its directory, "index.html" if empty; "-" is none.
	Index string

	// Listing answers with a list of names for a directory without an index. Else it is 404.
	Listing bool

	// Fallback is a file, such as "index.html", that is the answer where there is none, for applications whose pages are made in
	// the browser. It is for those who look for a page: they must like text/html best, as browsers do when they go to a page and
	// not when they load parts of one, and the path's last segment must have no dot. Others get their 404.
	Fallback string

	// Hidden serves names that begin with a dot as others.
	Hidden bool

	// Precompressed serves name.zst, name.br and name.gz as encodings of name.
	Precompressed bool

	// CacheControl returns the Cache-Control value for a file, "" for none. CacheFingerprinted is one. The name has no slash
	// in front. It is called now and then, by several goroutines at once, and must be quick. If nil, no such field is set here.
	CacheControl func(name string) string

	// CacheBytes is how much memory the files in memory may take together, with what is known of them and others. Default
	// 16 MB; negative: no contents are kept.
	CacheBytes int64

	// CacheFileBytes is how large a file may be to be kept in memory. Default 256 KB, and never more than an eighth of
	// CacheBytes.
	CacheFileBytes int64

	// CacheCheck is for how long a file is taken to be as it was. After that the next request for it has a look at the disk.
	// Default 1 s; negative: there is a look for each request, which those that come meanwhile share.
	CacheCheck time.Duration

	// OpenFiles is how many files that aren't in memory are kept open for the next request for them, so that it needs to open and
	// close none: files of the operating system's, on Linux. One that isn't asked for is closed in 10 to 20 s. Default 64;
	// negative: none.
	OpenFiles int

	// Frozen says that no file changes while the server runs: they are looked at once, and all of them have a hash of their
	// content for an entity tag, though of large ones it is made at the first request. An embed.FS is known to be so, but
	// not what fs.Sub makes of one.
	Frozen bool
}

const (
	defaultCacheBytes     = 16 << 20
	defaultCacheFileBytes = 256 << 10
	defaultCacheCheck     = time.Second
	defaultOpenFiles      = 64
	// knownBytes is the limit of what is kept without contents.
	knownBytes = 1 << 20
)

// Files serves files. Its methods may be called by several goroutines at once.
type Files struct {
	source   source
	options  Options // with the defaults
	memory   memory
	open     openFiles
	loading  flights
	fileSize int64 // that is kept in memory, at most; negative is none
}

// New returns what serves the files of an fs.FS. To be sent in ranges they must be io.Seeker, or small; to go out by
// sendfile they must be *os.File. It panics if an option is wrong.
//
// For a directory Dir is better than os.DirFS, which follows symbolic links to wherever they lead.
func New(fsys fs.FS, options ...Options) *Files {
	o := setup.One("static: New", options)
	if _, ok := fsys.(embed.FS); ok {
		o.Frozen = true
	}
	return newFiles(anyFS{fsys}, o)
}

// Dir returns what serves the files of a directory, which is opened now: a directory that is renamed is served still. Links are
// followed as long as they stay in it. The error is that of opening it. It panics if an option is wrong.
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
	check(o.Index == "" || validName(o.Index) && !strings.Contains(o.Index, "/"), "Index: %q is no name of a file", o.Index)
	check(o.Fallback == "" || validName(o.Fallback), "Fallback: %q is no name of a file in the tree", o.Fallback)
	check(o.CacheFileBytes >= 0, "CacheFileBytes is negative; a negative CacheBytes keeps no contents")
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCacheBytes
	}
	if o.CacheFileBytes == 0 {
		o.CacheFileBytes = defaultCacheFileBytes
	}
	if o.CacheCheck == 0 {
		o.CacheCheck = defaultCacheCheck
	}
	if o.OpenFiles == 0 {
		o.OpenFiles = defaultOpenFiles
	}
}

// Close closes the directory of Dir, so that what is asked for from then on is a 500, and the files that are kept open. Answers
// that are being sent are completed.
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

// Serve is the filo.Handler of the files. It answers with the one that the path names, without what a router's pattern that
// ends in {name...} or a slash has in front of that.
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
		if e.hidden && !f.options.Hidden {
			return errNotFound
		}
		return f.answer(c, e)
	}
	return f.find(c, string(name))
}

// ServeFile answers with the file called name, in the tree, whatever the path is. A directory is 404. Names that begin with a
// dot are as others: it is the program that has chosen them. A status that was set before stays, as for a page that goes with
// an error, and so does a Content-Type.
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
	if err := offload(c); err != nil {
		return err
	}
	e, err := f.entry(name)
	if err != nil {
		return f.source.httpError(err)
	}
	return f.answer(c, e)
}

// offload makes what follows in a handler run as a filo.Offload one.
var offload = filo.Offload(func(*filo.Ctx) error { return nil })

func checkMethod(c *filo.Ctx) error {
	if method := c.Request.MethodBytes(); string(method) == "GET" || string(method) == "HEAD" {
		return nil
	}
	c.Response.Header.SetField(&allow)
	return errMethod
}

// find answers a request for what isn't in memory. The name ends in a slash, or is empty, for a directory.
func (f *Files) find(c *filo.Ctx, name string) error {
	plain := strings.TrimSuffix(name, "/")
	if plain != "" && (!validName(plain) || !f.options.Hidden && hidden(plain)) {
		return errNotFound
	}
	if err := offload(c); err != nil {
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
		// Nobody is told of a directory that has nothing to show.
		if _, err := f.indexOf(name); err != nil {
			return err
		}
	}
	return redirect(c, relative(path.Base(name)+"/"))
}

// findDirectory answers a request for a directory, the name of which is empty for that of the tree.
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

// indexOf returns the index of a directory.
func (f *Files) indexOf(name string) (*entry, error) {
	if f.options.Index == "" {
		return nil, fs.ErrNotExist
	}
	return f.entry(path.Join(name, f.options.Index))
}

// redirect answers with a Location that is relative, since a mounted handler doesn't know what is in front.
func redirect(c *filo.Ctx, location string) error {
	if query := c.Request.URI().RawQueryBytes(); len(query) > 0 {
		location += "?" + string(query)
	}
	return c.Redirect(301, location)
}

// relative returns a reference to a name beside the request's path.
func relative(name string) string {
	u := url.URL{Path: name}
	return u.String()
}

// wantsPage reports whether the request is one for a page, to which the fallback is an answer.
func wantsPage(c *filo.Ctx, name string) bool {
	if strings.Contains(path.Base(name), ".") && name != "" {
		return false
	}
	// Whoever takes anything gets the first offer.
	return c.Negotiate("application/octet-stream", "text/html") == "text/html"
}

func isNotFound(err error) bool {
	var e *filo.HTTPError
	return errors.As(err, &e) && e.Status == 404
}
