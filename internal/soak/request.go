package main

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/filohttp/filo/internal/soak/kit"
)

// largeBody is the size of a large request or answer.
const largeBody = kit.LargeBody

// request is a request and the expected answer.
type request struct {
	number uint64
	method string
	target string
	http10 bool
	fields string // header lines, each with CRLF
	body   []byte // as sent over HTTP/1, perhaps in chunks
	// content is the body without chunk framing. unsized says that its length isn't announced.
	content []byte
	unsized bool

	status int
	want   []byte
	// anyBody accepts any body, since the server chooses the text of an error.
	anyBody bool
	// last says that the connection ends after the answer.
	last bool
}

func (c *client) newRequest(method, path, query string) *request {
	number := c.run.number.Add(1)
	return &request{number: number, method: method, target: fmt.Sprintf("%s?number=%d%s", path, number, query), status: 200}
}

func (q *request) String() string {
	return fmt.Sprintf("request %d, %s %s (%q, body of %d bytes)", q.number, q.method, q.target, q.fields, len(q.body))
}

func (q *request) appendHead(b []byte) []byte {
	version := 1
	if q.http10 {
		version = 0
	}
	return fmt.Appendf(b, "%s %s HTTP/1.%d\r\nHost: soak.test\r\n%s\r\n", q.method, q.target, version, q.fields)
}

// encode returns the bytes of requests that are sent together.
func encode(requests ...*request) []byte {
	var b []byte
	for _, q := range requests {
		b = append(q.appendHead(b), q.body...)
	}
	return b
}

// answer is an answer over any protocol.
type answer struct {
	status   int
	values   func(field string) []string
	body     []byte
	trailers int
	closes   bool // the connection
}

// check compares the answer to the expected one.
func (q *request) check(r *answer) error {
	number := strings.Join(r.values("Number"), ", ")
	switch {
	case r.status != q.status:
		return fmt.Errorf("status %d instead of %d (of number %q)", r.status, q.status, number)
	case number != strconv.FormatUint(q.number, 10):
		return fmt.Errorf("the answer is that to number %q", number)
	case q.last && !r.closes:
		return errors.New("the answer to the last request doesn't say that the connection closes")
	case r.trailers > 0:
		return fmt.Errorf("a trailer of %d fields, which no handler has set", r.trailers)
	case q.anyBody:
		return nil
	case q.method == "HEAD":
		if length := strings.Join(r.values("Content-Length"), ", "); length != strconv.Itoa(len(q.want)) {
			return fmt.Errorf("Content-Length %q instead of %d", length, len(q.want))
		}
		return nil
	}
	return kit.Compare(r.body, q.want)
}

// call returns a GET, whose answer is the text of the path.
func (c *client) call(path string) *request {
	q := c.newRequest("GET", path, "")
	q.want = []byte(text(path, q.number))
	return q
}

// look returns a HEAD request.
func (c *client) look() *request {
	q := c.call("/hello")
	q.method = "HEAD"
	return q
}

func (c *client) fails(path string, status int) *request {
	q := c.newRequest("GET", path, "")
	q.status, q.anyBody = status, true
	return q
}

func (c *client) content(size int) *request {
	q := c.newRequest("GET", "/content", fmt.Sprintf("&size=%d", size))
	q.want = c.run.pattern.Cut(q.number, size)
	return q
}

func (c *client) stream(size int) *request {
	query := fmt.Sprintf("&size=%d&piece=%d", size, 1+c.random.IntN(max(size/4, 1)))
	if c.random.IntN(3) == 0 {
		query += "&length"
	}
	q := c.newRequest("GET", "/stream", query)
	q.want = c.run.pattern.Cut(q.number, size)
	return q
}

// upload returns a request with a body, of a known length or in chunks.
func (c *client) upload(size int) *request {
	query := ""
	if c.random.IntN(2) == 0 {
		query = "&whole"
	}
	q := c.newRequest("POST", "/upload", query)
	content := c.run.pattern.Cut(q.number, size)
	q.content = content
	if c.random.IntN(2) == 0 {
		q.fields, q.body, q.unsized = "Transfer-Encoding: chunked\r\n", c.chunks(content), true
	} else {
		q.fields, q.body = fmt.Sprintf("Content-Length: %d\r\n", size), content
	}
	q.want = []byte(receipt(q.number, content))
	return q
}

// chunks encodes a body in chunks of random sizes.
func (c *client) chunks(content []byte) []byte {
	var b bytes.Buffer
	for most := 1 + len(content)/2; len(content) > 0; {
		chunk := content[:min(1+c.random.IntN(most), len(content))]
		content = content[len(chunk):]
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(chunk), chunk)
	}
	b.WriteString("0\r\n\r\n")
	return b.Bytes()
}

// any returns a small request of a random kind, after whose answer the connection stays open.
func (c *client) any() *request {
	switch c.random.IntN(12) {
	case 0:
		return c.look()
	case 1:
		return c.fails("/missing", 404)
	case 2:
		return c.fails("/panic", 500)
	case 3:
		return c.content(c.random.IntN(40 << 10))
	case 4:
		return c.stream(c.random.IntN(40 << 10))
	case 5, 6:
		return c.upload(c.random.IntN(20 << 10))
	}
	return c.call(c.pick("/sleep", "/processor", "/mostly", "/hello", "/hello"))
}

func (c *client) pick(paths ...string) string { return paths[c.random.IntN(len(paths))] }

// some returns a random number of small requests, up to the argument most.
func (c *client) some(most int) []*request {
	requests := make([]*request, 1+c.random.IntN(most))
	for i := range requests {
		requests[i] = c.any()
	}
	return requests
}
