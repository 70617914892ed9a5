package adaptor

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"reflect"
	"strings"
)

// setBody decides what the handler of filo reads as the body of t's request, and returns its length, or -1 if the length isn't known.
func (t *carrier) setBody() (length int64) {
	r := t.r
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 && asReceived(r.Body) {
		return 0
	}
	if parsedForm(r) {
		if r.MultipartForm == nil {
			return t.setForm()
		}
		if t.setMultipart() {
			return t.formLength
		}
	}
	switch {
	case r.ContentLength > 0 && (asReceived(r.Body) || inMemory(r.Body) == r.ContentLength):
		t.body = io.LimitReader(r.Body, r.ContentLength)
		return r.ContentLength
	case r.ContentLength == 0:
		return t.probeBody()
	default:
		t.body = r.Body
		return -1
	}
}

// probeBody finds out whether anything is left of the body, and returns 0 if not, otherwise -1. In spite of a ContentLength of 0, middleware may
// have set a body. Or it has wrapped the body of a request without one, as http.MaxBytesHandler does.
func (t *carrier) probeBody() (length int64) {
	first := make([]byte, 1)
	switch n, err := io.ReadFull(t.r.Body, first); {
	case n > 0:
		t.body = io.MultiReader(bytes.NewReader(first), t.r.Body)
	case err == io.EOF:
		return 0
	default:
		t.body = t.r.Body // which repeats the error
	}
	return -1
}

// asReceived reports whether a body comes directly from a server. Middleware that decodes or replaces a body rarely changes ContentLength, so
// the length of another body isn't known.
func asReceived(body io.ReadCloser) bool {
	if _, ok := body.(*requestBody); ok {
		return true
	}
	switch reflect.TypeOf(body).String() {
	case "*http.body", "*http.http2requestBody", "*http2.requestBody", "*http3.requestBody":
		return true
	}
	return false
}

// inMemory returns the length of a body that http.NewRequest or httptest.NewRequest has made of a reader with a known length, otherwise -1.
func inMemory(body io.ReadCloser) int64 {
	v := reflect.ValueOf(body)
	switch v.Type() {
	case reflect.TypeOf(io.NopCloser(struct{ io.Reader }{})), reflect.TypeOf(io.NopCloser((*strings.Reader)(nil))):
		switch r := v.Field(0).Interface().(type) {
		case *strings.Reader:
			return int64(r.Len())
		case *bytes.Reader:
			return int64(r.Len())
		case *bytes.Buffer:
			return int64(r.Len())
		}
	}
	return -1
}

// parsedForm reports whether middleware has parsed a form out of the request's body. The handlers of net/http find the form in the request.
func parsedForm(r *http.Request) bool {
	if len(r.PostForm) == 0 && r.MultipartForm == nil { // parsing the type costs much more
		return false
	}
	switch kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind {
	case "application/x-www-form-urlencoded":
		return len(r.PostForm) > 0
	case "multipart/form-data":
		// MultipartReader sets an empty form.
		return r.MultipartForm != nil && len(r.MultipartForm.Value)+len(r.MultipartForm.File) > 0
	}
	return false
}

// setForm makes the body of the form that middleware has parsed, if the received body was read. Otherwise ParseForm has failed, or middleware
// has set the body again. The order of different names is lost.
func (t *carrier) setForm() (length int64) {
	if t.probeBody() < 0 {
		return -1
	}
	form := t.r.PostForm.Encode()
	t.body = strings.NewReader(form)
	return int64(len(form))
}

// setMultipart is setForm for a multipart form. It returns false if the form isn't whole.
func (t *carrier) setMultipart() bool {
	_, parameters, _ := mime.ParseMediaType(t.r.Header.Get("Content-Type"))
	var text bytes.Buffer
	w := multipart.NewWriter(&text)
	if w.SetBoundary(parameters["boundary"]) != nil {
		return false
	}
	var parts []io.Reader
	take := func() {
		t.formLength += int64(text.Len())
		parts = append(parts, strings.NewReader(text.String()))
		text.Reset()
	}
	for name, values := range t.r.MultipartForm.Value {
		for _, value := range values {
			w.WriteField(name, value) // writes to a bytes.Buffer don't fail
		}
	}
	for _, files := range t.r.MultipartForm.File {
		for _, header := range files {
			w.CreatePart(header.Header)
			take()
			file := &formFile{header: header}
			t.files, parts = append(t.files, file), append(parts, file)
			t.formLength += header.Size
		}
	}
	w.Close()
	take()
	t.body = io.MultiReader(parts...)
	return true
}

// formFile reads a file of a parsed form. It opens the file when it is read first.
type formFile struct {
	header *multipart.FileHeader
	file   multipart.File // nil unless it is open
}

// Read implements io.Reader.
func (f *formFile) Read(p []byte) (n int, err error) {
	if f.file == nil {
		if f.file, err = f.header.Open(); err != nil {
			return 0, err
		}
	}
	return f.file.Read(p)
}

// close closes the file.
func (f *formFile) close() {
	if f.file != nil {
		f.file.Close()
	}
}
