package middleware

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/setup"
	"github.com/filohttp/filo/internal/syntax"
)

// AccessLogOptions configures AccessLog.
type AccessLogOptions struct {
	// Logger receives one record for each request. The default is the server's logger.
	Logger *slog.Logger
	// Level is the level of the records. Default slog.LevelInfo, which is the zero value.
	Level slog.Level
	// Skip, if set, runs after a request has been answered, and leaves the request out of the log if it returns true: for
	// example, a health check that was answered with 200.
	Skip func(c *filo.Ctx) bool
	// Attributes, if set, appends attributes to those of a record, and returns them all. It must not keep the slice.
	Attributes func(c *filo.Ctx, attributes []slog.Attr) []slog.Attr
	// Combined, if set, receives lines in Apache's combined format, and Logger receives no records. Each line is one call to Write; calls
	// never overlap. An error of Write is logged to Logger, unless writing the previous line failed too.
	//
	// In the queries of the request and of Referer, AccessLog replaces the values of parameters that are usually secret with "REDACTED": see
	// IsRedacted and the option Redact. Records for Logger don't contain the query.
	Combined io.Writer
	// Redact lists further parameters whose values aren't logged.
	Redact []string
}

// AccessLog logs each request after it has been answered: method, path, route, status, size of the body, duration in milliseconds, client
// address, host, user agent, the id of RequestID and the error, where known. The record's time is when the request arrived.
//
// Put it outside of everything that may answer a request, except RequestID and RealIP, whose results it logs. If the handler returned an
// error that isn't rendered yet, AccessLog renders it, so that it logs the response that the client gets: see Ctx.RenderError. The status is
// 0 if filo.ErrAbort prevented the answer, or if the handler failed because its client had left. If a panic passes through AccessLog, the
// request isn't logged, because the server answers it only afterwards; AccessLog warns of this once. To have such requests logged, put
// Recover inside of AccessLog.
//
// Control bytes can't reach the log: a slog.Handler quotes them, and the combined format writes control bytes, quotes and backslashes as
// escapes such as "\x0a". The length of a record is limited. At most 1,024 bytes of a path, a query, a Referer or an error are logged, 512 of
// a user agent, 256 of a host or a user, and 32 of a method; "..." marks a truncated text. The logged size counts the body produced so far:
// it doesn't include the bytes that a stream given to SetBodyStream has yet to send.
func AccessLog(options ...AccessLogOptions) filo.Middleware {
	o := setup.One("middleware: AccessLog", options)
	l := &accessLog{options: o, secrets: o.Redact}
	return func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			start, returned := time.Now(), false
			defer func() {
				if !returned {
					l.panicked(c)
				}
			}()
			err := c.RenderError(next(c))
			returned = true
			if o.Skip == nil || !o.Skip(c) {
				l.log(c, start, err)
			}
			return err
		}
	}
}

type accessLog struct {
	options AccessLogOptions
	secrets []string // names of parameters, in upper or lower case

	mu     sync.Mutex // held while Combined is written
	failed bool       // the last Write failed; guarded by mu

	warned sync.Once // limits the method panicked to one warning
}

// panicked warns once that a panic has passed through the access log, which can't know how the server will answer the request.
func (l *accessLog) panicked(c *filo.Ctx) {
	l.warned.Do(func() {
		l.logger(c).Warn("a panic has passed AccessLog, so its request isn't in the access log: put Recover inside of AccessLog",
			"method", syntax.Excerpt(c.Method(), syntax.MaxLoggedMethod), "path", syntax.Excerpt(c.Path(), syntax.MaxLogged), "route", c.Route())
	})
}

func (l *accessLog) log(c *filo.Ctx, start time.Time, err error) {
	if l.options.Combined != nil {
		l.logCombined(c, start, err)
		return
	}
	handler := l.logger(c).Handler()
	if !handler.Enabled(context.Background(), l.options.Level) {
		return
	}
	memory := records.Get().(*recordMemory)
	list := l.appendAttributes(memory, c, start, err)
	// The record is built by hand: slog would look up the line of code that logs, which is the same for all records.
	record := slog.Record{Time: start, Level: l.options.Level, Message: "request"}
	record.AddAttrs(list...)
	clear(list)
	if cap(list) >= cap(memory.list) { // a smaller capacity means that Attributes has returned another slice, or only a part of memory.list
		memory.list = list[:0]
		records.Put(memory)
	}
	_ = handler.Handle(context.Background(), record) // slog's own methods ignore the error, too
}

// recordMemory is a reusable buffer for the attributes of a record. The record copies the attributes. Between uses, list is empty, with
// capacity for the attributes of appendAttributes.
type recordMemory struct {
	list []slog.Attr
	text [512]byte
}

var records = sync.Pool{New: func() any { return &recordMemory{list: make([]slog.Attr, 0, 16)} }}

// appendAttributes appends a request's attributes to memory.list. It copies all borrowed texts in one allocation, since a slog.Handler may
// keep the record.
func (l *accessLog) appendAttributes(memory *recordMemory, c *filo.Ctx, start time.Time, err error) []slog.Attr {
	address, trusted := peer(c)
	text := syntax.AppendExcerpt(memory.text[:0], c.PathBytes(), syntax.MaxLogged)
	path := len(text)
	text = syntax.AppendExcerpt(text, trusted.host(c, address), syntax.MaxLoggedHost)
	host := len(text)
	text = syntax.AppendExcerpt(text, c.Request.Header.GetBytes("User-Agent"), syntax.MaxLoggedAgent)
	agent := len(text)
	if client := trusted.client(c, address); client.IsValid() {
		text = client.AppendTo(text)
	}
	all := string(text)

	// Each attribute is filled in in place: see appendText.
	list := memory.list[:5]
	setText(&list[0], "method", syntax.Excerpt(c.Method(), syntax.MaxLoggedMethod))
	setText(&list[1], "path", all[:path])
	list[2].Key, list[2].Value = "status", slog.IntValue(answeredStatus(c, err))
	list[3].Key, list[3].Value = "bytes", slog.Int64Value(c.BytesWritten())
	// A slog duration would appear in JSON as a bare number of nanoseconds.
	list[4].Key, list[4].Value = "duration_ms", slog.Float64Value(float64(time.Since(start).Microseconds())/1000)
	list = appendText(list, "client", all[agent:])
	list = appendText(list, "host", all[path:host])
	list = appendText(list, "agent", all[host:agent])
	list = appendText(list, "route", c.Route())
	list = appendText(list, "request_id", RequestIDOf(c))
	if err != nil {
		list = append(list, slog.String("error", syntax.Excerpt(err.Error(), syntax.MaxLogged)))
	}
	if l.options.Attributes != nil {
		list = l.options.Attributes(c, list)
	}
	return list
}

func (l *accessLog) logger(c *filo.Ctx) *slog.Logger {
	// Ctx.Logger isn't used, because it adds some of the attributes itself.
	return cmp.Or(l.options.Logger, c.Server().Logger, slog.Default())
}

// appendText appends an attribute, unless its value is empty. It fills in the attribute in place: copying a new attribute would stall until
// the writes to its parts had completed.
func appendText(list []slog.Attr, key, value string) []slog.Attr {
	if value == "" {
		return list
	}
	list = append(list, slog.Attr{})
	setText(&list[len(list)-1], key, value)
	return list
}

func setText(a *slog.Attr, key, value string) { a.Key, a.Value = key, slog.StringValue(value) }

// answeredStatus returns the status that the client gets, or 0 if it gets no response.
func answeredStatus(c *filo.Ctx, err error) int {
	if errors.Is(err, filo.ErrAbort) && !c.Committed() {
		return 0
	}
	return c.Status()
}

// lines pools the buffers for lines in the combined format.
var lines = sync.Pool{New: func() any { return new([]byte) }}

// maxKeptLine is the size in bytes up to which the buffer of a line goes back to the pool.
const maxKeptLine = 4 << 10

func (l *accessLog) logCombined(c *filo.Ctx, start time.Time, err error) {
	memory := lines.Get().(*[]byte)
	line := l.appendCombined((*memory)[:0], c, start, err)
	if writeErr := l.write(line); writeErr != nil {
		l.logger(c).Error("writing the access log failed", "error", writeErr)
	}
	if cap(line) <= maxKeptLine {
		*memory = line
		lines.Put(memory)
	}
}

// write writes a line to Combined. It returns the error of Write, unless writing the previous line failed too.
func (l *accessLog) write(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock() // even if Write panics
	failed := l.failed
	_, err := l.options.Combined.Write(line)
	if l.failed = err != nil; failed {
		return nil
	}
	return err
}

// appendCombined appends a line such as
//
//	203.0.113.7 - gopher [02/Jan/2026:15:04:05 +0000] "GET /a?b HTTP/1.1" 200 12 "http://referer/" "agent"
func (l *accessLog) appendCombined(line []byte, c *filo.Ctx, start time.Time, err error) []byte {
	line = appendAddress(line, ClientIP(c))
	line = append(line, " - "...)
	if user := BasicAuthUser(c); user != "" {
		start := len(line)
		line = cutEscaped(appendEscaped(line, user, ' '), start, syntax.MaxLoggedHost)
	} else {
		line = append(line, '-')
	}
	line = start.AppendFormat(line, " [02/Jan/2006:15:04:05 -0700] ")
	line = append(line, '"')
	line = appendEscaped(line, syntax.Excerpt(c.Method(), syntax.MaxLoggedMethod), '"')
	line = append(line, ' ')
	line = appendURL(line, c.Request.TargetBytes(), l.secrets)
	line = append(line, ' ')
	line = append(line, c.Request.Proto()...)
	line = append(line, '"', ' ')
	if status := answeredStatus(c, err); status > 0 {
		line = strconv.AppendInt(line, int64(status), 10)
	} else {
		line = append(line, '-')
	}
	line = append(line, ' ')
	if size := c.BytesWritten(); size > 0 {
		line = strconv.AppendInt(line, size, 10)
	} else {
		line = append(line, '-')
	}
	line = append(line, ` "`...)
	if referer := c.Request.Header.GetBytes("Referer"); len(referer) > 0 {
		line = appendURL(line, referer, l.secrets)
	} else {
		line = append(line, '-')
	}
	line = append(line, `" "`...)
	if agent := c.Request.Header.GetBytes("User-Agent"); len(agent) > 0 {
		start := len(line)
		line = cutEscaped(appendEscaped(line, agent[:min(len(agent), syntax.MaxLoggedAgent+1)], '"'), start, syntax.MaxLoggedAgent)
	} else {
		line = append(line, '-')
	}
	return append(line, '"', '\n')
}

func appendAddress(line []byte, address netip.Addr) []byte {
	if !address.IsValid() {
		return append(line, '-')
	}
	return address.AppendTo(line)
}

// appendEscaped appends s. It writes the separator, backslashes, control bytes and non-ASCII bytes as "\x" and two hexadecimal digits.
func appendEscaped[S []byte | string](line []byte, s S, separator byte) []byte {
	const digits = "0123456789abcdef"
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '\\' || c == separator {
			line = append(line, '\\', 'x', digits[c>>4], digits[c&15])
		} else {
			line = append(line, c)
		}
	}
	return line
}
