package filotest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo"
)

// TimedOutBody is the body of the 503 to a request whose handler took too long.
const TimedOutBody = "Service Unavailable: the handler took too long\n"

// Client is the client's end of a connection. Most of its methods fail the test on an error.
type Client struct {
	net.Conn
	T      testing.TB
	Reader *bufio.Reader
}

// NewClient returns a client that uses a connection, which is closed when the test ends.
func NewClient(t testing.TB, conn net.Conn) *Client {
	conn.SetDeadline(time.Now().Add(Bound))
	t.Cleanup(func() { conn.Close() })
	return &Client{conn, t, bufio.NewReader(conn)}
}

// Send writes bytes.
func (c *Client) Send(text string) {
	c.T.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.T.Fatalf("sending %.40q: %v", text, err)
	}
}

// Get sends a GET request.
func (c *Client) Get(path string) {
	c.T.Helper()
	c.Send("GET " + path + " HTTP/1.1\r\nHost: filo.test\r\n\r\n")
}

// Answer reads a whole answer.
func (c *Client) Answer() (response *http.Response, body string) {
	c.T.Helper()
	response, body, err := c.TryAnswer()
	if err != nil {
		c.T.Fatalf("reading an answer: %v", err)
	}
	return response, body
}

// TryAnswer reads a whole answer, or returns an error.
func (c *Client) TryAnswer() (*http.Response, string, error) {
	response, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		return nil, "", err
	}
	body, err := io.ReadAll(response.Body)
	return response, string(body), err
}

// Want reads an answer and checks its status, its body, and whether it announces that the connection closes.
func (c *Client) Want(status int, body string, closes bool) {
	c.T.Helper()
	response, got := c.Answer()
	if response.StatusCode != status || got != body || response.Close != closes {
		c.T.Errorf("got %d %q, close %v; want %d %q, close %v", response.StatusCode, got, response.Close, status, body, closes)
	}
}

// WantEOF checks that the server closes the connection without another byte, and without a reset.
func (c *Client) WantEOF() {
	c.T.Helper()
	if rest, err := io.ReadAll(c.Reader); err != nil || len(rest) > 0 {
		c.T.Errorf("at the end of the connection: %q, %v; want nothing", rest, err)
	}
}

// WantEnd checks that the server ends the connection without another byte, by closing or by a reset.
func (c *Client) WantEnd() {
	c.T.Helper()
	if rest, err := io.ReadAll(c.Reader); len(rest) > 0 || err != nil && !IsReset(err) {
		c.T.Errorf("at the end of the connection: %q, %v; want nothing", rest, err)
	}
}

// IsReset reports whether err says that the peer has reset the connection.
func IsReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// Reset closes the connection with a TCP reset.
func (c *Client) Reset() {
	c.Conn.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// Served waits for the answer to a request that has been sent, a 200 with the body want. After each 503 it repeats the request, whose bytes
// are the argument again: another request, or a leader that has lost its loop because its thread got no processor, may occupy the last place
// for a moment.
func (c *Client) Served(again, want string) {
	c.T.Helper()
	Await(c.T, "a place for a request", func() bool {
		response, got := c.Answer()
		if response.StatusCode == 503 {
			c.Send(again)
			return false
		}
		if response.StatusCode != 200 || got != want {
			c.T.Errorf("got %d %.40q, want %.40q", response.StatusCode, got, want)
		}
		return true
	})
}

// WantRefusal sends a request and reads the server's refusal: an answer with this status that is complete, has Retry-After, and announces
// that the connection closes.
func (c *Client) WantRefusal(status int) {
	c.T.Helper()
	if err := c.Refusal(status); err != nil {
		c.T.Errorf("the refusal: %v", err)
	}
}

// Refusal does the same as WantRefusal, but returns an error instead of failing the test, because a server may also refuse a client without
// an answer.
func (c *Client) Refusal(status int) error {
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") // the server may have closed the connection by now
	// TryAnswer fails if the answer is shorter than its Content-Length.
	response, body, err := c.TryAnswer()
	if err != nil {
		return err
	}
	_, err = http.ParseTime(response.Header.Get("Date"))
	switch {
	case response.StatusCode != status:
		return fmt.Errorf("status %d, want %d", response.StatusCode, status)
	case !response.Close:
		return fmt.Errorf("no Connection: close")
	case response.Header.Get("Retry-After") == "":
		return fmt.Errorf("no Retry-After")
	case err != nil:
		return fmt.Errorf("the Date: %w", err)
	case response.ContentLength != int64(len(body)) || !strings.HasPrefix(body, http.StatusText(status)):
		return fmt.Errorf("Content-Length %d, body %q", response.ContentLength, body)
	}
	if rest, err := io.ReadAll(c.Reader); err != nil || len(rest) > 0 {
		return fmt.Errorf("at the end: %q, %v; want nothing", rest, err)
	}
	return nil
}

// StatusOf returns the status of an HTTPError, 0 for any other error.
func StatusOf(err error) int {
	if h, ok := errors.AsType[*filo.HTTPError](err); ok {
		return h.Status
	}
	return 0
}

// Statuses returns the statuses of the answers in a text, separated by spaces.
func Statuses(answers string) string {
	var statuses []string
	for _, match := range statusLine.FindAllStringSubmatch(answers, -1) {
		statuses = append(statuses, match[1])
	}
	return strings.Join(statuses, " ")
}

var statusLine = regexp.MustCompile(`HTTP/1\.1 ([1-5][0-9]{2}) `)
