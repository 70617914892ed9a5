package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// each is how many requests a client sends concurrently over each protocol.
const each = 6

// body is the content that clients upload.
var body = bytes.Repeat([]byte("0123456789abcdef"), 200<<10/16)

// runGo uses the server with Go's client: over HTTP/1.1, over HTTP/2 with TLS, and over HTTP/2 without TLS.
func runGo(r *running) (result, error) {
	authority, err := os.ReadFile(r.authority)
	if err != nil {
		return result{}, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	var mu sync.Mutex
	var sum result
	var all sync.WaitGroup
	end := time.Now().Add(r.duration)
	for _, protocol := range []struct {
		url string
		set func(*http.Protocols)
	}{
		{r.plain, func(p *http.Protocols) { p.SetHTTP1(true) }},
		{r.tls, func(p *http.Protocols) { p.SetHTTP2(true) }},
		{r.plain, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }},
	} {
		transport := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{RootCAs: roots}, MaxIdleConnsPerHost: each}
		protocol.set(transport.Protocols)
		client := &goClient{url: protocol.url, client: http.Client{Transport: transport, Timeout: 20 * time.Second}}
		defer transport.CloseIdleConnections()
		for i := range each {
			all.Go(func() {
				for n := i; time.Now().Before(end); n++ {
					what := goRequests[n%len(goRequests)]
					err := what.send(client)
					mu.Lock()
					if sum.Requests++; err != nil {
						sum.failed("%s at %s: %v", what.name, protocol.url, err)
					}
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	return sum, nil
}

type goClient struct {
	url    string
	client http.Client
}

// goRequests are the requests that a client sends in turn.
var goRequests = []struct {
	name string
	send func(*goClient) error
}{
	{"GET of 13 bytes", func(c *goClient) error { return c.get("/small") }},
	{"GET of 64 KB", func(c *goClient) error { return c.get("/medium") }},
	{"GET of 1 MB", func(c *goClient) error { return c.get("/large") }},
	{"HEAD", func(c *goClient) error { return c.ask(context.Background(), http.MethodHead, "/large", nil, 200, "") }},
	{"POST of a known length", func(c *goClient) error {
		return c.ask(context.Background(), http.MethodPost, "/body", bytes.NewReader(body), 200, fmt.Sprint(len(body)))
	}},
	{"POST of an unknown length", func(c *goClient) error {
		return c.ask(context.Background(), http.MethodPost, "/body", io.MultiReader(bytes.NewReader(body)), 200, fmt.Sprint(len(body)))
	}},
	{"POST that is answered early", func(c *goClient) error {
		return c.ask(context.Background(), http.MethodPost, "/early", bytes.NewReader(body[:10<<10]), 401, "*")
	}},
	{"events", func(c *goClient) error { return c.ask(context.Background(), http.MethodGet, "/events", nil, 200, "*") }},
	{"a cancelled request", func(c *goClient) error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel()
		if err := c.ask(ctx, http.MethodGet, "/slow", nil, 200, "*"); !errors.Is(err, context.DeadlineExceeded) {
			return err // nil: the answer has arrived before the cancellation
		}
		return nil
	}},
	{"an answer that is left half-way", func(c *goClient) error {
		answer, err := c.client.Get(c.url + "/large")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		_, err = io.CopyN(io.Discard, answer.Body, 100<<10)
		return err
	}},
}

func (c *goClient) get(path string) error {
	return c.ask(context.Background(), http.MethodGet, path, nil, 200, text[:sizes[path]])
}

// ask sends a request, and checks the status and body of its answer. If want is "*", any body is accepted.
func (c *goClient) ask(ctx context.Context, method, path string, body io.Reader, status int, want string) error {
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return err
	}
	answer, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var got strings.Builder
	buffer := make([]byte, 4<<10) // Go's HTTP/2 client sends WINDOW_UPDATE for each 4 KB that are read
	if _, err = io.CopyBuffer(struct{ io.Writer }{&got}, answer.Body, buffer); err != nil {
		return err
	}
	if answer.StatusCode != status || want != "*" && got.String() != want {
		return fmt.Errorf("the answer is %d with %d bytes", answer.StatusCode, got.Len())
	}
	return nil
}
