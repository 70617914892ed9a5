package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/filohttp/filo/examples/internal/browser"
)

// patience is how long a test waits for anything.
const patience = 2 * time.Minute

// TestMain makes the test binary behave as the example itself when the supervisor starts it as an instance.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-instance" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// start runs the cluster until the test ends, and returns HAProxy's address.
func start(t *testing.T) (base string) {
	t.Helper()
	for _, name := range []string{"redis-server", "haproxy"} {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("FILO_CI") != "" {
				t.Fatalf("there is no %s; `make deps` installs it", name)
			}
			t.Skipf("there is no %s; `make deps` installs it", name)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	stdout, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-addr", "127.0.0.1:0"}, out)
		out.CloseWithError(err)
		done <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run returned %v", err)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("run ended before it listened: %v", err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
}

// Only valid messages are accepted, and each instance answers with its name.
func TestSay(t *testing.T) {
	base := start(t)
	for _, test := range []struct {
		body, key string
		status    int
	}{
		{`{"key":"k","text":"hello"}`, "k", 200},
		{`{"key":"k","text":"hello"}`, "k", 200}, // a repetition gets the answer to the first request
		{`{"key":"k","text":"another"}`, "k", 422},
		{`{"key":"l","text":"hello"}`, "", 400},
		{`{"key":"l"}`, "l", 422},
		{`{"key":"l","text":"` + strings.Repeat("x", 501) + `"}`, "m", 422},
	} {
		request, err := http.NewRequest("POST", base+"/say", strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		if test.key != "" {
			request.Header.Set("Idempotency-Key", test.key)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != test.status {
			t.Errorf("%s: got %d, want %d", test.body, response.StatusCode, test.status)
		}
	}
	response, err := http.Get(base + "/messages")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if got := string(body); err != nil || strings.Count(got, `"key":"k"`) != 1 || strings.Contains(got, `"key":"l"`) {
		t.Errorf("the messages are %s, %v", got, err)
	}
}

// js returns the value of a JavaScript expression.
func js[T any](t *testing.T, tab context.Context, expression string) T {
	t.Helper()
	value, err := chromedp.Run(tab, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// wait waits until a JavaScript expression is true.
func wait(t *testing.T, tab context.Context, expression string) {
	t.Helper()
	poll := chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(patience))
	if _, err := chromedp.Run(tab, poll); err != nil {
		t.Fatalf("%s: %v\n%s", expression, err, js[string](t, tab, `document.body.innerText`))
	}
}

// One page talks and another one listens while the instances are restarted one by one, and then while one of them is killed. No message is lost, and
// none is shown twice. During orderly restarts, no message is received twice either, and no page is told of a gap.
func TestRestarts(t *testing.T) {
	base := start(t)
	talker := browser.Tab(t)
	listener := browser.Another(t, talker)
	// The browser logs requests that a killed instance doesn't answer as errors.
	browser.Allow(talker, `Failed to load resource: (the server responded with a status of (409|502|503)|net::ERR_)`)
	for _, tab := range []context.Context{talker, listener} {
		if err := chromedp.Do(tab, chromedp.Navigate(base)); err != nil {
			t.Fatal(err)
		}
		wait(t, tab, `document.querySelectorAll('.instance[data-state="ready"]').length === 3 && document.cookie.includes("feed=")`)
	}
	js[chromedp.Void](t, talker, `document.getElementById("talk").click()`)
	wait(t, listener, `cluster.counts.shown >= 10`)
	for round, button := range []string{"restart", "kill", "kill", "kill"} {
		js[chromedp.Void](t, talker, `document.getElementById("`+button+`").click()`)
		if round == 0 {
			wait(t, talker, `document.querySelectorAll('.instance[data-state="draining"]').length === 1`)
			browser.Screenshot(t, talker, "docs/cluster.png")
			phone(t, listener)
		}
		for _, tab := range []context.Context{talker, listener} {
			wait(t, tab, `document.body.dataset.rounds >= `+string(rune('1'+round)))
		}
		if round == 0 {
			settle(t, talker, listener)
			for name, tab := range map[string]context.Context{"the talker": talker, "the listener": listener} {
				if got := js[[]int](t, tab, `[cluster.counts.twice, cluster.counts.gaps]`); got[0] != 0 || got[1] != 0 {
					t.Errorf("%s has received %d messages twice, and had %d gaps", name, got[0], got[1])
				}
				if js[int](t, tab, `cluster.counts.reconnects`) == 0 {
					t.Errorf("%s has never reconnected", name)
				}
			}
			t.Logf("restarted one by one: %v", js[map[string]int](t, talker, `cluster.counts`))
			js[chromedp.Void](t, talker, `document.getElementById("talk").click()`)
		}
	}
	settle(t, talker, listener)
	t.Logf("killed thrice: %v; the listener: %v", js[map[string]int](t, talker, `cluster.counts`), js[map[string]int](t, listener, `cluster.counts`))
	if got := js[[]int](t, talker, `[document.documentElement.scrollWidth, innerWidth]`); got[0] > got[1] {
		t.Errorf("the page is %d pixels wide, and the window %d", got[0], got[1])
	}
}

// phone shows the page in a window of a phone's size, and checks that the page isn't wider than the window.
func phone(t *testing.T, tab context.Context) {
	t.Helper()
	if err := chromedp.Do(tab, chromedp.EmulateViewport(390, 800, chromedp.EmulateMobile)); err != nil {
		t.Fatal(err)
	}
	if got := js[int](t, tab, `document.documentElement.scrollWidth`); got > 390 {
		t.Errorf("on a phone the page is %d pixels wide", got)
	}
	browser.Screenshot(t, tab, "docs/cluster-phone.png")
}

// settle stops the talking page, and waits until both pages show exactly its messages.
func settle(t *testing.T, talker, listener context.Context) {
	t.Helper()
	js[chromedp.Void](t, talker, `document.getElementById("talk").click()`)
	wait(t, talker, `cluster.counts.acknowledged === cluster.counts.sent`)
	sent := js[int](t, talker, `cluster.counts.sent`)
	if sent < 20 {
		t.Errorf("only %d messages were sent", sent)
	}
	want := js[string](t, talker, `String(cluster.counts.sent)`)
	for _, tab := range []context.Context{talker, listener} {
		wait(t, tab, `cluster.seen.size === `+want+` && cluster.counts.shown === `+want)
	}
}
