package sse

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrInvalidEvent is wrapped by the error for an event that can't be sent.
var ErrInvalidEvent = errors.New("sse: invalid event")

// Event is one event of a stream. Each field is optional, but at least one must be set.
//
// EventSource calls its listeners only for an event with a Type or Data. An event with neither is for EventSource itself, which
// uses its ID and Retry. An event without Data that listeners should receive needs a Type: the Type "message" reaches the same
// listeners as no Type.
type Event struct {
	// ID is the value that the client sends as Last-Event-ID when it reconnects: it sends the ID of the last event that had an ID. An ID
	// contains no line breaks and no NUL. When the client sends an ID back, spaces at its ends are lost.
	ID string
	// Type is the type that listeners are registered for, "message" if empty. It contains no line breaks and no NUL.
	Type string
	// Data is UTF-8 text. CR, LF and CRLF are line breaks; the client receives LF for each.
	Data string
	// Retry sets how long the client waits before it reconnects, from now on. It is sent in whole milliseconds, rounded up; 0 isn't sent.
	Retry time.Duration
	// Comment is for people who read the stream; clients ignore it. It may have several lines.
	Comment string
}

// AppendTo appends the event in the format of the stream, including the final empty line, and returns the extended slice. For an
// invalid event it appends nothing, and returns an error that wraps ErrInvalidEvent. An event is invalid if ID or Type contains a
// line break or NUL, if Retry is negative, or if all fields are empty.
func (e *Event) AppendTo(dst []byte) ([]byte, error) {
	if *e == (Event{}) {
		return dst, fmt.Errorf("%w: it is empty", ErrInvalidEvent)
	}
	if strings.ContainsAny(e.ID, "\r\n\x00") {
		return dst, fmt.Errorf("%w: a line break or NUL in the ID %q", ErrInvalidEvent, e.ID)
	}
	extended, err := e.appendRest(dst)
	if err != nil {
		return dst, err
	}
	if e.ID != "" {
		extended = appendField(extended, "id", e.ID)
	}
	return append(extended, '\n'), nil
}

// appendRest appends all but the ID and the empty line at the end.
func (e *Event) appendRest(dst []byte) ([]byte, error) {
	if strings.ContainsAny(e.Type, "\r\n\x00") {
		return dst, fmt.Errorf("%w: a line break or NUL in the Type %q", ErrInvalidEvent, e.Type)
	}
	if e.Retry < 0 {
		return dst, fmt.Errorf("%w: a negative Retry, %v", ErrInvalidEvent, e.Retry)
	}
	if e.Comment != "" {
		dst = appendLines(dst, "", e.Comment)
	}
	if e.Retry > 0 {
		dst = appendRetry(dst, e.Retry)
	}
	if e.Type != "" {
		dst = appendField(dst, "event", e.Type)
	}
	if e.Type != "" || e.Data != "" {
		// Without a data line the client's listeners aren't called.
		dst = appendLines(dst, "data", e.Data)
	}
	return dst, nil
}

func appendRetry(dst []byte, retry time.Duration) []byte {
	dst = append(dst, "retry: "...)
	milliseconds := retry / time.Millisecond
	if retry%time.Millisecond > 0 {
		milliseconds++
	}
	dst = strconv.AppendInt(dst, int64(milliseconds), 10)
	return append(dst, '\n')
}

// appendLines appends a field line for each line of value.
func appendLines(dst []byte, name, value string) []byte {
	for {
		end := strings.IndexAny(value, "\r\n")
		if end < 0 {
			return appendField(dst, name, value)
		}
		dst = appendField(dst, name, value[:end])
		if value[end] == '\r' && end+1 < len(value) && value[end+1] == '\n' {
			end++
		}
		value = value[end+1:]
	}
}

// appendField appends one line. The client removes one space from the front of the value, so appendField always writes one.
func appendField(dst []byte, name, value string) []byte {
	dst = append(dst, name...)
	dst = append(dst, ": "...)
	dst = append(dst, value...)
	return append(dst, '\n')
}
