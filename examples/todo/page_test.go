package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/filohttp/filo/examples/internal/browser"
)

// On a phone, the page can be used to add, tick, filter and delete todos, and it shows why a todo is refused.
func TestPageInTheBrowser(t *testing.T) {
	base := startNew(t)
	tab := browser.Tab(t)
	do := func(actions ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		if err := chromedp.Do(tab, actions...); err != nil {
			t.Fatal(err)
		}
	}
	wait := func(expression string) {
		t.Helper()
		if _, err := chromedp.Run(tab, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(time.Minute))); err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
	}
	shows := func(want string) {
		t.Helper()
		wait(fmt.Sprintf(`[...document.querySelectorAll("#todos li")].map((li) => (li.querySelector("input").checked ? "x " : "") + li.innerText.trim()).join(", ") === %q`, want))
	}
	narrow := func() {
		t.Helper()
		if got, err := chromedp.Run(tab, chromedp.Evaluate[int](`document.scrollingElement.scrollWidth`)); err != nil || got > 390 {
			t.Errorf("the page is %d pixels wide, and the screen 390; %v", got, err)
		}
		if cut, err := chromedp.Run(tab, chromedp.Evaluate[int](`[...document.querySelectorAll("article")].filter((e) => e.scrollWidth > e.clientWidth).length`)); err != nil || cut > 0 {
			t.Errorf("%d tables are wider than the screen; %v", cut, err)
		}
	}
	do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile, chromedp.EmulateTouch), chromedp.Navigate(base))
	wait(`document.querySelector("#empty").innerText === "Nothing to do yet."`)
	for _, title := range []string{"Water the plants", "Call Grandma", "Post the letter", "Book the ferry"} {
		do(chromedp.SendKeys(chromedp.CSS("#title"), title+"\r"))
		wait(fmt.Sprintf(`document.querySelector("#todos").innerText.includes(%q) && document.querySelector("#title").value === ""`, title))
	}
	do(chromedp.Click(chromedp.CSS("#todos li:nth-child(2) input")))
	wait(`document.querySelector("#counts").textContent === "3 open, 1 done"`)
	do(chromedp.Click(chromedp.CSS("#todos li:nth-child(4) input")))
	wait(`document.querySelector("#counts").textContent === "2 open, 2 done"`)
	shows("Book the ferry, x Post the letter, Call Grandma, x Water the plants")
	narrow()
	browser.Screenshot(t, tab, "docs/todo-phone.png")
	do(chromedp.EmulateViewport(720, 520))
	browser.Screenshot(t, tab, "docs/todo.png")
	do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile, chromedp.EmulateTouch))

	do(chromedp.Click(chromedp.CSS("#filters label:nth-of-type(2)")))
	shows("Book the ferry, Call Grandma")
	do(chromedp.Click(chromedp.CSS("#todos li:first-child .delete")))
	shows("Call Grandma")

	// A title of blanks counts as empty.
	browser.Allow(tab, "status of (400|422)")
	do(chromedp.SendKeys(chromedp.CSS("#title"), "   \r"))
	wait(`!document.querySelector("#error").hidden && document.querySelector("#error").innerText.includes("title")`)
	shows("Call Grandma")
	browser.CheckLinks(t, tab, nil)

	do(chromedp.Navigate(base + "/docs"))
	narrow()
}
