package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/filohttp/filo/examples/internal/browser"
)

func do(t *testing.T, tab context.Context, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(tab, actions...); err != nil {
		t.Fatal(err)
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
	poll := chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(longest))
	if _, err := chromedp.Run(tab, poll); err != nil {
		t.Fatalf("%s: %v\n%s", expression, err, js[string](t, tab, `document.body.innerText`))
	}
}

// follow clicks on a link, and waits for the page to which it leads.
func follow(t *testing.T, tab context.Context, link string) {
	t.Helper()
	if _, err := chromedp.RunResponse(tab, chromedp.Click(chromedp.CSS(link))); err != nil {
		t.Fatalf("%s: %v", link, err)
	}
}

// choose waits until the list has a successful trace with this name and number of spans, and follows its link. It must wait, since the list doesn't
// show all traces.
func choose(t *testing.T, tab context.Context, name string, spans int) {
	t.Helper()
	mark := fmt.Sprintf(`(() => {
		const link = [...document.querySelectorAll(".list a")].find((a) => a.textContent.includes(%q) && a.textContent.includes("%d spans") && !a.querySelector(".failed"));
		if (link) link.id = "wanted";
		return Boolean(link);
	})()`, name, spans)
	for deadline := time.Now().Add(longest); !js[bool](t, tab, mark); do(t, tab, chromedp.Reload()) {
		if time.Now().After(deadline) {
			t.Fatalf("there is no %s in the list", name)
		}
	}
	follow(t, tab, "#wanted")
	if got := js[string](t, tab, `document.querySelector("#chosen-name").textContent`); got != name {
		t.Fatalf("the page shows %q, want %q", got, name)
	}
}

// look takes a screenshot if it has a path, and checks that the page isn't wider than the window.
func look(t *testing.T, tab context.Context, width, height int64, scheme, path string) {
	t.Helper()
	options := []chromedp.EmulateViewportOption{}
	if width < 500 {
		options = append(options, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	do(t, tab, chromedp.EmulateViewport(width, height, options...), chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}))
	if got := js[int64](t, tab, `document.documentElement.scrollWidth`); got > width {
		t.Errorf("the page is %d pixels wide, and the window %d", got, width)
	}
	if path != "" {
		browser.Screenshot(t, tab, path)
	}
}

// drawn is an expression that counts the colours in the drawing of the stack.
const drawn = `(() => {
	const canvas = document.querySelector("#stack");
	const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
	return new Set(pixels).size;
})()`

// Under load, the figures of the dashboard change, and it draws the stack of workers.
func TestDashboardMoves(t *testing.T) {
	base, _, _ := start(t, "-load", "150")
	tab := browser.Tab(t)
	do(t, tab, chromedp.EmulateViewport(1440, 1000), chromedp.Navigate(base+"/dashboard/"))
	wait(t, tab, `parseFloat(document.querySelector("#rate").textContent) > 20`)
	first := js[string](t, tab, `document.querySelector("#rate").textContent`)
	wait(t, tab, fmt.Sprintf(`document.querySelector("#rate").textContent !== %q`, first))
	wait(t, tab, drawn+" > 3")
	for _, route := range []string{"/quick", "/users/{id:int}", "/orders/{id:int}", "/export"} {
		wait(t, tab, fmt.Sprintf(`document.querySelector("#routes").textContent.includes(%q)`, route))
	}
	latency := js[string](t, tab, `document.querySelector("#median").textContent`)
	wait(t, tab, fmt.Sprintf(`document.querySelector("#median").textContent !== %q`, latency))
}

// On a phone the dashboard is no wider than the screen, shows whole names, and explains its terms on a tap.
func TestDashboardOnAPhone(t *testing.T) {
	base, _, _ := start(t, "-load", "150")
	tab := browser.Tab(t)
	do(t, tab, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile, chromedp.EmulateTouch), chromedp.Navigate(base+"/dashboard/"))
	for _, route := range []string{"GET /quick", "GET /users/{id:int}", "GET /orders/{id:int}", "GET /export"} {
		for _, table := range []string{"#routes", "#classes"} {
			wait(t, tab, fmt.Sprintf(`[...document.querySelectorAll("%s th")].some((th) => th.innerText === %q && th.scrollWidth <= th.clientWidth)`, table, route))
		}
	}
	if got := js[int64](t, tab, `document.scrollingElement.scrollWidth`); got > 390 {
		t.Errorf("the page is %d pixels wide, and the screen 390", got)
	}
	// A handler that takes some milliseconds isn't called slow.
	wait(t, tab, `[...document.querySelectorAll("#classes .kind")].some((kind) => kind.textContent === "handed off")`)
	if js[bool](t, tab, `/\bslow\b/.test(document.body.innerText)`) {
		t.Error("the page calls a handler slow")
	}
	for words, want := range map[string][]string{
		"workers":     {"ready", "at work", "leads a loop", "started, ended", "refused", "tasks"},
		"connections": {"active", "idle", "parked", "HTTP/2 streams", "HTTP/3"},
		"loops":       {"leaders", "handed off", "retaken"},
		"scheduler":   {"wait", "pause"},
		"classes":     {"quick", "handed off", "new", "inline, offload", "median"},
	} {
		box := "#" + words + "-words"
		do(t, tab, chromedp.Click(chromedp.CSS(`[popovertarget="`+words+`-words"]`)), chromedp.WaitVisible(chromedp.CSS(box)))
		if got := js[[]string](t, tab, fmt.Sprintf(`[...document.querySelectorAll("%s dt")].map((dt) => dt.innerText)`, box)); !slices.Equal(got, want) {
			t.Errorf("of %s it explains %q, want %q", words, got, want)
		}
		if !js[bool](t, tab, fmt.Sprintf(`(box => box.left >= 0 && box.right <= 390)(document.querySelector("%s").getBoundingClientRect())`, box)) {
			t.Errorf("what is said of %s is wider than the screen", words)
		}
		do(t, tab, chromedp.KeyEvent("\x1b"), chromedp.WaitNotVisible(chromedp.CSS(box)))
	}
}

// On a phone the index of the profiles is no wider than the screen, and shows whole lines.
func TestDebugOnAPhone(t *testing.T) {
	base, _, _ := start(t, "-load", "0")
	tab := browser.Tab(t)
	do(t, tab, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile, chromedp.EmulateTouch), chromedp.Navigate(base+"/debug/"))
	if got := js[int64](t, tab, `document.scrollingElement.scrollWidth`); got > 390 {
		t.Errorf("the page is %d pixels wide, and the screen 390", got)
	}
	outside := js[[]string](t, tab, `[...document.querySelectorAll("th, td, li, a")].filter((e) => {
		const box = e.getBoundingClientRect();
		return box.left < 0 || box.right > 390 || box.width < 20;
	}).map((e) => e.innerText)`)
	if len(outside) > 0 {
		t.Errorf("outside of the screen, or too narrow to be read: %q", outside)
	}
	if n := js[int](t, tab, `document.querySelectorAll(".links a").length`); n < 12 {
		t.Errorf("there are %d links to profiles", n)
	}
}

// hasOrder reports whether a list of traces contains a successful trace of an order.
func hasOrder(_ int, body string) bool {
	return regexp.MustCompile(`aria-label="succeeded"></span>\n<span class="name">get order`).MatchString(body)
}

// No link is dead on the front page, the pages of the traces, the dashboard and the page of the profiles.
func TestLinks(t *testing.T) {
	base, _, _ := start(t, "-load", "0")
	get(t, base+"/orders/12")
	getUntil(t, base+"/traces", has(`href="/traces/`))
	tab := browser.Tab(t)
	do(t, tab, chromedp.Navigate(base))
	browser.CheckLinks(t, tab, map[string]int{"/orders/10": 500}) // the page says that this request fails
}

// A user finds a trace, opens it, and expands one of its spans.
func TestTracesInTheBrowser(t *testing.T) {
	base, _, _ := start(t, "-load", "100")
	getUntil(t, base+"/traces", hasOrder)
	tab := browser.Tab(t)
	do(t, tab, chromedp.Navigate(base))
	follow(t, tab, `a[href="/traces"]`)
	choose(t, tab, "get order", 5)
	wait(t, tab, `document.querySelectorAll("rect").length >= 4`)
	// A span doesn't begin before its parent.
	if !js[bool](t, tab, `(() => {
		const [client, server] = [...document.querySelectorAll("rect")].map((r) => r.getBoundingClientRect());
		return client.width > 0 && client.left <= server.left && server.right <= client.right + 1;
	})()`) {
		t.Error("the server's span isn't drawn within the client's")
	}
	do(t, tab, chromedp.Click(chromedp.CSS("details:nth-of-type(2) summary")))
	wait(t, tab, `document.querySelector("details[open] dl").innerText.includes("http.route")`)
}
