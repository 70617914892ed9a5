package filotest

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// StrictClient is a client that reads responses with the strict ReadMessage.
type StrictClient struct {
	StrictConn
	In *bufio.Reader
}

// Send writes bytes.
func (c *StrictClient) Send(t testing.TB, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatalf("sending %.60q: %v", s, err)
	}
}

// Message is a response, parsed more strictly than usual clients do.
type Message struct {
	Status  int
	Line    string   // status line
	Fields  []string // header lines in order
	Body    string
	trailer []string
}

// Get returns the value of the first field with the name, "" if there is none.
func (m *Message) Get(name string) string {
	for _, line := range m.Fields {
		if field, value, _ := strings.Cut(line, ": "); strings.EqualFold(field, name) {
			return value
		}
	}
	return ""
}

// Count returns how many fields have the name.
func (m *Message) Count(name string) int {
	n := 0
	for _, line := range m.Fields {
		if field, _, _ := strings.Cut(line, ": "); strings.EqualFold(field, name) {
			n++
		}
	}
	return n
}

// Receive reads the response to a request with the method. An incomplete or invalid response fails the test.
func (c *StrictClient) Receive(t testing.TB, method string) *Message {
	t.Helper()
	m, err := ReadMessage(c.In, method)
	if err != nil {
		t.Fatalf("reading a response: %v (so far %+v)", err, m)
	}
	return m
}

// WantEnd checks that the connection ends without another byte.
func (c *StrictClient) WantEnd(t testing.TB) {
	t.Helper()
	rest, err := io.ReadAll(c.In)
	if err != nil || len(rest) > 0 {
		t.Errorf("got %.200q, %v where the connection should have ended", rest, err)
	}
}

// ReadLine reads a line, and returns it without its CRLF.
func ReadLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return line, err
	}
	if !strings.HasSuffix(line, "\r\n") || strings.Count(line, "\r") > 1 {
		return line, fmt.Errorf("line %q doesn't end in one CRLF", line)
	}
	return line[:len(line)-2], nil
}

// ReadLines reads lines until an empty line.
func ReadLines(in *bufio.Reader) (lines []string, err error) {
	for {
		line, err := ReadLine(in)
		if err != nil || line == "" {
			return lines, err
		}
		lines = append(lines, line)
	}
}

// ReadMessage reads a response. A final response must have exactly one valid Date.
func ReadMessage(in *bufio.Reader, method string) (*Message, error) {
	m := &Message{}
	var err error
	if m.Line, err = ReadLine(in); err != nil {
		return m, err
	}
	if len(m.Line) < len("HTTP/1.1 200 ") || m.Line[:9] != "HTTP/1.1 " || m.Line[12] != ' ' {
		return m, fmt.Errorf("malformed status line %q", m.Line)
	}
	if m.Status, err = strconv.Atoi(m.Line[9:12]); err != nil {
		return m, err
	}
	if m.Fields, err = ReadLines(in); err != nil {
		return m, err
	}
	if m.Status >= 200 {
		if _, err := http.ParseTime(m.Get("Date")); err != nil || m.Count("Date") != 1 {
			return m, fmt.Errorf("no or no valid Date: %w", err)
		}
	}
	return m, m.readBody(in, method)
}

func (m *Message) readBody(in *bufio.Reader, method string) error {
	length, chunked := m.Get("Content-Length"), m.Get("Transfer-Encoding")
	if m.Count("Content-Length")+m.Count("Transfer-Encoding") > 1 {
		return fmt.Errorf("more than one framing field in %q", m.Fields)
	}
	switch {
	case m.Status < 200 || m.Status == 204:
		// RFC 9110, section 8.6, and RFC 9112, section 6.1: a 1xx or a 204 may have neither field.
		if length+chunked != "" {
			return fmt.Errorf("framing fields in a %d: %q", m.Status, m.Fields)
		}
		return nil
	case m.Status == 304 || method == "HEAD":
		return nil
	case chunked == "chunked":
		return m.readChunks(in)
	case chunked != "":
		return fmt.Errorf("unknown transfer coding %q", chunked)
	case length != "":
		n, err := strconv.Atoi(length)
		if err != nil {
			return err
		}
		body := make([]byte, n)
		read, err := io.ReadFull(in, body)
		m.Body = string(body[:read])
		return err
	}
	body, err := io.ReadAll(in)
	m.Body = string(body)
	return err
}

func (m *Message) readChunks(in *bufio.Reader) error {
	for {
		line, err := ReadLine(in)
		if err != nil {
			return err
		}
		size, err := strconv.ParseUint(line, 16, 32)
		if err != nil {
			return err
		}
		if size == 0 {
			m.trailer, err = ReadLines(in)
			return err
		}
		data := make([]byte, size)
		if _, err := io.ReadFull(in, data); err != nil {
			return err
		}
		m.Body += string(data)
		if end, err := ReadLine(in); err != nil || end != "" {
			return fmt.Errorf("%q, %v behind a chunk's data", end, err)
		}
	}
}

// WantText reads as many bytes as want has, and compares them.
func (c *StrictClient) WantText(t testing.TB, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c.In, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v; want %q", got, err, want)
	}
}
