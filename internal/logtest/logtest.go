// Package logtest has helpers for tests of log records.
package logtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Records stores the records of a logger, and checks that each has the same content in a JSON log as in a text log. slog doesn't guarantee that: its
// JSONHandler calls an error's MarshalJSON, and writes a time.Duration as a number without a unit.
type Records struct {
	t testing.TB

	mu    sync.Mutex
	lines []string // in the form of a JSON log, without the time; guarded by mu
}

// New returns new Records and a logger that writes to them.
func New(t testing.TB) (*Records, *slog.Logger) {
	r := &Records{t: t}
	return r, slog.New(&handler{records: r})
}

// Lines returns the records so far whose line of JSON, without the time, contains a text.
func (r *Records) Lines(containing string) (lines []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.lines {
		if strings.Contains(line, containing) {
			lines = append(lines, line)
		}
	}
	return lines
}

// handler is immutable. It doesn't support groups, since filo's records don't use any.
type handler struct {
	records *Records
	known   []slog.Attr
}

func (h *handler) Enabled(context.Context, slog.Level) bool { return true }

func (h *handler) WithAttrs(attributes []slog.Attr) slog.Handler {
	return &handler{h.records, append(h.known[:len(h.known):len(h.known)], attributes...)}
}

func (h *handler) WithGroup(string) slog.Handler { panic("logtest: groups aren't compared") }

func (h *handler) Handle(_ context.Context, record slog.Record) error {
	record.AddAttrs(h.known...)
	line, faults := Compare(record)
	for _, fault := range faults {
		h.records.t.Errorf("the record %q: %s", record.Message, fault)
	}
	h.records.mu.Lock()
	defer h.records.mu.Unlock()
	h.records.lines = append(h.records.lines, line)
	return nil
}

// Compare returns a record as a line of JSON, without the time, and describes each attribute whose value differs in a line of text.
func Compare(record slog.Record) (line string, faults []string) {
	record.Attrs(func(a slog.Attr) bool {
		inText, inJSON := render(a)
		if inText != inJSON {
			faults = append(faults, fmt.Sprintf("%s is %q in text, and %q in JSON", a.Key, inText, inJSON))
		}
		return true
	})
	var all bytes.Buffer
	slog.NewJSONHandler(&all, withoutTime).Handle(context.Background(), record)
	return strings.TrimSuffix(all.String(), "\n"), faults
}

var withoutTime = &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey && len(groups) == 0 {
		return slog.Attr{}
	}
	return a
}}

// render returns the value of an attribute in both formats, without quotation marks.
func render(a slog.Attr) (inText, inJSON string) {
	a.Key = "attribute"
	var record slog.Record
	record.AddAttrs(a)
	var text, object bytes.Buffer
	slog.NewTextHandler(&text, withoutTime).Handle(context.Background(), record)
	slog.NewJSONHandler(&object, withoutTime).Handle(context.Background(), record)
	_, inText, _ = strings.Cut(strings.TrimSuffix(text.String(), "\n"), " attribute=")
	if unquoted, err := strconv.Unquote(inText); err == nil {
		inText = unquoted
	}
	inText = string([]rune(inText)) // replaces invalid UTF-8 as JSONHandler does
	var values struct{ Attribute json.RawMessage }
	if err := json.Unmarshal(object.Bytes(), &values); err != nil {
		return inText, err.Error()
	}
	var value string
	if json.Unmarshal(values.Attribute, &value) != nil {
		value = string(values.Attribute)
	}
	return inText, value
}
