package filotest

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/servertest"
)

// HTTP2Client is net/http's client for HTTP/2. It uses one connection, unless the connection has no free streams.
type HTTP2Client struct {
	*http.Client
	T   testing.TB
	URL string
}

// EachHTTP2 runs a test with HTTP/2 over a socket, over TLS and over an in-memory connection.
func EachHTTP2(t *testing.T, test func(t *testing.T, serve func(*filo.Server) (*Server, *HTTP2Client))) {
	t.Run("socket", func(t *testing.T) {
		test(t, func(config *filo.Server) (*Server, *HTTP2Client) {
			config.HTTP2.Unencrypted = true
			s := Serve(t, config)
			return s, NewHTTP2Client(t, "http://"+s.Addr, nil, nil)
		})
	})
	t.Run("memory", func(t *testing.T) {
		test(t, func(config *filo.Server) (*Server, *HTTP2Client) {
			config.HTTP2.Unencrypted = true
			listener := servertest.NewListener()
			s := Serve(t, config, listener)
			dial := func(context.Context, string, string) (net.Conn, error) { return listener.Dial() }
			return s, NewHTTP2Client(t, "http://example.com", dial, nil)
		})
	})
	t.Run("TLS", func(t *testing.T) {
		test(t, func(config *filo.Server) (*Server, *HTTP2Client) {
			s := ListenTLS(t, config)
			return s, NewHTTP2Client(t, "https://"+s.Addr, nil, ClientTLS())
		})
	})
}

// NewHTTP2Client returns a client of the server at url. It connects with dial, or over TCP if dial is nil. It uses TLS if config isn't nil.
func NewHTTP2Client(t testing.TB, url string, dial func(ctx context.Context, network, addr string) (net.Conn, error), config *tls.Config) *HTTP2Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(config == nil)
	transport := &http.Transport{DialContext: dial, TLSClientConfig: config, Protocols: protocols, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &HTTP2Client{&http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, t, url}
}

// Fetch sends a request. The arguments header alternate names and values. An invalid request fails the test.
func (c *HTTP2Client) Fetch(ctx context.Context, method, path string, body io.Reader, header ...string) (*http.Response, error) {
	c.T.Helper()
	request, err := http.NewRequestWithContext(ctx, method, c.URL+path, body)
	if err != nil {
		c.T.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Add(header[i], header[i+1])
	}
	return c.Do(request)
}

// Ask sends a request, and reads the whole answer.
func (c *HTTP2Client) Ask(method, path string, body io.Reader, header ...string) (*http.Response, string) {
	c.T.Helper()
	response, err := c.Fetch(context.Background(), method, path, body, header...)
	if err != nil {
		c.T.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		c.T.Fatalf("%s %s: reading the answer: %v", method, path, err)
	}
	if response.ProtoMajor != 2 {
		c.T.Errorf("%s %s: the answer came by %s", method, path, response.Proto)
	}
	return response, string(content)
}

// Want sends a request, and checks the answer's status and body.
func (c *HTTP2Client) Want(method, path string, body io.Reader, status int, text string) {
	c.T.Helper()
	if response, got := c.Ask(method, path, body); response.StatusCode != status || got != text {
		c.T.Errorf("%s %s: %d %q, want %d %q", method, path, response.StatusCode, CutText(got), status, CutText(text))
	}
}

// CutText shortens a long text for a message.
func CutText(s string) string {
	if len(s) > 100 {
		return fmt.Sprintf("%s… (%d bytes)", s[:100], len(s))
	}
	return s
}
