package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/filohttp/filo/servertest"
)

// client is a WebSocket of a page.
type client struct {
	t    *testing.T
	conn *websocket.Conn
	you  person
	hi   event // the welcome event
}

// event is any message that the server sends on a WebSocket.
type event struct {
	Type     string
	You      person
	People   []person
	Messages []message
	Gap      bool
	message
	Count  int
	Joined *person
	Left   *person
	Reason string
}

// dial opens a WebSocket with a query and header fields.
func dial(t *testing.T, base, room string, query url.Values, header http.Header) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return websocket.Dial(ctx, base+"/rooms/"+room+"/socket?"+query.Encode(), &websocket.DialOptions{
		HTTPHeader: header, CompressionMode: websocket.CompressionContextTakeover,
	})
}

// enter opens a WebSocket for a person whose page has the messages up to the one with the given ID (after).
func enter(t *testing.T, base, room, name string, after int64) *client {
	t.Helper()
	c, err := tryEnter(t, base, room, name, after)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.conn.CloseNow() })
	return c
}

func tryEnter(t *testing.T, base, room, name string, after int64) (*client, error) {
	query := url.Values{"name": {name}, "visitor": {secretOf(name)}}
	if after != 0 {
		query.Set("after", fmt.Sprint(after))
	}
	conn, _, err := dial(t, base, room, query, nil)
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(1 << 20)
	c := &client{t: t, conn: conn}
	if c.hi, err = c.read(); err != nil || c.hi.Type != "welcome" {
		conn.CloseNow()
		return nil, fmt.Errorf("welcomed with %+v, %w", c.hi, err)
	}
	c.you = c.hi.You
	return c, nil
}

// secretOf returns the secret of a person's page.
func secretOf(name string) string { return fmt.Sprintf("secret-of-%.20x", name) }

func (c *client) read() (e event, err error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	_, b, err := c.conn.Read(ctx)
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	return e, err
}

// next returns the next event, which must have the type kind.
func (c *client) next(kind string) event {
	c.t.Helper()
	e, err := c.read()
	if err != nil || e.Type != kind {
		c.t.Fatalf("got %+v, %v; want a %s", e, err, kind)
	}
	return e
}

func (c *client) write(kind websocket.MessageType, text string) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	return c.conn.Write(ctx, kind, []byte(text))
}

func (c *client) say(text, key string) {
	c.t.Helper()
	if err := c.trySay(text, key); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) trySay(text, key string) error {
	b, err := json.Marshal(map[string]string{"text": text, "key": key})
	if err != nil {
		return err
	}
	return c.write(websocket.MessageText, string(b))
}

// texts returns the texts of messages, in one line.
func texts(messages []message) string {
	var said []string
	for _, m := range messages {
		said = append(said, m.From.Name+": "+m.Text)
	}
	return strings.Join(said, ", ")
}

func TestConversation(t *testing.T) {
	base := start(t)
	ada := enter(t, base, "lobby", "Ada", 0)
	if len(ada.hi.People) != 1 || ada.hi.People[0] != ada.you || len(ada.hi.Messages) != 0 || ada.hi.Gap {
		t.Errorf("the first one is welcomed with %+v", ada.hi)
	}
	ben := enter(t, base, "lobby", "  Ben \t Böhm ", 0)
	if got := ben.hi.People; len(got) != 2 || got[0] != ada.you || got[1] != ben.you || ben.you.Name != "Ben Böhm" {
		t.Errorf("the second one finds %+v, and is %+v", got, ben.you)
	}
	if e := ada.next("people"); e.Joined == nil || *e.Joined != ben.you || e.Count != 2 {
		t.Errorf("the first one sees %+v", e)
	}
	elsewhere := enter(t, base, "elsewhere", "Cleo", 0)

	// Both get a message with the same ID, and with its text unchanged.
	markup := "<b onclick='x()'>“Hello” & 👋🏽</b>\n\tso long"
	ada.say(" "+markup+"\n", "k1")
	atAda, atBen := ada.next("message"), ben.next("message")
	if atAda.message != atBen.message || atBen.Text != markup || atBen.From != ada.you || atBen.Key != "k1" || atBen.Room != "lobby" {
		t.Errorf("got %+v and %+v", atAda.message, atBen.message)
	}
	ben.say("Yes.", "k1")
	if m := ada.next("message"); m.ID <= atAda.ID || m.Text != "Yes." || m.From != ben.you {
		t.Errorf("got %+v", m.message)
	}

	// The other room didn't get that message: its first message is the next one.
	elsewhere.say("Nobody here?", "k2")
	if m := elsewhere.next("message"); m.Text != "Nobody here?" {
		t.Errorf("got %+v", m)
	}
	ben.conn.Close(websocket.StatusNormalClosure, "")
	if e := ada.next("people"); e.Left == nil || *e.Left != ben.you || e.Count != 1 {
		t.Errorf("got %+v", e)
	}
}

func TestComingBack(t *testing.T) {
	base := start(t)
	ada, ben := enter(t, base, "lobby", "Ada", 0), enter(t, base, "lobby", "Ben", 0)
	ada.next("people")
	var ids []int64
	for i := range 5 {
		ada.say(fmt.Sprint(i), fmt.Sprint("k", i))
		ids = append(ids, ada.next("message").ID)
	}
	for range ids {
		ben.next("message")
	}

	// A person who reconnects before the server notices that the old connection is dead is in the room once, with the same ID.
	again := enter(t, base, "lobby", "Ben", ids[2])
	if got := texts(again.hi.Messages); got != "Ada: 3, Ada: 4" || again.hi.Gap || len(again.hi.People) != 2 || again.you != ben.you {
		t.Errorf("got %s and %+v", got, again.hi)
	}
	ben.conn.CloseNow()
	// A message that a page sends twice, since it doesn't know whether the first one has arrived, is delivered once.
	ada.say("4", "k4")
	ada.say("5", "k5")
	if m := ada.next("message"); m.Text != "5" {
		t.Errorf("got %+v", m)
	}
	if m := again.next("message"); m.Text != "5" {
		t.Errorf("got %+v", m)
	}
	// The others are told of the changed name, and of nothing else.
	query := url.Values{"name": {"Benedikt"}, "visitor": {secretOf("Ben")}}
	renamed, _, err := dial(t, base, "lobby", query, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer renamed.CloseNow()
	if e := ada.next("people"); e.Joined == nil || e.Joined.ID != ben.you.ID || e.Joined.Name != "Benedikt" || e.Count != 2 {
		t.Errorf("got %+v", e)
	}

	for _, tc := range []struct {
		sentence string
		after    int64
		want     string
		gap      bool
	}{
		{"who has nothing gets all", 0, "Ada: 0, Ada: 1, Ada: 2, Ada: 3, Ada: 4, Ada: 5", false},
		{"who has all gets nothing", ids[4] + 1, "", false},
		{"what is from before the start may not be all", ids[0] - 1000, "Ada: 0, Ada: 1, Ada: 2, Ada: 3, Ada: 4, Ada: 5", true},
		{"nor what is from a clock that was ahead", ids[4] + 1000, "Ada: 0, Ada: 1, Ada: 2, Ada: 3, Ada: 4, Ada: 5", true},
	} {
		c := enter(t, base, "lobby", "Dora", tc.after)
		if got := texts(c.hi.Messages); got != tc.want || c.hi.Gap != tc.gap {
			t.Errorf("%s: got %s, gap %v", tc.sentence, got, c.hi.Gap)
		}
		c.conn.CloseNow()
	}
}

// Every visitor gets every message once and in order, even one who leaves and comes back in between.
func TestManyAtOnce(t *testing.T) {
	base := start(t)
	const visitors, each = 12, burst // few enough messages that all are in the history
	failed := make(chan error, visitors)
	for n := range visitors {
		go func() { failed <- visitTwice(t, base, fmt.Sprint("Visitor ", n), each, visitors*each) }()
	}
	for range visitors {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if _, body := get(t, base+"/rooms/lobby/messages"); len(parse[messages](t, body).Messages) != visitors*each {
		t.Errorf("it isn't %d messages that were said: %s", visitors*each, body)
	}
}

// visitTwice sends a number of messages (each), half of them on a second visit, and returns when it has received the messages of all visitors.
func visitTwice(t *testing.T, base, name string, each, all int) error {
	var got []message
	for visit := range 2 {
		after := int64(0)
		if visit > 0 {
			after = got[len(got)-1].ID
		}
		c, err := tryEnter(t, base, "lobby", name, after)
		if err != nil {
			return err
		}
		defer c.conn.CloseNow()
		got = append(got, c.hi.Messages...)
		for i := range each / 2 {
			if err := c.trySay(name, fmt.Sprint(visit, "-", i)); err != nil {
				return err
			}
		}
		for heard := 0; visit == 0 && heard < each/2 || visit == 1 && len(got) < all; {
			e, err := c.read()
			if err != nil {
				return fmt.Errorf("%s has got %d messages: %w", name, len(got), err)
			}
			if e.Type == "message" {
				got = append(got, e.message)
				if e.From == c.you {
					heard++
				}
			}
		}
		c.conn.CloseNow()
	}
	for i, m := range got[1:] {
		if m.ID <= got[i].ID {
			return fmt.Errorf("%+v comes after %+v", m, got[i])
		}
	}
	return nil
}

func TestRefused(t *testing.T) {
	base := start(t)
	for _, tc := range []struct{ sentence, text, reason string }{
		{"it isn't empty", " \n\t ", "nothing"},
		{"nor too long", strings.Repeat("ä", maxText+1), "more than 1000"},
		{"it has no control characters", "a\x07b", "control"},
		{"nor such as turn text around", "a\u202Eb", "control"},
		{"it is text", "a\uFFFDb", "control"},
		{"emoji are", "👩‍👩‍👧", ""},
		{"it may be as long as that", strings.Repeat("👋", maxText), ""},
	} {
		ada := enter(t, base, "lobby", "Ada", 0)
		ada.say(tc.text, "k"+tc.sentence[:2]+fmt.Sprint(len(tc.text)))
		e, err := ada.read()
		if want := map[bool]string{true: "refused", false: "message"}[tc.reason != ""]; err != nil || e.Type != want || !strings.Contains(e.Reason, tc.reason) {
			t.Errorf("%s: got %+v, %v", tc.sentence, e, err)
		}
		ada.conn.CloseNow()
	}
	for _, tc := range []struct {
		sentence string
		kind     websocket.MessageType
		text     string
		code     websocket.StatusCode
	}{
		{"a message is text", websocket.MessageBinary, `{"text":"a","key":"k"}`, websocket.StatusUnsupportedData},
		{"of JSON", websocket.MessageText, `text`, websocket.StatusPolicyViolation},
		{"with a key", websocket.MessageText, `{"text":"a"}`, websocket.StatusPolicyViolation},
		{"that isn't long", websocket.MessageText, `{"text":"a","key":"` + strings.Repeat("k", maxKey+1) + `"}`, websocket.StatusPolicyViolation},
		{"and in UTF-8", websocket.MessageText, "{\"text\":\"\xff\",\"key\":\"k\"}", websocket.StatusInvalidFramePayloadData},
		{"and not large", websocket.MessageText, `{"text":"` + strings.Repeat("x", maxIncoming) + `","key":"k"}`, websocket.StatusMessageTooBig},
	} {
		ada := enter(t, base, "other", "Ada", 0)
		if err := ada.write(tc.kind, tc.text); err != nil {
			t.Fatal(err)
		}
		if e, err := ada.read(); websocket.CloseStatus(err) != tc.code {
			t.Errorf("%s: got %+v, %v; want %d", tc.sentence, e, err, tc.code)
		}
	}
}

func TestTooFast(t *testing.T) {
	base := start(t)
	ada := enter(t, base, "lobby", "Ada", 0)
	go func() {
		// This many messages exceed the rate even on a slow machine.
		for i := range 50 * (burst + maxRefused) {
			b := fmt.Appendf(nil, `{"text":"%d","key":"k%d"}`, i, i)
			if ada.conn.Write(t.Context(), websocket.MessageText, b) != nil {
				return
			}
		}
	}()
	said, refused := 0, 0
	for {
		e, err := ada.read()
		if err != nil {
			if websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
				t.Errorf("it ended with %v, want 1008", err)
			}
			break
		}
		switch {
		case e.Type == "message":
			said++
		case e.Type == "refused" && e.Key != "" && strings.Contains(e.Reason, "faster"):
			refused++
		default:
			t.Errorf("got %+v", e)
		}
	}
	if said < burst || refused < maxRefused {
		t.Errorf("%d were said and %d refused, want at least %d and %d", said, refused, burst, maxRefused)
	}
}

func TestWhoMayEnter(t *testing.T) {
	base := start(t)
	for _, tc := range []struct {
		sentence, room, name, visitor, after, origin string
		status                                       int
	}{
		{"a page of this site may", "lobby", "Ada", "s", "", base, 101},
		{"and who is no browser", "lobby", "Ada", "s", "12", "", 101},
		{"a page of another one may not", "lobby", "Ada", "s", "", "https://example.com", 403},
		{"a room has a plain name", "Lobby", "Ada", "s", "", "", 400},
		{"that isn't long", strings.Repeat("a", maxRoom+1), "Ada", "s", "", "", 400},
		{"and no path", "..%2Flobby", "Ada", "s", "", "", 400},
		{"a person has a name", "lobby", " \t", "s", "", "", 400},
		{"that isn't long", "lobby", strings.Repeat("ä", maxName+1), "s", "", "", 400},
		{"and doesn't turn others around", "lobby", "a\u202Eb", "s", "", "", 400},
		{"and is text", "lobby", "\xff", "s", "", "", 400},
		{"a page has a secret", "lobby", "Ada", "", "", "", 400},
		{"that isn't long", "lobby", "Ada", strings.Repeat("s", maxKey+1), "", "", 400},
		{"and has an ID or none", "lobby", "Ada", "s", "x", "", 400},
		{"that isn't negative", "lobby", "Ada", "s", "-1", "", 400},
	} {
		header := http.Header{}
		if tc.origin != "" {
			header.Set("Origin", tc.origin)
		}
		conn, response, err := dial(t, base, tc.room, url.Values{"name": {tc.name}, "visitor": {tc.visitor}, "after": {tc.after}}, header)
		if response == nil || response.StatusCode != tc.status {
			t.Errorf("%s: got %v, %v; want %d", tc.sentence, response, err, tc.status)
		}
		if conn != nil {
			conn.CloseNow()
		}
	}
	if response, _ := get(t, base+"/rooms/lobby/socket?name=Ada&visitor=s"); response.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("without a WebSocket: got %d, want 426", response.StatusCode)
	}
}

// A visitor who doesn't read is disconnected when too many bytes would wait for that visitor. The other visitors don't wait.
func TestSlowVisitor(t *testing.T) {
	c := newChat(time.Now)
	server := servertest.New(t, newHandler(c, []string{"filo.test"}))
	conn, _, err := websocket.Dial(t.Context(), server.URL+"/rooms/lobby/socket?name=Ada&visitor=s", &websocket.DialOptions{HTTPClient: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	// The first event shows that Ada is in the room. A completed handshake doesn't.
	if _, _, err := conn.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	ben := person{ID: "ben", Name: "Ben"}
	said := 0
	for ; ; said++ {
		// The server may notice only later that Ada has left.
		if _, _, people := c.look("lobby", 0); people == 0 {
			break
		}
		if said > 100*maxQueued/maxText {
			t.Fatal("it is still there")
		}
		c.say("lobby", ben, strings.Repeat("x", maxText), fmt.Sprint(said))
	}
	if said < maxQueued/(2*maxText) {
		t.Errorf("it was disconnected after %d messages", said)
	}
}

// Everything that visitors can add to has a limit, and visitors are told if messages were dropped because of a limit.
func TestLimits(t *testing.T) {
	c := newChat(time.Now)
	server := servertest.New(t, newHandler(c, []string{"filo.test"}))
	// open opens a room that a person has just left.
	open := func(name string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		r, err := c.openLocked(name)
		if err != nil {
			t.Fatal(err)
		}
		r.left = c.now()
	}
	open("lobby")
	for i := range maxHistory + 5 {
		c.say("lobby", person{}, fmt.Sprint(i), fmt.Sprint(i))
	}
	all, gap, _ := c.look("lobby", 0)
	if len(all) != maxHistory || all[0].Text != "5" || gap {
		t.Errorf("%d messages are kept, from %+v; gap %v", len(all), all[0], gap)
	}
	for _, tc := range []struct {
		sentence string
		after    int64
		want     int
		gap      bool
	}{
		{"the last one that was forgotten isn't missing", all[0].ID - 1, maxHistory, false},
		{"but what is after the one before", all[0].ID - 2, maxHistory, true},
		{"and the rest is there", all[0].ID, maxHistory - 1, false},
	} {
		if got, gap, _ := c.look("lobby", tc.after); len(got) != tc.want || gap != tc.gap {
			t.Errorf("%s: got %d messages, gap %v", tc.sentence, len(got), gap)
		}
	}

	// Empty rooms are dropped to make space for others, and a visitor who returns to such a room is told that messages may be missing.
	for i := range 2 * maxRooms {
		open(fmt.Sprint(i))
	}
	if got, gap, _ := c.look("lobby", all[maxHistory-2].ID); len(got) != 0 || !gap || len(c.rooms) != maxRooms {
		t.Errorf("of %d rooms, the forgotten one has %d messages, gap %v", len(c.rooms), len(got), gap)
	}
	// If there are people in all rooms, or too many in one, nobody else can enter.
	for _, r := range c.rooms {
		r.people["somebody"] = &presence{conns: 1}
	}
	full := c.rooms[fmt.Sprint(2*maxRooms-1)]
	for i := range maxPeople {
		full.people[fmt.Sprint(i)] = &presence{conns: 1}
	}
	for room, reason := range map[string]string{"another": errRooms.Error(), full.name: errPeople.Error()} {
		conn, _, err := websocket.Dial(t.Context(), server.URL+"/rooms/"+room+"/socket?name=Ada&visitor=s", &websocket.DialOptions{HTTPClient: server.Client()})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow()
		var closed websocket.CloseError
		if _, _, err := conn.Read(t.Context()); !errors.As(err, &closed) || closed.Code != websocket.StatusTryAgainLater || closed.Reason != reason {
			t.Errorf("got %v, want %q", err, reason)
		}
	}
}
