package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/router"
)

// tus implements version 1.0.0 of the protocol: POST creates an upload, HEAD returns how much of it has arrived, PATCH appends to it, and DELETE
// removes it.
type tus struct{ files *store }

const (
	tusVersion    = "1.0.0"
	tusExtensions = "creation,expiration,termination"
	tusMedia      = "application/offset+octet-stream"
)

func addTus(r *router.Router, files *store) {
	t := &tus{files}
	r.OPTIONS("/uploads", t.describe)
	g := r.Group("/uploads", checkVersion)
	g.POST("", t.create)
	g.HEAD("/{id}", t.tell)
	g.PATCH("/{id}", t.add)
	g.DELETE("/{id}", t.abandon)
}

// checkVersion refuses requests of another version of the protocol.
func checkVersion(next filo.Handler) filo.Handler {
	return func(c *filo.Ctx) error {
		h := &c.Response.Header
		h.Set("Tus-Resumable", tusVersion)
		h.Set("Cache-Control", "no-store")
		if c.Request.Header.Get("Tus-Resumable") != tusVersion {
			h.Set("Tus-Version", tusVersion)
			return filo.Error(http.StatusPreconditionFailed, "the field Tus-Resumable must be "+tusVersion)
		}
		return next(c)
	}
}

func (t *tus) describe(c *filo.Ctx) error {
	h := &c.Response.Header
	h.Set("Tus-Resumable", tusVersion)
	h.Set("Tus-Version", tusVersion)
	h.Set("Tus-Extension", tusExtensions)
	h.Set("Tus-Max-Size", strconv.FormatInt(t.files.limits.fileBytes, 10))
	return c.NoContent()
}

func (t *tus) create(c *filo.Ctx) error {
	length, err := number(c, "Upload-Length")
	if err != nil {
		return err
	}
	metadata := c.Request.Header.Get("Upload-Metadata")
	name, err := fileName(metadata)
	if err != nil {
		return err
	}
	u, err := t.files.create(record{Name: name, Length: length, Metadata: metadata})
	if err != nil {
		return err
	}
	c.Response.Header.Set("Location", "/uploads/"+u.id)
	t.setExpires(c, time.Now())
	c.Response.SetStatus(http.StatusCreated)
	return nil
}

func (t *tus) tell(c *filo.Ctx) error {
	u, err := t.files.acquire(c.Param("id"))
	if err != nil {
		return err
	}
	defer t.files.release(u)
	h := &c.Response.Header
	setOffset(c, u)
	h.Set("Upload-Length", strconv.FormatInt(u.Length, 10))
	h.Set("Upload-Metadata", u.Metadata)
	t.setExpires(c, u.active)
	return nil
}

func (t *tus) add(c *filo.Ctx) error {
	if media := c.Request.ContentType(); media != tusMedia {
		return filo.Error(http.StatusUnsupportedMediaType, "the Content-Type must be "+tusMedia)
	}
	offset, err := number(c, "Upload-Offset")
	if err != nil {
		return err
	}
	u, err := t.files.acquire(c.Param("id"))
	if err != nil {
		return err
	}
	defer t.files.release(u)
	if offset != u.offset {
		setOffset(c, u)
		return filo.Error(http.StatusConflict, fmt.Sprintf("%d bytes have come, it goes on there", u.offset))
	}
	left := u.Length - u.offset
	if n := c.Request.ContentLength(); n > left {
		return filo.Error(http.StatusRequestEntityTooLarge, fmt.Sprintf("%d bytes are missing, not %d", left, n))
	}
	if left > 0 {
		c.SetMaxBodyBytes(left)
		if err := t.files.add(u, patience{c, c.BodyReader(), t.files.limits.stall}); err != nil {
			return err
		}
	}
	setOffset(c, u)
	t.setExpires(c, u.active)
	return c.NoContent()
}

func (t *tus) abandon(c *filo.Ctx) error {
	if err := t.files.abandon(c.Param("id")); err != nil {
		return err
	}
	return c.NoContent()
}

func setOffset(c *filo.Ctx, u *upload) {
	c.Response.Header.Set("Upload-Offset", strconv.FormatInt(u.offset, 10))
}

func (t *tus) setExpires(c *filo.Ctx, active time.Time) {
	c.Response.Header.Set("Upload-Expires", active.Add(t.files.limits.expiry).UTC().Format(http.TimeFormat))
}

// number parses a field whose value is a number of bytes.
func number(c *filo.Ctx, field string) (int64, error) {
	n, err := strconv.ParseUint(c.Request.Header.Get(field), 10, 63)
	if err != nil {
		return 0, filo.Error(http.StatusBadRequest, "the field "+field+" must be a number of bytes")
	}
	return int64(n), nil
}

// fileName returns the file's name from Upload-Metadata, a list of pairs: a key, a space, and a value in Base64.
func fileName(metadata string) (string, error) {
	for pair := range strings.SplitSeq(metadata, ",") {
		if key, value, _ := strings.Cut(strings.TrimSpace(pair), " "); key == "filename" {
			if name, err := base64.StdEncoding.DecodeString(value); err == nil {
				return string(name), nil
			}
		}
	}
	return "", filo.Error(http.StatusBadRequest, `the field Upload-Metadata must have "filename" and the file's name in Base64`)
}

// patience reads a body, and fails if the body pauses for longer than stall. The server's own limit is for the average speed of the whole body. So
// after a quick beginning, a pause could block the upload for days. Reads also fail when the server shuts down, since the client can send the rest
// later.
type patience struct {
	c     *filo.Ctx
	body  io.Reader
	stall time.Duration
}

func (p patience) Read(b []byte) (int, error) {
	select {
	case <-p.c.ShuttingDown():
		return 0, filo.Error(http.StatusServiceUnavailable, "the server shuts down; go on when it is back")
	default:
	}
	if err := p.c.SetReadDeadline(time.Now().Add(p.stall)); err != nil {
		return 0, err
	}
	return p.body.Read(b)
}
