package sse

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrInvalidEvent is wrapped by the error of an event that can't be sent.
var ErrInvalidEvent = errors.New("sse: invalid event")

// Event is what a client gets in one piece. All of its fields may be left out, but not all at once.
//
// A client that reads it with EventSource calls its listeners if the event has a Type or Data. One with neither is for the
// client itself, which takes ID and Retry from it. An event without data that listeners are to get needs a Type: "message" is
// the one that they get otherwise.
type Event struct {
	// ID is what the client sends as Last-Event-ID when it connects again. A client keeps that of the last event that had
	// one. It has no line breaks and no NUL; in a field of a request spaces at its ends are lost.
	ID string
	// Type is what listeners are registered for, "message" if empty. It has no line breaks and no NUL.
	Type string
	// Data is text in UTF-8. CR, LF and CRLF are line breaks, and the client gets LF for each.
	Data string
	// Retry is after how long the client connects again when the connection ends, from now on. It is sent in whole
	// milliseconds, rounded up, and not at all if 0.
	Retry time.Duration
	// Comment is for people who read the stream; clients ignore it. It may have several lines.
	Comment string
}

// AppendTo appends the event as it is sent, with the empty line at its end, and returns the extended slice. If the event
// isn't valid it appends nothing, and the error wraps ErrInvalidEvent: there is a line break or NUL in ID or Type, a negative
// Retry, or nothing at all.
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

// appendLines appends a line for each line of value.
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

// appendField appends one line. The client takes one space from the front of the value, so there is always one.
func appendField(dst []byte, name, value string) []byte {
	dst = append(dst, name...)
	dst = append(dst, ": "...)
	dst = append(dst, value...)
	return append(dst, '\n')
}
