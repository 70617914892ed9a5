package main

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/filohttp/filo/examples/internal/browser"
)

const numbers = `document.querySelector("#now").textContent`

func TestPageInTheBrowser(t *testing.T) {
	r := start(t)
	tab := browser.Tab(t)
	if err := chromedp.Do(tab, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile), chromedp.Navigate(r.base)); err != nil {
		t.Fatal(err)
	}
	if got, err := chromedp.Run(tab, chromedp.Evaluate[int](`document.scrollingElement.scrollWidth`)); err != nil || got > 390 {
		t.Errorf("the page is %d pixels wide, and the screen 390; %v", got, err)
	}
	browser.CheckLinks(t, tab, nil)
	if err := chromedp.Do(tab, chromedp.EmulateViewport(1000, 800)); err != nil {
		t.Fatal(err)
	}
	browser.Screenshot(t, tab, "docs/echo.png")

	// The page updates its numbers, and says so when it no longer can.
	first, err := chromedp.Run(tab, chromedp.Evaluate[string](numbers))
	if err != nil {
		t.Fatal(err)
	}
	waitFor := func(expression string) {
		t.Helper()
		if _, err := chromedp.Run(tab, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(patience))); err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
	}
	waitFor(fmt.Sprintf("%s !== %q", numbers, first))
	browser.Allow(tab, "ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE")
	r.stop()
	waitFor(`document.querySelector("#state").textContent.startsWith("The server doesn’t answer")`)
}

// The page names the driver that serves it. It also shows a command that ends this process, but no other process with the same name.
func TestPageSaysWhatRuns(t *testing.T) {
	for _, tc := range []struct{ args, has, lacks string }{
		{"-leaders=1", "It runs its loop driver", "blocking driver"},
		{"-blocking", "It runs its blocking driver", "loop driver"},
	} {
		if tc.args == "-leaders=1" && runtime.GOOS != "linux" {
			continue
		}
		r := start(t, tc.args)
		_, page := do(t, "GET", r.base, nil)
		if !strings.Contains(page, tc.has) || strings.Contains(page, tc.lacks) || strings.Contains(page, "pkill") {
			t.Errorf("%s: the page doesn't say %q, or says %q or pkill:\n%s", tc.args, tc.has, tc.lacks, page)
		}
	}
}

// Other machines reach the server only if a flag says so.
func TestListensOnThisMachineByDefault(t *testing.T) {
	cfg, err := parseFlags(nil)
	if err != nil || !strings.HasPrefix(cfg.addr, "127.0.0.1:") {
		t.Errorf("it listens on %q by default; %v", cfg.addr, err)
	}
}
