package filo

import (
	"cmp"
	"errors"
	"io"
	"iter"
	"mime/multipart"
	"os"
	"strconv"

	"github.com/filohttp/filo/internal/formdata"
	"github.com/filohttp/filo/internal/params"
)

// ErrTooManyArgs is wrapped by the error of a query or form with more than 1000 parameters.
var ErrTooManyArgs = errors.New("filo: too many query or form parameters")

// errTooManyArgs is shared: nothing may change it.
var errTooManyArgs = &HTTPError{Status: 400, Detail: "more than 1000 query or form parameters", Err: ErrTooManyArgs}

// Args holds the parameters of a query, or of an application/x-www-form-urlencoded form: pairs of a key and a value, in the
// order in which they were sent. A key may occur more than once. The zero value is empty and ready to use.
//
// Keys and values are percent-decoded, and may hold any bytes, not only UTF-8. Keys are case-sensitive: they are compared byte
// by byte.
//
// A []byte from an Args is borrowed: it is valid until the handler returns or Reset or Parse is called, and must not be
// changed. A string belongs to the caller. Args isn't safe for concurrent use, not even for reading, since values are decoded
// on first use.
type Args struct {
	list params.List
	err  error // of the last Parse
}

// Parse replaces the parameters with those in query, a query without its "?" or the body of a form. Args keeps query and reads from it
// later, so query must not change until Reset or the next Parse; Parse itself never writes to it.
//
// Parsing follows the WHATWG URL standard and refuses nothing. Only "&" separates parameters, and empty ones are skipped. A
// parameter without "=" has an empty value, "+" is a space, and a "%" without two hexadecimal digits is kept. (net/url drops a
// parameter with such a "%" or with ";".)
//
// If there are more than 1000 parameters, Parse keeps the first 1000 and returns an *HTTPError with status 400 that wraps
// ErrTooManyArgs. It returns no other error.
func (a *Args) Parse(query []byte) error {
	a.err = nil
	if !a.list.Parse(query) {
		a.err = errTooManyArgs
	}
	return a.err
}

// Err returns the error of the last Parse, including one that another method has called, such as URI.Query. It is nil unless the query
// had too many parameters.
func (a *Args) Err() error { return a.err }

// Get returns the first value of the key, or "" if there is none.
func (a *Args) Get(key string) string { return string(a.list.Get(key)) }

// GetBytes returns the first value of the key, or nil if there is none. An empty value isn't nil.
func (a *Args) GetBytes(key string) []byte { return a.list.Get(key) }

// Has reports whether a parameter has the key.
func (a *Args) Has(key string) bool { return a.list.Has(key) }

// Int returns the first value of the key as a decimal integer with an optional sign. If the key is missing, or the value isn't
// an integer or doesn't fit an int, the error is an *HTTPError with status 400, which a handler can return unchanged. For a bad
// value it wraps strconv.ErrSyntax or strconv.ErrRange.
func (a *Args) Int(key string) (int, error) {
	value := a.list.Get(key)
	if value == nil {
		return 0, Error(400, "parameter "+strconv.Quote(key)+" is missing")
	}
	n, err := strconv.Atoi(string(value))
	if err != nil {
		return 0, &HTTPError{Status: 400, Detail: "parameter " + strconv.Quote(key) + " must be an integer", Err: err}
	}
	return n, nil
}

// Values yields the values of the key, in order.
func (a *Args) Values(key string) iter.Seq[[]byte] { return a.list.Values(key) }

// All yields the keys and values, in order.
func (a *Args) All() iter.Seq2[[]byte, []byte] { return a.list.All() }

// Len returns the number of parameters.
func (a *Args) Len() int { return a.list.Len() }

// Set gives the value to the first parameter with the key, and removes all further parameters with that key. If there is none, it adds one at
// the end. Both strings are copied, unencoded.
func (a *Args) Set(key, value string) { a.list.Set(key, value) }

// Add adds a parameter at the end. Both strings are copied, unencoded. The limit of Parse doesn't apply.
func (a *Args) Add(key, value string) { a.list.Add(key, value) }

// Del removes the parameters with the key.
func (a *Args) Del(key string) { a.list.Del(key) }

// Reset removes all parameters and releases the query given to Parse. It keeps some memory for reuse.
func (a *Args) Reset() {
	a.list.Reset()
	a.err = nil
}

// AppendTo appends the parameters as application/x-www-form-urlencoded, such as "q=a+b&page=2", and returns the extended slice.
// Parse reads the same parameters back.
func (a *Args) AppendTo(dst []byte) []byte { return a.list.AppendTo(dst) }

// String returns the parameters in the form that AppendTo appends.
func (a *Args) String() string { return string(a.list.AppendTo(nil)) }

// MultipartLimits bounds the memory and parts of a multipart/form-data form. The zero value selects safe defaults.
// Server.MaxBodyBytes bounds the body as a whole.
type MultipartLimits struct {
	// MaxMemory is how many bytes of files are kept in memory; the rest goes to one temporary file per form. Zero means 1 MB; a negative value
	// stores all files in the temporary file. Values, names and part headers may take another 10 MB of memory together. The 10 MB are a
	// constant of mime/multipart; the body limit, by default 4 MB, bounds them further.
	MaxMemory int64
	// MaxParts limits the number of parts in a form. Zero means 1000, which is also the maximum of mime/multipart.
	MaxParts int
	// MaxPartBytes limits the content of one part, be it a file or a value. Zero means no separate limit.
	MaxPartBytes int64
}

// Errors to test for with errors.Is. An *HTTPError wraps them: ErrMissingFile with status 400, the others with 413.
var (
	// ErrMissingFile is wrapped by the error of Ctx.FormFile if the form has no such file.
	ErrMissingFile = errors.New("filo: no such file in the form")
	// ErrTooManyParts is wrapped by the error of a multipart form with more parts than its limit.
	ErrTooManyParts = formdata.ErrTooManyParts
	// ErrPartTooLarge is wrapped by the error of a multipart form with a part over its limit.
	ErrPartTooLarge = formdata.ErrPartTooLarge
)

// FormFile returns the first file in a multipart form under name. Request.MultipartForm describes the limits, the lifetime of
// the file and the errors. If the form has no such file, the error is an HTTPError with status 400 that wraps ErrMissingFile.
func (c *Ctx) FormFile(name string) (*multipart.FileHeader, error) {
	c.check()
	form, err := c.Request.MultipartForm()
	if err != nil {
		return nil, err
	}
	if files := form.File[name]; len(files) > 0 {
		return files[0], nil
	}
	return nil, &HTTPError{Status: 400, Detail: "the form has no file " + strconv.Quote(name), Err: ErrMissingFile}
}

// SaveFile writes an uploaded file to a new file in a directory, with mode 0600. Choose the name yourself: file.Filename comes from the
// client. A name that leads out of the directory is refused. If the name exists, the error wraps fs.ErrExist. After an error no file is
// left.
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
		_ = directory.Remove(name) // the earlier error is returned, not this one
	}
	return err
}

// Mistakes in the program, which are answered with a 500.
var (
	// errFormRead is the error of reading the body after MultipartForm. Without this error the body would look empty.
	errFormRead = errors.New("filo: MultipartForm or FormFile has read the body: use the form, or call Body before")
	// errNotWhole is the error of a form whose body was partly read before. Without this error the client would be told that its form is
	// malformed.
	errNotWhole = errors.New("filo: BodyReader or MultipartReader has read from the body, so there is no whole form: call Body or the form's method before")
)

// formError turns an error of package formdata into the error that handlers get.
func formError(err error) error {
	if fault, ok := err.(*formdata.Fault); ok {
		return &HTTPError{Status: fault.Status, Detail: fault.Detail, Err: fault.Err}
	}
	return err
}
