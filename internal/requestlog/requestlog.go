// Package requestlog adds the attributes of a request to the log records that are logged with the request's context. It doesn't access requests: the
// server stores the attributes in the context under Key.
package requestlog

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
)

// used is set when the first handler is created. Programs without a handler don't pay for attributes in contexts.
var used atomic.Bool

// IsUsed reports whether there is a handler, so that contexts must have attributes.
func IsUsed() bool { return used.Load() }

// Key is the key of an *Attributes in contexts.
type Key struct{}

// Attributes are the attributes that a handler adds to records. They are immutable, and refer to no borrowed memory.
type Attributes struct {
	List []slog.Attr
	// Route and Added say from which route and how many added attributes List was made. When either changes, the server makes a new List.
	Route string
	Added int
}

// NewHandler returns a handler that adds attributes, and passes the records on to next.
func NewHandler(next slog.Handler) slog.Handler {
	used.Store(true)
	return &handler{next: next}
}

// handler is immutable.
type handler struct {
	next slog.Handler
	// outside is next as it was before the first WithGroup, or nil if there was none. inside has that call and the later ones. Handle repeats them
	// after it has added a request's attributes to outside, since these attributes don't belong to the group.
	outside slog.Handler
	inside  []func(slog.Handler) slog.Handler
	known   []string // the names of attributes outside of groups
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, record slog.Record) error {
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

// missing returns the attributes of the context's request that the record doesn't have already.
func (h *handler) missing(ctx context.Context, record slog.Record) []slog.Attr {
	request, _ := ctx.Value(Key{}).(*Attributes)
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
	if !slices.ContainsFunc(request.List, isKnown) {
		return request.List
	}
	return slices.DeleteFunc(slices.Clone(request.List), isKnown)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attributes []slog.Attr) slog.Handler {
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
func (h *handler) WithGroup(name string) slog.Handler {
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
