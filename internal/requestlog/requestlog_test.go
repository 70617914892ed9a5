package requestlog

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
)

// The handler adds the request's attributes outside the logger's groups, except for those that the record or its logger already has.
func TestHandler(t *testing.T) {
	request := context.WithValue(context.Background(), Key{}, &Attributes{List: []slog.Attr{slog.String("route", "/a"), slog.Int("id", 7)}})
	for _, test := range []struct {
		name string
		ctx  context.Context
		log  func(l *slog.Logger) *slog.Logger
		want string
	}{
		{"no request", context.Background(), func(l *slog.Logger) *slog.Logger { return l }, "msg=m x=1"},
		{"a request", request, func(l *slog.Logger) *slog.Logger { return l }, "msg=m x=1 route=/a id=7"},
		{"a logger that has one", request, func(l *slog.Logger) *slog.Logger { return l.With("id", 8) }, "msg=m id=8 x=1 route=/a"},
		{"a group", request, func(l *slog.Logger) *slog.Logger { return l.WithGroup("g") }, "msg=m route=/a id=7 g.x=1"},
		{"a group with one", request, func(l *slog.Logger) *slog.Logger { return l.WithGroup("g").With("id", 8) }, "msg=m route=/a id=7 g.id=8 g.x=1"},
	} {
		var text bytes.Buffer
		l := slog.New(NewHandler(slog.NewTextHandler(&text, nil)))
		test.log(l).InfoContext(test.ctx, "m", "x", 1)
		if got := strings.TrimSpace(text.String()); !strings.HasSuffix(got, " "+test.want) {
			t.Errorf("%s: %s", test.name, got)
		}
	}
	if !IsUsed() {
		t.Error("it isn't known that there is a handler")
	}
}
