package abuse

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/http2"
)

// bound is how long a test waits for an event that must happen.
const bound = time.Minute

// sent has a regular expression for each attack, which matches the transcript of the frames that the attack sends. A transcript begins with
// the client's SETTINGS. It omits acknowledgements of SETTINGS, which may come anywhere, unless the attack is about them.
var sent = map[string]string{
	"rapid-reset":                    `(HEADERS new END\nRST_STREAM same 8\n){20}`,
	"made-you-reset-window-0":        `(HEADERS new END\nWINDOW_UPDATE same 0 .*\n){20}`,
	"made-you-reset-window-over":     `(HEADERS new END\nWINDOW_UPDATE same 2147483647\n){20}`,
	"made-you-reset-data":            `(HEADERS new END\nDATA same 1\n){20}`,
	"made-you-reset-headers":         `(HEADERS new END\nHEADERS same END\n){20}`,
	"made-you-reset-trailers":        `(HEADERS new\nHEADERS same\n){20}`,
	"made-you-reset-priority-length": `(HEADERS new END\nPRIORITY same 4 \(PRIORITY must have 5 bytes\)\n)`, // net/http ends the connection
	"made-you-reset-priority-self":   `(HEADERS new END\nPRIORITY same 5 \(a stream can't depend on itself\)\n){20}`,
	"made-you-reset-headers-self":    `(HEADERS new END \(a stream can't depend on itself\)\n){20}`,
	"made-you-reset-length":          `(HEADERS new length=1\nDATA same 2\n){20}`,
	"made-you-reset-malformed":       `(HEADERS new upper END\n){20}`,
	"reset-then-data":                `(HEADERS new\nRST_STREAM same 8\nDATA same 1\n){20}`,
	"running-5ms":                    `(HEADERS new END\n){100}(RST_STREAM \w+ 8\n){2}`,
	"running-1s":                     `(HEADERS new END\n){100}(RST_STREAM \w+ 8\n){100}`,
	"over-limit":                     `(HEADERS new\n){300}`,
	"over-limit-unacked":             `^SETTINGS none 2=0\n(HEADERS new\n){300}`,
	"continuation":                   `SETTINGS none ACK\nHEADERS new open END\n(CONTINUATION same 16006\n){2}`,
	"continuation-bytes":             `SETTINGS none ACK\nHEADERS new open END\n(CONTINUATION same 1\n){100}`,
	"continuation-empty":             `SETTINGS none ACK\nHEADERS new open END\n(CONTINUATION same 0\n){100}`,
	"hpack-bomb":                     `HEADERS new\n(HEADERS new 15004 fields of 60015\d+\n){2}`,
	"cookie-bomb":                    `HEADERS new\n(HEADERS new 15004 fields of 60090\d+\n){2}`,
	"cookie-crumbs":                  `(HEADERS new 15004 fields of 90\d+\n){2}`,
	"cookie-90":                      `(HEADERS new 94 fields of 27\d+ END\n){3}`,
	"ping":                           `(PING none\n){100}`,
	"ping-ack":                       `(PING none ACK\n){100}`,
	"ping-unread":                    `(PING none\n){100}`,
	"settings":                       `(SETTINGS none\n){100}`,
	"settings-full":                  `(SETTINGS none 2730 entries\n){2}`,
	"settings-ack":                   `(SETTINGS none ACK\n){3}`,
	"settings-unread":                `(SETTINGS none\n){100}`,
	"settings-window":                `^SETTINGS none 2=0 4=0\n(HEADERS new END\n){100}(SETTINGS none 4=1\nSETTINGS none 4=0\n){10}`,
	"settings-table":                 `(SETTINGS none 1=0\nHEADERS new END\nSETTINGS none 1=4096\nHEADERS new END\n){10}`,
	"priority":                       `HEADERS new\n(PRIORITY same 5\n){100}`,
	"priority-idle":                  `(PRIORITY idle 5\n){100}`,
	"priority-update":                `(PRIORITY_UPDATE none idle u=1\n){100}`,
	"empty-data":                     `HEADERS new\n(DATA same 0\n){100}`,
	"padding":                        `HEADERS new\n(DATA same 1 padded\n){100}`,
	"unknown":                        `(UNKNOWN none\n){100}`,
	"goaway":                         `HEADERS new\n(GOAWAY none 0\n){100}`,
	"window-update":                  `(WINDOW_UPDATE none 1\n){100}`,
	"window-update-stream":           `HEADERS new\n(WINDOW_UPDATE same 1\n){100}`,
	"window-update-closed":           `HEADERS new END\nRST_STREAM same 8\n(WINDOW_UPDATE same 5000\n){100}`,
	"window-zero":                    `^SETTINGS none 2=0 4=0\n(HEADERS new END\n){100}$`,
	"window-shut":                    `^SETTINGS none 2=0 4=2147483647\n(HEADERS new END\n){100}$`,
	"window-slow":                    `^SETTINGS none 2=0 4=0\n(HEADERS new END\n){100}(WINDOW_UPDATE \w+ 1\n){100,}$`,
	"window-dribble":                 `^SETTINGS none 2=0 4=0\n(HEADERS new END\n){100}(WINDOW_UPDATE \w+ 1\n){500}`,
	"unread":                         `^SETTINGS none 2=0 4=2147483647\nWINDOW_UPDATE none 1073741824\n(HEADERS new END\n){100}(PING none\n)+$`,
	"requests-unread":                `(HEADERS new END\n){300}`,
	"window-zero-files":              `^SETTINGS none 2=0 4=0\n(HEADERS new END\n){100}$`,
	"bomb-held":                      `^SETTINGS none 2=0 4=0\nHEADERS new END\n(HEADERS new END\n){100}(WINDOW_UPDATE \w+ 1\n){100,}$`,
	"bodies-held":                    `^SETTINGS none 2=0\n(HEADERS new length=65537\n){100}(DATA \w+ 640\n){1000,}$`,
	"slow-body":                      `^SETTINGS none 2=0\n(HEADERS new length=1000000\n){100}(DATA \w+ 1\n){100,}$`,
	"slow-block":                     `SETTINGS none ACK\nHEADERS new open END\n(CONTINUATION same 1\n)+$`,
	"slow-frame":                     `^SETTINGS none 2=0\nSETTINGS none ACK\npart \d+ of 10009\n$`,
	"half-open":                      `(HEADERS new length=1000000\n){100}$`,
	"unacked":                        `^SETTINGS none 2=0\n(HEADERS new END\n){2,}$`,
}

// Each attack sends the frames that its name suggests, over and over or on each of its connections. The server is net/http's.
func TestAttacksSend(t *testing.T) {
	for _, a := range Attacks() {
		if !a.ByHTTP2() {
			continue // TestPlainAttacksSend
		}
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			if sent[a.Name] == "" {
				t.Fatal("there is no expression for what the attack sends")
			}
			expression := regexp.MustCompile(sent[a.Name])
			l := newListening(t)
			l.keepAcks = strings.Contains(sent[a.Name], "SETTINGS none ACK") || a.manner.unacked
			site := new(Site)
			if a.Name == "settings-table" {
				// Run complains about answers that don't follow the table's size, so this scripted server sends correct updates.
				serveScripted(t, l, answers("\x20\x88"))
			} else {
				serveSite(t, l, site)
			}
			a.Conns = min(a.Conns, 2)
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			attacked := make(chan Figure, 1)
			go func() { attacked <- a.Run(ctx, l.dial) }()
			for !l.seen(expression, a.Conns) {
				select {
				case <-l.read:
				case <-ctx.Done():
					t.Fatalf("%d connections should have %s, and there are\n%s", a.Conns, expression, l.transcripts())
				}
			}
			cancel()
			f := <-attacked
			if f.Wrong != "" {
				t.Error(f.Wrong)
			}
			if f.Conns < a.Conns || f.Frames == 0 {
				t.Errorf("%+v", f)
			}
			if a.manner.unread && f.Answers+f.Pings+f.MaxStreams > 0 {
				t.Errorf("the attack has read something: %+v", f)
			}
			if strings.HasPrefix(a.Name, "running-") {
				if calls, peak := site.Calls(); calls == 0 || peak == 0 {
					t.Errorf("%d handlers ran, %d at once", calls, peak)
				}
			}
		})
	}
}

// Over TLS, requests have https as their scheme and the server's name as their authority.
func TestTLS(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	var calls, wrong atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || r.Host != "example.com" || r.ProtoMajor != 2 {
			wrong.Add(1)
		}
		if calls.Add(1) == 20 { // ten run at once, so others have been answered
			cancel()
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	a, err := Find("cookie-90")
	if err != nil {
		t.Fatal(err)
	}
	config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName, config.NextProtos = "example.com", []string{"h2"}
	f := a.Run(ctx, func() (net.Conn, error) { return tls.Dial("tcp", s.Listener.Addr().String(), config) })
	if complaint := a.Judge(&f, false); complaint != "" || calls.Load() < 20 || wrong.Load() != 0 {
		t.Errorf("%s; %d calls, %d of them wrong", complaint, calls.Load(), wrong.Load())
	}
}

// answers returns the frame function of a scripted server, which answers each request with the field block, and acknowledges SETTINGS.
func answers(block string) func(net.Conn, *http2.Frame) error {
	return func(nc net.Conn, f *http2.Frame) error {
		switch {
		case f.Type == http2.FrameHeaders:
			nc.Write(appendHeaders(nil, f.Stream, []byte(block), true))
		case f.Type == http2.FrameSettings && !f.Ack():
			nc.Write(http2.AppendSettingsAck(nil))
		}
		return nil
	}
}

var errClosed = errors.New("the script closes the connection")

// A Figure records how the server has ended an attack.
func TestEnded(t *testing.T) {
	onHeaders := func(do func(net.Conn, *http2.Frame) error) func(net.Conn, *http2.Frame) error {
		return func(nc net.Conn, f *http2.Frame) error {
			if f.Type != http2.FrameHeaders {
				return nil
			}
			return do(nc, f)
		}
	}
	for _, test := range []struct {
		name   string
		attack string
		frame  func(nc net.Conn, f *http2.Frame) error
		want   string
	}{
		{"GOAWAY", "rapid-reset", onHeaders(func(nc net.Conn, f *http2.Frame) error {
			if f.Stream == 401 {
				nc.Write(http2.AppendGoAway(nil, 401, http2.EnhanceYourCalm, "calm"))
				nc.(*readConn).Conn.(*net.TCPConn).CloseWrite()
			}
			return nil
		}), "GOAWAY ENHANCE_YOUR_CALM"},
		{"GOAWAY without an error, and the end", "rapid-reset", onHeaders(func(nc net.Conn, f *http2.Frame) error {
			if f.Stream == 401 {
				nc.Write(http2.AppendGoAway(nil, 401, http2.NoError, ""))
				nc.(*readConn).Conn.(*net.TCPConn).CloseWrite()
			}
			return nil
		}), "GOAWAY NO_ERROR"},
		{"two GOAWAYs", "rapid-reset", onHeaders(func(nc net.Conn, f *http2.Frame) error {
			if f.Stream == 401 {
				b := http2.AppendGoAway(nil, 1<<31-1, http2.NoError, "")
				nc.Write(http2.AppendGoAway(b, 401, http2.ProtocolError, ""))
				nc.(*readConn).Conn.(*net.TCPConn).CloseWrite()
			}
			return nil
		}), "GOAWAY PROTOCOL_ERROR"},
		{"the end alone", "half-open", onHeaders(func(nc net.Conn, f *http2.Frame) error {
			if f.Stream == 199 {
				return errClosed
			}
			return nil
		}), "closed"},
		{"a reset", "rapid-reset", onHeaders(func(nc net.Conn, f *http2.Frame) error {
			nc.(*readConn).Conn.(*net.TCPConn).SetLinger(0)
			return errClosed
		}), "closed"},
		{"a reset of who doesn't read", "ping-unread", func(nc net.Conn, f *http2.Frame) error {
			nc.(*readConn).Conn.(*net.TCPConn).SetLinger(0)
			return errClosed
		}, "closed"},
		{"each stream", "slow-body", onHeaders(func(nc net.Conn, f *http2.Frame) error {
			nc.Write(http2.AppendReset(nil, f.Stream, http2.Cancel))
			return nil
		}), "RST_STREAM CANCEL"},
		{"an answer on each stream", "slow-body", onHeaders(func(nc net.Conn, f *http2.Frame) error {
			b := appendHeaders(nil, f.Stream, appendField(nil, ":status", "408"), true)
			nc.Write(http2.AppendReset(b, f.Stream, http2.NoError))
			return nil
		}), "answers of 408"},
		{"what can't be read", "ping", func(nc net.Conn, f *http2.Frame) error {
			nc.Write(http2.AppendPing(nil, http2.FlagAck, [8]byte{})[:12])
			nc.Write(make([]byte, 100))
			nc.Write(http2.AppendFrameHeader(nil, 3, http2.FramePing, 0, 0))
			return nil
		}, "the server's frames can't be read"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := newListening(t)
			serveScripted(t, l, test.frame)
			a, err := Find(test.attack)
			if err != nil {
				t.Fatal(err)
			}
			a.Conns, a.Once = 3, true
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			f := a.Run(ctx, l.dial)
			if ctx.Err() != nil || f.Ended[test.want] != 3 || len(f.Ended) != 1 || f.Endless != 0 || f.Conns != 3 {
				t.Errorf("%v: %+v", ctx.Err(), f)
			}
			if unreadable := test.name == "what can't be read"; unreadable != (f.Wrong != "") {
				t.Errorf("wrong: %q", f.Wrong)
			}
		})
	}
}

// An attacker reconnects when the server ends its connection. An attacker whose connections the server never ends counts as endless, and so
// does an attacker that can't connect.
func TestComesBack(t *testing.T) {
	ping, err := Find("ping")
	if err != nil {
		t.Fatal(err)
	}
	ping.Conns = 2
	for _, test := range []struct {
		name string
		// run attacks until ctx ends. It calls done at the expected event.
		run  func(ctx context.Context, done func()) Figure
		want func(f *Figure) bool
	}{
		{"after each end", func(ctx context.Context, done func()) Figure {
			l := newListening(t)
			serveScripted(t, l, func(net.Conn, *http2.Frame) error { return errClosed })
			var dials atomic.Int32
			return ping.Run(ctx, func() (net.Conn, error) {
				if dials.Add(1) == 6 {
					done()
				}
				return l.dial()
			})
		}, func(f *Figure) bool { return f.Endless == 0 && f.Conns == 6 && f.Ended["closed"] >= 4 }},
		{"never", func(ctx context.Context, done func()) Figure {
			l := newListening(t)
			serveScripted(t, l, func(_ net.Conn, f *http2.Frame) error {
				if f.Type == http2.FramePing {
					done()
				}
				return nil
			})
			return ping.Run(ctx, l.dial)
		}, func(f *Figure) bool { return f.Endless == 2 && len(f.Ended) == 0 && f.Conns > 0 }},
		{"without a connection", func(ctx context.Context, done func()) Figure {
			return ping.Run(ctx, func() (net.Conn, error) {
				done()
				return nil, errors.New("refused")
			})
		}, func(f *Figure) bool { return f.Endless == 2 && f.Undone > 0 && ping.Judge(f, false) != "" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			f := test.run(ctx, cancel)
			if errors.Is(ctx.Err(), context.DeadlineExceeded) || !test.want(&f) {
				t.Errorf("%v: %+v", ctx.Err(), f)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	for _, test := range []struct {
		want     Want
		figure   Figure
		timeouts bool
		good     bool
	}{
		{Ends, Figure{Conns: 1}, false, true},
		{Ends, Figure{Conns: 1, Endless: 1}, false, false},
		{Ends, Figure{}, false, false},
		{Ends, Figure{Conns: 1, Wrong: "a frame"}, false, false},
		{TimesOut, Figure{Conns: 1, Endless: 1}, false, true},
		{TimesOut, Figure{Conns: 1, Endless: 1}, true, false},
		{TimesOut, Figure{Conns: 1}, true, true},
		{Bounded, Figure{Conns: 1, Endless: 1}, true, true},
		{Served, Figure{Conns: 1, Endless: 1, Answers: 1}, true, true},
		{Served, Figure{Conns: 2, Answers: 1000, Ended: map[string]int{"GOAWAY NO_ERROR": 1}}, true, true},
		{Served, Figure{Conns: 2, Answers: 1000, Ended: map[string]int{"GOAWAY ENHANCE_YOUR_CALM": 1}}, true, false},
		{Served, Figure{Conns: 1, Endless: 1}, true, false},
		{Served, Figure{Conns: 1, Answers: 2, NotOK: 1}, true, false},
		{Served, Figure{Conns: 1, Answers: 2, Resets: map[string]int{"REFUSED_STREAM": 1}}, true, false},
	} {
		a := Attack{Want: test.want, Conns: 1}
		if complaint := a.Judge(&test.figure, test.timeouts); (complaint == "") != test.good {
			t.Errorf("%v, %+v, %t: %q", test.want, test.figure, test.timeouts, complaint)
		}
	}
}

// The check detects a server that uses table entries after the client has made the table smaller.
func TestTableOutOfStep(t *testing.T) {
	for block, good := range map[string]bool{
		"\x20\x88":                      true,
		"\x20\x3f\xe1\x1f\x88":          true, // 0 and then 4096
		"\x88":                          false,
		"\x3f\xe1\x1f\x88":              false, // only 4096
		"\x20\x48\x03200\x40\x01a\x01b": true,
		"\x20\xbe":                      false, // an entry that can't be in a table of size 0
	} {
		l := newListening(t)
		serveScripted(t, l, answers(block))
		a, err := Find("settings-table")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		go func() {
			defer cancel()
			for !l.seen(regexp.MustCompile(`(HEADERS new END\n(SETTINGS none.*\n)*){500}`), 1) {
				select {
				case <-l.read:
				case <-ctx.Done():
					return
				}
			}
		}()
		if f := a.Run(ctx, l.dial); (f.Wrong == "") != good || good && f.Answers == 0 {
			t.Errorf("%q: %+v", block, f)
		}
		cancel()
	}
}

// The check detects which blocks must begin with an update.
func TestTableCheck(t *testing.T) {
	table := func(sizes ...uint32) []byte {
		var list []setting
		for _, size := range sizes {
			list = append(list, setting{headerTableSize, size})
		}
		return appendSettings(nil, append(list, setting{initialWindowSize, 5})...)[http2.FrameHeaderLen:]
	}
	c := tableCheck{size: 4096}
	block := func(b string, good bool) {
		t.Helper()
		if err := c.block([]byte(b)); (err == nil) != good {
			t.Errorf("%q: %v", b, err)
		}
	}
	block("\x88", true)
	c.sent(0, table(0))
	block("\x88", true) // not acknowledged yet
	c.sent(0, table())
	c.sent(http2.FlagAck, nil)
	c.acked()
	block("\x88", false)
	block("\x88", true) // reported once
	c.acked()
	block("\x88", true) // these SETTINGS don't contain the table's size
	c.sent(0, table(100, 4096, 200))
	c.acked()
	block("\x3f\x80\x7f\x88", false) // larger than 100
	c.sent(0, table(100, 4096, 200))
	c.acked()
	block("\x3f\x45\x3f\xa9\x01\x88", true) // 100, 200
	c.sent(0, table(1000))
	c.acked()
	block("\x88", true) // the server may keep the size 200
	c.sent(0, table(300))
	c.sent(0, table(50))
	c.acked()
	block("\x88", true)
	c.acked()
	block("\x3f\x13\x88", true) // 50
}
