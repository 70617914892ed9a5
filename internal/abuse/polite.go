package abuse

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Polite is a well-behaved client of a server. It sends requests at a constant rate with net/http's client. The time of an answer is measured
// from the moment when its request was due, so a stall of the server counts for each request that it delays.
type Polite struct {
	recorder
	kind    Client
	url     string
	host    string // the server's name; "" for its address
	want    string // the body of each answer
	clients []*http.Client
	ctx     context.Context
	cancel  context.CancelFunc
	running chan struct{} // a semaphore for the requests that run concurrently
	ended   chan struct{}
}

// recorder records the results of a polite client's requests.
type recorder struct {
	mu    sync.Mutex
	phase *Phase
}

const (
	// politeConns is how many connections a polite client of HTTP/2 uses.
	politeConns = 4
	// patience is how long a polite client waits for an answer.
	patience = 10 * time.Second
)

// uploaded is what a polite client posts.
var uploaded = strings.Repeat("a", 64<<10)

// StartClient starts a polite client that sends rate requests a second. dial opens connections of the client's protocol. A client of HTTP/2
// expects every answer to equal its first one.
func StartClient(kind Client, dial func() (net.Conn, error), rate float64) (*Polite, error) {
	p, err := newPolite(kind, dial)
	if err != nil {
		return nil, fmt.Errorf("the polite client: %w", err)
	}
	switch kind {
	case HTTP2:
		status, body, err := p.get(p.ctx, "/")
		if err == nil && status != 200 {
			err = fmt.Errorf("status %d", status)
		}
		if err != nil {
			p.close()
			return nil, fmt.Errorf("the polite client's first request: %w", err)
		}
		p.want = body
	case Posts:
		p.want = fmt.Sprintln(len(uploaded))
	case Handshakes:
		p.want = "Hello, World!"
	}
	p.Begin()
	go p.run(time.Duration(float64(time.Second) / rate))
	return p, nil
}

// newPolite returns a client that doesn't send requests yet.
func newPolite(kind Client, dial func() (net.Conn, error)) (*Polite, error) {
	nc, err := dial()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	p := &Polite{kind: kind, url: "http://" + nc.RemoteAddr().String(), running: make(chan struct{}, 100), ended: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if secured, ok := nc.(*tls.Conn); ok {
		p.url = "https://" + nc.RemoteAddr().String()
		p.host = secured.ConnectionState().ServerName
	}
	dialAny := func(context.Context, string, string) (net.Conn, error) { return dial() }
	conns := 1
	if kind == HTTP2 {
		conns = politeConns
	}
	for range conns {
		transport := &http.Transport{
			DialContext: dialAny, DialTLSContext: dialAny, DisableKeepAlives: kind == Handshakes, DisableCompression: true,
			MaxIdleConnsPerHost: cap(p.running), Protocols: new(http.Protocols),
		}
		transport.Protocols.SetHTTP1(kind != HTTP2)
		transport.Protocols.SetHTTP2(kind == HTTP2)
		transport.Protocols.SetUnencryptedHTTP2(kind == HTTP2)
		p.clients = append(p.clients, &http.Client{Timeout: patience, Transport: transport})
	}
	return p, nil
}

// Stop ends the client. Requests that haven't been answered count neither as answers nor as errors.
func (p *Polite) Stop() {
	p.cancel()
	<-p.ended
	for range cap(p.running) {
		p.running <- struct{}{}
	}
	p.close()
}

func (p *Polite) close() {
	p.cancel()
	for _, c := range p.clients {
		c.CloseIdleConnections()
	}
}

// run sends requests when they are due.
func (p *Polite) run(interval time.Duration) {
	defer close(p.ended)
	start := time.Now()
	for i := 0; ; i++ {
		due := start.Add(time.Duration(i+1) * interval)
		timer := time.NewTimer(time.Until(due))
		select {
		case <-p.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		h := p.due()
		select {
		case p.running <- struct{}{}:
			go func() {
				err := p.ask(p.clients[i%len(p.clients)])
				p.record(h, time.Since(due), err, p.ctx.Err() != nil)
				<-p.running
			}()
		case <-p.ctx.Done():
			p.record(h, 0, nil, true)
		}
	}
}

// ask sends a request and checks its answer.
func (p *Polite) ask(c *http.Client) error {
	method, path, body := http.MethodGet, "/", io.Reader(nil)
	if p.kind == Posts {
		method, path, body = http.MethodPost, pathBody, strings.NewReader(uploaded)
	}
	answer, got, err := p.do(p.ctx, c, method, path, body)
	switch {
	case err != nil:
		return err
	case answer.StatusCode == 503 && answer.Header.Get("Retry-After") != "":
		return errBusy
	case answer.StatusCode != 200 || got != p.want:
		return fmt.Errorf("the answer is %d %.100q", answer.StatusCode, got)
	}
	return nil
}

func (p *Polite) do(ctx context.Context, c *http.Client, method, path string, body io.Reader) (answer *http.Response, got string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, p.url+path, body)
	if err != nil {
		return nil, "", err
	}
	request.Host = p.host
	answer, err = c.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	return answer, string(b), err
}

// get requests a path.
func (p *Polite) get(ctx context.Context, path string) (status int, body string, err error) {
	answer, body, err := p.do(ctx, p.clients[0], http.MethodGet, path, nil)
	if err != nil {
		return 0, "", err
	}
	return answer.StatusCode, body, nil
}

// Get requests a path over HTTP/2.
func Get(ctx context.Context, dial func() (net.Conn, error), path string) (status int, body string, err error) {
	p, err := newPolite(HTTP2, dial)
	if err != nil {
		return 0, "", err
	}
	defer p.close()
	return p.get(ctx, path)
}

// Protocols returns the protocols that a client of the kind offers in ALPN.
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

// Begin begins a new phase, for the requests that are due from now on.
func (p *recorder) Begin() *Phase {
	next := &Phase{polite: p, all: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase != nil {
		p.phase.over = true
		p.phase.check()
	}
	p.phase = next
	return next
}

// due counts a pending request in the current phase, and returns the phase.
func (p *recorder) due() *Phase {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase.pending++
	return p.phase
}

// record records the result of a request of phase h, unless the client is being stopped.
func (p *recorder) record(h *Phase, took time.Duration, err error, stops bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case stops:
	case err == nil:
		h.times = append(h.times, took)
	case errors.Is(err, errBusy):
		h.busy++
	default:
		h.failed++
		h.first = cmp.Or(h.first, err)
	}
	h.pending--
	h.check()
}

// errBusy is a 503 with Retry-After: the server has said that it is full.
var errBusy = errors.New("503 with Retry-After")

// Phase holds the requests of a span of time. The client's mu guards it.
type Phase struct {
	polite  *recorder
	times   []time.Duration
	busy    int
	failed  int
	first   error
	pending int
	over    bool
	all     chan struct{} // closed when the phase is over and no request is pending
}

// PhaseFigure is the result of a phase's requests.
type PhaseFigure struct {
	Answers, Errors int
	Busy            int           // 503 with Retry-After
	P50, P99, Max   time.Duration // of the answered requests
	First           error
}

// Figure waits until the next phase has begun and all requests of this phase are answered.
func (h *Phase) Figure() PhaseFigure {
	<-h.all
	h.polite.mu.Lock()
	defer h.polite.mu.Unlock()
	slices.Sort(h.times)
	f := PhaseFigure{Answers: len(h.times), Errors: h.failed, Busy: h.busy, First: h.first}
	if n := len(h.times); n > 0 {
		f.P50, f.P99, f.Max = h.times[n/2], h.times[n*99/100], h.times[n-1]
	}
	return f
}

// check closes the channel when the phase is complete. It is called with mu locked.
func (h *Phase) check() {
	if h.over && h.pending == 0 {
		close(h.all)
	}
}
