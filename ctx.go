package filo

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"mime"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/valyala/bytebufferpool"
)

// Handler answers a request. It may block. An error that it returns is turned into a response by the server's
// ErrorHandler. The Ctx, and every []byte that came from it, is lent until the handler returns; a string is the
// handler's own.
type Handler func(*Ctx) error

// Middleware wraps a handler.
type Middleware func(Handler) Handler

// Ctx is one request and its response. It belongs to the goroutine that runs the handler, and is used for another
// request after the handler has returned: builds with the race detector panic when one is kept too long.
type Ctx struct {
	// Request is what the client sent.
	Request Request
	// Response is what it will get.
	Response Response

	conn     *conn
	stream   StreamWriter
	context  *requestContext
	deadline time.Time
	// clientGone says that the context, which is over, ended because of the client.
	clientGone bool
	released   bool
	rendered   bool // an error was turned into the response, which is final

	params   Params
	route    string
	values   []ctxValue
	override context.Context // what Context returns instead of its own; nil is none
}

// check panics if the handler has returned, in builds with the race detector.
func (c *Ctx) check() {
	if raceEnabled && c.released {
		panic("filo: Ctx used after its handler returned")
	}
}

// end lets go of what the request held.
func (c *Ctx) end() {
	c.stopWatch()
	c.Request.end()
	if c.stream.used {
		c.stream.reset()
	}
	c.deadline, c.clientGone = time.Time{}, false
	c.rendered, c.route, c.override = false, "", nil
	if len(c.params.values) > 0 {
		c.params.reset()
	}
	if len(c.values) > 0 {
		clear(c.values)
		c.values = c.values[:0]
	}
}

// Method returns the request's method.
func (c *Ctx) Method() string { c.check(); return c.Request.Method() }

// Path returns the request's path, percent-decoded. Dot segments are as sent.
func (c *Ctx) Path() string { c.check(); return c.Request.URI().Path() }

// PathBytes is Path, borrowed.
func (c *Ctx) PathBytes() []byte { c.check(); return c.Request.URI().PathBytes() }

// Host returns the host and port that the request is for.
func (c *Ctx) Host() string { c.check(); return c.Request.Host() }

// HostBytes is Host, borrowed.
func (c *Ctx) HostBytes() []byte { c.check(); return c.Request.HostBytes() }

// Body reads the whole request body: see Request.Body.
func (c *Ctx) Body() ([]byte, error) { c.check(); return c.Request.Body() }

// BodyReader returns a reader of the request body: see Request.BodyReader.
func (c *Ctx) BodyReader() io.Reader { c.check(); return c.Request.BodyReader() }

// SetMaxBodyBytes changes the server's MaxBodyBytes for this request; negative is no limit. Call it before the body
// is read.
func (c *Ctx) SetMaxBodyBytes(n int64) { c.check(); c.Request.body.limit = n }

// RemoteAddr returns the address of the connection's other end.
func (c *Ctx) RemoteAddr() net.Addr { c.check(); return c.conn.netConn.RemoteAddr() }

// LocalAddr returns the address of the connection's end here.
func (c *Ctx) LocalAddr() net.Addr { c.check(); return c.conn.netConn.LocalAddr() }

// TLS returns the state of a TLS connection, nil on another one. It must not be changed.
func (c *Ctx) TLS() *tls.ConnectionState {
	c.check()
	return c.conn.tlsState
}

// Server returns the server that serves the request.
func (c *Ctx) Server() *Server { c.check(); return c.conn.server }

// Logger returns the server's logger.
func (c *Ctx) Logger() *slog.Logger { c.check(); return c.conn.server.logger() }

// ShuttingDown returns a channel that is closed when the server starts to shut down: a handler that streams without
// end should end then.
func (c *Ctx) ShuttingDown() <-chan struct{} { c.check(); return c.conn.server.shuttingDown() }

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

// BytesRef answers with b without copying it: b is given away for good and must never be changed again.
func (c *Ctx) BytesRef(status int, contentType string, b []byte) error {
	c.check()
	c.Response.SetStatus(status)
	c.Response.Header.setID(fieldContentType, contentType)
	c.Response.SetBodyRef(b)
	return nil
}

// JSON answers with v as JSON. A value that can't be encoded is an error, and the response stays as it was.
func (c *Ctx) JSON(status int, v any) error {
	c.check()
	buffer := bytebufferpool.Get()
	defer bytebufferpool.Put(buffer)
	if err := json.NewEncoder(buffer).Encode(v); err != nil {
		return err
	}
	return c.Bytes(status, "application/json", buffer.B)
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

// EarlyHints sends 103 (Early Hints) with the fields that Response.Header has now, mostly Link; they stay for the
// final answer. An HTTP/1.0 client, which doesn't know of it, gets nothing.
func (c *Ctx) EarlyHints() error {
	c.check()
	if c.conn.hijacked {
		return ErrHijacked
	}
	if c.stream.sent {
		return ErrHeadSent
	}
	if c.Request.minor == 0 {
		return nil
	}
	conn, h := c.conn, &c.Response.Header
	conn.out = appendStatusLine(conn.out, 103)
	for i := range h.fields {
		switch h.fields[i].id {
		case fieldContentLength, fieldTransferEncoding, fieldConnection, fieldContentType:
		default:
			conn.out = h.appendLine(conn.out, i)
		}
	}
	conn.out = append(conn.out, "\r\n"...)
	return conn.flush()
}
