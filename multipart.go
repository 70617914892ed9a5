package filo

import (
	"cmp"
	"errors"
	"io"
	"mime/multipart"
	"os"
	"strconv"

	"github.com/filohttp/filo/internal/formdata"
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
	ErrTooManyParts = formdata.ErrTooManyParts
	// ErrPartTooLarge is wrapped by the error of a multipart form with a part over its limit.
	ErrPartTooLarge = formdata.ErrPartTooLarge
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
// file.Filename is the client's. A name that leads out of the directory is refused. If the name exists, the error wraps fs.ErrExist. After
// an error no file is left.
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

// formError returns an error of package formdata as handlers get it.
func formError(err error) error {
	if fault, ok := err.(*formdata.Fault); ok {
		return &HTTPError{Status: fault.Status, Detail: fault.Detail, Err: fault.Err}
	}
	return err
}
