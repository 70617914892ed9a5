package bind

import (
	"mime/multipart"
	"slices"

	"github.com/filohttp/filo"
)

// source is a part of a request from which fields are bound.
type source int

const (
	inBody source = iota // JSON
	inForm
	inMultipart
	inHeader
	inCookie
	inQuery
	inPath
	sources
)

// tag returns the struct tag that names the source's fields.
func (s source) tag() string {
	return [...]string{"json", "form", "form", "header", "cookie", "query", "path"}[s]
}

// String returns the source's name in FieldErrors.
func (s source) String() string {
	return [...]string{"body", "form", "form", "header", "cookie", "query", "path"}[s]
}

// status returns the status for a wrong value: 422 in a body, whose content can't be processed (RFC 9110, section 15.5.21), and 400
// elsewhere.
func (s source) status() int {
	if s <= inMultipart {
		return 422
	}
	return 400
}

// values is a source of text that has been read.
type values struct {
	in   source
	c    *filo.Ctx
	args *filo.Args      // of a query or form
	form *multipart.Form // of a multipart form
}

// read returns the values of a source of text. An error concerns the whole source.
func read(c *filo.Ctx, in source) (v values, err error) {
	v = values{in: in, c: c}
	switch in {
	case inQuery:
		v.args = c.Request.Query()
		err = v.args.Err()
	case inForm:
		v.args, err = c.Request.Form()
	case inMultipart:
		v.form, err = c.Request.MultipartForm()
	}
	return v, err
}

// get appends the source's values with the name to dst. The values are borrowed.
func (v *values) get(dst [][]byte, name string) [][]byte {
	switch v.in {
	case inPath:
		if value := v.c.ParamBytes(name); value != nil {
			dst = append(dst, value)
		}
	case inCookie:
		// If several cookies have the name, browsers send the one with the most specific path first.
		if value := v.c.Request.CookieBytes(name); value != nil {
			dst = append(dst, value)
		}
	case inHeader:
		dst = slices.AppendSeq(dst, v.c.Request.Header.Values(name))
	case inMultipart:
		for _, value := range v.form.Value[name] {
			dst = append(dst, []byte(value))
		}
	default:
		dst = slices.AppendSeq(dst, v.args.Values(name))
	}
	return dst
}

// files returns the files that have the name.
func (v *values) files(name string) []*multipart.FileHeader {
	if v.form == nil {
		return nil
	}
	return v.form.File[name]
}

// unknown returns the names in the source that the plan doesn't have, each once. It ignores header fields, cookies and path
// parameters, since other code may use them.
func (v *values) unknown(p *plan) (names []string) {
	note := func(name string, file bool) {
		if i, ok := p.byName[name]; (!ok || p.fields[i].file() != file) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if v.args != nil {
		for name := range v.args.All() {
			// This lookup doesn't allocate a string for the name.
			if i, ok := p.byName[string(name)]; (!ok || p.fields[i].file()) && len(names) <= maxErrors {
				note(string(name), false)
			}
		}
	}
	if v.form != nil {
		for name, texts := range v.form.Value {
			// For a file input without a file, browsers send a part with an empty file name, which the parser treats as text.
			if i, ok := p.byName[name]; ok && p.fields[i].file() && !slices.ContainsFunc(texts, func(text string) bool { return text != "" }) {
				continue
			}
			note(name, false)
		}
		for name := range v.form.File {
			note(name, true)
		}
		slices.Sort(names)
	}
	return names
}
