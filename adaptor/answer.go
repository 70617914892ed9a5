package adaptor

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
)

// answerState is which part of an answer comes next.
type answerState uint8

const (
	answerHead    answerState = iota
	answerData                // remaining bytes of the body
	answerToEnd               // of the body, all that comes
	answerSize                // the line before a chunk
	answerChunk               // remaining bytes of a chunk, and its CRLF
	answerTrailer             // a line behind the last chunk
	answerDone
)

// answer writes to an http.ResponseWriter what filo would send to a client. It relies on filo's framing.
type answer struct {
	w         http.ResponseWriter
	control   *http.ResponseController
	noBody    bool // to HEAD
	duplex    bool // the request has a body, which may be read while the answer is sent
	shared    bool // other requests have the same connection at the same time
	state     answerState
	remaining int64
	began     bool            // something of the body was written
	line      []byte          // of a head or a line, what came before
	announced map[string]bool // trailer fields
}

var (
	headEnd = []byte("\r\n\r\n")
	lineEnd = []byte("\r\n")
)

// switches reports whether p is the head of a 101 (Switching Protocols).
func (a *answer) switches(p []byte) bool {
	return a.state == answerHead && bytes.HasPrefix(p, []byte("HTTP/1.1 101 "))
}

// flushes reports whether what was written is a part of a stream. The head of an answer with a length isn't: the whole body
// may follow at once.
func (a *answer) flushes() bool {
	switch a.state {
	case answerHead, answerDone:
		return false
	case answerData:
		return a.began
	}
	return true
}

// Write implements io.Writer.
func (a *answer) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		var err error
		switch a.state {
		case answerHead:
			rest, err = a.takeLine(rest, headEnd, a.head)
		case answerSize:
			rest, err = a.takeLine(rest, lineEnd, a.size)
		case answerTrailer:
			rest, err = a.takeLine(rest, lineEnd, a.trailer)
		case answerDone:
			return len(p), nil
		default:
			rest, err = a.data(rest)
		}
		if err != nil {
			return len(p) - len(rest), err
		}
	}
	return len(p), nil
}

// takeLine calls take with what comes up to and with end, once all of that is there, and returns what is behind.
func (a *answer) takeLine(p, end []byte, take func(line []byte) error) ([]byte, error) {
	if len(a.line) > 0 {
		a.line = append(a.line, p...)
		p = a.line
	}
	i := bytes.Index(p, end)
	if i < 0 {
		if len(a.line) == 0 {
			a.line = append(a.line, p...)
		}
		return nil, nil
	}
	a.line = nil
	return p[i+len(end):], take(p[:i])
}

// head takes a head: one of an informational answer, or the final one.
func (a *answer) head(head []byte) error {
	statusLine, fields, _ := bytes.Cut(head, lineEnd)
	status, err := strconv.Atoi(string(statusLine[len("HTTP/1.1 "):len("HTTP/1.1 200")]))
	if err != nil {
		return err
	}
	if status == http.StatusContinue {
		return nil // net/http sends one by itself when the body is read
	}
	header := a.w.Header()
	for name := range header {
		if !strings.HasPrefix(name, http.TrailerPrefix) {
			delete(header, name) // filo was given them
		}
	}
	a.fields(header, string(fields), status >= 200)
	if _, typed := header["Content-Type"]; !typed && status >= 200 {
		header["Content-Type"] = nil // it isn't to be guessed either
	}
	if _, dated := header["Date"]; !dated && status >= 200 {
		header["Date"] = nil // nor is this
	}
	if a.duplex && (a.state == answerSize || a.state == answerToEnd) {
		a.control.EnableFullDuplex()
	}
	a.w.WriteHeader(status)
	if status >= 200 && (a.noBody || !bodyAllowed(status)) {
		a.state = answerDone
	}
	return nil
}

// fields takes the fields of a head, and from those of a final one how its body is framed.
func (a *answer) fields(header http.Header, fields string, final bool) {
	if final {
		a.state = answerToEnd
	}
	for line := range strings.SplitSeq(fields, "\r\n") {
		name, value, ok := strings.Cut(line, ": ")
		if !ok {
			continue
		}
		name = http.CanonicalHeaderKey(name)
		switch name {
		case "Transfer-Encoding":
			a.state = answerSize
			continue
		case "Connection":
			if value == "keep-alive" || a.shared { // where close would be all requests' last one
				continue
			}
		case "Content-Length":
			a.state = answerData
			if a.remaining, _ = strconv.ParseInt(value, 10, 64); a.remaining == 0 {
				a.state = answerDone
			}
		case "Trailer":
			a.announce(value)
		}
		header[name] = append(header[name], value)
	}
}

// announce notes the names of trailer fields.
func (a *answer) announce(list string) {
	a.announced = make(map[string]bool)
	for name := range strings.SplitSeq(list, ", ") {
		a.announced[http.CanonicalHeaderKey(name)] = true
	}
}

// size takes the line before a chunk.
func (a *answer) size(line []byte) (err error) {
	if len(line) == 0 {
		return nil // the end of the chunk before
	}
	a.state = answerChunk
	if a.remaining, err = strconv.ParseInt(string(line), 16, 64); a.remaining == 0 {
		a.state = answerTrailer
	}
	return err
}

// trailer takes a line behind the last chunk.
func (a *answer) trailer(line []byte) error {
	if len(line) == 0 {
		a.state = answerDone
		return nil
	}
	name, value, _ := strings.Cut(string(line), ": ")
	if name = http.CanonicalHeaderKey(name); !a.announced[name] {
		name = http.TrailerPrefix + name
	}
	a.w.Header()[name] = append(a.w.Header()[name], value)
	return nil
}

// data takes bytes of the body, and returns what is behind them.
func (a *answer) data(p []byte) ([]byte, error) {
	n := len(p)
	if a.state != answerToEnd {
		n = int(min(int64(n), a.remaining))
	}
	a.began = true
	n, err := a.w.Write(p[:n])
	a.remaining -= int64(n)
	switch {
	case a.state == answerToEnd || a.remaining > 0:
	case a.state == answerChunk:
		a.state = answerSize
	default:
		a.state = answerDone
	}
	return p[n:], err
}
