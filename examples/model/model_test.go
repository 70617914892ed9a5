package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
)

// slowModel is a model that answers with the tokens from the channel tokens, until the test closes it.
type slowModel struct {
	url     string
	tokens  chan string
	running atomic.Int32 // calls
}

func newSlowModel(t *testing.T) *slowModel {
	m := &slowModel{tokens: make(chan string)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.running.Add(1)
		defer m.running.Add(-1)
		out := json.NewEncoder(w)
		for {
			http.NewResponseController(w).Flush()
			select {
			case token, ok := <-m.tokens:
				if !ok {
					out.Encode(piece{Done: true})
					return
				}
				out.Encode(piece{Token: token})
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	m.url = server.URL
	return m
}

// say sends the model a token, and waits until the model takes it.
func (m *slowModel) say(t *testing.T, token string) {
	t.Helper()
	select {
	case m.tokens <- token:
	case <-time.After(bound):
		t.Fatalf("the model doesn't wait for %q", token)
	}
}

// site is a server behind a front. Its model is a slowModel.
type site struct {
	base   string
	model  *slowModel
	client *http.Client
	deploy context.CancelFunc // shuts the server down, as SIGTERM does
	ended  chan error         // receives the error with which the server ends
}

// each runs a test with each front.
func each(t *testing.T, o options, grace time.Duration, test func(*testing.T, *site)) {
	for _, front := range fronts {
		t.Run(front.name, func(t *testing.T) {
			s := &site{model: newSlowModel(t), ended: make(chan error, 1)}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := newServer(&Model{URL: s.model.url}, o)
			server.GracePeriod, server.Logger = grace, slog.New(slog.DiscardHandler)
			var ctx context.Context
			ctx, s.deploy = context.WithCancel(t.Context())
			go func() { s.ended <- server.RunListener(ctx, l) }()
			t.Cleanup(func() { server.Close() })
			s.base = "http://" + front.start(t, l.Addr().String())
			transport := &http.Transport{}
			t.Cleanup(transport.CloseIdleConnections)
			s.client = &http.Client{Transport: transport}
			test(t, s)
		})
	}
}

// send sends a request with fields, given as alternating names and values.
func (s *site) send(t *testing.T, method, path, body string, fields ...string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		request.Header.Set(fields[i], fields[i+1])
	}
	response, err := s.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

// do is send for a request whose answer must have the status.
func (s *site) do(t *testing.T, status int, method, path, body string, fields ...string) *http.Response {
	t.Helper()
	response := s.send(t, method, path, body, fields...)
	if response.StatusCode != status {
		text, _ := io.ReadAll(response.Body)
		t.Fatalf("%s %s: %s: %s", method, path, response.Status, text)
	}
	return response
}

// ask sends the server a prompt, and returns the path of the answer.
func (s *site) ask(t *testing.T) (path string) {
	t.Helper()
	response := s.do(t, 201, "POST", "/answers", `{"prompt":"hello"}`, "Content-Type", "application/json")
	response.Body.Close()
	return response.Header.Get("Location")
}

// events reads an answer from the event after the one with that ID.
func (s *site) events(t *testing.T, path, lastID string) *events {
	t.Helper()
	var fields []string
	if lastID != "" {
		fields = []string{"Last-Event-ID", lastID}
	}
	return newEvents(s.do(t, 200, "GET", path, "", fields...))
}

type events struct {
	lines *bufio.Scanner
	close func() error
}

type event struct{ id, name, retry, data string }

func newEvents(response *http.Response) *events {
	return &events{bufio.NewScanner(response.Body), response.Body.Close}
}

// next returns the next event. The error is io.EOF at the end of a complete stream.
func (e *events) next() (next event, err error) {
	some := false
	for e.lines.Scan() {
		name, value, _ := strings.Cut(e.lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "":
			if e.lines.Text() == "" && some {
				return next, nil
			}
			continue
		case "id":
			next.id = value
		case "event":
			next.name = value
		case "retry":
			next.retry = value
		case "data":
			next.data += value
		}
		some = true
	}
	if err := e.lines.Err(); err != nil {
		return event{}, err
	}
	return event{}, io.EOF
}

func (e *events) want(t *testing.T, want event) {
	t.Helper()
	if got, err := e.next(); got != want || err != nil {
		t.Fatalf("got %+v, error %v, want %+v", got, err, want)
	}
}

// Each token arrives before the model sends the next one, and the stream ends with an event of type end.
func TestStreamed(t *testing.T) {
	each(t, options{}, time.Minute, func(t *testing.T, s *site) {
		begun := time.Now()
		e := s.events(t, s.ask(t), "")
		s.model.say(t, "one ")
		e.want(t, event{"1", "token", "", "one "})
		t.Logf("the first token after %v", time.Since(begun))
		s.model.say(t, "two")
		e.want(t, event{"2", "token", "", "two"})
		close(s.model.tokens)
		e.want(t, event{name: "end"})
		if _, err := e.next(); err != io.EOF {
			t.Errorf("behind the end: %v", err)
		}
	})
}

// A client that has lost its connection continues where it was, and gets no token twice, even if the answer is complete by then.
func TestResumed(t *testing.T) {
	each(t, options{}, time.Minute, func(t *testing.T, s *site) {
		path := s.ask(t)
		e := s.events(t, path, "")
		s.model.say(t, "one ")
		e.want(t, event{"1", "token", "", "one "})
		e.close()
		s.model.say(t, "two ")
		e = s.events(t, path, "1")
		e.want(t, event{"2", "token", "", "two "})
		s.model.say(t, "three")
		e.want(t, event{"3", "token", "", "three"})
		close(s.model.tokens)
		e.want(t, event{name: "end"})
		e = s.events(t, path, "2")
		e.want(t, event{"3", "token", "", "three"})
		e.want(t, event{name: "end"})
		for _, strange := range []string{"-7", "99", "x"} {
			if got, err := s.events(t, path, strange).next(); err != nil || strange == "-7" && got.id != "1" {
				t.Errorf("Last-Event-ID %q: %+v, %v", strange, got, err)
			}
		}
	})
}

// When the client has left and doesn't reconnect within patience, the model's work ends.
func TestCancelled(t *testing.T) {
	each(t, options{patience: 20 * time.Millisecond}, time.Minute, func(t *testing.T, s *site) {
		path := s.ask(t)
		e := s.events(t, path, "")
		s.model.say(t, "one ")
		e.want(t, event{"1", "token", "", "one "})
		if s.model.running.Load() != 1 {
			t.Fatal("the model isn't at work")
		}
		left := time.Now()
		e.close()
		// If the model sends further tokens, the server notices at once that the client has left. Otherwise that may take 5 seconds, since the
		// connection is new.
		await(t, "the end of the model's work", func() bool {
			select {
			case s.model.tokens <- "more ":
			default:
			}
			return s.model.running.Load() == 0
		})
		t.Logf("the model's work ended %v after the client had left", time.Since(left))
		e = s.events(t, path, "1000000")
		e.want(t, event{name: "failed"})
		if _, err := e.next(); err == nil || err == io.EOF {
			t.Errorf("the answer that was cancelled seems complete: %v", err)
		}
	})
}

// A shutdown waits until an answer is complete.
func TestDeploy(t *testing.T) {
	each(t, options{}, time.Minute, func(t *testing.T, s *site) {
		e := s.events(t, s.ask(t), "")
		s.model.say(t, "one ")
		e.want(t, event{"1", "token", "", "one "})
		s.deploy()
		s.model.say(t, "two")
		e.want(t, event{"2", "token", "", "two"})
		close(s.model.tokens)
		e.want(t, event{name: "end"})
		s.client.CloseIdleConnections()
		if err := <-s.ended; err != nil {
			t.Errorf("the server: %v", err)
		}
	})
}

// An answer that takes longer than a shutdown waits is aborted, so that no client takes it for complete, and the model's work ends.
func TestDeployCuts(t *testing.T) {
	each(t, options{}, 50*time.Millisecond, func(t *testing.T, s *site) {
		e := s.events(t, s.ask(t), "")
		s.model.say(t, "one ")
		e.want(t, event{"1", "token", "", "one "})
		s.deploy()
		got, err := e.next()
		if err == nil && got == (event{name: "failed"}) {
			got, err = e.next()
		}
		if err == nil || err == io.EOF {
			t.Errorf("the answer that was cut: %+v, error %v", got, err)
		}
		var unfinished *filo.UnfinishedError
		if err := <-s.ended; !errors.As(err, &unfinished) {
			t.Errorf("the server: %v", err)
		}
		await(t, "the end of the model's work", func() bool { return s.model.running.Load() == 0 })
	})
}

// The program works without another model, since it has a built-in one that repeats its prompt.
func TestParrot(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out lockedBuffer
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"-addr", "127.0.0.1:0"}, &out) }()
	await(t, "the program", func() bool { return strings.HasSuffix(out.String(), "\n") })
	s := &site{base: strings.TrimSpace(strings.TrimPrefix(out.String(), "listening on ")), client: &http.Client{Transport: &http.Transport{}}}
	if page, _ := io.ReadAll(s.do(t, 200, "GET", "/", "").Body); !bytes.Contains(page, []byte("!asked.ok")) || !bytes.Contains(page, []byte("onerror")) {
		t.Errorf("the page is %s", page)
	}
	e := s.events(t, s.ask(t), "")
	e.want(t, event{"1", "token", "", "hello"})
	e.want(t, event{name: "end"})
	s.client.CloseIdleConnections()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
