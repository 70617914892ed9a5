package static

import (
	"crypto/rand"
	"io"
	"slices"
	"strconv"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/byterange"
)

// multipart is a body of the type multipart/byteranges (RFC 9110, section 14.6).
type multipart struct {
	boundary    string
	contentType string // of the file
	ranges      []byterange.Range
	size        int64 // of the file
}

func newMultipart(contentType string, ranges []byterange.Range, size int64) *multipart {
	return &multipart{boundary: rand.Text(), contentType: contentType, ranges: slices.Clone(ranges), size: size}
}

// length returns the length of the body.
func (m *multipart) length() int64 {
	var length int64
	var buffer [512]byte
	for i, r := range m.ranges {
		length += int64(len(m.appendHead(buffer[:0], i))) + r.Length
	}
	return length + int64(len(m.appendEnd(buffer[:0])))
}

// appendHead appends the head of a part. Even the head of the first part begins with a line end (an empty preamble), as in answers of
// Apache and nginx, since zsync expects it.
func (m *multipart) appendHead(dst []byte, part int) []byte {
	dst = append(dst, "\r\n--"...)
	dst = append(dst, m.boundary...)
	dst = append(dst, "\r\nContent-Range: "...)
	dst = m.ranges[part].AppendContentRange(dst, m.size)
	dst = append(dst, "\r\nContent-Type: "...)
	dst = append(dst, m.contentType...)
	return append(dst, "\r\n\r\n"...)
}

// appendEnd appends the bytes after the last part.
func (m *multipart) appendEnd(dst []byte) []byte {
	dst = append(dst, "\r\n--"...)
	dst = append(dst, m.boundary...)
	return append(dst, "--\r\n"...)
}

// body returns the body as bytes, with the ranges of content.
func (m *multipart) body(content []byte) []byte {
	body := make([]byte, 0, m.length())
	for i, r := range m.ranges {
		body = append(m.appendHead(body, i), content[r.Begin:][:r.Length]...)
	}
	return m.appendEnd(body)
}

// stream sends the body, with the ranges of a file. Each range is sent by sendfile if the connection allows that.
func (m *multipart) stream(c *filo.Ctx, file *openFile) error {
	c.Response.Header.Set("Content-Length", strconv.FormatInt(m.length(), 10))
	w := c.Stream()
	var buffer [512]byte
	for i, r := range m.ranges {
		if _, err := w.Write(m.appendHead(buffer[:0], i)); err != nil {
			return err
		}
		part, err := file.reader(r)
		if err != nil {
			return err
		}
		switch n, err := w.ReadFrom(part); {
		case err != nil:
			return err
		case n < r.Length:
			return io.ErrUnexpectedEOF
		}
	}
	_, err := w.Write(m.appendEnd(buffer[:0]))
	return err
}
