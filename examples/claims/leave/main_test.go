package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/filohttp/filo/examples/internal/program"
)

func TestTheClaim(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-v"}, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{"POST /users {}", " 422 ", `{"hello":"gopher"}`, "PASS: all 20 answers"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &out)
		}
	}
}

// The servers really are different: a malformed request gets filo's own answer from one, and net/http's from the other.
func TestWhoServes(t *testing.T) {
	answers := make(map[string]bool)
	for _, serve := range []func(context.Context, net.Listener) error{byFilo, byNetHTTP} {
		address, stop, err := program.Background(serve)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, "malformed\r\n\r\n")
		answer, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
			t.Errorf("got %q, %v", answer, err)
		}
		answers[string(answer)] = true
	}
	if len(answers) != 2 {
		t.Errorf("both answer %v", answers)
	}
}

func TestUnlike(t *testing.T) {
	same := answer{200, map[string]string{"Date": "now", "Etag": `"1"`}, "body"}
	for _, test := range []struct {
		other answer
		want  string
	}{
		{answer{200, map[string]string{"Date": "later", "Etag": `"1"`}, "body"}, ""},
		{answer{201, same.fields, "body"}, "the status"},
		{answer{200, same.fields, "another"}, "the body"},
		{answer{200, map[string]string{"Etag": `"1"`}, "body"}, `Date "now", ""`},
		{answer{200, map[string]string{"Date": "now", "Etag": `"2"`}, "body"}, `Etag "\"1\"", "\"2\""`},
	} {
		if got := same.unlike(&test.other); got != test.want {
			t.Errorf("%v: got %q, want %q", test.other, got, test.want)
		}
	}
}

func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"-serve", "127.0.0.1:0"}, out) }()
	said := make([]byte, 100)
	n, err := in.Read(said)
	if err != nil || !strings.HasPrefix(string(said[:n]), "net/http serves the application on http://127.0.0.1:") {
		t.Errorf("said %q, %v", said[:n], err)
	}
	in.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("run returned %v", err)
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"more"}, {"-none"}, {"-serve", "nowhere"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("run takes %q", args)
		}
	}
}
