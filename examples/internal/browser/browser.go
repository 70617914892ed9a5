// Package browser runs a headless Chromium, with which the tests of the examples check their pages.
//
//	base := start(t)        // first the server, so that it ends after the browser
//	tab := browser.Tab(t)
//	if err := chromedp.Do(tab, chromedp.Navigate(base)); err != nil {
//		t.Fatal(err)
//	}
//
// Errors in a page fail the test: uncaught exceptions, and errors that the page or the browser writes to the console.
package browser

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// limit is the maximum lifetime of a tab. It is long because a browser starts slowly on a busy machine.
const limit = 4 * time.Minute

// Tab starts a browser that ends with the test, and returns a tab of this browser for chromedp. The options in more are further flags for the browser.
// Tab needs chromium, chromium-browser or google-chrome in PATH. If none of them is there, it skips the test or, if FILO_CI is set, fails it.
func Tab(t testing.TB, more ...chromedp.ExecAllocatorOption) context.Context {
	t.Helper()
	path := find(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.WindowSize(1200, 800),
		chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(limit),
		// No animations, so that elements don't move while a test looks for them.
		chromedp.Flag("force-prefers-reduced-motion", true),
		chromedp.Flag("no-sandbox", os.Geteuid() == 0),
	)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewExecAllocator(ctx, append(options, more...)...)
	t.Cleanup(stop) // stop waits until the browser has ended
	console := newConsole(t)
	return open(t, context.WithValue(ctx, consoleKey{}, console), chromedp.WithLogf(console.logf), chromedp.WithErrorf(console.logf))
}

// Another returns a second tab of the same browser, with the same cookies and storage. It is in a separate window, so that both tabs are visible.
func Another(t testing.TB, tab context.Context) context.Context {
	t.Helper()
	return open(t, tab)
}

// open opens a tab. The first tab starts the browser.
func open(t testing.TB, parent context.Context, options ...chromedp.ContextOption) context.Context {
	t.Helper()
	console := consoleOf(parent)
	tab, closeTab := chromedp.NewContext(parent, append(options, chromedp.WithListener(console.listen))...)
	t.Cleanup(func() {
		console.complete(tab)
		closeTab()
	})
	// Make the page behave as if it had the focus, even when another page has it.
	focus := func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
		return err
	}
	if err := chromedp.Do(tab, chromedp.Func(focus)); err != nil {
		t.Fatalf("opening a tab: %v", err)
	}
	return tab
}

// find returns the browser's path.
func find(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("FILO_CI") != "" {
		t.Fatal("there is no chromium; `make deps` installs it")
	}
	t.Skip("there is no chromium; `make deps` installs it")
	return ""
}

// Screenshot writes a screenshot of the tab to a PNG file, if the environment variable FILO_SCREENSHOTS is 1. The path is relative to
// the repository's root, which is two folders above each example.
func Screenshot(t testing.TB, tab context.Context, path string) {
	t.Helper()
	if os.Getenv("FILO_SCREENSHOTS") != "1" {
		return
	}
	png, err := chromedp.Run(tab, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatalf("taking a screenshot: %v", err)
	}
	if err := os.WriteFile(filepath.Join("../..", path), png, 0o644); err != nil {
		t.Fatal(err)
	}
}
