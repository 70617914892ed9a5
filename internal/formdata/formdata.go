// Package formdata reads forms of type multipart/form-data. It enforces its limits while the body arrives, so a form over a limit costs no more
// memory, disk space or time than the limit allows. It sees a body only as an io.Reader.
package formdata

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
)

// Limits are filo.MultipartLimits.
type Limits struct {
	MaxMemory    int64
	MaxParts     int
	MaxPartBytes int64
}

// Errors that a Fault wraps.
var (
	ErrTooManyParts = errors.New("filo: too many parts in a multipart form")
	ErrPartTooLarge = errors.New("filo: part of a multipart form over its limit")
)

// Fault is an error for which the client is responsible.
type Fault struct {
	Status int
	Detail string
	Err    error // nil if there is no other
}

// Error implements error.
func (f *Fault) Error() string { return f.Detail }

// Unwrap returns Err.
func (f *Fault) Unwrap() error { return f.Err }

// These are shared: nothing may change them.
var (
	errTooManyParts = &Fault{413, "too many parts in the form", ErrTooManyParts}
	errPartTooLarge = &Fault{413, "a part of the form is too large", ErrPartTooLarge}
	errNotMultipart = &Fault{415, "Content-Type must be multipart/form-data", nil}
	errBoundary     = &Fault{400, "multipart/form-data needs a boundary of 1 to 70 characters", nil}
)

const (
	defaultMemory = 1 << 20
	defaultParts  = 1000

	// maxBoundary is from RFC 2046, section 5.1.1: boundaries are "no longer than 70 characters".
	maxBoundary = 70

	// partHeaderSlack is how many bytes partLimiter allows for a part's header, which it measures together with the part.
	partHeaderSlack = 64 << 10
)

// WithDefaults returns the limits with each zero that means a default replaced by that default.
func (l Limits) WithDefaults() Limits {
	if l.MaxMemory == 0 {
		l.MaxMemory = defaultMemory
	}
	if l.MaxParts <= 0 {
		l.MaxParts = defaultParts
	}
	return l
}

// Read reads a whole form from body. The caller must remove the form's temporary files with RemoveAll when the request ends. After an error there are
// none.
//
// Read returns these errors: a *Fault with status 415 for another media type, 400 for a missing or invalid boundary and for a malformed body, 413 for
// a form over its limits; errors of body, unchanged; and errors of the temporary file.
func Read(body io.Reader, contentType string, limits Limits) (*multipart.Form, error) {
	boundary, err := boundaryIn(contentType, false)
	if err != nil {
		return nil, err
	}
	return readForm(body, boundary, limits)
}

func readForm(body io.Reader, boundary string, limits Limits) (*multipart.Form, error) {
	limits = limits.WithDefaults()
	limiter := newPartLimiter(body, boundary, limits)
	form, err := multipart.NewReader(limiter, boundary).ReadForm(limits.MaxMemory)
	if err != nil {
		return nil, faultOf(err, limiter)
	}
	if err := checkForm(form, limits); err != nil {
		// The form is too large, even if its file can't be removed.
		_ = form.RemoveAll()
		return nil, err
	}
	return form, nil
}

// NewReader returns a reader of the parts of body as they arrive. It accepts multipart/form-data and multipart/mixed, and otherwise returns the same
// errors as Read for the media type and the boundary. mime/multipart limits the headers of a part. Only the length of body limits the number and the
// length of parts.
func NewReader(body io.Reader, contentType string) (*multipart.Reader, error) {
	boundary, err := boundaryIn(contentType, true)
	if err != nil {
		return nil, err
	}
	return multipart.NewReader(body, boundary), nil
}

// boundaryIn returns the boundary that contentType gives. mixed also allows multipart/mixed.
func boundaryIn(contentType string, mixed bool) (string, error) {
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

// validBoundary accepts more than RFC 2046, section 5.1.1, allows, since some clients write "*****": every token and quoted string that doesn't end
// in white space. White space may follow a boundary in the body, so the boundary itself can't end in it.
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

// faultOf turns an error of ReadForm into a Fault if the client caused it.
func faultOf(err error, limiter *partLimiter) error {
	var file *fs.PathError
	switch {
	case limiter.err != nil:
		return limiter.err
	case errors.Is(err, multipart.ErrMessageTooLarge):
		return &Fault{413, "the form is too large", err}
	case errors.As(err, &file):
		return err
	}
	return &Fault{400, "malformed multipart form", err}
}

// checkForm enforces the limits exactly on the whole form. partLimiter enforces them approximately.
func checkForm(form *multipart.Form, limits Limits) error {
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

// partLimiter is a reader that passes a body on, and fails if the body has too many parts or too large ones. ReadForm has no limits for parts, and
// would first write the whole body to disk. partLimiter looks for the delimiters of the parts. "--" and the boundary at the beginning of a line are a
// delimiter, whatever follows on that line (RFC 2046, section 5.1.1).
type partLimiter struct {
	body      io.Reader
	delimiter []byte // LF and "--" and the boundary
	// tail holds the last bytes of the previous reads, in which a delimiter may have begun.
	tail   []byte
	limits Limits
	parts  int   // delimiters seen, including the last, which ends the form
	length int64 // bytes since the last delimiter
	err    error // the error that stopped the body, other than io.EOF
}

func newPartLimiter(body io.Reader, boundary string, limits Limits) *partLimiter {
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
