package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/filohttp/filo/examples/internal/browser"
)

// newTab opens the page. It allows errors of requests for uploads that are busy or no longer exist.
func newTab(t *testing.T, base string) context.Context {
	t.Helper()
	tab := browser.Tab(t)
	browser.Allow(tab, `/uploads/.*|status of (404|423)`)
	do(t, tab, chromedp.Navigate(base), chromedp.WaitVisible(chromedp.CSS("#drop")))
	return tab
}

func do(t *testing.T, tab context.Context, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(tab, actions...); err != nil {
		t.Fatal(err)
	}
}

// js returns the value of a JavaScript expression. If that is a promise, js waits for the promise's value.
func js[T any](t *testing.T, tab context.Context, expression string) T {
	t.Helper()
	value, err := chromedp.Run(tab, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
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
		t.Fatalf("%s: %v\n%s", expression, err, js[string](t, tab, `document.querySelector("main").innerText`))
	}
}

// throttle limits how many bytes a second the page sends; -1 means no limit.
func throttle(t *testing.T, tab context.Context, rate float64) {
	t.Helper()
	do(t, tab, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{
			MatchedNetworkConditions: []*network.Conditions{{DownloadThroughput: -1, UploadThroughput: rate}},
		})
		return err
	}))
}

// choose writes a file and makes the page upload it.
func choose(t *testing.T, tab context.Context, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	do(t, tab, chromedp.SetUploadFiles(chromedp.CSS("#chosen"), []string{path}))
}

const progress = `document.querySelector(".upload progress").value`

// An upload progresses, pauses and continues. It also continues after the page was reloaded. In the end the stored file equals the one that was sent.
func TestUploadInTheBrowser(t *testing.T) {
	base := startNew(t)
	tab := newTab(t, base)
	throttle(t, tab, 1<<19) // so that the upload takes long enough
	content := noise(8 << 20)
	path := filepath.Join(t.TempDir(), "A film.mp4")
	choose(t, tab, path, content)
	wait(t, tab, progress+` > 0.02`)
	before := js[float64](t, tab, progress)
	wait(t, tab, fmt.Sprintf("%s > %v", progress, before+0.02))
	wait(t, tab, `/B\/s, .* left/.test(document.querySelector(".rate").textContent)`)

	do(t, tab, chromedp.Click(chromedp.CSS(".toggle")))
	wait(t, tab, `document.querySelector(".upload").dataset.state === "paused"`)
	url := base + js[string](t, tab, `JSON.parse(localStorage.uploads)[0].url`)
	paused := offset(t, url)
	if paused == 0 || paused == len(content) {
		t.Fatalf("%d bytes have come when it pauses", paused)
	}

	js[any](t, tab, recordOffsets)
	do(t, tab, chromedp.Click(chromedp.CSS(".toggle")))
	wait(t, tab, fmt.Sprintf(`%s > %v`, progress, float64(paused)/float64(len(content))+0.02))
	if got := js[[]string](t, tab, `offsets`); len(got) != 1 || got[0] != fmt.Sprint(paused) {
		t.Errorf("it goes on at %v, want %d", got, paused)
	}

	do(t, tab, chromedp.Click(chromedp.CSS(".toggle")))
	wait(t, tab, `document.querySelector(".upload").dataset.state === "paused"`)
	paused = offset(t, url)
	do(t, tab, chromedp.Reload())
	wait(t, tab, `document.querySelector(".upload")?.dataset.state === "lost"`)
	if got, want := js[float64](t, tab, progress), float64(paused)/float64(len(content)); got != want {
		t.Errorf("after loading the page again %v has come, want %v", got, want)
	}
	js[any](t, tab, recordOffsets)
	throttle(t, tab, -1)
	do(t, tab, chromedp.SetUploadFiles(chromedp.CSS("#chosen"), []string{path}))
	wait(t, tab, `document.querySelector(".upload").dataset.state === "done"`)
	if got := js[string](t, tab, `document.querySelector(".percent").textContent`); got != "100 %" {
		t.Errorf("done at %s", got)
	}
	if got := js[[]string](t, tab, `offsets`); len(got) != 1 || got[0] != fmt.Sprint(paused) {
		t.Errorf("it goes on at %v, want %d", got, paused)
	}
	expectInPage(t, tab, "A film.mp4", content)
	expectStored(t, base, "A%20film.mp4", content)
}

// recordOffsets makes the page record the offsets at which its requests begin.
const recordOffsets = `{
	const set = XMLHttpRequest.prototype.setRequestHeader;
	globalThis.offsets = [];
	XMLHttpRequest.prototype.setRequestHeader = function (name, value) {
		if (name === "Upload-Offset") offsets.push(String(value));
		set.call(this, name, value);
	};
	null;
}`

// expectInPage waits until the page lists a file, and downloads the file by the page's link.
func expectInPage(t *testing.T, tab context.Context, name, content string) {
	t.Helper()
	wait(t, tab, fmt.Sprintf(`[...document.querySelectorAll(".file .name")].some((a) => a.textContent === %q)`, name))
	got := js[string](t, tab, fmt.Sprintf(`(async () => {
		const link = [...document.querySelectorAll(".download")].find((a) => a.download === %q);
		const bytes = await (await fetch(link.href)).arrayBuffer();
		return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)).toHex();
	})()`, name))
	if want := sha256.Sum256([]byte(content)); got != hex.EncodeToString(want[:]) {
		t.Errorf("%s isn't what was sent", name)
	}
}

// Files that other clients add and remove appear and disappear without a reload of the page. The page says which files can't be uploaded.
func TestLiveList(t *testing.T) {
	base := startNew(t, "-max-bytes", "1000")
	tab := newTab(t, base)
	wait(t, tab, `!document.querySelector("#empty").hidden`)
	other := browser.Another(t, tab)
	do(t, other, chromedp.Navigate(base))
	choose(t, other, filepath.Join(t.TempDir(), "Grüße.txt"), "hello")
	expectInPage(t, tab, "Grüße.txt", "hello")
	expectInPage(t, other, "Grüße.txt", "hello")

	request(t, "DELETE", base+"/files/Gr%C3%BC%C3%9Fe.txt", nil)
	wait(t, tab, `!document.querySelector("#empty").hidden && document.querySelector("#summary").textContent === "0 files, 0 B"`)

	browser.Allow(tab, `status of 413`)
	choose(t, tab, filepath.Join(t.TempDir(), "large"), noise(1001))
	wait(t, tab, `document.querySelector(".upload").dataset.state === "failed"`)
	if got, want := js[string](t, tab, `document.querySelector(".detail").textContent`), "A file may have 1000 bytes."; got != want {
		t.Errorf("the page says %q, want %q", got, want)
	}
}

// On a phone the page says to tap, since files can't be dropped there, and the whole box can be tapped. The whole date and time of a file is shown,
// in the phone's time zone.
func TestPhone(t *testing.T) {
	base := startNew(t)
	uploadWhole(t, base, "A rather long name of a film in two parts.mp4", noise(123_456))
	tab := browser.Tab(t)
	do(t, tab, chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile, chromedp.EmulateTouch), chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"})
		return err
	}), chromedp.Navigate(base), chromedp.WaitVisible(chromedp.CSS(".file")))
	if got := js[string](t, tab, `document.querySelector("#drop strong").innerText`); got != "Tap to choose files" {
		t.Errorf("the page says %q", got)
	}
	if !js[bool](t, tab, `[...document.querySelectorAll("#drop svg, #drop p, #drop .button")].every((e) => {
		const box = e.getBoundingClientRect();
		return document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2).closest("label") !== null;
	})`) {
		t.Error("a tap on the box chooses no files")
	}
	if got := js[string](t, tab, `document.querySelector("time").innerText`); !strings.HasSuffix(got, " GMT+5:30") || regexp.MustCompile(`\b\d{4}\b`).MatchString(got) {
		t.Errorf("the file's time is %q, want one of this year and with its zone", got)
	}
	if !js[bool](t, tab, `(time => time.scrollWidth <= time.clientWidth)(document.querySelector("time"))`) {
		t.Error("the file's time is cut")
	}
	if got := js[int64](t, tab, `document.scrollingElement.scrollWidth`); got > 390 {
		t.Errorf("the page is %d pixels wide, and the screen 390", got)
	}
	browser.CheckLinks(t, tab, nil)
}

// The page fits into windows of any width, and looks like docs/files.png.
func TestLooks(t *testing.T) {
	base := startNew(t)
	for _, f := range []struct {
		name string
		size int
	}{{"report-2026.pdf", 482_113}, {"Ferien am Meer.jpg", 3_912_004}, {"backup.tar.zst", 21_500_000}} {
		uploadWhole(t, base, f.name, noise(f.size))
	}
	tab := newTab(t, base)
	dir := t.TempDir()
	choose(t, tab, filepath.Join(dir, "interview.flac"), noise(5<<20))
	wait(t, tab, `document.querySelectorAll("[data-state=done]").length === 1`)
	throttle(t, tab, 1<<20)
	choose(t, tab, filepath.Join(dir, "lecture.mp4"), noise(12<<20))
	wait(t, tab, `document.querySelectorAll(".upload progress")[1].value > 0.2`)
	js[any](t, tab, `document.querySelectorAll(".toggle")[1].click(), null`)
	choose(t, tab, filepath.Join(dir, "disk image.iso"), noise(24<<20))
	wait(t, tab, `document.querySelectorAll(".upload progress")[2].value > 0.2`)
	look(t, tab, 1200, 900, "light", "docs/files.png")
	look(t, tab, 1200, 900, "dark", "")
	look(t, tab, 390, 844, "light", "docs/files-phone.png")
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
