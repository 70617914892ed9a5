package sse_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/filohttp/filo/sse"
)

// Events are sent in exactly these bytes (WHATWG HTML, section 9.2.5: event stream format).
func TestEventAppendTo(t *testing.T) {
	for _, test := range []struct {
		holds string
		event sse.Event
		want  string
	}{
		{"data alone is a message", sse.Event{Data: "hello"}, "data: hello\n\n"},
		{"all fields", sse.Event{ID: "7", Type: "add", Data: "x", Retry: time.Second, Comment: "why"},
			": why\nretry: 1000\nevent: add\ndata: x\nid: 7\n\n"},
		{"LF, CR and CRLF are each one line break", sse.Event{Data: "a\nb\rc\r\nd\n\re"},
			"data: a\ndata: b\ndata: c\ndata: d\ndata: \ndata: e\n\n"},
		{"a line break at the end of data stays", sse.Event{Data: "a\n"}, "data: a\ndata: \n\n"},
		{"spaces at the front stay behind the one that is taken", sse.Event{Data: "  a"}, "data:   a\n\n"},
		{"data that looks like a field is data", sse.Event{Data: "id: 1\n\nevent: evil"}, "data: id: 1\ndata: \ndata: event: evil\n\n"},
		{"an event of a type is called without data", sse.Event{Type: "ping"}, "event: ping\ndata: \n\n"},
		{"an ID alone is for the client itself", sse.Event{ID: "9"}, "id: 9\n\n"},
		{"so is a retry", sse.Event{Retry: 1500 * time.Millisecond}, "retry: 1500\n\n"},
		{"less than a millisecond is one", sse.Event{Retry: 1}, "retry: 1\n\n"},
		{"the longest retry is all digits", sse.Event{Retry: 1<<63 - 1}, "retry: 9223372036855\n\n"},
		{"a comment has as many lines as it is given", sse.Event{Comment: "a\r\nb\nid: 3"}, ": a\n: b\n: id: 3\n\n"},
		{"NUL is data as any", sse.Event{Data: "a\x00b"}, "data: a\x00b\n\n"},
		{"IDs and types are any text in one line", sse.Event{ID: "é: 1", Type: "ü:", Data: "x"}, "event: ü:\ndata: x\nid: é: 1\n\n"},
	} {
		got, err := test.event.AppendTo([]byte("before\n\n"))
		if want := "before\n\n" + test.want; err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v; want %q", test.holds, got, err, want)
		}
	}
}

func TestEventInvalid(t *testing.T) {
	for _, test := range []struct {
		holds string
		event sse.Event
	}{
		{"an event has something in it", sse.Event{}},
		{"an ID has no LF", sse.Event{ID: "1\ndata: evil", Data: "x"}},
		{"an ID has no CR", sse.Event{ID: "1\rdata: evil", Data: "x"}},
		{"an ID has no NUL, with which clients ignore it", sse.Event{ID: "1\x00", Data: "x"}},
		{"a type has no LF", sse.Event{Type: "a\n\ndata: evil", Data: "x"}},
		{"a type has no CR", sse.Event{Type: "a\r", Data: "x"}},
		{"a type has no NUL", sse.Event{Type: "\x00", Data: "x"}},
		{"a retry isn't negative", sse.Event{Retry: -1, Data: "x"}},
	} {
		got, err := test.event.AppendTo([]byte("before"))
		if !errors.Is(err, sse.ErrInvalidEvent) || string(got) != "before" {
			t.Errorf("%s: got %q, %v", test.holds, got, err)
		}
	}
}

// Whatever an event contains, the client gets that event and no other.
func FuzzEvent(f *testing.F) {
	f.Add("1", "add", "a\r\nb\n\rc", "x\ny", int64(time.Second))
	f.Add("", "", "\n", "", int64(0))
	f.Add("a\x00", "b\r", " :data: x\n\nid: 7", ":", int64(-1))
	f.Add("\ufeff", "\ufeff", "\ufeffx", "\ufeff", int64(1))
	f.Fuzz(func(t *testing.T, id, kind, data, comment string, retry int64) {
		event := sse.Event{ID: id, Type: kind, Data: data, Comment: comment, Retry: time.Duration(retry)}
		b, err := event.AppendTo(nil)
		valid := event != sse.Event{} && retry >= 0 && !strings.ContainsAny(id+kind, "\r\n\x00")
		if valid != (err == nil) {
			t.Fatalf("valid: %v, error: %v", valid, err)
		}
		if err != nil || !utf8.ValidString(id) || !utf8.ValidString(kind) || !utf8.ValidString(data) {
			return
		}
		// The events before and after it aren't affected.
		p := newParser(io.MultiReader(strings.NewReader("data: before\nid: 0\n\n"), strings.NewReader(string(b)), strings.NewReader("data: behind\n\n")))
		if got, err := p.next(); err != nil || got != (parsed{"0", "message", "before"}) {
			t.Fatalf("before: %q, %v", got, err)
		}
		want := parsed{id: id, kind: kind, data: strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(data)}
		if want.id == "" {
			want.id = "0"
		}
		if data != "" && kind == "" {
			want.kind = "message"
		}
		if id != "" || want.kind != "" {
			if got, err := p.next(); err != nil || got != want {
				t.Fatalf("got %q, %v; want %q", got, err, want)
			}
		}
		if got, err := p.next(); err != nil || got != (parsed{want.id, "message", "behind"}) {
			t.Fatalf("behind: %q, %v", got, err)
		}
		if (p.retry != "") != (retry > 0) {
			t.Fatalf("retry %q for %d", p.retry, retry)
		}
	})
}
