package main

import (
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/filohttp/filo/examples/internal/browser"
)

// The pages fit into windows of any width, and look like the screenshots in docs/. With FILO_SCREENSHOTS=1 the dashboard runs until its charts have
// content.
func TestLooks(t *testing.T) {
	os.Args[0] = "observed" // the page of the profiles shows this name
	base, _, _ := start(t, "-load", "500")
	tab := browser.Tab(t)
	board := browser.Another(t, tab)
	do(t, board, chromedp.EmulateViewport(1440, 1000), chromedp.Navigate(base+"/dashboard/"))

	do(t, tab, chromedp.Navigate(base))
	look(t, tab, 1200, 1000, "light", "")
	look(t, tab, 390, 900, "light", "")

	do(t, tab, chromedp.Navigate(base+"/debug/"))
	look(t, tab, 1000, 990, "light", "docs/debug.png")
	look(t, tab, 390, 844, "light", "docs/debug-phone.png")

	getUntil(t, base+"/traces?order=slowest", hasOrder)
	do(t, tab, chromedp.Navigate(base+"/traces?order=slowest"))
	choose(t, tab, "get order", 5)
	look(t, tab, 1280, 900, "light", "docs/observed.png")
	look(t, tab, 1280, 900, "dark", "")
	look(t, tab, 390, 900, "light", "")

	if os.Getenv("FILO_SCREENSHOTS") == "1" {
		time.Sleep(65 * time.Second)
	}
	js[any](t, board, `document.querySelector("input[value='60']").click(), null`)
	look(t, board, 1440, 1000, "light", "docs/dashboard.png")
	look(t, board, 1440, 1000, "dark", "docs/dashboard-dark.png")
	look(t, board, 390, 844, "light", "")
	js[any](t, board, `document.querySelector("section.classes").scrollIntoView({ block: "end" }), null`)
	look(t, board, 390, 844, "light", "docs/dashboard-phone.png")
}
