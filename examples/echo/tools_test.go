package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
)

// These tests run commands that a user would type. `make deps` installs the tools.

// tool returns a command that ends shortly after the test at the latest. If the tool isn't installed, it skips the test or, if FILO_CI is set, fails
// it.
func tool(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("FILO_CI") != "" {
			t.Fatalf("%s isn't installed; `make deps` installs it", name)
		}
		t.Skipf("%s isn't installed; `make deps` installs it", name)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.WaitDelay = time.Second
	return cmd
}

// output runs the command with the given input and returns its standard output.
func output(t *testing.T, cmd *exec.Cmd, stdin string) string {
	t.Helper()
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s%s", cmd.Args, err, out, &stderr)
	}
	return string(out)
}

func TestCurl(t *testing.T) {
	r := start(t)
	cases := []struct {
		name, stdin string
		args        []string
		want        string
	}{
		{"GET", "", []string{r.base + "/hello"}, "Hello, World! 200"},
		{"HTTP/1.0", "", []string{"--http1.0", r.base + "/hello"}, "Hello, World! 200"},
		{"two on one connection", "", []string{r.base + "/hello", r.base + "/hello"}, "Hello, World! 200Hello, World! 200"},
		{"POST", "", []string{"-d", "so long", r.base + "/echo"}, "so long 200"},
		{"chunked", "so long", []string{"-X", "POST", "-T", "-", r.base + "/echo"}, "so long 200"},
		{"POST of HTTP/1.0", "", []string{"--http1.0", "-d", "so long", r.base + "/echo"}, "so long 200"},
		{"Expect", "", []string{"-H", "Expect: 100-continue", "-d", "so long", r.base + "/echo"}, "so long 200"},
		{"Expect refused", "", []string{"-o", os.DevNull, "-H", "Expect: 100-continue", "-d", "so long", r.base + "/hello"}, " 405"},
		{"HEAD", "", []string{"-o", os.DevNull, "-I", r.base + "/hello"}, " 200"},
		{"HTTP/2", "", []string{"--http2-prior-knowledge", r.base + "/hello", "-w", " %{http_version}"}, "Hello, World! 2"},
		{"POST of HTTP/2", "", []string{"--http2-prior-knowledge", "-d", "so long", r.base + "/echo"}, "so long 200"},
		{"stream of HTTP/2", "so long", []string{"--http2-prior-knowledge", "-X", "POST", "-T", "-", r.base + "/echo"}, "so long 200"},
		{"Expect of HTTP/2", "", []string{"--http2-prior-knowledge", "-H", "Expect: 100-continue", "-d", "so long", r.base + "/echo"}, "so long 200"},
		{"HEAD of HTTP/2", "", []string{"--http2-prior-knowledge", "-o", os.DevNull, "-I", r.base + "/hello"}, " 200"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			args := append([]string{"-sS", "-m", "60", "-w", " %{http_code}"}, tc.args...)
			if got := output(t, tool(t, "curl", args...), tc.stdin); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// curl sends 100 MB from a file: with an announced length, chunked, and over HTTP/1.0.
func TestCurlEchoesAFile(t *testing.T) {
	r := start(t)
	dir := t.TempDir()
	sent, back := filepath.Join(dir, "sent"), filepath.Join(dir, "back")
	f, err := os.Create(sent)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, pattern(100<<20)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"announced": {"-T", sent},
		"chunked":   {"-T", sent, "-H", "Transfer-Encoding: chunked"},
		"HTTP/1.0":  {"-T", sent, "--http1.0"},
		"HTTP/2":    {"-T", sent, "--http2-prior-knowledge"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"-sS", "-m", "300", "--fail", "-X", "POST", "-o", back, r.base + "/echo"}, args...)
			output(t, tool(t, "curl", args...), "")
			if out, err := tool(t, "cmp", sent, back).CombinedOutput(); err != nil {
				t.Errorf("what came back differs: %s", out)
			}
		})
	}
}

// A client that closes its sending side after the request gets its answer, and then the server closes the connection. With -N nc half-closes, and
// without -w it waits until the server closes.
func TestNetcatHalfCloses(t *testing.T) {
	r := start(t)
	host, port, _ := strings.Cut(r.addr, ":")
	for name, request := range map[string]string{
		"GET":     "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n",
		"chunked": "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nd\r\nHello, World!\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			started := time.Now()
			got := output(t, tool(t, "nc", "-N", host, port), request)
			if !strings.HasPrefix(got, "HTTP/1.1 200 OK\r\n") || !strings.HasSuffix(got, "\r\n\r\nHello, World!") {
				t.Errorf("got %q", got)
			}
			// If the server waited for the client, it would wait for at least DefaultReadTimeout.
			if took := time.Since(started); took >= filo.DefaultReadTimeout {
				t.Errorf("the connection was closed after %v, not at once", took)
			}
		})
	}
}

func TestLoadTools(t *testing.T) {
	r := start(t)
	for _, tc := range []struct {
		args         []string
		want, forbid string // regular expressions
	}{
		{[]string{"ab", "-s", "60", "-q", "-k", "-n", "2000", "-c", "16", r.base + "/hello"},
			`Complete requests: +2000\nFailed requests: +0\nKeep-Alive requests: +2000\n`, `Non-2xx`},
		{[]string{"ab", "-s", "60", "-q", "-n", "500", "-c", "16", r.base + "/hello"},
			`Complete requests: +500\nFailed requests: +0\n`, `Non-2xx`},
		{[]string{"wrk", "-t", "1", "-c", "16", "-d", "1s", "--timeout", "60s", r.base + "/hello"},
			`Requests/sec: +[1-9]`, `Socket errors|Non-2xx`},
		{[]string{"wrk", "-t", "1", "-c", "16", "-d", "1s", "--timeout", "60s", "-H", "Connection: close", r.base + "/hello"},
			`Requests/sec: +[1-9]`, `Socket errors|Non-2xx`},
		{[]string{"h2load", "-t", "1", "-c", "4", "-m", "25", "-n", "5000", r.base + "/hello"},
			`requests: 5000 total, 5000 started, 5000 done, 5000 succeeded, 0 failed`, `[1-9]\d* 5xx`},
	} {
		t.Run(strings.Join(tc.args[:len(tc.args)-1], " "), func(t *testing.T) {
			got := output(t, tool(t, tc.args[0], tc.args[1:]...), "")
			if !regexp.MustCompile(tc.want).MatchString(got) || regexp.MustCompile(tc.forbid).MatchString(got) {
				t.Errorf("it reports\n%s", got)
			}
		})
	}
}
