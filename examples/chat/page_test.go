package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/filohttp/filo/examples/internal/browser"
)

// tab is a browser tab that shows the page.
type tab struct {
	t   *testing.T
	ctx context.Context
}

func (p tab) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

// open opens the page, in a room.
func (p tab) open(base, room string) {
	p.t.Helper()
	p.do("opening", chromedp.Navigate(base+"/#"+room))
}

// room goes to another room, as a link does.
func (p tab) room(room string) {
	p.t.Helper()
	p.script(`location.hash = ` + quote(room))
}

// join gives the visitor a name.
func (p tab) join(name string) {
	p.t.Helper()
	p.script(`document.querySelector("#name").value = ""`) // the page suggests another tab's name
	p.do("joining", chromedp.SendKeys(chromedp.CSS("#name"), name+"\r"))
	p.waitFor("the connection", `document.querySelector("#status").textContent === "Connected"`)
}

// say types a message, and sends it.
func (p tab) say(text string) {
	p.t.Helper()
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			p.do("beginning a line", chromedp.KeyEvent("\r", chromedp.KeyModifiers(chromedp.ModifierShift)))
		}
		p.do("typing", chromedp.SendKeys(chromedp.CSS("#text"), line))
	}
	p.do("sending", chromedp.SendKeys(chromedp.CSS("#text"), "\r"))
}

// script runs JavaScript.
func (p tab) script(code string) {
	p.t.Helper()
	if _, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](code+"; true")); err != nil {
		p.t.Fatalf("%s: %v", code, err)
	}
}

// text returns the value of an expression of JavaScript.
func (p tab) text(expression string) string {
	p.t.Helper()
	text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return text
}

// shown is an expression for the messages on the page, one per line, each with its author. A line begins with > if the message is the visitor's own,
// and with ~ if the server hasn't confirmed it yet. A gap is the line --.
const shown = `[...document.querySelectorAll("#messages > li")].map(li => li.className === "gap" ? "--" :
	(li.classList.contains("own") ? ">" : "") + (li.classList.contains("waits") ? "~" : "") +
	li.querySelector("bdi").textContent + ": " + li.querySelector(".text").textContent).join("\n")`

// sees waits until the page shows exactly these messages.
func (p tab) sees(messages ...string) {
	p.t.Helper()
	p.waitFor("the messages "+strings.Join(messages, ", "), shown+" === "+quote(strings.Join(messages, "\n")))
}

// waitFor waits until an expression of JavaScript is true.
func (p tab) waitFor(what, expression string) {
	p.t.Helper()
	// Unlike animation frames, a timer also works in a window that is behind other windows.
	poll := chromedp.Poll[bool](expression, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(patience))
	if _, err := chromedp.Run(p.ctx, poll); err != nil {
		p.t.Fatalf("there isn't %s (%v); status %q, notice %q, messages\n%s", what, err,
			p.text(`document.querySelector("#status").textContent`), p.text(`document.querySelector("#notice").textContent`), p.text(shown))
	}
}

// status waits until the page describes its connection in these words.
func (p tab) status(words string) {
	p.t.Helper()
	p.waitFor("the status "+words, `document.querySelector("#status").textContent === `+quote(words))
}

func quote(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Two visitors talk, each in a tab.
func TestTwoPages(t *testing.T) {
	base := start(t)
	ctx := browser.Tab(t)
	ada, ben := tab{t, ctx}, tab{t, browser.Another(t, ctx)}
	ada.open(base, "")
	ada.waitFor("the lobby", `location.hash === "#lobby" && document.querySelector("#room").textContent === "lobby"`)
	ada.join("Ada")
	ben.open(base, "lobby")
	ben.status("Watching")
	ben.join("Ben")
	people := `[...document.querySelectorAll("#people li")].map(li => li.lastChild.textContent + "|" + li.querySelector("bdi").textContent).join(", ")`
	ada.waitFor("both people", people+` === "you|Ada, Ben|Ben" && document.querySelector("#count").textContent === "2"`)
	ben.waitFor("both people", people+` === "Ada|Ada, you|Ben"`)

	ada.say("Good morning! Did you see the heron by the pond?")
	ben.sees("Ada: Good morning! Did you see the heron by the pond?")
	ben.say("Just now. It didn’t even mind the dog.")
	said := []string{"Ada: Good morning! Did you see the heron by the pond?", "Ben: Just now. It didn’t even mind the dog."}
	ada.sees(">"+said[0], said[1])
	ben.sees(said[0], ">"+said[1])

	// A visitor's own messages are marked as their own, on the screen and for screen readers.
	signed := `[...document.querySelectorAll("#messages .who")].map(p => p.innerText.split(/\s/)[0]).join()`
	ada.waitFor("who said what", signed+` === "You,Ben"`)
	ben.waitFor("who said what", signed+` === "Ada,You"`)

	// Text that looks like markup is shown as text.
	markup := `Does <b>bold</b> work here? <img src=x onerror="document.title='bad'">`
	ben.say(markup)
	said = append(said, "Ben: "+markup)
	ada.sees(">"+said[0], said[1], said[2])
	if got := ada.text(`document.querySelectorAll("main img, main b").length + document.title`); got != "0lobby – Chat" {
		t.Errorf("markup became %s", got)
	}

	// A message is shown in its own room only.
	ben.room("Über uns!")
	ben.waitFor("the room", `location.hash === "#uber-uns"`)
	ben.status("Connected")
	ben.sees()
	ben.say("Quiet here.")
	ben.sees(">Ben: Quiet here.")
	ada.waitFor("one person", people+` === "you|Ada"`)
	ada.say("No, markup is only text here.\nThat’s safer, isn’t it?")
	said = append(said, "Ada: No, markup is only text here.\nThat’s safer, isn’t it?")
	ada.sees(">"+said[0], said[1], said[2], ">"+said[3])
	ben.sees(">Ben: Quiet here.")

	// After a return to the room, or a reload of the page, the page shows the history, and still knows which messages are from its visitor.
	ben.room("lobby")
	ben.sees(said[0], ">"+said[1], ">"+said[2], said[3])
	ada.do("loading again", chromedp.Reload())
	ada.status("Connected")
	ada.sees(">"+said[0], said[1], said[2], ">"+said[3])
	cleo := enter(t, base, "lobby", "Cleo", 0)
	cleo.say("Morning, both. Who has the key to the boathouse?", "k")
	ada.sees(">"+said[0], said[1], said[2], ">"+said[3], "Cleo: Morning, both. Who has the key to the boathouse?")
	ada.do("looking at it", chromedp.EmulateViewport(1040, 640))
	browser.Screenshot(t, ada.ctx, "docs/chat.png")
	ada.do("looking at it on a phone", chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile, chromedp.EmulateTouch))
	browser.Screenshot(t, ada.ctx, "docs/chat-phone.png")
	browser.CheckLinks(t, ada.ctx, nil)
}

// A page shows how many new messages there are in its other rooms.
func TestNews(t *testing.T) {
	base := start(t)
	p := tab{t, browser.Tab(t)}
	p.before(`window.EventSource = class extends EventSource { constructor(url) { super(url); this.addEventListener("open", () => { window.opened = url }) } }`)
	p.open(base, "garden")
	p.join("Ada")
	p.room("lobby")
	p.status("Connected")
	ben := enter(t, base, "garden", "Ben", 0)
	// The feed is for all rooms except the one of the WebSocket.
	p.waitFor("the feed", `window.opened === "/feed?room=garden"`)
	ben.say("One", "k1")
	ben.say("Two", "k2")
	const badge = `document.querySelector('#rooms a[href="#garden"] .badge')`
	p.waitFor("the news", badge+`?.textContent === "2"`)
	p.sees()
	p.room("garden")
	p.waitFor("no news of what is seen", badge+` === null`)
	p.sees("Ben: One", "Ben: Two")
}

// When a server is restarted, both pages connect to it, and send the messages that were typed in the meantime.
func TestServerRestarts(t *testing.T) {
	base, stop := startAt(t, "127.0.0.1:0")
	ctx := browser.Tab(t)
	browser.Allow(ctx, "ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_EMPTY_RESPONSE")
	ada, ben := tab{t, ctx}, tab{t, browser.Another(t, ctx)}
	ada.open(base, "lobby")
	ada.join("Ada")
	ben.open(base, "lobby")
	ben.join("Ben")
	ada.say("One")
	ben.sees("Ada: One")

	stop()
	for _, p := range []tab{ada, ben} {
		p.status("Disconnected – trying again")
	}
	ben.say("Two")
	ben.sees("Ada: One", ">~Ben: Two")
	startAt(t, strings.TrimPrefix(base, "http://"))
	for _, p := range []tab{ada, ben} {
		p.status("Connected")
	}
	// There may have been messages that the new server doesn't know.
	ben.sees("Ada: One", "--", ">Ben: Two")
	ada.sees(">Ada: One", "--", "Ben: Two")
	ada.say("Three")
	ben.sees("Ada: One", "--", ">Ben: Two", "Ada: Three")
}

// A gap is shown once, although the feed and then the WebSocket report it.
func TestGapIsShownOnce(t *testing.T) {
	base, stop := startAt(t, "127.0.0.1:0")
	ctx := browser.Tab(t)
	browser.Allow(ctx, "ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_EMPTY_RESPONSE")
	p := tab{t, ctx}
	p.open(base, "lobby")
	p.join("Ada")
	p.say("One")
	p.sees(">Ada: One")
	p.script(`window.allowed = WebSocket; window.WebSocket = class { constructor() { setTimeout(() => this.onclose({ code: 1006, reason: "" })) } close() {} }`)
	stop()
	p.status("Disconnected – trying again")
	startAt(t, strings.TrimPrefix(base, "http://"))
	p.status("Reading only")
	p.sees(">Ada: One", "--")
	p.script(`window.WebSocket = allowed`)
	p.status("Connected")
	p.sees(">Ada: One", "--")
}

// A page reconnects after its connection has broken, and gets the messages that were sent in between.
func TestConnectionBreaks(t *testing.T) {
	base := start(t)
	p := tab{t, browser.Tab(t)}
	// Record the WebSockets that the page opens, so that the test can break them.
	p.before(`window.sockets = []; window.WebSocket = class extends WebSocket { constructor(url) { super(url); sockets.push(this) } }`)
	p.open(base, "lobby")
	p.join("Ada")
	ben := enter(t, base, "lobby", "Ben", 0)
	ben.say("One", "k1")
	p.sees("Ben: One")
	p.script(`window.blocked = WebSocket; window.WebSocket = class { constructor() { setTimeout(() => this.onclose({ code: 1006, reason: "" })) } close() {} }; sockets.at(-1).close()`)
	ben.say("Two", "k2")
	ben.say("Three", "k3")
	// Without WebSockets the page gets messages from the feed.
	p.status("Reading only")
	p.sees("Ben: One", "Ben: Two", "Ben: Three")
	ben.say("Four", "k4")
	p.sees("Ben: One", "Ben: Two", "Ben: Three", "Ben: Four")
	p.say("Do you hear me?")
	p.sees("Ben: One", "Ben: Two", "Ben: Three", "Ben: Four", ">~Ada: Do you hear me?")
	p.script(`window.WebSocket = blocked`)
	p.status("Connected")
	p.sees("Ben: One", "Ben: Two", "Ben: Three", "Ben: Four", ">Ada: Do you hear me?")

	// If the server doesn't answer, the page first calls its connection slow, and then gives it up.
	p.script(`sockets.at(-1).onmessage = null`)
	p.say("And now?")
	p.status("The connection is slow")
	p.status("Connected")
	p.sees("Ben: One", "Ben: Two", "Ben: Three", "Ben: Four", ">Ada: Do you hear me?", ">Ada: And now?")
}

// The page removes invisible characters, for example from a pasted name, since the server refuses names with such characters.
func TestPastedName(t *testing.T) {
	base := start(t)
	p := tab{t, browser.Tab(t)}
	p.open(base, "lobby")
	p.status("Watching")
	paste := func(name string) {
		t.Helper()
		p.script(`document.querySelector("#name").value = ` + quote(name) + `; document.querySelector("#join").requestSubmit()`)
	}
	paste("\u202e\u200b")
	p.waitFor("no name", `sessionStorage.name === undefined && !document.querySelector("#join").hidden`)
	paste("\u202eEve\u00ad \u200b👩\u200d💻")
	p.status("Connected")
	p.waitFor("the name without them", `document.querySelector("#me").textContent === "Eve 👩\u200d💻"`)
}

// A visitor without a name watches, and sees how many people are in the room.
func TestWatching(t *testing.T) {
	base := start(t)
	ben := enter(t, base, "lobby", "Ben", 0)
	ben.say("Before", "k0")
	ben.next("message")
	p := tab{t, browser.Tab(t)}
	p.open(base, "lobby")
	p.status("Watching")
	p.sees("Ben: Before")
	ben.say("After", "k1")
	p.sees("Ben: Before", "Ben: After")
	p.waitFor("one person", `document.querySelector("#count").textContent === "1"`)
	enter(t, base, "lobby", "<i>Cleo</i>", 0)
	p.waitFor("two people", `document.querySelector("#count").textContent === "2"`)
	p.waitFor("no field for messages", `document.querySelector("#say").hidden && !document.querySelector("#join").hidden`)
	p.join("Dora")
	p.sees("Ben: Before", "Ben: After")
	p.waitFor("a name as it is", `[...document.querySelectorAll("#people bdi")].map(e => e.textContent).sort().join() === "<i>Cleo</i>,Ben,Dora"`)

	// A refused message returns to the input field. The test sends all messages at once, since a moment later another one would be accepted.
	p.script(fmt.Sprintf(`for (let i = 0; i < %d; i++) {
		document.querySelector("#text").value = i;
		document.querySelector("#say").requestSubmit();
	}`, 3*burst))
	p.waitFor("a notice", `document.querySelector("#notice").textContent.includes("faster than the others")`)
	p.waitFor("no message that waits", `!document.querySelector(".waits")`)
	p.waitFor("each message, or else its text", fmt.Sprintf(`Array.from({ length: %d }, (_, i) => String(i)).every(i =>
		%s.split("\n").includes(">Dora: " + i) !== document.querySelector("#text").value.split("\n").includes(i))`, 3*burst, shown))
}

// before runs JavaScript before the scripts of each page.
func (p tab) before(code string) {
	p.t.Helper()
	p.do("preparing", chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: code})
		return err
	}))
}

// On a narrow, dark screen all controls can be reached, and nothing is wider than the screen.
func TestNarrowPage(t *testing.T) {
	base := start(t)
	ben := enter(t, base, "lobby", strings.Repeat("W", maxName), 0)
	ben.say(strings.Repeat("W", maxText), "k0")
	ben.say("That was long.", "k1")
	p := tab{t, browser.Tab(t)}
	p.do("being a phone", chromedp.EmulateViewport(360, 640), chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
		})
		return err
	}))
	p.open(base, "lobby")
	p.join("Ada")
	p.say("Hello from a phone")
	p.waitFor("the message", shown+`.endsWith(">Ada: Hello from a phone")`)
	p.waitFor("no wider page", `document.documentElement.scrollWidth <= 360 && document.querySelector("#scroll").scrollWidth <= 360`)
	p.waitFor("a dark page", `getComputedStyle(document.body).backgroundColor === "rgb(20, 19, 28)"`)
	p.waitFor("the end", `(e => e.scrollHeight - e.scrollTop - e.clientHeight < 2)(document.querySelector("#scroll"))`)
	p.script(`document.querySelector("#scroll").scrollTop = 0`)
	p.waitFor("no higher page", `document.querySelector("#scroll").scrollTop === 0 && document.documentElement.scrollHeight <= innerHeight`)
	p.do("opening the list", chromedp.Click(chromedp.CSS("#menu")))
	p.waitFor("the list", `document.activeElement.closest("#rooms") !== null`)
	p.do("going elsewhere", chromedp.SendKeys(chromedp.CSS("#another"), "Garden\r"))
	p.waitFor("the room", `document.querySelector("#room").textContent === "garden" && getComputedStyle(document.querySelector("#side")).visibility === "hidden"`)
}
