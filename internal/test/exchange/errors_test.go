package exchange

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

var errAnswerSecret = errors.New("secret: password=hunter2")

// The answer has the status of the handler's error. Text that isn't meant for the client isn't sent.
func TestErrorStatus(t *testing.T) {
	for _, test := range []struct {
		rule string
		err  error
		want string
	}{
		{"an HTTPError gives its status, and its detail is shown", filo.Error(404, "no such file"), "404 Not Found: no such file\n"},
		{"without a detail the status says it all", filo.Error(404, ""), "404 Not Found\n"},
		{"a wrapped HTTPError counts", fmt.Errorf("opening: %w", filo.Error(409, "in use")), "409 Conflict: in use\n"},
		{"one of joined errors counts", errors.Join(errAnswerSecret, filo.Error(410, "")), "410 Gone\n"},
		{"other errors are a 500, and their text isn't shown", errAnswerSecret, "500 Internal Server Error\n"},
		{"the cause is never shown", &filo.HTTPError{Status: 502, Detail: "upstream", Err: errAnswerSecret}, "502 Bad Gateway: upstream\n"},
		{"a status that isn't an error's is a 500", filo.Error(200, "secret"), "500 Internal Server Error\n"},
		{"a status that isn't an error's is a 500", filo.Error(302, "secret"), "500 Internal Server Error\n"},
		{"a status that isn't one is a 500", filo.Error(0, "secret"), "500 Internal Server Error\n"},
		{"a status that isn't one is a 500", filo.Error(600, "secret"), "500 Internal Server Error\n"},
		{"a status without a name", filo.Error(499, ""), "499 Status 499\n"},
		{"a panic is a 500, and its text isn't shown", errAnswerPanic("secret"), "500 Internal Server Error\n"},
		{"a panic with an error is a 500", errAnswerPanicError{errAnswerSecret}, "500 Internal Server Error\n"},
		{"panic(nil) is a panic", errAnswerPanicNil{}, "500 Internal Server Error\n"},
	} {
		m := answerRequest(t, func(c *filo.Ctx) error {
			c.Response.SetStatus(202)
			c.Response.WriteString("begun")
			switch err := test.err.(type) {
			case errAnswerPanic:
				panic(string(err))
			case errAnswerPanicError:
				panic(err.error)
			case errAnswerPanicNil:
				panic(nil)
			}
			return test.err
		}, filotest.GetRequest)
		if got := fmt.Sprint(m.Status, " ", m.Body); got != test.want {
			t.Errorf("%s: got %q, want %q", test.rule, got, test.want)
		}
		if m.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s: Content-Type %q", test.rule, m.Get("Content-Type"))
		}
	}
}

// In a test's err, these types make the handler panic.
type (
	errAnswerPanic      string
	errAnswerPanicError struct{ error }
	errAnswerPanicNil   struct{}
)

func (e errAnswerPanic) Error() string  { return string(e) }
func (errAnswerPanicNil) Error() string { return "nil" }

// "The previous body is dropped. Header fields that the handler set stay, except those that describe the body".
func TestErrorKeepsFields(t *testing.T) {
	m := answerRequest(t, func(c *filo.Ctx) error {
		for _, name := range []string{"Content-Type", "Content-Length", "Content-Encoding", "Content-Range", "Content-Disposition",
			"Content-Language", "Content-Location", "Content-Digest", "Repr-Digest", "Digest", "Content-MD5", "ETag", "Last-Modified", "X-Kept", "Set-Cookie", "Retry-After"} {
			c.Response.Header.Set(name, "7")
		}
		c.Response.SetBodyString("dropped")
		return filo.Error(503, "later")
	}, filotest.GetRequest)
	for _, name := range []string{"X-Kept", "Set-Cookie", "Retry-After"} {
		if m.Get(name) != "7" {
			t.Errorf("%s is %q, want the handler's", name, m.Get(name))
		}
	}
	for _, name := range []string{"Content-Encoding", "Content-Range", "Content-Disposition", "Content-Language", "Content-Location", "Content-Digest",
		"Repr-Digest", "Digest", "Content-MD5", "ETag", "Last-Modified"} {
		if m.Count(name) != 0 {
			t.Errorf("%s describes a body that isn't sent", name)
		}
	}
	if m.Body != "Service Unavailable: later\n" {
		t.Errorf("body %q", m.Body)
	}
}

// RFC 9457, section 3: a client that prefers JSON gets problem details. RFC 9110, section 12.5.1, says which clients prefer JSON.
func TestErrorByAccept(t *testing.T) {
	for _, test := range []struct {
		accept string
		json   bool
	}{
		{"", false},
		{"*/*", false},
		{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", false},
		{"application/json", true},
		{"application/problem+json", true},
		{"Application/JSON", true},
		{"application/*", true},
		{"text/plain", false},
		{"application/json;q=0.9, text/plain;q=0.8", true},
		{"application/json;q=0.8, text/plain;q=0.9", false},
		{"application/json; q=0.8 , text/plain ; q=0.9", false},
		{"text/*;q=0.5, */*;q=0.8", true},
		{"application/json, */*", false},
		{"application/json, */*;q=0.1", true},
		{"application/json;q=0, */*", false},
		{"text/plain;q=0, */*", true},
		{"text/plain;q=0, */*;q=0", false},
		{"application/json;q=high", false},
		{"application/json;q=2", false},
		{"application/json;q=-1", false},
		{"application/json;q=NaN", false},
		{"application/json;version=1;q=0.5", true},
		{"image/png", false},
		{",,;;,application/json,,", true},
		{"application/jsonx, json, application", false},
	} {
		m := answerRequest(t, func(c *filo.Ctx) error { return filo.Error(404, "gone") },
			"GET / HTTP/1.1\r\nHost: a\r\nAccept: "+test.accept+"\r\n\r\n")
		want, wantType := "Not Found: gone\n", "text/plain; charset=utf-8"
		if test.json {
			want, wantType = `{"detail":"gone","status":404,"title":"Not Found"}`+"\n", "application/problem+json"
		}
		if m.Body != want || m.Get("Content-Type") != wantType || m.Status != 404 {
			t.Errorf("Accept %q: got %d %q %q, want %q", test.accept, m.Status, m.Get("Content-Type"), m.Body, want)
		}
	}
	m := answerRequest(t, func(c *filo.Ctx) error { return filo.Error(404, "") },
		"GET / HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\nAccept: application/json\r\n\r\n")
	if m.Get("Content-Type") != "application/problem+json" {
		t.Errorf("two Accept fields are one list (RFC 9110, section 5.3): got %q", m.Get("Content-Type"))
	}
}

// A client without a preference gets the format of its request's body, or else the default of the server's ErrorHandler.
func TestErrorWithoutPreference(t *testing.T) {
	const axios = "Accept: application/json, text/plain, */*"
	for _, test := range []struct {
		name, fields   string
		json, problems bool // with DefaultErrorHandler, and with ProblemErrorHandler
	}{
		{"no Accept", "", false, true},
		{"*/*", "Accept: */*", false, true},
		{"axios", axios, false, true},
		{"a browser", "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", false, true},
		{"text", "Accept: text/plain", false, false},
		{"text rather than JSON", "Accept: application/json;q=0.5, text/*", false, false},
		{"JSON was sent", "Content-Type: application/json", true, true},
		{"JSON was sent, with a parameter", "Content-Type: Application/JSON; charset=utf-8", true, true},
		{"a JSON type was sent", "Content-Type: application/merge-patch+json", true, true},
		{"curl", "Accept: */*\r\nContent-Type: application/json", true, true},
		{"axios with a body", axios + "\r\nContent-Type: application/json", true, true},
		{"JSON was sent, and text is wanted", "Accept: text/plain\r\nContent-Type: application/json", false, false},
		{"a form", "Accept: */*\r\nContent-Type: application/x-www-form-urlencoded", false, true},
		{"a type that ends alike", "Content-Type: application/xjson", false, true},
		{"no type", "Content-Type: +json", false, true},
	} {
		request := "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n" + strings.TrimPrefix(test.fields+"\r\n", "\r\n") + "\r\n{}"
		for _, handler := range []struct {
			name string
			f    func(*filo.Ctx, error)
			json bool
		}{{"none", nil, test.json}, {"DefaultErrorHandler", filo.DefaultErrorHandler, test.json}, {"ProblemErrorHandler", filo.ProblemErrorHandler, test.problems}} {
			h := filotest.ServeMemory(t, &filo.Server{ErrorHandler: handler.f, Handler: func(*filo.Ctx) error { return filo.Error(422, "x") }})
			c := h.Connect(t)
			c.Send(t, request)
			m := c.Receive(t, "POST")
			if got := m.Get("Content-Type") == "application/problem+json"; got != handler.json || m.Status != 422 {
				t.Errorf("%s, %s: %d %q %q", test.name, handler.name, m.Status, m.Get("Content-Type"), m.Body)
			}
		}
	}
}

// If the handler has set a JSON Content-Type, the error is sent as JSON, because the client evidently reads JSON.
func TestErrorOfJSONAnswer(t *testing.T) {
	for accept, want := range map[string]string{"*/*": "application/problem+json", "text/plain": "text/plain; charset=utf-8"} {
		h := filotest.ServeMemory(t, &filo.Server{Handler: func(c *filo.Ctx) error {
			c.Response.Header.Set("Content-Type", "application/json; charset=utf-8")
			return filo.Error(409, "x")
		}})
		c := h.Connect(t)
		c.Send(t, "GET / HTTP/1.1\r\nHost: a\r\nAccept: "+accept+"\r\n\r\n")
		if m := c.Receive(t, "GET"); m.Get("Content-Type") != want || m.Status != 409 {
			t.Errorf("Accept %s: %d %q", accept, m.Status, m.Get("Content-Type"))
		}
	}
}

// If the status of an HTTPError isn't an error status, the answer is a 500, and the log gives the reason.
func TestHTTPErrorWithoutErrorStatus(t *testing.T) {
	for _, status := range []int{0, 200, 302, 600} {
		log := &answerLog{}
		h := filotest.ServeMemory(t, &filo.Server{Logger: log.logger(), Handler: func(*filo.Ctx) error { return filo.Error(status, "done") }})
		if got := h.Raw(t, filotest.GetRequest); !strings.HasPrefix(got, "HTTP/1.1 500 ") {
			t.Errorf("%d: %q", status, got)
		}
		if got := log.all(); len(got) != 1 || !strings.Contains(got[0], "an HTTPError must have a status of 400 to 599, and is answered with 500: ") {
			t.Errorf("%d: logged %q", status, got)
		}
	}
}

// RFC 9457, sections 3.1 and 3.2, define the members of problem details.
func TestProblemDetails(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		want string
	}{
		{"all", &filo.HTTPError{Status: 403, Detail: "Your balance is 30", Type: "https://example.com/credit", Title: "No credit",
			Instance: "/account/1", Extensions: map[string]any{"balance": 30}, Err: errAnswerSecret},
			`{"balance":30,"detail":"Your balance is 30","instance":"/account/1","status":403,"title":"No credit","type":"https://example.com/credit"}`},
		{"none", filo.Error(418, ""), `{"status":418,"title":"Status 418"}`},
		{"an extension can't take a member's name", &filo.HTTPError{Status: 403, Detail: "d", Extensions: map[string]any{"status": 200, "title": "x", "detail": "y"}},
			`{"detail":"d","status":403,"title":"Forbidden"}`},
		{"not an HTTPError", errAnswerSecret, `{"status":500,"title":"Internal Server Error"}`},
	} {
		m := answerRequest(t, func(c *filo.Ctx) error { return test.err }, "GET / HTTP/1.1\r\nHost: a\r\nAccept: application/json\r\n\r\n")
		if m.Body != test.want+"\n" || !json.Valid([]byte(m.Body)) {
			t.Errorf("%s: got %s, want %s", test.name, m.Body, test.want)
		}
	}
	// If extensions can't be encoded, the error is sent as text.
	m := answerRequest(t, func(c *filo.Ctx) error {
		return &filo.HTTPError{Status: 403, Detail: "d", Extensions: map[string]any{"f": func() {}}}
	}, "GET / HTTP/1.1\r\nHost: a\r\nAccept: application/json\r\n\r\n")
	if m.Status != 403 || m.Body != "Forbidden: d\n" {
		t.Errorf("got %d %q", m.Status, m.Body)
	}
}

func TestErrorText(t *testing.T) {
	cause := errors.New("cause")
	err := &filo.HTTPError{Status: 404, Detail: "no such file", Err: cause}
	if got := err.Error(); got != "404 Not Found: no such file: cause" || !errors.Is(err, cause) {
		t.Errorf("got %q", got)
	}
	if got := filo.Error(404, "").Error(); got != "404 Not Found" {
		t.Errorf("got %q", got)
	}
	panicked := &filo.PanicError{Value: cause}
	if got := panicked.Error(); got != "panic in handler: cause" || !errors.Is(panicked, cause) {
		t.Errorf("got %q", got)
	}
	if (&filo.PanicError{Value: 1}).Unwrap() != nil {
		t.Error("a value that is no error was unwrapped")
	}
}

// An ErrorHandler may use the whole Ctx, and the server sends whatever answer it makes.
func TestErrorHandler(t *testing.T) {
	long := strings.Repeat("0123456789", 2000)
	for _, test := range []struct {
		name   string
		answer func(c *filo.Ctx)
		want   string
	}{
		{"Text", func(c *filo.Ctx) { c.Text(418, "tea") }, "418 tea"},
		{"JSON", func(c *filo.Ctx) { c.JSON(418, "tea") }, "418 \"tea\"\n"},
		{"nothing", func(c *filo.Ctx) {}, "200 handler's"},
		{"Stream", func(c *filo.Ctx) { c.Stream().WriteString("tea") }, "200 tea"},
		{"Stream with Flush", func(c *filo.Ctx) { c.Stream().WriteString("tea"); c.Stream().Flush() }, "200 tea"},
		{"large Stream", func(c *filo.Ctx) { c.Stream().WriteString(long) }, "200 " + long},
		{"SetBodyStream", func(c *filo.Ctx) { c.Response.SetBodyStream(strings.NewReader(long), -1) }, "200 " + long},
		{"the default one", func(c *filo.Ctx) { filo.DefaultErrorHandler(c, filo.Error(409, "d")) }, "409 Conflict: d\n"},
		{"panic", func(c *filo.Ctx) { panic("no") }, "500 Internal Server Error\n"},
		{"panic with a stream begun", func(c *filo.Ctx) { c.Stream().WriteString("begun"); panic("no") }, "500 Internal Server Error\n"},
	} {
		for name, fail := range map[string]func(c *filo.Ctx) error{
			"error":           func(c *filo.Ctx) error { c.Response.SetBodyString("handler's"); return errAnswerSecret },
			"panic":           func(c *filo.Ctx) error { c.Response.SetBodyString("handler's"); panic(errAnswerSecret) },
			"stream not sent": func(c *filo.Ctx) error { c.Stream().WriteString("dropped"); return errAnswerSecret },
		} {
			if test.name == "nothing" && name == "stream not sent" {
				continue // the result isn't documented
			}
			t.Run(test.name+"/"+name, func(t *testing.T) {
				var got error
				h := filotest.ServeMemory(t, &filo.Server{Handler: fail, Logger: filotest.Quiet, ErrorHandler: func(c *filo.Ctx, err error) {
					got = err
					test.answer(c)
				}})
				c := h.Connect(t)
				for range 2 { // the connection stays usable
					c.Send(t, filotest.GetRequest)
					m := c.Receive(t, "GET")
					if answer := fmt.Sprint(m.Status, " ", m.Body); answer != test.want {
						t.Errorf("got %.60q, want %.60q", answer, test.want)
					}
				}
				var panicError *filo.PanicError
				if !errors.Is(got, errAnswerSecret) || errors.As(got, &panicError) != (name == "panic") {
					t.Errorf("the ErrorHandler got a %T: %v", got, got)
				}
				if panicError != nil && !bytes.Contains(panicError.Stack, []byte("errors_test.go")) {
					t.Errorf("the stack doesn't show where the panic was: %s", panicError.Stack)
				}
			})
		}
	}
}

// If an ErrorHandler panics after the head was sent, the server aborts the answer without sending a second head.
func TestErrorHandlerPanicsAfterItsHead(t *testing.T) {
	h := filotest.ServeMemory(t, &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error { return errAnswerSecret },
		ErrorHandler: func(c *filo.Ctx, err error) {
			c.Stream().WriteString("tea")
			c.Stream().Flush()
			panic("no")
		}})
	c := h.Connect(t)
	c.Send(t, filotest.GetRequest)
	all, err := io.ReadAll(c)
	if err != nil || strings.Count(string(all), "HTTP/1.1 ") != 1 || !strings.HasSuffix(string(all), "\r\n\r\n3\r\ntea\r\n") {
		t.Errorf("got %q, %v, want a head, a chunk and the end", all, err)
	}
}

// ErrAbort, as the handler's error or its panic, wrapped or not, "closes the connection without an answer or a log record".
func TestAbort(t *testing.T) {
	for name, fail := range map[string]func(c *filo.Ctx) error{
		"returned":         func(c *filo.Ctx) error { return filo.ErrAbort },
		"wrapped":          func(c *filo.Ctx) error { return fmt.Errorf("x: %w", filo.ErrAbort) },
		"panicked":         func(c *filo.Ctx) error { panic(filo.ErrAbort) },
		"panicked wrapped": func(c *filo.Ctx) error { panic(fmt.Errorf("x: %w", filo.ErrAbort)) },
		"with an answer":   func(c *filo.Ctx) error { c.Text(200, "dropped"); return filo.ErrAbort },
		"with a stream":    func(c *filo.Ctx) error { c.Stream().WriteString("dropped"); return filo.ErrAbort },
	} {
		t.Run(name, func(t *testing.T) {
			log := &answerLog{}
			filotest.EachHost(t, func() *filo.Server {
				return &filo.Server{Handler: fail, Logger: log.logger(), ErrorHandler: func(*filo.Ctx, error) {
					t.Error("the ErrorHandler was called")
				}}
			}, func(t *testing.T, h *filotest.Host) {
				c := h.Connect(t)
				c.Send(t, filotest.GetRequest)
				if all, _ := io.ReadAll(c); len(all) > 0 { // the end may be a reset
					t.Errorf("got %q", all)
				}
			})
			if records := log.all(); len(records) > 0 {
				t.Errorf("logged %q", records)
			}
		})
	}
}

// After a panic, the server answers with 500, logs the panic with its stack, and continues to use the worker and the connection. If a handler
// ends its goroutine with Goexit, the server answers with 500, and closes the connection.
func TestPanicsAndGoexit(t *testing.T) {
	for _, test := range []struct {
		name   string
		fail   func()
		goesOn bool
		record string
	}{
		{"panic", func() { panic("boom") }, true, "panic in handler value=boom method=GET path=/fail"},
		{"panic with a runtime error", func() { zero := len(os.Args) * 0; zero /= zero }, true, "panic in handler value=runtime error: integer divide by zero"},
		{"panic(nil), which package runtime lets through", func() { panic(nil) }, true, "panic in handler value=<nil> method=GET path=/fail"},
		{"Goexit", answerGoexit, false, "the handler ended its goroutine method=GET path=/fail"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("GODEBUG", "panicnil=1")
			log := &answerLog{}
			filotest.EachHost(t, func() *filo.Server {
				return &filo.Server{Logger: log.logger(), Handler: func(c *filo.Ctx) error {
					if c.Path() == "/fail" {
						test.fail()
					}
					return c.Text(200, "fine")
				}}
			}, func(t *testing.T, h *filotest.Host) {
				other := h.Connect(t)
				other.Send(t, filotest.GetRequest)
				other.Receive(t, "GET")
				for range 3 {
					c := h.Connect(t)
					c.Send(t, "GET /fail HTTP/1.1\r\nHost: a\r\n\r\n")
					m := c.Receive(t, "GET")
					if m.Status != 500 || m.Body != "Internal Server Error\n" || (m.Get("Connection") == "close") == test.goesOn {
						t.Errorf("got %d %q, Connection %q", m.Status, m.Body, m.Get("Connection"))
					}
					if test.goesOn {
						c.Send(t, filotest.GetRequest)
						c.Receive(t, "GET")
						c.Close()
						continue
					}
					c.WantEnd(t)
				}
				other.Send(t, filotest.GetRequest)
				if m := other.Receive(t, "GET"); m.Body != "fine" {
					t.Errorf("the other connection got %q", m.Body)
				}
				other.Close()
				filotest.Await(t, "the books to be right", func() bool {
					stats := h.Config.Stats()
					return stats.ConnsOpen == 0 && stats.WorkersRunning == 0 &&
						stats.WorkersSpawned-stats.WorkersRetired == uint64(stats.WorkersReady+stats.WorkersLeading)
				})
				if stats := h.Config.Stats(); stats.Requests[5] != 3 {
					t.Errorf("%d answers of class 5, want 3", stats.Requests[5])
				}
			})
			records := log.all()
			if len(records) != 6 || !strings.Contains(records[0], test.record) {
				t.Errorf("logged %q, want one record for each, with %q", records, test.record)
			}
			if strings.HasPrefix(test.name, "panic") && !strings.Contains(records[0], "errors_test.go") {
				t.Errorf("the record has no stack: %q", records[0])
			}
		})
	}
}

// After a Goexit, the server reads the bytes that the client has already sent before it closes the connection. Otherwise the kernel would
// send a reset, which could destroy the answer.
func TestGoexitWithABodyOnItsWay(t *testing.T) {
	h := filotest.ServeSocket(t, &filo.Server{Handler: func(c *filo.Ctx) error { answerGoexit(); return nil }})
	for range 10 {
		c := h.Connect(t)
		c.Send(t, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n")
		if _, err := io.WriteString(c, strings.Repeat("x", 200_000)); err != nil {
			t.Errorf("sending the body: %v", err)
		}
		if m := c.Receive(t, "POST"); m.Status != 500 {
			t.Errorf("got %d", m.Status)
		}
		c.WantEnd(t)
	}
}

// The server always logs its own failures. It logs clients' mistakes only with LogAllErrors. It logs nothing twice.
func TestErrorsLogged(t *testing.T) {
	for _, test := range []struct {
		err  error
		all  bool
		want string // of the only record, "" for none
	}{
		{errAnswerSecret, false, "ERROR handler failed error=" + errAnswerSecret.Error() + " status=500"},
		{&filo.HTTPError{Status: 503, Err: errAnswerSecret}, false, "ERROR handler failed error=503 Service Unavailable: " + errAnswerSecret.Error()},
		{filo.Error(404, "x"), false, ""},
		{filo.Error(404, "x"), true, "handler failed error=404 Not Found: x"},
	} {
		log := &answerLog{}
		h := filotest.ServeMemory(t, &filo.Server{Logger: log.logger(), LogAllErrors: test.all, Handler: func(c *filo.Ctx) error { return test.err }})
		c := h.Connect(t)
		c.Send(t, filotest.GetRequest)
		c.Receive(t, "GET")
		records := log.all()
		if test.want == "" && len(records) > 0 || test.want != "" && (len(records) != 1 || !strings.Contains(records[0], test.want)) {
			t.Errorf("%v: logged %q, want %q", test.err, records, test.want)
		}
	}
}

// The status that an ErrorHandler chooses decides whether an error is the server's failure: a 404 isn't logged, and a 503 is.
func TestErrorsLoggedByTheirAnswer(t *testing.T) {
	for _, test := range []struct {
		err    error
		status int
		logged bool
	}{
		{fs.ErrNotExist, 404, false},
		{fs.ErrNotExist, 503, true},
		{filo.Error(404, ""), 503, true},
		{filo.Error(503, ""), 404, false},
	} {
		log := &answerLog{}
		h := filotest.ServeMemory(t, &filo.Server{Logger: log.logger(), Handler: func(c *filo.Ctx) error { return test.err },
			ErrorHandler: func(c *filo.Ctx, err error) { c.Text(test.status, "mapped") }})
		c := h.Connect(t)
		c.Send(t, filotest.GetRequest)
		if m := c.Receive(t, "GET"); m.Status != test.status {
			t.Errorf("got %d, want %d", m.Status, test.status)
		}
		if records := log.all(); (len(records) == 1) != test.logged || len(records) > 1 {
			t.Errorf("%v answered with %d: logged %q", test.err, test.status, records)
		}
	}
}

// If the client has disconnected, the error isn't a failure of the server, in whatever form the handler returns it.
func TestErrorsOfAClientThatIsGone(t *testing.T) {
	const body = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nbegun"
	wait := func(c *filo.Ctx) context.Context {
		ctx := c.Context()
		<-ctx.Done()
		return ctx
	}
	for _, test := range []struct {
		name, request string
		handler       filo.Handler
		logged        bool
	}{
		{"its cause", filotest.GetRequest, func(c *filo.Ctx) error { return context.Cause(wait(c)) }, false},
		{"context.Canceled, as calls with the context return it", filotest.GetRequest, func(c *filo.Ctx) error { return fmt.Errorf("query: %w", wait(c).Err()) }, false},
		{"the body's error", body, func(c *filo.Ctx) error { _, err := c.Body(); return err }, false},
		{"the reader's error", body, func(c *filo.Ctx) error { _, err := io.ReadAll(c.BodyReader()); return err }, false},
		{"EarlyHints", filotest.GetRequest, func(c *filo.Ctx) error { wait(c); return c.EarlyHints() }, false},
		{"Upgrade", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", func(c *filo.Ctx) error {
			wait(c)
			_, _, err := c.Upgrade("x")
			return err
		}, false},
		{"Flush", filotest.GetRequest, func(c *filo.Ctx) error { wait(c); return c.Stream().Flush() }, false},
		{"100-continue", strings.Replace(body, "\r\n\r\nbegun", "\r\nExpect: 100-continue\r\n\r\n", 1), func(c *filo.Ctx) error {
			time.Sleep(2 * time.Second)
			_, err := c.Body()
			return err
		}, false},
		{"context.Canceled of something else", filotest.GetRequest, func(c *filo.Ctx) error { return context.Canceled }, true},
		{"an error of its own", filotest.GetRequest, func(c *filo.Ctx) error { wait(c); return errAnswerSecret }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &answerLog{}
				s := servertest.NewServer(t, &filo.Server{Logger: log.logger(), Handler: test.handler})
				c := s.Dial(t)
				io.WriteString(c, test.request)
				time.Sleep(time.Second)
				c.Reset()
				synctest.Wait()
				if records := log.all(); (len(records) > 0) != test.logged {
					t.Errorf("logged %q", records)
				}
			})
		})
	}
}

// A failure isn't sent with the caching fields that the handler has set for its intended answer, but Content-Range with the complete length
// stays. If a directive forbids caching, the failure also forbids it, because a failure may be meant for one client only.
func TestErrorKeepsNoPromises(t *testing.T) {
	for _, test := range []struct {
		status      int
		name, value string
		want        string // of Cache-Control
	}{
		{500, "Cache-Control", "public", "no-store"},
		{503, "Cache-Control", "private, max-age=60", "no-store"},
		{400, "Cache-Control", "private, max-age=60", "no-store"},
		{500, "Cache-Control", "PUBLIC", "no-store"},
		{412, "Cache-Control", "public", "no-store"},
		{500, "Cache-Control", "Max-Age=60", "no-store"},
		{500, "Cache-Control", "s-maxage=60", "no-store"},
		{400, "Cache-Control", "s-maxage=60", "no-store"},
		{500, "Cache-Control", "no-transform\nmax-age=60", "no-store"},
		{404, "Cache-Control", "no-store, max-age=0", "no-store"},
		{500, "Expires", "Fri, 01 Jan 2100 00:00:00 GMT", "no-store"},
		{404, "Expires", "Fri, 01 Jan 2100 00:00:00 GMT", "no-store"},
		{404, "Expires", "0", "no-store"},
		{500, "Cache-Control", "no-store", "no-store"},
		{404, "Cache-Control", "private", "private"},
		{404, "Cache-Control", "no-cache", "no-cache"},
		{404, "Cache-Control", "max-age=5", "no-store"},
		{404, "X-Other", "max-age=5", ""},
		// These are targeted fields (RFC 9213): the caches that they name obey them instead of Cache-Control.
		{500, "CDN-Cache-Control", "max-age=60", "no-store"},
		{404, "cdn-cache-control", "max-age=60\npublic", "no-store"},
		{404, "CDN-Cache-Control", "no-store", "no-store"},
		{404, "Cloudflare-CDN-Cache-Control", "max-age=60", "no-store"},
		{503, "Surrogate-Control", "max-age=60", "no-store"},
		{404, "X-Cache-Controls", "max-age=5", ""},
	} {
		h := filotest.ServeMemory(t, &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
			for value := range strings.SplitSeq(test.value, "\n") {
				c.Response.Header.Add(test.name, value)
			}
			return filo.Error(test.status, "")
		}})
		c := h.Connect(t)
		c.Send(t, filotest.GetRequest)
		m := c.Receive(t, "GET")
		if m.Status != test.status || m.Get("Cache-Control") != test.want || m.Get("Expires") != "" {
			t.Errorf("%d with %s %q: Cache-Control %q, Expires %q", m.Status, test.name, test.value, m.Get("Cache-Control"), m.Get("Expires"))
		}
		if dropped := !strings.HasPrefix(test.name, "X-") && test.name != "Cache-Control"; (m.Get(test.name) == "") != dropped {
			t.Errorf("%d with %s %q: it is %q", m.Status, test.name, test.value, m.Get(test.name))
		}
	}
	for _, test := range []struct {
		status      int
		name, value string
		want        string
	}{
		{416, "Content-Range", "bytes */10", "bytes */10"},
		{500, "Content-Range", "bytes 0-1/10", ""},
	} {
		h := filotest.ServeMemory(t, &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
			c.Response.Header.Set(test.name, test.value)
			return filo.Error(test.status, "")
		}})
		c := h.Connect(t)
		c.Send(t, filotest.GetRequest)
		if m := c.Receive(t, "GET"); m.Status != test.status || m.Get(test.name) != test.want {
			t.Errorf("%d with %s %q: %q", m.Status, test.name, test.value, m.Get(test.name))
		}
	}
}

// X-Content-Type-Options keeps browsers from interpreting an error's text as a page or a script, because the text may contain parts of the request.
func TestErrorNoSniff(t *testing.T) {
	for _, accept := range []string{"*/*", "application/json"} {
		for _, status := range []int{400, 404, 500} {
			h := filotest.ServeMemory(t, &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error { return filo.Error(status, "<script>") }})
			c := h.Connect(t)
			c.Send(t, "GET / HTTP/1.1\r\nHost: a\r\nAccept: "+accept+"\r\n\r\n")
			if m := c.Receive(t, "GET"); m.Status != status || m.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%d for %s: %q", status, accept, m.Fields)
			}
		}
	}
}

// The format of an error depends on Accept, and caches may store some errors without explicit permission (RFC 9110, section 15.1). So the
// server adds the fields on which the answer depends to the handler's Vary, without duplicates.
func TestErrorsVary(t *testing.T) {
	for _, test := range []struct {
		why      string
		set      []string
		problems bool // by ProblemErrorHandler
		want     string
	}{
		{"alone", nil, false, "Accept"},
		{"an API's errors, too", nil, true, "Accept"},
		{"beside the handler's", []string{"Origin"}, false, "Origin, Accept"},
		{"not twice", []string{"Origin, accept"}, false, "Origin, accept"},
		{"not if it is in another line", []string{"Accept", "Origin"}, false, "Accept, Origin"},
		{"Accept-Language is another field", []string{"Accept-Language"}, false, "Accept-Language, Accept"},
		{"a star is all", []string{"*"}, false, "*"},
	} {
		for _, status := range []int{400, 404, 405, 410, 414, 500, 501} {
			s := &filo.Server{Logger: filotest.Quiet, Handler: func(c *filo.Ctx) error {
				for _, value := range test.set {
					c.Response.Header.Add("Vary", value)
				}
				return filo.Error(status, "x")
			}}
			if test.problems {
				s.ErrorHandler = filo.ProblemErrorHandler
			}
			host := servertest.NewServer(t, s)
			for _, accept := range []string{"text/plain", "application/json", "*/*"} {
				got := host.Do(t, "GET /", "Accept: "+accept)
				if vary := strings.Join(got.Header.Values("Vary"), ", "); got.Status != status || vary != test.want {
					t.Errorf("%s: %d for %s: got %d with Vary %q, want %q", test.why, status, accept, got.Status, vary, test.want)
				}
			}
		}
	}
}

// If an error or the value of a panic contains a long text of a client, the log record is still short.
func TestLoggedErrorsAreShort(t *testing.T) {
	client := strings.Repeat("a\x00", 4<<10)
	for name, handler := range map[string]filo.Handler{
		"an error":                   func(*filo.Ctx) error { return fmt.Errorf("invalid value: %s", client) },
		"an error behind the answer": func(c *filo.Ctx) error { c.Stream().Flush(); return errors.New(client) },
		"a panic":                    func(*filo.Ctx) error { panic("invalid value: " + client) },
		"an error of one that has hijacked": func(c *filo.Ctx) error {
			conn, _, err := c.Hijack()
			if err == nil {
				conn.Close()
			}
			return fmt.Errorf("%w: %s", filo.ErrHijacked, client)
		},
	} {
		var log filotest.Log
		server := &filo.Server{Handler: handler, LogAllErrors: true, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		s := servertest.NewServer(t, server)
		conn, err := s.Listener.Dial()
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, servertest.Request("GET /", "", "Connection: close"))
		io.Copy(io.Discard, conn)
		conn.Close()
		server.Shutdown(context.Background())
		filotest.Await(t, name+" in the log", func() bool { return strings.Contains(log.String(), "level=ERROR") }) // logged by the hijacker's goroutine
		for line := range strings.Lines(log.String()) {
			if line, _, _ = strings.Cut(line, " stack="); len(line) > 2<<10 {
				t.Errorf("%s: a record takes %d bytes", name, len(line))
			}
		}
	}
}
