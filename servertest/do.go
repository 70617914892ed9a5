package servertest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Answer is the response to a request.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Do sends a request such as "GET /path", with fields such as "Accept: text/html", on a new connection, and returns the answer.
// The host is filo.test, or the host of a request such as "GET http://host/path". The test fails unless there is an answer that
// net/http can parse.
func (s *Server) Do(t testing.TB, request string, fields ...string) Answer {
	t.Helper()
	return s.DoBody(t, request, "", fields...)
}

// DoBody is like Do, for a request with a body. It sends a Content-Length, unless the body is empty or fields contain a Transfer-Encoding.
func (s *Server) DoBody(t testing.TB, request, body string, fields ...string) Answer {
	t.Helper()
	return answerTo(t, request, s.Raw(t, Request(request, body, fields...)))
}

// DoFrom is like Do, but connects from the given address, which the handler sees as the client's address.
func (s *Server) DoFrom(t testing.TB, client net.Addr, request string, fields ...string) Answer {
	t.Helper()
	c, err := s.Listener.DialFrom(client)
	if err != nil {
		t.Fatalf("servertest: dial: %v", err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(rawTimeout)); err != nil {
		t.Fatalf("servertest: %v", err)
	}
	if _, err := io.WriteString(c, Request(request, "", append(fields[:len(fields):len(fields)], "Connection: close")...)); err != nil {
		t.Fatalf("servertest: sending %s: %v", request, err)
	}
	raw, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("servertest: reading the answer to %s: %v\ngot so far: %q", request, err, raw)
	}
	return answerTo(t, request, string(raw))
}

// Request returns the bytes that DoBody sends, for Raw and for connections of your own.
func Request(request, body string, fields ...string) string {
	method, target, _ := strings.Cut(request, " ")
	host := "filo.test"
	if rest, ok := strings.CutPrefix(target, "http://"); ok {
		host, target, _ = strings.Cut(rest, "/")
		target = "/" + target
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, target, host)
	chunked := false
	for _, field := range fields {
		text.WriteString(field + "\r\n")
		name, _, _ := strings.Cut(field, ":")
		chunked = chunked || strings.EqualFold(name, "Transfer-Encoding")
	}
	if body != "" && !chunked {
		fmt.Fprintf(&text, "Content-Length: %d\r\n", len(body))
	}
	text.WriteString("\r\n" + body)
	return text.String()
}

// answerTo parses the answer to a request from the received bytes.
func answerTo(t testing.TB, request, raw string) Answer {
	t.Helper()
	method, _, _ := strings.Cut(request, " ")
	response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(raw)), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("servertest: the answer to %s: %v in %q", request, err, raw)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("servertest: the answer to %s: %v in %q", request, err, raw)
	}
	return Answer{response.StatusCode, response.Header, string(body)}
}
