package conformance

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A response is one answer, read as strictly as a grammar allows.
type response struct {
	status int
	fields []Field
	body   string
}

// errSyntax is wrapped by every error about what a server sent.
var errSyntax = errors.New("malformed answer")

func syntaxError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errSyntax, fmt.Sprintf(format, args...))
}

// readResponse reads the next answer, interim ones too. head says that a final
// answer is one to HEAD. It returns a bare io.EOF where no answer begins.
func readResponse(br *bufio.Reader, head bool) (*response, error) {
	if _, err := br.Peek(1); err != nil {
		return nil, err
	}
	r := new(response)
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
	return r, r.readBody(br, head)
}

// readLine reads up to CRLF. In the line itself it allows no control byte but HTAB.
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
func (r *response) readStatusLine(br *bufio.Reader) error {
	line, err := readLine(br)
	if err != nil {
		return err
	}
	if len(line) < len("HTTP/1.1 200 ") || line[:9] != "HTTP/1.1 " || line[12] != ' ' || !isDigits(line[9:12]) {
		return syntaxError("status line %q", line)
	}
	r.status, _ = strconv.Atoi(line[9:12])
	if r.status < 100 || r.status > 599 {
		return syntaxError("status %d", r.status)
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

// checkFields checks what holds for every answer.
func (r *response) checkFields() error {
	lengths, codings, dates := r.values("Content-Length"), r.values("Transfer-Encoding"), r.values("Date")
	switch {
	case len(lengths) > 1 || len(codings) > 1 || len(lengths)+len(codings) > 1:
		return syntaxError("Content-Length %q and Transfer-Encoding %q", lengths, codings)
	case len(lengths) == 1 && !isDigits(lengths[0]):
		return syntaxError("Content-Length %q", lengths[0])
	case len(codings) == 1 && codings[0] != "chunked":
		return syntaxError("Transfer-Encoding %q", codings[0])
	case (r.status < 200 || r.status == 204) && len(lengths)+len(codings) > 0:
		// RFC 9110, 8.6, and RFC 9112, 6.1: neither in a 1xx or a 204.
		return syntaxError("a %d with Content-Length %q or Transfer-Encoding %q", r.status, lengths, codings)
	case r.status < 200:
		return nil
	case len(dates) != 1:
		return syntaxError("%d Date fields, want 1", len(dates))
	case r.status == 405 && len(r.values("Allow")) != 1:
		return syntaxError("a 405 without Allow")
	}
	if _, err := time.Parse(http.TimeFormat, dates[0]); err != nil {
		return syntaxError("Date: %v", err)
	}
	return nil
}

func (r *response) readBody(br *bufio.Reader, head bool) error {
	if head || r.status < 200 || r.status == 204 || r.status == 304 {
		return nil
	}
	if r.has(Field{"Transfer-Encoding", "chunked"}) {
		return r.readChunks(br)
	}
	lengths := r.values("Content-Length")
	if len(lengths) == 0 {
		return syntaxError("a %d whose body has no length", r.status)
	}
	n, err := strconv.Atoi(lengths[0])
	if err != nil {
		return syntaxError("Content-Length: %v", err)
	}
	return r.readBytes(br, n)
}

func (r *response) readBytes(br *bufio.Reader, n int) error {
	body := make([]byte, n)
	got, err := io.ReadFull(br, body)
	r.body += string(body[:got])
	if err != nil {
		return fmt.Errorf("after %d of %d bytes of a body: %w", got, n, err)
	}
	return nil
}

func (r *response) readChunks(br *bufio.Reader) error {
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
			_, err := readFields(br)
			return err
		}
		if err := r.readBytes(br, int(n)); err != nil {
			return err
		}
		if line, err := readLine(br); err != nil || line != "" {
			return syntaxError("after a chunk: %q, %v", line, err)
		}
	}
}

func (r *response) values(name string) []string {
	var values []string
	for _, f := range r.fields {
		if strings.EqualFold(f.Name, name) {
			values = append(values, f.Value)
		}
	}
	return values
}

// has says whether an expected field is there.
func (r *response) has(want Field) bool {
	values := r.values(want.Name)
	if strings.EqualFold(want.Name, "Connection") {
		values = strings.Split(strings.Join(values, ","), ",")
	}
	return slices.ContainsFunc(values, func(value string) bool {
		prefix, wild := strings.CutSuffix(want.Value, "*")
		return want.Value == "" || strings.TrimSpace(value) == want.Value || wild && strings.HasPrefix(value, prefix)
	})
}

// closes says whether the answer announces that it is the last.
func (r *response) closes() bool {
	return r.has(Field{"Connection", "close"})
}

// check compares the answer to what is expected.
func (r *response) check(want Answer) error {
	if r.status != want.Status && (want.Or == 0 || r.status != want.Or) {
		return fmt.Errorf("status %d, want %d", r.status, want.Status)
	}
	if body := want.Body; body != "" && body != r.body && !(body == Empty && r.body == "") {
		return fmt.Errorf("body %.200q, want %.200q", r.body, body)
	}
	for _, f := range want.Header {
		if !r.has(f) {
			return fmt.Errorf("%s is %q, want %q", f.Name, r.values(f.Name), f.Value)
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
