package abuse

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// plain is a polite client of HTTP/1.1. The time of an answer counts from when its request was due.
type plain struct {
	recorder
	kind    Client
	url     string
	client  http.Client
	ctx     context.Context
	cancel  context.CancelFunc
	running chan struct{} // has a place for each request that may run at once
	ended   chan struct{}
}

// uploaded is what a polite client posts.
var uploaded = strings.Repeat("a", 64<<10)

// startPlain starts a polite client of HTTP/1.1 that sends rate requests a second.
func startPlain(dial func() (net.Conn, error), rate float64, kind Client) (*plain, error) {
	nc, err := dial()
	if err != nil {
		return nil, fmt.Errorf("the polite client: %w", err)
	}
	p := &plain{kind: kind, url: "http://" + nc.RemoteAddr().String(), running: make(chan struct{}, 100), ended: make(chan struct{})}
	nc.Close()
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.client = http.Client{
		Timeout: patience,
		Transport: &http.Transport{
			DialContext:         func(context.Context, string, string) (net.Conn, error) { return dial() },
			DisableKeepAlives:   kind == Handshakes,
			MaxIdleConnsPerHost: cap(p.running),
		},
	}
	p.Begin()
	go p.run(time.Duration(float64(time.Second) / rate))
	return p, nil
}

// Stop ends the client. Requests that haven't been answered count neither way.
func (p *plain) Stop() {
	p.cancel()
	<-p.ended
	for range cap(p.running) {
		p.running <- struct{}{}
	}
	p.client.CloseIdleConnections()
}

// run sends requests when they are due.
func (p *plain) run(interval time.Duration) {
	defer close(p.ended)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-ticker.C:
		}
		h, due := p.due(), time.Now()
		select {
		case p.running <- struct{}{}:
			go func() {
				err := p.ask()
				p.record(h, time.Since(due), err, p.ctx.Err() != nil)
				<-p.running
			}()
		case <-p.ctx.Done():
			p.record(h, 0, nil, true)
		}
	}
}

// ask sends a request, and checks its answer.
func (p *plain) ask() error {
	method, path, body, want := http.MethodGet, "/", io.Reader(nil), "Hello, World!"
	if p.kind == Posts {
		method, path, body, want = http.MethodPost, pathBody, strings.NewReader(uploaded), fmt.Sprintln(len(uploaded))
	}
	request, err := http.NewRequestWithContext(p.ctx, method, p.url+path, body)
	if err != nil {
		return err
	}
	answer, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return err
	case answer.StatusCode == 503 && answer.Header.Get("Retry-After") != "":
		return errBusy
	case answer.StatusCode != 200 || string(got) != want:
		return fmt.Errorf("the answer is %d %.100q", answer.StatusCode, got)
	}
	return nil
}

// PoliteClient is a client of any kind that uses a server as it should.
type PoliteClient interface {
	// Begin begins a new phase: it has the requests that are due from now on.
	Begin() *Phase
	Stop()
}

// StartClient starts a polite client of a kind. dial opens connections of the client's protocol.
func StartClient(kind Client, dial func() (net.Conn, error), rate float64) (PoliteClient, error) {
	if kind == HTTP2 {
		return StartPolite(dial, rate)
	}
	return startPlain(dial, rate, kind)
}

// Protocols are what a client of the kind offers by TLS's ALPN.
func (k Client) Protocols() []string {
	if k == HTTP2 {
		return []string{"h2"}
	}
	return []string{"http/1.1"}
}

// String names the kind.
func (k Client) String() string {
	return [...]string{"GET by HTTP/2", "POST by HTTP/1.1", "TLS handshakes"}[k]
}
