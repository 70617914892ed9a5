package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/filohttp/filo/examples/internal/sitetest"
)

// patience is how long a test waits for anything.
const patience = time.Minute

// asProgram makes the test binary behave as the example itself, for the test that sends a signal.
const asProgram = "FILO_CHAT_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// start runs the example on a free port, and returns its address. It ends with the test.
func start(t *testing.T) (base string) {
	base, _ = startAt(t, "127.0.0.1:0")
	return base
}

// startAt runs the example at an address. It ends with the test, or when stop is called.
func startAt(t *testing.T, addr string) (base string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stdout, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-addr", addr}, out)
		out.CloseWithError(err)
		done <- err
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("run ended before it listened: %v", err)
	}
	go io.Copy(io.Discard, stdout)
	stop = sync.OnceFunc(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run returned %v", err)
		}
	})
	t.Cleanup(stop)
	return strings.TrimSpace(strings.TrimPrefix(line, "listening on ")), stop
}

// get sends a GET, and returns the answer and its body.
func get(t *testing.T, url string, fields ...string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		request.Header.Set(fields[i], fields[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func parse[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

func TestPageIsSafe(t *testing.T) {
	base := start(t)
	for path, want := range map[string]struct{ contentType, text string }{
		"/":            {"text/html; charset=utf-8", `<form id="say"`},
		"/chat.css":    {"text/css; charset=utf-8", "light-dark("},
		"/chat.js":     {"text/javascript; charset=utf-8", "sessionStorage"},
		"/socket.js":   {"text/javascript; charset=utf-8", "new WebSocket"},
		"/feed.js":     {"text/javascript; charset=utf-8", "new EventSource"},
		"/messages.js": {"text/javascript; charset=utf-8", "textContent"},
		"/favicon.svg": {"image/svg+xml", "<svg"},
	} {
		response, body := get(t, base+path)
		h := response.Header
		if response.StatusCode != 200 || h.Get("Content-Type") != want.contentType || !strings.Contains(body, want.text) {
			t.Errorf("%s: got %d %s %q", path, response.StatusCode, h.Get("Content-Type"), body)
		}
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Referrer-Policy": "no-referrer", "Cache-Control": "no-cache",
		} {
			if h.Get(name) != value {
				t.Errorf("%s: %s is %q, want %q", path, name, h.Get(name), value)
			}
		}
		// Nothing is loaded from another server: the only URL is the name of an XML namespace.
		for _, url := range regexp.MustCompile(`(https?:)?//[\w-]+\.[\w.-]+[^\s"']*`).FindAllString(body, -1) {
			if url != "http://www.w3.org/2000/svg" {
				t.Errorf("%s has the URL %s", path, url)
			}
		}
		// The page never treats what visitors write as markup.
		if markup := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b`).FindString(body); markup != "" {
			t.Errorf("%s has %s", path, markup)
		}
		again, body := get(t, base+path, "If-None-Match", h.Get("ETag"))
		if again.StatusCode != 304 || body != "" {
			t.Errorf("%s again: got %d %q", path, again.StatusCode, body)
		}
	}
	for _, path := range []string{"/page/", "/main.go", "/rooms", "/rooms/lobby"} {
		if response, _ := get(t, base+path); response.StatusCode != 404 {
			t.Errorf("%s: got %d, want 404", path, response.StatusCode)
		}
	}
}

func TestWrongArguments(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"an argument":     {[]string{"lobby"}, `unexpected argument "lobby"`},
		"an unknown flag": {[]string{"-room", "x"}, "not defined"},
		"a wrong address": {[]string{"-addr", "127.0.0.1:x"}, "unknown port"},
	} {
		err := run(t.Context(), tc.args, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

// On SIGTERM the program ends without an error, WebSockets are closed with 1001, and feeds end cleanly.
func TestSignal(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no signals")
	}
	cmd := exec.Command(os.Args[0], "-addr", "127.0.0.1:0")
	// A build with the race detector sleeps for a second before it exits, unless told otherwise.
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	base := strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
	ada := enter(t, base, "lobby", "Ada", 0)
	watch := follow(t, base, "lobby")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := ada.read(); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the socket ended with %v, want 1001", err)
	}
	if rest, err := io.ReadAll(watch); err != nil {
		t.Errorf("the feed ended with %q, %v", rest, err)
	}
	io.Copy(io.Discard, lines)
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// A page of another site whose name was made to resolve to this server can't read from it (DNS rebinding).
func TestHosts(t *testing.T) {
	base := start(t)
	sitetest.Hosts(t, base+"/rooms/lobby/messages")
}
