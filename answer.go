package filo

import (
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

	"github.com/valyala/bytebufferpool"
)

const textHTML = "text/html; charset=utf-8"

// Text answers with plain text in UTF-8.
func (c *Ctx) Text(status int, text string) error {
	c.check()
	c.Response.SetStatus(status)
	c.Response.Header.setPlainText()
	c.Response.SetBodyString(text)
	return nil
}

// Bytes answers with a copy of b.
func (c *Ctx) Bytes(status int, contentType string, b []byte) error {
	c.check()
	c.Response.SetStatus(status)
	c.Response.Header.setID(fieldContentType, contentType)
	c.Response.SetBody(b)
	return nil
}

// BytesNoCopy answers with b without copying it: b is given away for good and must never be changed again.
func (c *Ctx) BytesNoCopy(status int, contentType string, b []byte) error {
	c.check()
	c.Response.SetStatus(status)
	c.Response.Header.setID(fieldContentType, contentType)
	c.Response.SetBodyNoCopy(b)
	return nil
}

// JSON answers with v as JSON, encoded by Server.JSON. A value that can't be encoded is an error, and the response stays as
// it was.
func (c *Ctx) JSON(status int, v any) error {
	c.check()
	if codec := c.conn.server.JSON; codec != nil {
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
	// Marshal returns v as JSON, in a slice that is the caller's.
	Marshal(v any) ([]byte, error)
	// Unmarshal decodes data into what v points to. It must not keep data.
	Unmarshal(data []byte, v any) error
}

// DecodeJSON decodes data into what v points to, by Server.JSON. For a request's body, with errors for people to read, see
// package bind.
func (c *Ctx) DecodeJSON(data []byte, v any) error {
	c.check()
	if codec := c.conn.server.JSON; codec != nil {
		return codec.Unmarshal(data, v)
	}
	return json.Unmarshal(data, v)
}

// XML answers with v as XML, with an XML declaration in front. A value that can't be encoded is an error, and the response
// stays as it was.
func (c *Ctx) XML(status int, v any) error {
	c.check()
	return c.encoded(status, "application/xml; charset=utf-8", func(w io.Writer) error {
		if _, err := io.WriteString(w, xml.Header); err != nil {
			return err
		}
		return xml.NewEncoder(w).Encode(v)
	})
}

// encoded answers with what encode writes, if that goes well.
func (c *Ctx) encoded(status int, contentType string, encode func(io.Writer) error) error {
	buffer := bytebufferpool.Get()
	defer bytebufferpool.Put(buffer)
	if err := encode(buffer); err != nil {
		return err
	}
	return c.Bytes(status, contentType, buffer.B)
}

// HTML answers with an HTML document. For one that is made of a template see Render.
func (c *Ctx) HTML(status int, html string) error {
	c.check()
	c.Response.SetStatus(status)
	c.Response.Header.setID(fieldContentType, textHTML)
	c.Response.SetBodyString(html)
	return nil
}

// Renderer makes a document of the template called name and its data: see Server.Renderer, and package templates for one.
type Renderer interface {
	Render(w io.Writer, name string, data any) error
}

// Render answers with the HTML document that Server.Renderer makes of the template called name. An error of it is returned,
// and the response stays as it was.
func (c *Ctx) Render(status int, name string, data any) error {
	c.check()
	renderer := c.conn.server.Renderer
	if renderer == nil {
		return errors.New("filo: Render without a Server.Renderer")
	}
	return c.encoded(status, textHTML, func(w io.Writer) error { return renderer.Render(w, name, data) })
}

// Redirect answers with a status of 300 to 308 and a Location, which is sent as it is.
func (c *Ctx) Redirect(status int, location string) error {
	c.check()
	if status < 300 || status > 308 {
		return errors.New("filo: a redirect has a status of 300 to 308")
	}
	c.Response.SetStatus(status)
	c.Response.Header.setID(fieldLocation, location)
	c.Response.resetBody()
	return nil
}

// NoContent answers with 204.
func (c *Ctx) NoContent() error {
	c.check()
	c.Response.SetStatus(204)
	c.Response.resetBody()
	return nil
}

// File answers with the content of a file, by sendfile where the connection can. Its type is told from the name's
// extension unless Content-Type is set, and Last-Modified is sent. A file that doesn't exist, and anything but a regular
// file, is an HTTPError of 404, one that may not be read of 403. The path is used as it is: never make it of what a client
// sent without checking it.
func (c *Ctx) File(path string) error {
	c.check()
	file, info, err := openRegular(path)
	if err != nil {
		return err
	}
	h := &c.Response.Header
	if h.findID(fieldContentType, 0) < 0 {
		contentType := mime.TypeByExtension(filepath.Ext(path))
		if contentType == "" {
			contentType = "application/octet-stream"
		}
		h.setID(fieldContentType, contentType)
	}
	h.setID(fieldLastModified, info.ModTime().UTC().Format(timeFormat))
	c.Response.SetBodyStream(file, info.Size())
	return nil
}

// Attachment answers with the content of a file, as File does, for the client to save under a name. An empty name is the
// file's own. Control characters and slashes in it become "_".
func (c *Ctx) Attachment(path, name string) error {
	if err := c.File(path); err != nil {
		return err
	}
	if name == "" {
		name = filepath.Base(path)
	}
	c.Response.Header.setID(fieldContentDisposition, contentDisposition(name))
	return nil
}

// contentDisposition returns the value that has a client save the content under a name (RFC 6266, section 4). A name that
// isn't ASCII goes into filename*, with a replacement in filename for clients that don't know that.
func contentDisposition(name string) string {
	plain := make([]byte, 0, len(name))
	value := make([]byte, 0, 2*len(name)+32)
	ascii := true
	for _, r := range name {
		switch {
		case r < ' ', r == 0x7f, r == '/', r == '\\':
			r = '_'
		case r > 0x7f:
			ascii = false
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
	if !ascii {
		disposition += "; filename*=UTF-8''" + string(value)
	}
	return disposition
}

// appendExtValue appends a character of an ext-value (RFC 8187, section 3.2.1), percent-encoded unless it is an attr-char.
func appendExtValue(dst []byte, r rune) []byte {
	if r < utf8.RuneSelf && (isLetter(byte(r)) || r >= '0' && r <= '9' || strings.IndexByte("!#$&+-.^_`|~", byte(r)) >= 0) {
		return append(dst, byte(r))
	}
	var encoded [utf8.UTFMax]byte
	for _, b := range encoded[:utf8.EncodeRune(encoded[:], r)] {
		dst = append(dst, '%', "0123456789ABCDEF"[b>>4], "0123456789ABCDEF"[b&15])
	}
	return dst
}

// Reader answers with what r has to read: size bytes, or until io.EOF if size is negative. It is read when the handler has
// returned: see Response.SetBodyStream.
func (c *Ctx) Reader(status int, contentType string, r io.Reader, size int64) error {
	c.check()
	c.Response.SetStatus(status)
	c.Response.Header.setID(fieldContentType, contentType)
	c.Response.SetBodyStream(r, size)
	return nil
}

// openRegular opens a regular file. It looks before it opens: opening a FIFO would wait for somebody to write to it.
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

// timeFormat is IMF-fixdate (RFC 9110, section 5.6.7); the time must be in UTC.
const timeFormat = "Mon, 02 Jan 2006 15:04:05 GMT"

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
