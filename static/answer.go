package static

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/byterange"
	"github.com/filohttp/filo/internal/inside"
	"github.com/filohttp/filo/internal/syntax"
	"github.com/filohttp/filo/middleware"
)

// answer sends the representation of a file that the client prefers.
func (f *Files) answer(c *filo.Ctx, e *entry) error {
	r := e.representations[0]
	if len(e.representations) > 1 {
		c.Response.Header.AddField(&vary)
		if r = e.choose(&c.Request.Header); r == nil {
			return errEncoding
		}
	}
	if r.body == nil {
		return f.answerFromDisk(c, e, r)
	}
	return r.answer(c, e, nil)
}

// answerFromDisk sends a representation whose content isn't in memory.
func (f *Files) answerFromDisk(c *filo.Ctx, e *entry, r *representation) error {
	head := string(c.Request.MethodBytes()) == "HEAD"
	file, found, err := f.ready(c, r), r, error(nil)
	if file == nil {
		if err := inside.Offload(c); err != nil {
			return err
		}
		file, found, err = f.lookAt(e, r, head)
	}
	if err != nil && r.encoding != nil {
		// If an encoded file has disappeared, send the plain file instead of failing.
		file, found, err = f.lookAt(e, e.representations[0], head)
	}
	if err != nil {
		f.memory.drop(e)
		return f.source.httpError(err)
	}
	return found.answer(c, e, file)
}

// ready is like stillOpen, but returns nil unless the worker that has read the request can send the file itself. That worker can
// send only whole files, with sendfile.
func (f *Files) ready(c *filo.Ctx, r *representation) *openFile {
	request := &c.Request
	if string(request.MethodBytes()) != "GET" || request.Header.Has("Range") || c.TLS() != nil || request.Proto() == "HTTP/2.0" {
		return nil
	}
	return f.stillOpen(r)
}

// stillOpen returns a representation's file if the file is open and unchanged on the disk, otherwise nil. The caller becomes a holder of
// the file.
func (f *Files) stillOpen(r *representation) *openFile {
	o := f.open.get(r)
	if o == nil || f.options.Frozen || o.is(&r.stamp) {
		return o
	}
	o.Close()
	f.open.drop(r)
	return nil
}

// lookAt returns a representation's file, and the representation with the file's current properties. The caller becomes a holder of the
// file. If head is set, the response needs no content, so lookAt opens no file.
func (f *Files) lookAt(e *entry, r *representation, head bool) (*openFile, *representation, error) {
	if head {
		if f.options.Frozen {
			return nil, r, nil
		}
		info, err := statRegular(f.source, r.file)
		if err != nil {
			return nil, nil, err
		}
		return nil, r.asOf(e, info, time.Now()), nil
	}
	if o := f.stillOpen(r); o != nil {
		return o, r, nil
	}
	file, info, err := openRegular(f.source, r.file)
	if err != nil {
		return nil, nil, err
	}
	o, found := newOpenFile(file), r
	if !f.options.Frozen {
		found = r.asOf(e, info, time.Now())
	}
	if found == r && (r.settled || f.options.Frozen) {
		f.open.put(r, o)
	}
	return o, found, nil
}

// noBody is the body of responses to HEAD. The server never reads it.
var noBody = strings.NewReader("")

// answer sends a representation: from file, which it closes, or from memory if file is nil. For HEAD, it sends no content.
func (r *representation) answer(c *filo.Ctx, e *entry, file *openFile) error {
	var buffer [byterange.Max]byterange.Range
	ranges, err := r.evaluate(c, e, buffer[:0])
	switch {
	case err != nil || len(ranges) == 0:
		if file != nil {
			file.Close()
		}
		return err
	case len(ranges) > 1 && file != nil:
		defer file.Close()
		return r.partsOf(c, ranges).stream(c, file)
	case len(ranges) > 1:
		c.Response.SetBodyNoCopy(r.partsOf(c, ranges).body(r.body))
		return nil
	case file == nil && r.body == nil:
		c.Response.SetBodyStream(noBody, ranges[0].Length)
		return nil
	case file == nil:
		c.Response.SetBodyNoCopy(r.body[ranges[0].Begin:][:ranges[0].Length])
		return nil
	}
	body, err := file.body(ranges[0])
	if err == nil {
		c.Response.SetBodyStream(body, ranges[0].Length)
	}
	return err
}

// evaluate sets the status and fields of the response, and appends to dst the ranges of the representation that the response contains:
// usually the whole representation, and none if the client already has it.
func (r *representation) evaluate(c *filo.Ctx, e *entry, dst []byterange.Range) ([]byterange.Range, error) {
	h := &c.Response.Header
	ranges, verdict := dst, byterange.Ignored
	// RFC 9110, section 13.2.1: conditions and ranges are ignored if the answer without them wouldn't be 200.
	if c.Response.Status() == 200 {
		// Section 13.2.2: If-Range, and therefore Range, is evaluated after the other conditions.
		switch r.precondition(c) {
		case 304:
			c.Response.SetStatus(304)
			setFields(h, r.kept)
			return nil, nil
		case 412:
			return nil, errPrecondition
		}
		ranges, verdict = r.ranges(c, dst)
	}
	if verdict == byterange.Unsatisfiable {
		// An ErrorHandler drops fields that describe a body, so Content-Range is set afterwards.
		err := c.RenderError(errRange)
		h.Set("Content-Range", "bytes */"+strconv.FormatInt(r.stamp.size, 10))
		return nil, err
	}
	setFields(h, r.kept)
	setFields(h, r.content)
	if !h.Has("Content-Type") {
		h.AddField(&e.contentType)
	}
	if verdict == byterange.Ignored {
		return append(dst, byterange.Range{Length: r.stamp.size}), nil
	}
	c.Response.SetStatus(206)
	if len(ranges) == 1 {
		var value [64]byte
		h.SetBytes("Content-Range", ranges[0].AppendContentRange(value[:0], r.stamp.size))
	}
	return ranges, nil
}

func setFields(h *filo.Header, fields []filo.Field) {
	for i := range fields {
		h.SetField(&fields[i])
	}
}

// noTag stands for the entity tag of a file that exists but has none.
const noTag = `W/""`

// precondition evaluates the request's conditions except If-Range. It returns 304, 412, or 0 if the file may be sent.
func (r *representation) precondition(c *filo.Ctx) int {
	h := &c.Request.Header
	if !h.Has("If-None-Match") && !h.Has("If-Modified-Since") && !h.Has("If-Match") && !h.Has("If-Unmodified-Since") {
		return 0
	}
	return middleware.Precondition(c, cmp.Or(r.etag, noTag), r.modified)
}

// ranges appends the ranges that a request asks for. RFC 9110, section 14.2: ranges are defined only for GET.
func (r *representation) ranges(c *filo.Ctx, dst []byterange.Range) ([]byterange.Range, byterange.Verdict) {
	value := c.Request.Header.GetBytes("Range")
	if value == nil || !r.seekable || string(c.Request.MethodBytes()) != "GET" || !r.ifRange(&c.Request.Header) {
		return dst, byterange.Ignored
	}
	return byterange.Parse(dst, value, r.stamp.size)
}

// ifRange reports whether a request has no If-Range, or one whose condition is true (RFC 9110, section 13.1.5). An entity tag must be
// equal by the strong comparison. A date must equal Last-Modified exactly, and the file must not be able to change again within that
// second.
func (r *representation) ifRange(h *filo.Header) bool {
	value := h.GetBytes("If-Range")
	switch {
	case value == nil:
		return true
	case len(value) > 0 && value[0] == '"':
		return string(value) == r.etag // a weak tag begins with W/, and not with a quote
	case !r.dated:
		return false
	}
	var date [len(syntax.TimeFormat)]byte
	return string(value) == string(r.modified.UTC().AppendFormat(date[:0], syntax.TimeFormat))
}

// partsOf makes the response a multipart answer of several ranges.
func (r *representation) partsOf(c *filo.Ctx, ranges []byterange.Range) *multipart {
	h := &c.Response.Header
	m := newMultipart(h.Get("Content-Type"), ranges, r.stamp.size)
	h.Set("Content-Type", "multipart/byteranges; boundary="+m.boundary)
	return m
}
