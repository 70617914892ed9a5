package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/syntax"
)

var errNoUpstream = filo.Error(503, "no upstream server is available")

// upstream is one of the servers to which requests are sent.
type upstream struct {
	url    *url.URL
	active atomic.Int64 // requests that the upstream is serving
	sick   atomic.Bool  // it failed the last health check

	mu       sync.Mutex
	failures int       // failures in a row; guarded by mu
	until    time.Time // the upstream is avoided until then; guarded by mu
}

// resting reports whether the upstream is avoided because attempts have failed.
func (u *upstream) resting(now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return now.Before(u.until)
}

// note records how an attempt ended, and reports whether the upstream is avoided from now on.
func (u *upstream) note(failed bool, options *Options) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !failed {
		u.failures, u.until = 0, time.Time{}
		return false
	}
	if u.failures++; options.MaxFailures == 0 || u.failures < options.MaxFailures {
		return false
	}
	u.failures = 0
	u.until = time.Now().Add(options.FailTime)
	return true
}

// endRest makes an avoided upstream available again. It keeps the count of failures, because an upstream that fails requests may still
// pass health checks.
func (u *upstream) endRest() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.until = time.Time{}
}

// pick returns the upstream for an attempt, nil if all are sick. It prefers upstreams that weren't tried before, and among these the
// upstreams that aren't resting.
func (p *Proxy) pick(tried map[*upstream]bool) *upstream {
	now := time.Now()
	first := int((p.turn.Add(1) - 1) % uint32(len(p.upstreams)))
	var best *upstream
	bestRank := 0
	for i := range p.upstreams {
		u := p.upstreams[(first+i)%len(p.upstreams)]
		if u.sick.Load() {
			continue
		}
		rank := 1
		if !tried[u] {
			rank += 2
		}
		if !u.resting(now) {
			rank++
		}
		better := rank > bestRank
		if rank == bestRank && p.options.Balance == LeastConnections {
			better = u.active.Load() < best.active.Load()
		}
		if better {
			best, bestRank = u, rank
		}
	}
	return best
}

// balancer is the http.RoundTripper of a Proxy.
type balancer Proxy

// RoundTrip implements http.RoundTripper.
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	p := (*Proxy)(b)
	if r.Body != nil && r.Body != http.NoBody {
		r = r.WithContext(r.Context()) // the caller's request must not change
		r.Body = &clientBody{ReadCloser: r.Body}
	}
	body, err := p.replayable(r)
	if err != nil {
		return nil, clientsOr(r, err)
	}
	var tried map[*upstream]bool
	for attempt := 0; ; attempt++ {
		u := p.pick(tried)
		if u == nil {
			return nil, errNoUpstream
		}
		response, err := p.attempt(r, u, body)
		if err == nil {
			return response, nil
		}
		if attempt >= p.options.Retries || !mayRepeat(r, body, err) {
			return nil, err
		}
		if tried == nil {
			tried = make(map[*upstream]bool)
		}
		tried[u] = true
	}
}

// replayable reads the request's body if it is small enough to be sent again. It returns nil for a body that can't be sent again,
// but an empty slice for an empty body.
func (p *Proxy) replayable(r *http.Request) ([]byte, error) {
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return []byte{}, nil
	case p.options.Retries == 0 || r.ContentLength < 0 || r.ContentLength > p.options.MaxReplayBytes, r.Header.Get("Expect") != "":
		return nil, nil
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

// attempt sends the request to an upstream.
func (p *Proxy) attempt(r *http.Request, u *upstream, body []byte) (*http.Response, error) {
	out, at := r.WithContext(p.attemptContext(r.Context())), *r.URL
	at.Scheme, at.Host = u.url.Scheme, u.url.Host
	at.Path, at.RawPath = joinPath(u.url, r.URL)
	out.URL = &at
	if len(body) > 0 {
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		out.Body, _ = out.GetBody()
	}
	u.active.Add(1)
	response, err := p.transport.RoundTrip(out)
	if err != nil {
		u.active.Add(-1)
		err = clientsOr(r, err)
		if isUpstreams(r.Context(), err) && u.note(true, &p.options) {
			p.options.Logger.Warn("proxy: an upstream is left alone for a while", "upstream", u.url.Redacted(),
				"for", p.options.FailTime.String(), "error", syntax.LoggedError(err))
		}
		return nil, err
	}
	u.note(false, &p.options)
	if response.Request == nil { // a Transport of the program may leave it out
		response.Request = out
	}
	response.Body = u.counted(response.Body)
	return response, nil
}

// joinPath appends the path of a request to the path of an upstream's URL.
func joinPath(base, at *url.URL) (path, rawPath string) {
	if base.Path == "" || base.Path == "/" {
		return at.Path, at.RawPath
	}
	if at.Path == "" {
		at = &url.URL{Path: "/"} // RFC 9110, section 4.2.3: http://host means the same as http://host/
	}
	path = strings.TrimSuffix(base.Path, "/") + at.Path
	if base.RawPath == "" && at.RawPath == "" {
		return path, ""
	}
	return path, strings.TrimSuffix(base.EscapedPath(), "/") + at.EscapedPath()
}

// mayRepeat reports whether a request whose attempt failed may be sent again.
func mayRepeat(r *http.Request, body []byte, err error) bool {
	if body == nil || r.Context().Err() != nil {
		return false
	}
	if isDialError(err) {
		return true // no part of the request was sent
	}
	var timeout net.Error
	return isIdempotent(r) && !(errors.As(err, &timeout) && timeout.Timeout())
}

// isIdempotent reports whether sending a request twice has the same effect as sending it once.
func isIdempotent(r *http.Request) bool {
	return syntax.IsIdempotent(r.Method) || r.Header.Get("Idempotency-Key") != ""
}

// isUpstreams reports whether the upstream has caused an error, and not the client or its request.
func isUpstreams(ctx context.Context, err error) bool {
	var known *filo.HTTPError
	return ctx.Err() == nil && !errors.As(err, &known)
}

// isDialError reports whether no connection was made.
func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// counted wraps an answer's body so that Close subtracts the request from those that the upstream is serving. The body of a 101 answer
// is a connection, so the wrapped body must still be an io.Writer.
func (u *upstream) counted(body io.ReadCloser) io.ReadCloser {
	end := sync.OnceFunc(func() { u.active.Add(-1) })
	if conn, ok := body.(io.ReadWriteCloser); ok {
		return &countedConn{conn, end}
	}
	return &countedBody{body, end}
}

type countedBody struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (b *countedBody) Close() error {
	b.end()
	return b.ReadCloser.Close()
}

type countedConn struct {
	io.ReadWriteCloser
	end func()
}

// Close implements io.Closer.
func (c *countedConn) Close() error {
	c.end()
	return c.ReadWriteCloser.Close()
}
