package exchange

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/internal/logtest"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/servertest"
)

// jsonError is an error type, as in some libraries, whose MarshalJSON returns text for clients.
type jsonError struct{ cause string }

func (e jsonError) Error() string                { return e.cause }
func (e jsonError) MarshalJSON() ([]byte, error) { return json.Marshal("no details") }

// A log in JSON contains the cause of a failure, as a text log does. Clients don't see the cause.
func TestLogOfCause(t *testing.T) {
	const cause = `pq: relation "users" doesn't exist`
	withCause := &filo.HTTPError{Status: 503, Detail: "try later", Title: "Busy", Extensions: map[string]any{"retry": 5}, Err: errors.New(cause)}
	for sentence, err := range map[string]error{
		"an HTTPError":                          withCause,
		"a wrapped one":                         fmt.Errorf("loading: %w", withCause),
		"joined ones":                           errors.Join(withCause, errors.New("another")),
		"an error with MarshalJSON":             jsonError{cause},
		"a cause with MarshalJSON":              &filo.HTTPError{Status: 500, Err: jsonError{cause}},
		"a status that isn't one of an error's": &filo.HTTPError{Status: 200, Err: errors.New(cause)},
		"a long one":                            &filo.HTTPError{Status: 500, Err: errors.New(cause + strings.Repeat("x", 5000))},
	} {
		records, logger := logtest.New(t)
		server := &filo.Server{Logger: logger, LogAllErrors: true, ErrorHandler: filo.ProblemErrorHandler,
			Handler: middleware.AccessLog()(func(c *filo.Ctx) error { return err })}
		answer := servertest.NewServer(t, server).Do(t, "GET /")
		if strings.Contains(string(answer.Body), "relation") {
			t.Errorf("%s: the client gets %q", sentence, answer.Body)
		}
		for _, message := range []string{"handler failed", `"request"`} {
			lines := records.Lines(message)
			if len(lines) != 1 || !strings.Contains(lines[0], `pq: relation \"users\" doesn't exist`) {
				t.Errorf("%s: logged %q", sentence, lines)
			}
		}
	}
}

// Other records with an error, about refused requests, panics and hijacked connections, have the same text in JSON as in a text log.
func TestLogOfErrors(t *testing.T) {
	records, logger := logtest.New(t)
	cause := &filo.HTTPError{Status: 502, Err: jsonError{"the cause"}}
	s := servertest.NewServer(t, &filo.Server{Logger: logger, LogAllErrors: true, Handler: func(c *filo.Ctx) error {
		switch c.Path() {
		case "/panic":
			panic(cause)
		case "/hijack":
			conn, _, err := c.Hijack()
			if err != nil {
				return err
			}
			conn.Close()
			return cause
		}
		c.Logger().Error("the program's own", "error", cause)
		return c.NoContent()
	}})
	for _, request := range []string{"GET /panic HTTP/1.1\r\nHost: a\r\n\r\n", "GET /hijack HTTP/1.1\r\nHost: a\r\n\r\n", "GET /own HTTP/1.1\r\nHost: a\r\n\r\n", "GET\r\n\r\n"} {
		s.Raw(t, request)
	}
	for _, want := range []string{`"panic in handler","value":"502 Bad Gateway: the cause"`, `taken the connection over","error":"502 Bad Gateway: the cause"`,
		`"the program's own","error":"502 Bad Gateway: the cause"`, `"request refused","error":"400 Bad Request: `} {
		filotest.Await(t, "a record with "+want, func() bool { return len(records.Lines(want)) == 1 }) // one record is logged only after the connection's end
	}
}

// The records about a server's start and end have durations with units, even in JSON.
func TestLogOfDurations(t *testing.T) {
	records, logger := logtest.New(t)
	s := filotest.Serve(t, &filo.Server{Handler: filotest.NewGate().Handle, Logger: logger, ReadTimeout: time.Minute, IdleTimeout: 1500 * time.Millisecond},
		filotest.Listen(t, "tcp", "127.0.0.1:0"))
	s.Dial(t).Get("/")
	filotest.Await(t, "the listener to be served", func() bool { return len(records.Lines("serving")) == 1 })
	if err := s.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"read_timeout":"1m0s","idle_timeout":"1.5s"`, `"draining"`, `s","connections_cut":0`} {
		if len(records.Lines(want)) != 1 {
			t.Errorf("there is no record with %s in %q", want, records.Lines(""))
		}
	}
}

// LogValue of an HTTPError returns the text of Error.
func TestHTTPErrorLogValue(t *testing.T) {
	err := &filo.HTTPError{Status: 404, Detail: "no such user", Err: errors.New("sql: no rows")}
	if value := slog.AnyValue(err).Resolve(); value.Kind() != slog.KindString || value.String() != err.Error() {
		t.Errorf("got %v", value)
	}
}
