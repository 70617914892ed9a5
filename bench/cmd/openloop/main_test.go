package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/filohttp/filo/bench/internal/openloop"
)

// serve answers with what was asked.
func serve(t *testing.T, withTLS bool) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		switch {
		case err != nil:
		case r.URL.Path == "/missing":
			http.NotFound(w, r)
		case r.URL.Path == "/changing":
			w.Write([]byte(r.RemoteAddr))
		default:
			w.Write([]byte(r.Method + " " + r.URL.RequestURI() + " " + r.Header.Get("X") + " " + string(body)))
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it tells of every client that doesn't trust it
	if withTLS {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server.URL
}

func needLinux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the client needs Linux")
	}
}

func TestRun(t *testing.T) {
	needLinux(t)
	dir := t.TempDir()
	mixed := filepath.Join(dir, "mix.json")
	err := os.WriteFile(mixed, []byte(`[{"name": "quick", "weight": 4, "target": "/q"},
		{"name": "slow", "target": "/s", "header": ["X: y"], "body": "abc"}, {"name": "slow", "target": "/missing", "status": 404}]`), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	short := []string{"-warmup", "0", "-duration", "100ms", "-connections", "4", "-max-lateness", "10s"}
	plain, secure := serve(t, false), serve(t, true)
	for _, c := range []struct {
		rule, args, url string
		want            []string // in the output
		err             string
	}{
		{"an open loop", "-rate 200", plain + "/a?b", []string{"latency", "generator late", "200.0 requests/s asked for"}, ""},
		{"a closed loop", "", plain + "/a", []string{"latency", "4 connections"}, ""},
		{"a body", "-rate 200 -body abc -method PUT -header X:y", plain, []string{"200.0 requests/s asked for"}, ""},
		{"a body of a size", "-rate 200 -body-size 100000 -check length", plain, nil, ""},
		{"a mix", "-rate 240 -requests " + mixed, plain, []string{"quick     16", "slow      8"}, ""},
		{"TLS", "-rate 200 -insecure -tls-resume -per-conn 1", secure, []string{"latency 20"}, ""},
		{"JSON instead of the table", "-rate 200 -json -", plain, []string{`"mode": "open"`, `"answers": 20,`}, ""},
		{"another status", "-rate 200", plain + "/missing", nil, "status 404, not 200"},
		{"a status that is wanted", "-rate 200 -status 404", plain + "/missing", nil, ""},
		{"a status that isn't, found in the run", "-rate 200 -check status", plain + "/missing",
			[]string{"errors: status 20", "other status"}, "20 errors"},
		{"another body", "-rate 200", plain + "/changing", []string{"errors: mismatch"}, "errors"},
		{"the same length", "-rate 200 -check status", plain + "/changing", nil, ""},
		{"a certificate that isn't trusted", "-rate 200", secure, nil, "certificate"},
	} {
		args := append(append([]string{}, short...), strings.Fields(c.args)...)
		var out, messages bytes.Buffer
		err := run(t.Context(), append(args, c.url), &out, &messages)
		if errors.Is(err, errInvalid) {
			err = nil // the machine may have other things to do
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want %q\n%s", c.rule, err, c.err, out.String())
		}
		for _, want := range c.want {
			if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), strings.Join(strings.Fields(want), " ")) {
				t.Errorf("%s: the output lacks %q:\n%s", c.rule, want, out.String())
			}
		}
	}
}

// A file for -json has the whole result.
func TestJSONFile(t *testing.T) {
	needLinux(t)
	name := filepath.Join(t.TempDir(), "result.json")
	err := run(t.Context(), []string{"-json", name, "-rate", "300", "-duration", "100ms", "-warmup", "0", "-max-lateness",
		"10s", serve(t, false)}, io.Discard, io.Discard)
	if err != nil && !errors.Is(err, errInvalid) {
		t.Fatal(err)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var r openloop.Result
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	h, err := r.Latency.Decode()
	if err != nil || h.TotalCount() != 30 || r.Answers != 30 || r.RateAsked != 300 {
		t.Errorf("%+v, histogram of %d, %v", r, h.TotalCount(), err)
	}
}

func TestFlags(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte(`[{"url": "/"}]`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"", "http://a http://b", "ftp://a", "a:1", "-check x http://a", "-rate x http://a",
		"-nothing http://a",
		"-requests /nonexistent http://a", "-requests " + bad + " http://a", "-body-file /nonexistent http://a"} {
		if s, err := parseFlags(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%q is accepted: %+v", args, s)
		}
	}
	for url, want := range map[string]string{"http://h": "h:80", "https://h": "h:443", "ws://h:1": "h:1",
		"wss://[::1]/x": "[::1]:443"} {
		s, err := parseFlags([]string{url}, io.Discard)
		if err != nil || s.options.Address != want || (s.options.TLS != nil) != (strings.HasPrefix(url, "https") ||
			strings.HasPrefix(url, "wss")) || (s.options.WebSocket != nil) != strings.HasPrefix(url, "ws") {
			t.Errorf("%s: %+v, %v; want the address %s", url, s, err, want)
		}
	}
}
