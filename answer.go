package filo

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"mime"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/syntax"
	"github.com/valyala/bytebufferpool"
)

var plainTextField = NewField(field.ContentType.String(), textPlain)

const textHTML = "text/html; charset=utf-8"

// answerable returns ErrHijacked if the handler has taken the connection over, since no answer can be sent then. Each method below that
// answers calls it first, with the answer's status.
func (c *Ctx) answerable(status int) error {
	c.check()
	if c.exchange.hijacked {
		return ErrHijacked
	}
	if race.Enabled {
		c.warnReplaced(status)
	}
	return nil
}

// Text answers with plain text in UTF-8.
func (c *Ctx) Text(status int, text string) error {
	if err := c.answerable(status); err != nil {
		return err
	}
	c.Response.SetStatus(status)
	c.Response.Header.SetField(&plainTextField)
	c.Response.SetBodyString(text)
	return nil
}

// setContentType sets Content-Type, unless contentType is empty: no client understands an empty field.
func (c *Ctx) setContentType(contentType string) {
	if contentType != "" {
		c.Response.Header.list.SetID(field.ContentType, contentType)
	}
}

// Bytes answers with a copy of b. If contentType is empty, the response keeps the Content-Type that the handler has set, if any.
func (c *Ctx) Bytes(status int, contentType string, b []byte) error {
	if err := c.answerable(status); err != nil {
		return err
	}
	c.Response.SetStatus(status)
	c.setContentType(contentType)
	c.Response.SetBody(b)
	return nil
}

// BytesNoCopy is like Bytes, but doesn't copy b. The caller must never change b again.
func (c *Ctx) BytesNoCopy(status int, contentType string, b []byte) error {
	if err := c.answerable(status); err != nil {
		return err
	}
	c.Response.SetStatus(status)
	c.setContentType(contentType)
	c.Response.SetBodyNoCopy(b)
	return nil
}

// JSON answers with v as JSON, encoded by Server.JSON. If v can't be encoded, JSON returns an error and leaves the response
// unchanged.
func (c *Ctx) JSON(status int, v any) error {
	c.check()
	if codec := c.exchange.server.JSON; codec != nil {
		body, err := codec.Marshal(v)
		if err != nil {
			return err
		}
		return c.BytesNoCopy(status, "application/json", body)
	}
	return c.encoded(status, "application/json", func(w io.Writer) error { return json.NewEncoder(w).Encode(v) })
}

// JSONCodec encodes and decodes JSON: see Server.JSON.
type JSONCodec interface {
	// Marshal returns v as JSON, in a slice that belongs to the caller.
	Marshal(v any) ([]byte, error)
	// Unmarshal decodes data into the value that v points to. It must not keep data.
	Unmarshal(data []byte, v any) error
}

// DecodeJSON decodes data into the value that v points to, with Server.JSON. Package bind decodes a request body, with errors that
// people can read.
func (c *Ctx) DecodeJSON(data []byte, v any) error {
	c.check()
	if codec := c.exchange.server.JSON; codec != nil {
		return codec.Unmarshal(data, v)
	}
	return json.Unmarshal(data, v)
}

// XML answers with v as XML, after an XML declaration. If v can't be encoded, XML returns an error and leaves the response
// unchanged.
func (c *Ctx) XML(status int, v any) error {
	c.check()
	return c.encoded(status, "application/xml; charset=utf-8", func(w io.Writer) error {
		if _, err := io.WriteString(w, xml.Header); err != nil {
			return err
		}
		return xml.NewEncoder(w).Encode(v)
	})
}

// encoded answers with the bytes that encode writes. If encode fails, the response stays unchanged.
func (c *Ctx) encoded(status int, contentType string, encode func(io.Writer) error) error {
	buffer := bytebufferpool.Get()
	defer bytebufferpool.Put(buffer)
	if err := encode(buffer); err != nil {
		return err
	}
	return c.Bytes(status, contentType, buffer.B)
}

// HTML answers with an HTML document. To render a template, see Render.
func (c *Ctx) HTML(status int, html string) error {
	if err := c.answerable(status); err != nil {
		return err
	}
	c.Response.SetStatus(status)
	c.Response.Header.list.SetID(field.ContentType, textHTML)
	c.Response.SetBodyString(html)
	return nil
}

// Renderer renders the template called name with its data: see Server.Renderer. Package templates provides one.
type Renderer interface {
	Render(w io.Writer, name string, data any) error
}

// Render answers with the HTML document that Server.Renderer renders from the template called name. If the Renderer fails,
// Render returns its error and leaves the response unchanged.
func (c *Ctx) Render(status int, name string, data any) error {
	c.check()
	renderer := c.exchange.server.Renderer
	if renderer == nil {
		return errors.New("filo: Render without a Server.Renderer")
	}
	return c.encoded(status, textHTML, func(w io.Writer) error { return renderer.Render(w, name, data) })
}

// Redirect answers with a status of 300 to 308 and a Location field, which is sent unchanged.
func (c *Ctx) Redirect(status int, location string) error {
	if err := c.answerable(status); err != nil {
		return err
	}
	if status < 300 || status > 308 {
		return errors.New("filo: a redirect has a status of 300 to 308")
	}
	c.Response.SetStatus(status)
	c.Response.Header.list.SetID(field.Location, location)
	c.Response.replaceBody()
	return nil
}

// NoContent answers with 204.
func (c *Ctx) NoContent() error {
	if err := c.answerable(204); err != nil {
		return err
	}
	c.Response.SetStatus(204)
	c.Response.replaceBody()
	return nil
}

// File answers with the content of a file, using sendfile where the connection allows it. File sets Last-Modified, and derives Content-Type
// from the file's extension unless the handler has set it. If the file doesn't exist or isn't a regular file, the error is an HTTPError
// with status 404. If the server has no permission to read the file, the status is 403. File uses the path unchanged: check client input
// before you build a path from it. As a precaution, File refuses requests whose decoded path has an element ".." with 400, as
// http.ServeFile does: the value of a wildcard may be "../secret".
func (c *Ctx) File(path string) error {
	if err := c.answerable(keptStatus); err != nil {
		return err
	}
	if hasDotDot(c.PathBytes()) {
		return Error(400, "the path has an element \"..\"")
	}
	file, info, err := openRegular(path)
	if err != nil {
		return err
	}
	h := &c.Response.Header
	if h.list.FindID(field.ContentType, 0) < 0 {
		contentType := mime.TypeByExtension(filepath.Ext(path))
		if contentType == "" {
			contentType = "application/octet-stream"
		}
		h.list.SetID(field.ContentType, contentType)
	}
	h.list.SetID(field.LastModified, info.ModTime().UTC().Format(syntax.TimeFormat))
	c.Response.SetBodyStream(file, info.Size())
	return nil
}

// hasDotDot reports whether a path has an element "..". Backslashes separate elements too, since they do in the paths of Windows.
func hasDotDot(path []byte) bool {
	for element := range bytes.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if string(element) == ".." {
			return true
		}
	}
	return false
}

// Attachment answers with the content of a file, as File does, and asks the client to save it under name. If name is empty, the
// file's own name is used. Control characters and slashes in the name become "_".
func (c *Ctx) Attachment(path, name string) error {
	if err := c.File(path); err != nil {
		return err
	}
	if name == "" {
		name = filepath.Base(path)
	}
	c.Response.Header.list.SetID(field.ContentDisposition, contentDisposition(name))
	return nil
}

// contentDisposition returns the value of Content-Disposition that makes a client save the content under a name (RFC 6266, section 4). A
// name that isn't ASCII goes into filename*, with a replacement in filename for clients that don't know filename*. A name that looks
// percent-encoded goes into filename* too, since browsers would decode it in filename.
func contentDisposition(name string) string {
	plain := make([]byte, 0, len(name))
	value := make([]byte, 0, 2*len(name)+32)
	exact := true // filename holds the name unchanged
	for i, r := range name {
		switch {
		case r < ' ', r == 0x7f, r == '/', r == '\\':
			r = '_'
		case r > 0x7f:
			exact = false
		case r == '%':
			_, encoded := syntax.PercentEscape([]byte(name[i:]))
			exact = exact && !encoded
		}
		value = appendExtValue(value, r)
		switch {
		case r > 0x7f:
			plain = append(plain, '_')
		case r == '"':
			plain = append(plain, '\\', '"')
		default:
			plain = append(plain, byte(r))
		}
	}
	disposition := `attachment; filename="` + string(plain) + `"`
	if !exact {
		disposition += "; filename*=UTF-8''" + string(value)
	}
	return disposition
}

// appendExtValue appends a character of an ext-value (RFC 8187, section 3.2.1), percent-encoded unless it is an attr-char.
func appendExtValue(dst []byte, r rune) []byte {
	if r < utf8.RuneSelf && (syntax.IsLetter(byte(r)) || r >= '0' && r <= '9' || strings.IndexByte("!#$&+-.^_`|~", byte(r)) >= 0) {
		return append(dst, byte(r))
	}
	var encoded [utf8.UTFMax]byte
	for _, b := range encoded[:utf8.EncodeRune(encoded[:], r)] {
		dst = append(dst, '%', "0123456789ABCDEF"[b>>4], "0123456789ABCDEF"[b&15])
	}
	return dst
}

// Reader answers with size bytes read from r, or with everything until io.EOF if size is negative. The server reads r after the
// handler has returned: see Response.SetBodyStream. An empty contentType has the same effect as in Bytes.
func (c *Ctx) Reader(status int, contentType string, r io.Reader, size int64) error {
	if err := c.answerable(status); err != nil {
		c.Response.SetBodyStream(r, size) // so that r is closed at the end of the request
		return err
	}
	c.Response.SetStatus(status)
	c.setContentType(contentType)
	c.Response.SetBodyStream(r, size)
	return nil
}

// openRegular opens a regular file. It checks before it opens, since opening a FIFO would wait for a writer.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, fileError(err)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, Error(404, "")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, fileError(err)
	}
	if info, err = file.Stat(); err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

func fileError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG),
		errors.Is(err, syscall.EINVAL): // a name with a NUL byte
		return &HTTPError{Status: 404, Err: err}
	case errors.Is(err, fs.ErrPermission):
		return &HTTPError{Status: 403, Err: err}
	}
	return err
}

// Negotiate returns the offer, a media type such as "application/json", that the client's Accept field prefers. The first of several
// equally preferred offers wins. Without an Accept field, the first offer wins. Negotiate returns "" if the client accepts none: answer 406
// then. Negotiate adds Accept to the response's Vary field. An offer may have parameters. A media range that gives one of them a different
// value doesn't match the offer.
func (c *Ctx) Negotiate(offers ...string) string {
	c.check()
	c.Response.Header.varyByAccept()
	best, bestQuality := "", 0
	for _, offer := range offers {
		if quality := acceptQuality(&c.Request.Header, offer); quality > bestQuality {
			best, bestQuality = offer, quality
		}
	}
	return best
}

// varyByAccept tells caches that the response depends on the request's Accept.
func (h *Header) varyByAccept() {
	if !h.list.HasToken(field.Vary, "accept") && !h.list.HasToken(field.Vary, "*") {
		h.Add(field.Vary.String(), field.Accept.String())
	}
}

// prefersJSON reports whether a client prefers an error as JSON to one as text. If the client has no preference, prefersJSON returns true
// if the client has sent JSON, and byDefault otherwise.
func prefersJSON(h *Header, byDefault bool) bool {
	problem := max(acceptQuality(h, "application/problem+json"), acceptQuality(h, "application/json"))
	text := acceptQuality(h, "text/plain")
	return problem > text || problem == text && (byDefault || syntax.IsJSON(h.list.GetID(field.ContentType)))
}

// acceptQuality returns the weight, in thousandths, of the most specific media range in Accept that an offer matches (RFC 9110,
// section 12.5.1: "the most specific reference has precedence").
func acceptQuality(h *Header, offer string) int {
	quality, closest, any := 0, 0, false
	for i := range h.list.Len() {
		if h.list.ID(i) != field.Accept {
			continue
		}
		for list := h.list.Value(i); len(list) > 0; {
			var element []byte
			element, list = syntax.CutQuoted(list, ',')
			mediaRange, weight, ok := parseMediaRange(element)
			if !ok {
				continue
			}
			any = true
			if precision := matchPrecision(mediaRange, offer); precision > closest {
				quality, closest = weight, precision
			}
		}
	}
	if !any {
		return syntax.MaxQuality
	}
	return quality
}

// parseMediaRange splits an element of Accept into its media range and its weight, which is 0 if the weight is malformed. For an element
// that isn't a media range, ok is false.
func parseMediaRange(element []byte) (mediaRange []byte, weight int, ok bool) {
	mediaRange = syntax.TrimSpace(element)
	typeEnd := bytes.IndexByte(mediaRange, '/')
	if typeEnd <= 0 || typeEnd == len(mediaRange)-1 {
		return nil, 0, false
	}
	for rest, position := mediaRange, 0; len(rest) > 0; {
		var parameter []byte
		before := len(rest)
		parameter, rest = syntax.CutQuoted(rest, ';')
		if parameter = syntax.TrimSpace(parameter); position > 0 && len(parameter) > 1 && parameter[0]|0x20 == 'q' && parameter[1] == '=' {
			return syntax.TrimSpace(mediaRange[:position-1]), syntax.Quality(parameter[2:]), true
		}
		position += before - len(rest)
	}
	return mediaRange, syntax.MaxQuality, true
}

// matchPrecision returns how precisely a media range describes an offer, or 0 if the range doesn't match the offer. A parameter that the
// offer doesn't have, such as a charset, doesn't prevent a match.
func matchPrecision(mediaRange []byte, offer string) int {
	name, parameters := syntax.CutQuoted(mediaRange, ';')
	offered, offeredParameters := syntax.CutQuoted(offer, ';')
	name, offered = syntax.TrimSpace(name), strings.TrimSpace(offered)
	offeredType, _, _ := strings.Cut(offered, "/")
	precision, unknown := 0, 0
	switch slash := bytes.IndexByte(name, '/'); {
	case string(name) == "*/*":
		precision = 1
	case string(name[slash+1:]) == "*" && syntax.EqualFold(name[:slash], offeredType):
		precision = 2
	case syntax.EqualFold(name, offered):
		precision = 4
	default:
		return 0
	}
	for len(parameters) > 0 {
		var parameter []byte
		parameter, parameters = syntax.CutQuoted(parameters, ';')
		if parameter = syntax.TrimSpace(parameter); len(parameter) == 0 {
			continue
		}
		switch offered, same := offersParameter(offeredParameters, parameter); {
		case same:
			precision++
		case offered:
			return 0
		default:
			unknown = 1
		}
	}
	return precision - unknown
}

// offersParameter reports whether an offer has a parameter of the same name, and whether that parameter has the same value.
func offersParameter(offered string, parameter []byte) (has, same bool) {
	name, _, _ := bytes.Cut(parameter, []byte{'='})
	for len(offered) > 0 {
		var each string
		each, offered = syntax.CutQuoted(offered, ';')
		each = strings.TrimSpace(each)
		if syntax.EqualFold(parameter, each) {
			return true, true
		}
		eachName, _, _ := strings.Cut(each, "=")
		has = has || syntax.EqualFold(name, eachName)
	}
	return has, false
}
