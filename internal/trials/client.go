//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/filohttp/filo/internal/soak/kit"
)

// load describes the work of the clients.
type load struct {
	addresses
	Seed     uint64
	Clients  int           // of each protocol
	Large    int           // bytes of a large body
	Span     time.Duration // no request begins after this time, unless the client has made fewer than Least requests
	Least    int
	Patience time.Duration // the time limit of one request
	// Kept makes each client open its first connection before the load begins.
	Kept bool
}

// protocols lists the protocols that clients speak.
var protocols = []struct {
	name       string
	http2, tls bool
}{{"HTTP/1.1", false, false}, {"HTTP/1.1 over TLS", false, true}, {"HTTP/2", true, false}, {"HTTP/2 over TLS", true, true}}

// outcome counts the results of the clients' requests.
type outcome struct {
	Right  map[string]int // correct answers, by protocol
	Errors map[string]int // unanswered requests, by the error that the client got instead
	Lost   int            // requests for which the client got neither answer nor error within its patience
	Wrong  []string       // wrong answers
}

func (o *outcome) right() (n int) {
	for _, each := range o.Right {
		n += each
	}
	return n
}

// clients are the clients of one load.
type clients struct {
	load
	pattern kit.Pattern
	number  atomic.Uint64
	end     time.Time

	mu sync.Mutex
	outcome
}

// run runs a load. If begun isn't nil, run calls it before the first request: if Kept is set, the connections are open by then.
func (l load) run(begun func()) outcome {
	c := &clients{load: l, pattern: kit.NewPattern(l.Seed), outcome: outcome{Right: map[string]int{}, Errors: map[string]int{}}}
	var open, all sync.WaitGroup
	begin := make(chan struct{})
	for _, protocol := range protocols {
		for i := range l.Clients {
			open.Add(1)
			all.Go(func() {
				one := &client{clients: c, name: protocol.name, http2: protocol.http2, tls: protocol.tls, random: rand.New(rand.NewPCG(l.Seed, uint64(i)))}
				defer one.close()
				if l.Kept {
					one.note(one.open())
				}
				open.Done()
				<-begin
				for next := time.Duration(0); one.goesOn(next); next = one.pause() {
					time.Sleep(next)
					one.visit()
				}
			})
		}
	}
	open.Wait()
	if begun != nil {
		begun()
	}
	c.end = time.Now().Add(l.Span)
	close(begin)
	all.Wait()
	return c.outcome
}

// client uses one connection after the other, each through net/http's client.
type client struct {
	*clients
	name       string
	http2, tls bool
	random     *rand.Rand
	made       int             // the number of requests and of failed attempts to connect
	conn       *kit.OnlyConn   // nil if none is open
	transport  *http.Transport // for conn
}

// goesOn reports whether the client may make another request after the pause.
func (c *client) goesOn(pause time.Duration) bool {
	next := time.Now().Add(pause)
	return next.Before(c.end) || c.made < c.Least && next.Before(c.end.Add(c.Patience))
}

// pause returns how long the client waits before its next request.
func (c *client) pause() time.Duration {
	return time.Duration(c.random.Int64N(int64(4 * time.Millisecond)))
}

// request is a request with the expected body of its answer.
type request struct {
	method, target string
	body, want     []byte
	number         string
	unsized        bool // the body's length isn't announced
}

func (c *client) next() *request {
	c.made++
	number, size := c.number.Add(1), c.random.IntN(2000)
	kind := c.random.IntN(12)
	if kind%2 == 0 && kind > 0 {
		size = c.Large/2 + c.random.IntN(c.Large/2+1)
	}
	content := c.pattern.Cut(number, size)
	q := &request{method: "GET", want: content, number: strconv.FormatUint(number, 10)}
	path := "/content"
	switch kind {
	case 2:
		path = "/lent"
	case 4:
		path = "/file"
	case 5, 6:
		path = "/stream"
	case 8:
		q.method, path, q.body = "POST", "/echo", content
	case 9, 10:
		q.method, path, q.body, q.unsized = "POST", "/hash", content, c.random.IntN(2) == 0
		hash := sha256.Sum256(content)
		q.want = fmt.Appendf(nil, "%x", hash)
	}
	q.target = fmt.Sprintf("%s?number=%d&size=%d", path, number, size)
	return q
}

// note counts the error of a request, and reports whether there was none.
func (c *client) note(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		return true
	}
	kind := kindOf(err)
	switch {
	case kind == "":
		c.Wrong = append(c.Wrong, c.name+": "+err.Error())
	case kind == nothing:
		c.Lost++
		fallthrough
	default:
		c.Errors[kind]++
	}
	return false
}

func (c *client) noteRight() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Right[c.name]++
}

// errStatus is the error for an answer with an error status.
type errStatus int

func (e errStatus) Error() string { return "status " + strconv.Itoa(int(e)) }

// errWrong is wrapped by errors about wrong answers.
var errWrong = errors.New("wrong")

// nothing is the kind of error that a client gets if the server has sent nothing for too long.
const nothing = "no word"

// kindOf classifies an error by the innermost error, which describes the event that the client has observed. It returns "" for wrong answers.
func kindOf(err error) string {
	switch {
	case errors.Is(err, errWrong):
		return ""
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return nothing
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, kit.ErrEnded):
		return "closed"
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return streamID.ReplaceAllString(withoutAddress(err.Error()), "$1 N")
}

// streamID matches the number of a stream in an error of net/http.
var streamID = regexp.MustCompile(`(stream ID|LastStreamID)[ =]\d+`)

// open opens a connection. If c.tls is set, the first request makes the TLS handshake.
func (c *client) open() error {
	address := c.Plain
	if c.tls {
		address = c.TLS
	}
	netConn, err := net.DialTimeout("tcp", address, c.Patience)
	if err != nil {
		return err
	}
	c.conn = kit.NewOnlyConn(netConn)
	c.transport = &http.Transport{
		Protocols: new(http.Protocols), DisableCompression: true, MaxConnsPerHost: 1,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DialContext: c.conn.Dial,
	}
	c.transport.Protocols.SetHTTP1(!c.http2)
	c.transport.Protocols.SetUnencryptedHTTP2(c.http2 && !c.tls)
	c.transport.Protocols.SetHTTP2(c.http2 && c.tls)
	return nil
}

func (c *client) close() {
	if c.conn != nil {
		c.transport.CloseIdleConnections()
		c.conn.Close()
		c.conn = nil
	}
}

// visit makes one HTTP/1.1 request, on a connection that later visits use again, or some HTTP/2 requests on a new connection.
func (c *client) visit() {
	if c.conn == nil && !c.note(c.open()) {
		c.made++
		time.Sleep(10 * time.Millisecond)
		return
	}
	if c.http2 {
		c.several()
		c.close()
	} else if closes := c.ask(c.next()); closes || !c.Kept && c.random.IntN(8) == 0 {
		c.close()
	}
}

// several makes a few rounds of simultaneous requests.
func (c *client) several() {
	for range 1 + c.random.IntN(4) {
		var streams sync.WaitGroup
		var over atomic.Bool
		for range 1 + c.random.IntN(4) {
			q := c.next()
			streams.Go(func() {
				if c.ask(q) {
					over.Store(true)
				}
			})
		}
		streams.Wait()
		if over.Load() || time.Now().After(c.end) {
			return
		}
	}
}

// ask makes a request, and counts its result. It reports whether the client can't use the connection any more.
func (c *client) ask(q *request) (over bool) {
	over, err := c.do(q)
	if c.note(err) {
		c.noteRight()
	}
	return over || err != nil
}

// check compares an answer to the expected one.
func (q *request) check(status int, number string, body []byte) error {
	switch {
	case status >= 400:
		return errStatus(status)
	case status != 200 || number != q.number:
		return fmt.Errorf("%w: %s: status %d, number %q", errWrong, q.target, status, number)
	}
	if err := kit.Compare(body, q.want); err != nil {
		return fmt.Errorf("%w: %s: %w", errWrong, q.target, err)
	}
	return nil
}

// do makes a request, and checks its answer. The result closes says that the client must close the connection afterwards.
func (c *client) do(q *request) (closes bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.Patience)
	defer cancel()
	url := "http://" + c.Plain
	if c.tls {
		url = "https://" + c.TLS
	}
	var body io.Reader
	if q.body != nil {
		if body = bytes.NewReader(q.body); q.unsized {
			body = io.MultiReader(body) // a reader whose length net/http can't find out
		}
	}
	r, err := http.NewRequestWithContext(ctx, q.method, url+q.target, body)
	if err != nil {
		return false, err
	}
	response, err := c.transport.RoundTrip(r)
	if err != nil {
		return true, q.told(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return true, q.told(err)
	}
	return response.Close, q.check(response.StatusCode, response.Header.Get("Number"), content)
}

// told marks an error of net/http as errWrong if it reports a violation of the protocol: invalid frames, or bytes that aren't HTTP/1.1.
func (q *request) told(err error) error {
	if text := err.Error(); strings.Contains(text, "connection error: ") || strings.Contains(text, "malformed") {
		return fmt.Errorf("%w: %s: %w", errWrong, q.target, err)
	}
	return err
}
