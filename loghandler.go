package filo

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
)

// logsRequests is set once there is a LogHandler: programs that have none don't pay for attributes in contexts.
var logsRequests atomic.Bool

// LogHandler returns a handler that adds to each record the attributes of the request in whose context it is logged, and passes the record
// on to next. Ctx.Logger has the same attributes: "route", and what middleware has added, such as "request_id" and "trace_id". It is for
// code that has a context.Context but no Ctx:
//
//	slog.SetDefault(slog.New(filo.LogHandler(slog.NewJSONHandler(os.Stderr, nil))))
//	…
//	slog.InfoContext(ctx, "paid", "order", id) // ctx comes from Ctx.Context or Ctx.Go
//
// A context has the attributes that were known when the handler last called Ctx.Context, so middleware that adds some must stand outside of
// the code that asks. They stay there when the request has ended, and in contexts that are derived from it. An attribute that the record or
// its logger has already isn't added, and attributes stand outside of a logger's groups. Make the handler before the server starts: from
// then on each request that asks for its context allocates its attributes.
func LogHandler(next slog.Handler) slog.Handler {
	if next == nil {
		panic("filo: LogHandler with a nil handler")
	}
	logsRequests.Store(true)
	return &logHandler{next: next}
}

// logHandler is immutable.
type logHandler struct {
	next slog.Handler
	// outside is next as it was before the first group, nil if there is none. inside are the calls since then, which are made anew for a
	// record with attributes of a request: these don't belong to the group.
	outside slog.Handler
	inside  []func(slog.Handler) slog.Handler
	known   []string // the names of attributes outside of groups
}

// Enabled implements slog.Handler.
func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *logHandler) Handle(ctx context.Context, record slog.Record) error {
	attributes := h.missing(ctx, record)
	if len(attributes) == 0 {
		return h.next.Handle(ctx, record)
	}
	if h.outside == nil {
		record = record.Clone()
		record.AddAttrs(attributes...)
		return h.next.Handle(ctx, record)
	}
	next := h.outside.WithAttrs(attributes)
	for _, call := range h.inside {
		next = call(next)
	}
	return next.Handle(ctx, record)
}

// missing returns the attributes of the context's request that the record won't have otherwise.
func (h *logHandler) missing(ctx context.Context, record slog.Record) []slog.Attr {
	request, _ := ctx.Value(requestLogKey{}).(*requestLog)
	if request == nil {
		return nil
	}
	known := h.known
	if h.outside == nil {
		record.Attrs(func(a slog.Attr) bool {
			known = append(slices.Clip(known), a.Key)
			return true
		})
	}
	isKnown := func(a slog.Attr) bool { return slices.Contains(known, a.Key) }
	if !slices.ContainsFunc(request.attributes, isKnown) {
		return request.attributes
	}
	return slices.DeleteFunc(slices.Clone(request.attributes), isKnown)
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attributes []slog.Attr) slog.Handler {
	with := *h
	with.next = h.next.WithAttrs(attributes)
	if h.outside != nil {
		with.inside = append(slices.Clip(h.inside), func(next slog.Handler) slog.Handler { return next.WithAttrs(attributes) })
		return &with
	}
	for _, a := range attributes {
		with.known = append(slices.Clip(with.known), a.Key)
	}
	return &with
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	with := *h
	if h.outside == nil {
		with.outside = h.next
	}
	with.next = h.next.WithGroup(name)
	with.inside = append(slices.Clip(h.inside), func(next slog.Handler) slog.Handler { return next.WithGroup(name) })
	return &with
}

// requestLogKey is the key of a *requestLog in contexts.
type requestLogKey struct{}

// requestLog is what a LogHandler adds to records. It is immutable, and nothing in it is borrowed.
type requestLog struct {
	attributes []slog.Attr
	// What the attributes were made from. When there is more, they are made anew.
	route string
	added int
}

// requestLog returns what a LogHandler adds now, nil for nothing. last is what it was before, or nil.
func (c *Ctx) requestLog(last *requestLog) *requestLog {
	if c.match.Route == "" && len(c.logAttributes) == 0 {
		return nil
	}
	if last != nil && last.route == c.match.Route && last.added == len(c.logAttributes) {
		return last
	}
	return &requestLog{c.attributes(), c.match.Route, len(c.logAttributes)}
}
