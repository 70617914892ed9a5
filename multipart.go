package filo

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"os"
	"strconv"
)

// MultipartLimits bounds the memory and parts of a multipart/form-data form. The zero value selects safe defaults.
// Server.MaxBodyBytes bounds the body as a whole.
type MultipartLimits struct {
	// MaxMemory is how many bytes of files are kept in memory; the rest goes to one temporary file per form. Zero means 1 MB; a
	// negative value sends all files there. Values, names and part headers may take up to 10 MB of memory together in addition. That is
	// a constant of mime/multipart; the body limit, by default 4 MB, bounds it further.
	MaxMemory int64
	// MaxParts limits the number of parts in a form. Zero means 1000, which is also the maximum of mime/multipart.
	MaxParts int
	// MaxPartBytes limits the content of one part, be it a file or a value. Zero means no separate limit.
	MaxPartBytes int64
}

// Errors to test for with errors.Is. An *HTTPError with status 413 wraps them.
var (
	// ErrTooManyParts is wrapped by the error of a multipart form with more parts than its limit.
	ErrTooManyParts = errors.New("filo: too many parts in a multipart form")
	// ErrPartTooLarge is wrapped by the error of a multipart form with a part over its limit.
	ErrPartTooLarge = errors.New("filo: part of a multipart form over its limit")
)

// FormFile returns the first file in a multipart form under name. Request.MultipartForm describes the limits, the lifetime of
// the file and the errors. If the form has no such file, the error is an HTTPError with status 400.
func (c *Ctx) FormFile(name string) (*multipart.FileHeader, error) {
	c.check()
	form, err := c.Request.MultipartForm()
	if err != nil {
		return nil, err
	}
	if files := form.File[name]; len(files) > 0 {
		return files[0], nil
	}
	return nil, Error(400, "the form has no file "+strconv.Quote(name))
}

// SaveFile writes an uploaded file to a new file of a directory, which only its owner may read (mode 0600). Choose the name yourself:
// file.Filename is the client's. A name that leads out of the directory is refused, and one that exists is an error that wraps
// fs.ErrExist. After an error no file is left.
func SaveFile(file *multipart.FileHeader, directory *os.Root, name string) (err error) {
	from, err := file.Open()
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := directory.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err = cmp.Or(err, to.Close()); err != nil {
		_ = directory.Remove(name) // the first error says why
	}
	return err
}

// Mistakes in the program, which are answered with a 500.
var (
	// errFormRead is the error of reading the body after MultipartForm. Without it the body would look empty.
	errFormRead = errors.New("filo: MultipartForm or FormFile has read the body: use the form, or call Body before")
	// errNotWhole is the error of a form whose body was partly read before. Without it the client would be told that its form is
	// malformed.
	errNotWhole = errors.New("filo: BodyReader or MultipartReader has read from the body, so there is no whole form: call Body or the form's method before")
)

// These are shared: nothing may change them.
var (
	errTooManyParts = &HTTPError{Status: 413, Detail: "too many parts in the form", Err: ErrTooManyParts}
	errPartTooLarge = &HTTPError{Status: 413, Detail: "a part of the form is too large", Err: ErrPartTooLarge}
	errNotMultipart = Error(415, "Content-Type must be multipart/form-data")
	errBoundary     = Error(400, "multipart/form-data needs a boundary of 1 to 70 characters")
)

const (
	defaultMultipartMemory = 1 << 20
	defaultMultipartParts  = 1000

	// maxBoundary is from RFC 2046, section 5.1.1: boundaries are "no longer than 70 characters".
	maxBoundary = 70

	// partHeaderSlack is what partLimiter allows for the header of a part, since it measures the part with its header.
	partHeaderSlack = 64 << 10
)

func (l MultipartLimits) withDefaults() MultipartLimits {
	if l.MaxMemory == 0 {
		l.MaxMemory = defaultMultipartMemory
	}
	if l.MaxParts <= 0 {
		l.MaxParts = defaultMultipartParts
	}
	return l
}

// readMultipartForm reads a whole form from body. The caller removes its temporary files with RemoveAll when the
// request ends; after an error there are none.
//
// Errors: an *HTTPError with status 415 for another media type, 400 for a missing or invalid boundary and for a malformed body, 413 for
// a form over its limits; errors of body, unchanged; and errors of the temporary file.
func readMultipartForm(body io.Reader, contentType string, limits MultipartLimits) (*multipart.Form, error) {
	boundary, err := multipartBoundary(contentType, false)
	if err != nil {
		return nil, err
	}
	limits = limits.withDefaults()
	limiter := newPartLimiter(body, boundary, limits)
	form, err := multipart.NewReader(limiter, boundary).ReadForm(limits.MaxMemory)
	if err != nil {
		return nil, multipartError(err, limiter)
	}
	if err := checkForm(form, limits); err != nil {
		// The form is too large, even if its file can't be removed.
		_ = form.RemoveAll()
		return nil, err
	}
	return form, nil
}

// multipartReader returns a reader of the parts of body as they arrive. It accepts multipart/form-data and multipart/mixed. It fails as
// readMultipartForm does. mime/multipart limits the header of a part; only body limits the number and length of parts.
func multipartReader(body io.Reader, contentType string) (*multipart.Reader, error) {
	boundary, err := multipartBoundary(contentType, true)
	if err != nil {
		return nil, err
	}
	return multipart.NewReader(body, boundary), nil
}

// multipartBoundary returns the boundary that contentType gives. mixed also allows multipart/mixed.
func multipartBoundary(contentType string, mixed bool) (string, error) {
	mediaType, parameters, err := mime.ParseMediaType(contentType)
	// Malformed parameters of a known media type count as a bad boundary.
	if mediaType != "multipart/form-data" && (!mixed || mediaType != "multipart/mixed") {
		return "", errNotMultipart
	}
	boundary := parameters["boundary"]
	if err != nil || !validBoundary(boundary) {
		return "", errBoundary
	}
	return boundary, nil
}

// validBoundary accepts more than RFC 2046, section 5.1.1, has: every token and quoted string that doesn't end in white space, which may
// follow a boundary anyway. Some clients write "*****".
func validBoundary(s string) bool {
	if len(s) == 0 || len(s) > maxBoundary || s[len(s)-1] == ' ' || s[len(s)-1] == '\t' {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// multipartError turns an error of ReadForm into one that says who caused it.
func multipartError(err error, limiter *partLimiter) error {
	var file *fs.PathError
	switch {
	case limiter.err != nil:
		return limiter.err
	case errors.Is(err, multipart.ErrMessageTooLarge):
		return &HTTPError{Status: 413, Detail: "the form is too large", Err: err}
	case errors.As(err, &file):
		return err
	}
	return &HTTPError{Status: 400, Detail: "malformed multipart form", Err: err}
}

// checkForm enforces the limits exactly on the whole form. partLimiter enforces them approximately.
func checkForm(form *multipart.Form, limits MultipartLimits) error {
	parts := 0
	for _, values := range form.Value {
		parts += len(values)
		for _, value := range values {
			if limits.MaxPartBytes > 0 && int64(len(value)) > limits.MaxPartBytes {
				return errPartTooLarge
			}
		}
	}
	for _, files := range form.File {
		parts += len(files)
		for _, file := range files {
			if limits.MaxPartBytes > 0 && file.Size > limits.MaxPartBytes {
				return errPartTooLarge
			}
		}
	}
	if parts > limits.MaxParts {
		return errTooManyParts
	}
	return nil
}

// partLimiter passes a body on, and fails if the body has too many or too large parts. ReadForm has no such limits, and would write the
// whole body to disk first. partLimiter looks for the delimiters of the parts. A boundary at the beginning of a line is a delimiter,
// whatever else is on the line (RFC 2046, section 5.1.1).
type partLimiter struct {
	body      io.Reader
	delimiter []byte // LF and "--" and the boundary
	// tail is the end of the bytes read before, in which a delimiter may have begun.
	tail   []byte
	limits MultipartLimits
	parts  int   // delimiters seen, including the last, which ends the form
	length int64 // bytes since the last delimiter
	err    error // the error that stopped the body, other than io.EOF
}

func newPartLimiter(body io.Reader, boundary string, limits MultipartLimits) *partLimiter {
	l := &partLimiter{body: body, delimiter: []byte("\n--" + boundary), limits: limits}
	// The first delimiter may be at the very start of the body.
	l.tail = append(make([]byte, 0, 2*len(l.delimiter)), '\n')
	return l
}

func (l *partLimiter) Read(p []byte) (int, error) {
	if l.err != nil {
		return 0, l.err
	}
	n, err := l.body.Read(p)
	l.scan(p[:n])
	switch {
	case l.parts > l.limits.MaxParts+1:
		l.err = errTooManyParts
	case l.limits.MaxPartBytes > 0 && l.length > l.limits.MaxPartBytes+partHeaderSlack:
		l.err = errPartTooLarge
	case err != nil && err != io.EOF:
		l.err = err
	default:
		return n, err
	}
	return n, l.err
}

// scan counts the delimiters that end in b, and the bytes after the last one.
func (l *partLimiter) scan(b []byte) {
	if len(b) == 0 {
		return
	}
	overlap := len(l.delimiter) - 1
	l.length += int64(len(b))
	// A delimiter that begins in the tail ends within the first overlap bytes of b.
	joined := append(l.tail, b[:min(overlap, len(b))]...)
	if bytes.Contains(joined, l.delimiter) {
		l.parts++
		l.length = int64(len(b))
	}
	for rest := b; ; {
		i := bytes.Index(rest, l.delimiter)
		if i < 0 {
			break
		}
		rest = rest[i+len(l.delimiter):]
		l.parts++
		l.length = int64(len(rest))
	}
	if len(b) >= overlap {
		joined = b
	}
	l.tail = append(l.tail[:0], joined[max(0, len(joined)-overlap):]...)
}
