package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// patience is how long a test waits for something that must happen.
const patience = time.Minute

// start runs the program, and returns its URLs with TLS and without.
func start(t *testing.T) (secure, plain string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-addr", "127.0.0.1:0", "-tls-addr", "127.0.0.1:0"}, in)
		in.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ends with %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	var urls []string
	for len(urls) < 2 && lines.Scan() {
		urls = append(urls, strings.TrimPrefix(lines.Text(), "listening on "))
	}
	if len(urls) < 2 {
		t.Fatalf("it doesn't listen: %v", lines.Err())
	}
	return urls[0], urls[1]
}

// client speaks HTTP/2 alone, on one connection.
func client(t *testing.T) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	transport.Protocols.SetHTTP2(true)
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func do(t *testing.T, c *http.Client, method, url string, body io.Reader) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != 200 || response.Proto != "HTTP/2.0" {
		t.Fatalf("%s %s: %s %s", method, url, response.Proto, response.Status)
	}
	return response
}

// Over TLS and without, fifty event streams and one in both directions share a connection with a quick request.
func TestOneConnection(t *testing.T) {
	secure, plain := start(t)
	for i, url := range []string{secure, plain} {
		c := client(t)
		text := do(t, c, "GET", url+"/", nil) // it opens the connection
		io.Copy(io.Discard, text.Body)
		var events []*http.Response
		for range 50 {
			events = append(events, do(t, c, "GET", url+"/time", nil))
		}
		body, send := io.Pipe()
		defer send.Close()
		both := bufio.NewReader(do(t, c, "POST", url+"/upper", body).Body)
		for n := range 3 {
			fmt.Fprintf(send, "line %d\n", n)
			if line, err := both.ReadString('\n'); line != fmt.Sprintf("LINE %d\n", n) {
				t.Errorf("%s: the answer to line %d is %q, %v", url, n, line, err)
			}
		}
		for _, e := range events {
			if data := nextData(t, e.Body); !regexp.MustCompile(`^\d\d:\d\d:\d\d$`).MatchString(data) {
				t.Errorf("%s: the event is %q", url, data)
			}
		}
		got, err := io.ReadAll(do(t, c, "GET", url+"/", nil).Body)
		want := fmt.Sprintf("HTTP/2: %d connections with %d open requests", i+1, 51*(i+1)+1)
		if !strings.Contains(string(got), want) {
			t.Errorf("%s: %s, %v, want %q", url, got, err, want)
		}
	}
}

// nextData returns the next event's data.
func nextData(t *testing.T, r io.Reader) string {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return data
		}
	}
	t.Error("the events have ended")
	return ""
}

// The port without TLS has HTTP/1.1 as well.
func TestHTTP1(t *testing.T) {
	_, plain := start(t)
	response, err := http.Get(plain)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); !strings.HasPrefix(string(text), "You speak HTTP/1.1.") {
		t.Errorf("%q, %v", text, err)
	}
}

// If a port is taken the program says so, and ends.
func TestTakenPort(t *testing.T) {
	secure, plain := start(t)
	for name, args := range map[string][]string{
		"TLS":     {"-tls-addr", strings.TrimPrefix(secure, "https://"), "-addr", "127.0.0.1:0"},
		"without": {"-addr", strings.TrimPrefix(plain, "http://"), "-tls-addr", "127.0.0.1:0"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), "address already in use") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
