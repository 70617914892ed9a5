package static

import (
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/syntax"
)

// representation is a file's content in one encoding (RFC 9110, section 3.2).
type representation struct {
	file     string // the name of the file with this encoding
	encoding *encoding
	body     []byte // nil if it isn't in memory
	seekable bool
	open     *openFile // the open file that is kept for the next answer; nil if none is kept; guarded by the openFiles' lock
	description
}

// description holds the header fields that describe a representation.
type description struct {
	stamp    stamp
	settled  bool
	etag     string // "" for none
	modified time.Time
	dated    bool         // modified is a strong validator
	kept     []filo.Field // fields of the answers 200, 206 and 304
	content  []filo.Field // fields of the answers 200 and 206, without Content-Type
}

// loadRepresentation reads one of the files of an entry: an encoded one, or the plain one if encoding is nil.
func (f *Files) loadRepresentation(e *entry, encoding *encoding) (*representation, error) {
	r := &representation{file: e.name, encoding: encoding}
	if encoding != nil {
		r.file += encoding.suffix
	}
	file, info, err := openRegular(f.source, r.file)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	_, r.seekable = file.(io.Seeker)
	r.see(info, time.Now())
	if r.stamp.size <= f.fileSize {
		if r.body, err = readWhole(file, r.stamp); err != nil {
			return nil, err
		}
	}
	switch {
	case r.body != nil:
		r.etag, r.seekable = contentTag(r.body), true
	case f.options.Frozen:
		if r.etag, err = f.hashFile(r.file); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// readWhole reads a whole file. If the file's stamp changes during the reading, readWhole returns nil without an error.
func readWhole(file fs.File, s stamp) ([]byte, error) {
	body := make([]byte, s.size+1) // one more byte, to see whether the file ends there
	n, err := io.ReadFull(file, body)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil || int64(n) != s.size || stampOf(info) != s {
		return nil, err
	}
	return body[:n:n], nil
}

// readBegin reads the first bytes of a file, which determine its media type.
func (f *Files) readBegin(name string) ([]byte, error) {
	file, _, err := openRegular(f.source, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	begin := make([]byte, sniffedBytes)
	n, err := io.ReadFull(file, begin)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return begin[:n], err
}

// hashFile returns the entity tag of a file's content.
func (f *Files) hashFile(name string) (string, error) {
	file, _, err := openRegular(f.source, name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return hashTag([sha256.Size]byte(hash.Sum(nil))), nil
}

// see records the file's properties in the file system, as of now.
func (r *representation) see(info fs.FileInfo, now time.Time) {
	r.stamp = stampOf(info)
	r.settled = r.stamp.settled(now)
	r.modified, r.dated = time.Time{}, false
	// RFC 9110, section 8.8.2.1: a server must not send a time in the future.
	if t := info.ModTime(); known(t) && !t.After(now) {
		r.modified, r.dated = t, now.Sub(t) >= settleTime
	}
}

// describe makes the header fields of responses that contain the representation. It also makes the entity tag, unless a hash of the
// content is already the tag. It is called once.
func (r *representation) describe(e *entry) {
	if r.etag == "" {
		r.etag = r.stamp.tag(r.settled)
	}
	if r.etag != "" && r.encoding != nil {
		// Two encodings of a file need different tags, even if both are empty (RFC 9110, section 8.8.3.3).
		r.etag = r.etag[:len(r.etag)-1] + r.encoding.suffix + `"`
	}
	r.content = []filo.Field{noSniff}
	if r.etag != "" {
		r.kept = append(r.kept, filo.NewField("ETag", r.etag))
	}
	if e.cacheControl != nil {
		r.kept = append(r.kept, *e.cacheControl)
	}
	if r.seekable {
		r.content = append(r.content, acceptRanges)
	}
	if r.encoding != nil {
		r.content = append(r.content, r.encoding.field)
	}
	if !r.modified.IsZero() {
		r.content = append(r.content, filo.NewField("Last-Modified", r.modified.UTC().Format(syntax.TimeFormat)))
	}
}

// asOf returns the representation with the current properties of its file, which the argument info holds. That is r itself if nothing has
// changed.
func (r *representation) asOf(e *entry, info fs.FileInfo, now time.Time) *representation {
	if stampOf(info) == r.stamp && (r.settled || !r.stamp.settled(now)) {
		return r
	}
	found := &representation{file: r.file, encoding: r.encoding, seekable: r.seekable}
	found.see(info, now)
	found.describe(e)
	return found
}

var (
	noSniff      = filo.NewField("X-Content-Type-Options", "nosniff")
	acceptRanges = filo.NewField("Accept-Ranges", "bytes")
	vary         = filo.NewField("Vary", "Accept-Encoding")
)
