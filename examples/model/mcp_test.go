package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// mcpSession is an MCP session that sends the protocol's messages itself, since the SDK's client hides how it resumes streams.
type mcpSession struct {
	*site
	id string
}

const mcpVersion = "2025-11-25" // the last version whose streams can be resumed

func (s *site) mcp(t *testing.T) *mcpSession {
	t.Helper()
	m := &mcpSession{site: s}
	response := m.post(t, 200, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+mcpVersion+
		`","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	m.id = response.Header.Get("Mcp-Session-Id")
	io.Copy(io.Discard, response.Body)
	response.Body.Close()
	m.post(t, 202, `{"jsonrpc":"2.0","method":"notifications/initialized"}`).Body.Close()
	return m
}

func (m *mcpSession) fields(more ...string) []string {
	fields := append([]string{"Content-Type", "application/json", "Accept", "application/json, text/event-stream", "Mcp-Protocol-Version", mcpVersion}, more...)
	if m.id != "" {
		fields = append(fields, "Mcp-Session-Id", m.id)
	}
	return fields
}

func (m *mcpSession) post(t *testing.T, status int, message string) *http.Response {
	t.Helper()
	return m.do(t, status, "POST", "/mcp", message, m.fields()...)
}

// call calls the tool with request ID 2, and returns the events of the answer.
func (m *mcpSession) call(t *testing.T) *events {
	t.Helper()
	return newEvents(m.post(t, 200, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask","arguments":{"prompt":"hello"},"_meta":{"progressToken":"p"}}}`))
}

func (m *mcpSession) resume(t *testing.T, status int, lastID string) *events {
	t.Helper()
	return newEvents(m.do(t, status, "GET", "/mcp", "", m.fields("Last-Event-ID", lastID)...))
}

// wantData reads an event whose data contains a text, and returns its ID.
func (e *events) wantData(t *testing.T, text string) (id string) {
	t.Helper()
	got, err := e.next()
	if err != nil || !strings.Contains(got.data, text) || got.id == "" {
		t.Fatalf("got %+v, error %v, want %s", got, err, text)
	}
	return got.id
}

// The answer to a call begins with an event that has only an ID, and then streams the tokens. It can be resumed after the last event, but only in its
// own session.
func TestMCPResumed(t *testing.T) {
	each(t, options{}, time.Minute, func(t *testing.T, s *site) {
		m := s.mcp(t)
		e := m.call(t)
		prime, err := e.next()
		if err != nil || prime.id == "" || prime.data != "" {
			t.Fatalf("the first event is %+v, error %v", prime, err)
		}
		s.model.say(t, "one ")
		id := e.wantData(t, `"one "`)
		e.close()
		s.model.say(t, "two")
		m.resumeWhenFree(t, id, func(e *events) {
			e.wantData(t, `"two"`)
			close(s.model.tokens)
			e.wantData(t, "one two")
		})
		other := s.mcp(t)
		other.resume(t, 400, id)
		m.resumeWhenFree(t, prime.id, func(e *events) {
			if e.wantData(t, `"one "`) != id {
				t.Error("an event has two IDs")
			}
		})
	})
}

// resumeWhenFree resumes a stream once the server has noticed that the previous connection is lost. Until then the SDK answers 409.
func (m *mcpSession) resumeWhenFree(t *testing.T, id string, read func(*events)) {
	t.Helper()
	var response *http.Response
	await(t, "the end of the lost connection", func() bool {
		response = m.send(t, "GET", "/mcp", "", m.fields("Last-Event-ID", id)...)
		if response.StatusCode == 409 {
			response.Body.Close()
		}
		return response.StatusCode != 409
	})
	if response.StatusCode != 200 {
		t.Fatalf("resuming: %s", response.Status)
	}
	read(newEvents(response))
}

// After the duration hold, the server closes a call's connection with a retry field, and the client reconnects for the rest.
func TestMCPRetry(t *testing.T) {
	each(t, options{hold: 20 * time.Millisecond}, time.Minute, func(t *testing.T, s *site) {
		m := s.mcp(t)
		e := m.call(t)
		prime, _ := e.next()
		if closing, err := e.next(); err != nil || closing.retry != "1000" {
			t.Fatalf("got %+v, error %v, want a retry", closing, err)
		}
		if _, err := e.next(); err != io.EOF {
			t.Errorf("behind the retry: %v", err)
		}
		s.model.say(t, "one") // the head of a resumed stream is sent with its first event
		m.resumeWhenFree(t, prime.id, func(e *events) {
			e.wantData(t, `"one"`)
			close(s.model.tokens)
			e.wantData(t, `"text":"one"`)
		})
	})
}

// The SDK's client gets the tokens as progress notifications. When it cancels the call, the model's work ends.
func TestMCPCancelled(t *testing.T) {
	each(t, options{}, time.Minute, func(t *testing.T, s *site) {
		progress := make(chan string, 10)
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, request *mcp.ProgressNotificationClientRequest) {
				progress <- request.Params.Message
			},
		})
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: s.base + "/mcp", HTTPClient: s.client}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			params := &mcp.CallToolParams{Name: "ask", Arguments: question{"hello"}}
			params.SetProgressToken("p")
			_, err := session.CallTool(ctx, params)
			ended <- err
		}()
		s.model.say(t, "one ")
		if got := <-progress; got != "one " {
			t.Errorf("progress %q", got)
		}
		left := time.Now()
		cancel()
		if err := <-ended; err == nil {
			t.Error("the call that was cancelled has no error")
		}
		await(t, "the end of the model's work", func() bool { return s.model.running.Load() == 0 })
		t.Logf("the model's work ended %v after the call was cancelled", time.Since(left))
	})
}

// A shutdown waits for calls, but not for a client that only listens.
func TestMCPDeploy(t *testing.T) {
	each(t, options{}, time.Minute, func(t *testing.T, s *site) {
		m := s.mcp(t)
		listening := newEvents(m.do(t, 200, "GET", "/mcp", "", m.fields()...))
		e := m.call(t)
		e.next()
		s.deploy()
		if _, err := listening.next(); err != io.EOF {
			t.Errorf("the client that listens: %v", err)
		}
		s.model.say(t, "one")
		e.wantData(t, `"one"`)
		close(s.model.tokens)
		e.wantData(t, `"text":"one"`)
		e.close()
		s.client.CloseIdleConnections()
		if err := <-s.ended; err != nil {
			t.Errorf("the server: %v", err)
		}
	})
}
