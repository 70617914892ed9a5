package conformance

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Response is one answer. ReadResponse accepts only what the grammar allows a server to send.
type Response struct {
	Status  int
	Body    []byte
	Trailer []Field

	fields   []Field
	untilEnd bool // no field delimits the body, so the end of the connection does
}

// ErrMalformed is wrapped by every error about something that a server may never send.
var ErrMalformed = errors.New("malformed answer")

// errUntilEnd is the error of an answer whose body the end of the connection delimits, which RFC 9112, 6.3, allows and filo never does.
var errUntilEnd = errors.New("only the connection's end tells where the body ends")

// errUndated is the error of an answer that lacks only a Date (RFC 9110, 6.6.1).
var errUndated = syntaxError("no Date")

func syntaxError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// ReadResponse reads the next answer, interim or final. The argument head says that a final answer belongs to a HEAD request, and so has no
// body. ReadResponse returns a bare io.EOF if the connection ends before the answer's first byte.
func ReadResponse(br *bufio.Reader, head bool) (*Response, error) {
	if _, err := br.Peek(1); err != nil {
		return nil, err
	}
	r := new(Response)
	if err := r.readStatusLine(br); err != nil {
		return nil, err
	}
	fields, err := readFields(br)
	if err != nil {
		return nil, err
	}
	r.fields = fields
	if err := r.checkFields(); err != nil {
		return nil, err
	}
	if err := r.readBody(br, head); err != nil {
		return r, err
	}
	if r.Status >= 200 && len(r.Values("Date")) == 0 {
		return r, errUndated
	}
	return r, nil
}

// readLine reads a line up to CRLF, and returns it without CRLF. The line may contain no control byte but HTAB.
func readLine(br *bufio.Reader) (string, error) {
	slice, err := br.ReadSlice('\n')
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return "", fmt.Errorf("line %q: %w", slice, err)
	}
	line, ok := strings.CutSuffix(string(slice), "\r\n")
	if !ok {
		return "", syntaxError("line %q ends in a bare LF", slice)
	}
	for _, b := range []byte(line) {
		if b < ' ' && b != '\t' || b == 0x7f {
			return "", syntaxError("byte 0x%02x in line %q", b, line)
		}
	}
	return line, nil
}

// RFC 9112, 4: status-line = HTTP-version SP status-code SP [ reason-phrase ]
func (r *Response) readStatusLine(br *bufio.Reader) error {
	line, err := readLine(br)
	if err != nil {
		return err
	}
	if len(line) < len("HTTP/1.1 200 ") || line[:9] != "HTTP/1.1 " || line[12] != ' ' || !isDigits(line[9:12]) {
		return syntaxError("status line %q", line)
	}
	r.Status, _ = strconv.Atoi(line[9:12])
	if r.Status < 100 || r.Status > 599 {
		return syntaxError("status %d", r.Status)
	}
	return nil
}

// readFields reads field lines and the empty line after them.
func readFields(br *bufio.Reader) ([]Field, error) {
	var fields []Field
	for {
		line, err := readLine(br)
		if err != nil {
			return nil, err
		}
		if line == "" {
			return fields, nil
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isToken(name) {
			return nil, syntaxError("field line %q", line)
		}
		fields = append(fields, Field{name, strings.Trim(value, " \t")})
	}
}

// checkFields checks the rules for every answer.
func (r *Response) checkFields() error {
	lengths, codings, dates := r.Values("Content-Length"), r.Values("Transfer-Encoding"), r.Values("Date")
	switch {
	case len(lengths) > 1 || len(codings) > 1 || len(lengths)+len(codings) > 1:
		return syntaxError("Content-Length %q and Transfer-Encoding %q", lengths, codings)
	case len(lengths) == 1 && !isDigits(lengths[0]):
		return syntaxError("Content-Length %q", lengths[0])
	case len(codings) == 1 && codings[0] != "chunked":
		return syntaxError("Transfer-Encoding %q", codings[0])
	case (r.Status < 200 || r.Status == 204) && len(lengths)+len(codings) > 0:
		// RFC 9110, 8.6, and RFC 9112, 6.1: a 1xx or a 204 may have neither field.
		return syntaxError("a %d with Content-Length %q or Transfer-Encoding %q", r.Status, lengths, codings)
	case r.Status < 200:
		return nil
	case len(dates) > 1:
		return syntaxError("%d Date fields, want 1", len(dates))
	case r.Status == 405 && len(r.Values("Allow")) != 1:
		return syntaxError("a 405 without Allow")
	}
	for _, date := range dates {
		if _, err := time.Parse(http.TimeFormat, date); err != nil {
			return syntaxError("Date: %v", err)
		}
	}
	return nil
}

func (r *Response) readBody(br *bufio.Reader, head bool) error {
	if head || r.Status < 200 || r.Status == 204 || r.Status == 304 {
		return nil
	}
	if r.has(Field{"Transfer-Encoding", "chunked"}) {
		return r.readChunks(br)
	}
	lengths := r.Values("Content-Length")
	if len(lengths) == 0 {
		if !r.Closes() {
			return syntaxError("a %d whose body has no length", r.Status)
		}
		var err error
		r.untilEnd = true
		r.Body, err = io.ReadAll(br)
		return err
	}
	n, err := strconv.ParseInt(lengths[0], 10, 64)
	if err != nil {
		return syntaxError("Content-Length: %v", err)
	}
	return r.readBytes(br, n)
}

// readBytes reads n bytes of the body. It doesn't allocate n bytes in advance, because an answer may announce any length.
func (r *Response) readBytes(br *bufio.Reader, n int64) error {
	body := bytes.NewBuffer(r.Body)
	got, err := io.CopyN(body, br, n)
	r.Body = body.Bytes()
	if err != nil {
		return fmt.Errorf("after %d of %d bytes of a body: %w", got, n, err)
	}
	return nil
}

func (r *Response) readChunks(br *bufio.Reader) error {
	for {
		line, err := readLine(br)
		if err != nil {
			return err
		}
		n, err := strconv.ParseUint(line, 16, 31)
		if err != nil {
			return syntaxError("chunk size %q", line)
		}
		if n == 0 {
			r.Trailer, err = readFields(br)
			return err
		}
		if err := r.readBytes(br, int64(n)); err != nil {
			return err
		}
		line, err = readLine(br)
		switch {
		case err != nil:
			return fmt.Errorf("after a chunk: %w", err)
		case line != "":
			return syntaxError("after a chunk: %q", line)
		}
	}
}

// Values returns the values of all fields of a name, in order.
func (r *Response) Values(name string) []string {
	var values []string
	for _, f := range r.fields {
		if strings.EqualFold(f.Name, name) {
			values = append(values, f.Value)
		}
	}
	return values
}

// has reports whether an expected field is present.
func (r *Response) has(want Field) bool {
	values := r.Values(want.Name)
	if strings.EqualFold(want.Name, "Connection") {
		values = strings.Split(strings.Join(values, ","), ",")
	}
	return slices.ContainsFunc(values, func(value string) bool {
		prefix, wild := strings.CutSuffix(want.Value, "*")
		return want.Value == "" || strings.TrimSpace(value) == want.Value || wild && strings.HasPrefix(value, prefix)
	})
}

// Closes reports whether the answer announces that it is the last.
func (r *Response) Closes() bool {
	return r.has(Field{"Connection", "close"})
}

// check compares the answer to what is expected.
func (r *Response) check(want Answer) error {
	if r.Status != want.Status && (want.Or == 0 || r.Status != want.Or) {
		return fmt.Errorf("status %d, want %d", r.Status, want.Status)
	}
	if r.untilEnd {
		return errUntilEnd
	}
	if body := want.Body; body != "" && body != string(r.Body) && !(body == Empty && len(r.Body) == 0) {
		return fmt.Errorf("body %.200q, want %.200q", r.Body, body)
	}
	for _, f := range want.Header {
		if !r.has(f) {
			return fmt.Errorf("%s is %q, want %q", f.Name, r.Values(f.Name), f.Value)
		}
	}
	return nil
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// RFC 9110, 5.6.2: token = 1*tchar
func isToken(s string) bool {
	const tchar = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return s != "" && strings.Trim(s, tchar) == ""
}
