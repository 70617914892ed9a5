package debug

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/filohttp/filo"
)

const (
	defaultProfile = 30 * time.Second
	defaultTrace   = time.Second
)

var (
	octets     = filo.NewField("Content-Type", "application/octet-stream")
	plainText  = filo.NewField("Content-Type", "text/plain; charset=utf-8")
	retryAfter = filo.NewField("Retry-After", "10")
	// goPprof makes go tool pprof show the text of an error.
	goPprof = filo.NewField("X-Go-Pprof", "1")
)

// refuse returns an error that go tool pprof shows.
func refuse(c *filo.Ctx, status int, format string, args ...any) error {
	c.Response.Header.SetField(&goPprof)
	return filo.Error(status, fmt.Sprintf(format, args...))
}

// download declares the body to be a file for the client to save. It replaces unsafe characters in the name, since the program may have
// chosen it.
func download(c *filo.Ctx, name string) {
	c.Response.Header.SetField(&octets)
	name = strings.Map(func(r rune) rune {
		if r < '-' || r > 'z' || r == '/' || r == '\\' {
			return '_'
		}
		return r
	}, name)
	c.Response.Header.Set("Content-Disposition", `attachment; filename="`+name+`"`)
}

// cpuProfile answers with a profile of what the processors do from now on. The profile is kept in memory until it is complete, since
// runtime/pprof writes nearly all of it at the end.
func (h *handler) cpuProfile(c *filo.Ctx) error {
	d, err := h.duration(c, defaultProfile)
	if err != nil || isHead(c, "profile") {
		return err
	}
	w := newWatch(c)
	var profile bytes.Buffer
	if err := pprof.StartCPUProfile(&profile); err != nil {
		c.Response.Header.SetField(&retryAfter)
		return refuse(c, 409, "there can be one CPU profile at a time, and one is running")
	}
	err = w.wait(d)
	pprof.StopCPUProfile()
	if err != nil {
		return err
	}
	download(c, "profile")
	c.Response.SetBodyNoCopy(profile.Bytes())
	return nil
}

// trace sends an execution trace while it is recorded: what the scheduler and the garbage collector do from now on.
func (h *handler) trace(c *filo.Ctx) error {
	d, err := h.duration(c, defaultTrace)
	if err != nil || isHead(c, "trace") {
		return err
	}
	w := newWatch(c)
	download(c, "trace")
	out := &traceWriter{w: c.Stream(), failed: make(chan struct{})}
	w.failed = out.failed
	if err := trace.Start(out); err != nil {
		c.Response.Header.Del("Content-Disposition")
		c.Response.Header.SetField(&retryAfter)
		return refuse(c, 409, "there can be one trace at a time, and one is running")
	}
	err = w.wait(d)
	trace.Stop() // also waits for the last Write
	return err
}

// traceWriter passes a trace on to the client. The runtime writes to it from its own goroutine, and ignores errors.
type traceWriter struct {
	w      io.Writer
	once   sync.Once
	failed chan struct{} // closed when the client accepts nothing more
}

func (t *traceWriter) Write(p []byte) (int, error) {
	n, err := t.w.Write(p)
	if err != nil {
		t.once.Do(func() { close(t.failed) })
	}
	return n, err
}

// namedProfile answers with one of the profiles that runtime/pprof keeps.
func (h *handler) namedProfile(c *filo.Ctx) error {
	name := c.Param("name")
	profile := pprof.Lookup(name)
	if profile == nil {
		return refuse(c, 404, "there is no profile of that name")
	}
	query := c.Request.Query()
	level, err := optional(c, "debug")
	if err != nil {
		return err
	}
	collect, err := optional(c, "gc")
	if err != nil {
		return err
	}
	delta := query.Has("seconds")
	if delta && level > 0 {
		return refuse(c, 400, "seconds and debug don't go together: a difference has no text form")
	}
	if level > 0 {
		c.Response.Header.SetField(&plainText)
	} else {
		download(c, name)
	}
	if c.Method() == "HEAD" {
		return nil
	}
	prepare := func() {}
	if collect > 0 && name == "heap" {
		prepare = runtime.GC
	}
	if delta {
		return h.deltaProfile(c, profile, prepare)
	}
	prepare()
	return profile.WriteTo(c.Stream(), level)
}

// deltaProfile answers with the difference between two states of a profile.
func (h *handler) deltaProfile(c *filo.Ctx, profile *pprof.Profile, prepare func()) error {
	d, err := h.duration(c, 0)
	if err != nil {
		return err
	}
	w := newWatch(c)
	var before, after bytes.Buffer
	prepare()
	if err := profile.WriteTo(&before, 0); err != nil {
		return err
	}
	start := time.Now()
	if err := w.wait(d); err != nil {
		return err
	}
	prepare()
	if err := profile.WriteTo(&after, 0); err != nil {
		return err
	}
	difference, err := subtract(before.Bytes(), after.Bytes(), time.Since(start))
	if err != nil {
		return err
	}
	c.Response.SetBodyNoCopy(difference)
	return nil
}

// isHead answers a HEAD request, for which nothing is profiled, and reports whether the request is one.
func isHead(c *filo.Ctx, name string) bool {
	if c.Method() != "HEAD" {
		return false
	}
	download(c, name)
	return true
}

// optional returns a small number from the query, 0 if there is none.
func optional(c *filo.Ctx, key string) (int, error) {
	text := c.Request.Query().Get(key)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		return 0, refuse(c, 400, "%s is a number from 0 to 255", key)
	}
	return int(n), nil
}

// duration returns the duration that the client requests, or byDefault if it requests none.
func (h *handler) duration(c *filo.Ctx, byDefault time.Duration) (time.Duration, error) {
	text := c.Request.Query().Get("seconds")
	if text == "" && byDefault > 0 {
		return min(byDefault, h.maxDuration), nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	// The comparisons are written so that NaN is refused.
	if err != nil || !(seconds >= 0.001 && seconds <= h.maxDuration.Seconds()) || math.IsInf(seconds, 0) {
		return 0, refuse(c, 400, "seconds is a number from 0.001 to %v", h.maxDuration.Seconds())
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// watch waits until the duration that a client has requested for a profile has passed.
type watch struct {
	gone, over <-chan struct{}
	failed     <-chan struct{}
}

func newWatch(c *filo.Ctx) *watch {
	c.SetTimeout(0, nil) // a time-out that outer middleware has set must not end a profile
	return &watch{gone: c.Context().Done(), over: c.ShuttingDown()}
}

// wait waits for d, or until the server shuts down. If the client leaves before, it returns filo.ErrAbort.
func (w *watch) wait(d time.Duration) error {
	select {
	case <-time.After(d):
	case <-w.over:
	case <-w.gone:
		return filo.ErrAbort
	case <-w.failed:
		return filo.ErrAbort
	}
	return nil
}

// serveCmdline answers with the command line, the arguments with NUL in between.
func serveCmdline(c *filo.Ctx) error { return c.Text(200, strings.Join(os.Args, "\x00")) }

// maxSymbols is the maximum size in bytes of a body with addresses.
const maxSymbols = 1 << 20

// serveSymbol answers with the functions that addresses belong to: "0x4a1b00+0x4a1b20" in the query or the body. go tool pprof first asks
// whether there are any symbols, which the first line of each answer states.
func serveSymbol(c *filo.Ctx) error {
	addresses := c.Request.URI().RawQueryBytes()
	if c.Method() == "POST" {
		c.SetMaxBodyBytes(maxSymbols)
		body, err := c.Body()
		if err != nil {
			return err
		}
		addresses = body
	}
	var text bytes.Buffer
	text.WriteString("num_symbols: 1\n")
	for word := range bytes.SplitSeq(addresses, []byte{'+'}) {
		address, err := strconv.ParseUint(string(bytes.TrimSpace(word)), 0, 64)
		if err != nil || address == 0 {
			continue
		}
		if f := runtime.FuncForPC(uintptr(address)); f != nil {
			fmt.Fprintf(&text, "%#x %s\n", address, f.Name())
		}
	}
	c.Response.Header.SetField(&plainText)
	c.Response.SetBodyNoCopy(text.Bytes())
	return nil
}
