package http2conf

import (
	"bufio"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// A fake is a minimal server that answers hello to each request. Its fields change this behaviour.
type fake struct {
	settings []Frame // in place of the server's first SETTINGS
	// react is called with a frame from the client, and reports whether it has handled the frame.
	react func(c *fakeConn, f serverFrame) bool
	// perRead is called with the bytes of each Read. If it returns false, the connection ends.
	perRead func(string) bool
}

type fakeConn struct{ net.Conn }

func (c *fakeConn) Write(list ...Frame) { c.Conn.Write(bytesOf(list)) }

func (c *fakeConn) closeWrite() { c.Conn.(*net.TCPConn).CloseWrite() }

func (f fake) serve(netConn net.Conn) {
	defer netConn.Close()
	c := &fakeConn{netConn}
	br := bufio.NewReader(&watched{netConn, f.perRead})
	if _, err := io.ReadFull(br, make([]byte, len(preface))); err != nil {
		return
	}
	if f.settings == nil {
		f.settings = frames{settings()}
	}
	c.Write(f.settings...)
	for {
		got, err := readFrame(br)
		switch {
		case err != nil:
			return
		case f.react != nil && f.react(c, got):
		case got.kind == typeSettings && got.flags&ack == 0:
			c.Write(frame(typeSettings, ack, 0, ""))
		case got.kind == typePing && got.flags&ack == 0:
			c.Write(frame(typePing, ack, 0, string(got.payload)))
		case got.kind == typeHeaders && got.flags&endStream != 0:
			c.Write(helloFrames(got.stream)...)
		}
	}
}

// watched is a connection that passes the bytes of each Read to look.
type watched struct {
	net.Conn
	look func(string) bool
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if w.look != nil && n > 0 && !w.look(string(b[:n])) {
		return 0, io.EOF
	}
	return n, err
}

const date = "date: Mon, 02 Jan 2006 15:04:05 GMT"

// answerHead is the head of an answer, with content.
func answerHead(stream uint32, fields ...string) Frame {
	return headers(stream, endHeaders, block(fields...))
}

func helloFrames(stream uint32) frames {
	return frames{answerHead(stream, ":status: 200", date, "content-type: text/plain", "content-length: 13"), data(stream, endStream, "Hello, World!")}
}

// start serves f on a loopback socket and returns how to dial it.
func (f fake) start(t *testing.T) func() (net.Conn, error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for c, err := ln.Accept(); err == nil; c, err = ln.Accept() {
			go f.serve(c)
		}
	}()
	return func() (net.Conn, error) { return net.DialTimeout("tcp", ln.Addr().String(), 10*time.Second) }
}

// on returns a fake that reacts to each frame of this type on stream 1 or 0 by sending list instead of its usual frames.
func on(kind Type, list ...Frame) fake {
	return fake{react: func(c *fakeConn, f serverFrame) bool {
		if f.kind != kind || f.stream > 1 || f.flags&ack != 0 && kind != typeHeaders {
			return false
		}
		c.Write(list...)
		return true
	}}
}

// last returns a fake as on does, but it ends the connection afterwards.
func last(kind Type, list ...Frame) fake {
	f := on(kind, list...)
	react := f.react
	f.react = func(c *fakeConn, got serverFrame) bool {
		if !react(c, got) {
			return false
		}
		c.closeWrite()
		return true
	}
	return f
}

// instead returns a fake whose answer on stream 1 has been changed.
func instead(change func(f frames) frames) fake { return on(typeHeaders, change(helloFrames(1))...) }

// withField returns a fake whose answer on stream 1 has one more field.
func withField(field string) fake {
	return instead(func(f frames) frames {
		f[0].Payload += block(field)
		return f
	})
}

func goodbye(stream uint32, code Code) Frame {
	return frame(typeGoAway, 0, 0, uint32Of(stream)+uint32Of(uint32(code)))
}

type runnerTest struct {
	name string
	c    Case
	f    fake
	want string // a text in the error; "": no error
}

// The runner finds the faults of incorrect servers, and none in a correct server.
func TestRunner(t *testing.T) {
	open := each(comes("open", "9113 1", "x", hello(1)), []sent{{"", frames{get(1)}}})[0]
	early := each(comes("early", "9113 1", "x", helloEarly(1)), []sent{{"", frames{headers(1, endHeaders, getBlock)}}})[0]
	resetCase := each(comes("reset", "9113 1", "x", malformed(1)), []sent{{"", frames{get(1)}}})[0]
	fatal := each(fails(protocolError, "fatal", "9113 1", "x"), []sent{{"", frames{frame(typeUnknown, 0, 1, "")}}})[0]
	ignored := each(comes("ignored", "9113 1", "x"), []sent{{"", frames{frame(typeUnknown, 0, 1, "")}}})[0]
	either := each(ends(Either, comes("either", "9113 1", "x", hello(1))), []sent{{"", frames{get(1), goAway(noError, "")}}})[0]
	small := Case{Name: "small", Steps: steps(send(frames{initial(5), get(1)}, begun(1, "Hello")), send(frames{windowUpdate(1, 8)}, hello(1)))}
	table := Case{Name: "table", Steps: steps(send(frames{settings(setting(settingTableSize, 0))}), send(frames{get(1)}, hello(1)))}
	leaves := each(ends(Leaves, comes("leaves", "9113 1", "x")), []sent{{"", frames{post(1)}}})[0]

	hi := helloFrames(1)
	none := fake{}
	tests := []runnerTest{
		{"open", open, none, ""},
		{"early", early, on(typeHeaders, append(slices.Clone(hi), reset(1, noError))...), ""},
		{"reset", resetCase, on(typeHeaders, reset(1, protocolError)), ""},
		{"reset behind a 400", resetCase, on(typeHeaders, answerHead(1, ":status: 400", date), reset(1, protocolError)), ""},
		{"fatal", fatal, last(typeUnknown, goodbye(0, protocolError)), ""},
		{"ignored", ignored, none, ""},
		{"either, open", either, none, ""},
		{"either, closed", either, last(typeGoAway, goodbye(1, noError)), ""},
		{"interim answers are read, and not wanted", open, instead(func(f frames) frames { return append(frames{answerHead(1, ":status: 103")}, f...) }), "want stream 1: 200"},
		{"padding, and CONTINUATION", open, on(typeHeaders, headers(1, padded, "\x02"+hi[0].Payload[:9]+"\x00\x00"),
			continuation(1, endHeaders, hi[0].Payload[9:]), data(1, padded|endStream, "\x01Hello, World!\x00")), ""},
		{"trailers", open, instead(func(f frames) frames {
			f[1].Flags = 0
			return append(f, headers(1, whole, block("x: y")))
		}), ""},
		{"SETTINGS and PING of the server's", open, instead(func(f frames) frames { return append(frames{settings(), ping("12345678")}, f...) }), ""},
		{"leaves", leaves, none, ""},

		// These servers produce wrong outcomes.
		{"another status", open, on(typeHeaders, headers(1, whole, block(":status: 404", date))), "want stream 1: 200"},
		{"another body", open, instead(func(f frames) frames { f[1].Payload = "Hello, Wurld!"; return f }), "want stream 1: 200"},
		{"no content-type", open, instead(func(f frames) frames {
			f[0] = answerHead(1, ":status: 200", date, "content-length: 13")
			return f
		}), "want stream 1: 200"},
		{"no end", open, on(typeHeaders, hi[0], data(1, 0, "Hello, World!")), "i/o timeout"},
		{"no answer", open, on(typeHeaders), "i/o timeout"},
		{"an answer and RST_STREAM", open, on(typeHeaders, append(slices.Clone(hi), reset(1, noError))...), "want stream 1"},
		{"RST_STREAM in place of an answer", open, on(typeHeaders, reset(1, protocolError)), "i/o timeout"},
		{"GOAWAY in place of an answer", open, last(typeHeaders, goodbye(0, protocolError)), "the connection has ended"},
		{"no RST_STREAM", resetCase, none, "i/o timeout"},
		{"another code", resetCase, on(typeHeaders, reset(1, streamClosed)), "i/o timeout"},
		{"RST_STREAM twice", resetCase, on(typeHeaders, reset(1, protocolError), reset(1, protocolError)), "want stream 1"},
		{"RST_STREAM behind a 200", resetCase, on(typeHeaders, answerHead(1, ":status: 200", date), reset(1, protocolError)), "i/o timeout"},
		{"GOAWAY for RST_STREAM", resetCase, last(typeHeaders, goodbye(1, protocolError)), "the connection has ended"},
		{"no RST_STREAM behind an early answer", early, on(typeHeaders, hi...), "i/o timeout"},
		{"no GOAWAY", fatal, last(typeUnknown), "want GOAWAY"},
		{"nothing in place of GOAWAY", fatal, none, "want GOAWAY"},
		{"another code of GOAWAY", fatal, last(typeUnknown, goodbye(0, noError)), "want GOAWAY"},
		{"no end behind GOAWAY", fatal, on(typeUnknown, goodbye(0, protocolError)), "want GOAWAY"},
		{"RST_STREAM and GOAWAY", fatal, last(typeUnknown, reset(1, protocolError), goodbye(0, protocolError)), "and then GOAWAY"},
		{"RST_STREAM for nothing", ignored, on(typeUnknown, reset(1, streamClosed)), "want stream 1: nothing"},
		{"the end in place of nothing", ignored, last(typeUnknown), "the connection has ended"},
		{"either, an error", either, last(typeGoAway, goodbye(1, protocolError)), "the connection has ended"},
		{"an answer to half a request", leaves, on(typeHeaders, append(slices.Clone(hi[:1]), data(1, 0, "Hello"))...), "which the client hasn't ended"},
		{"no answer to the next request", open, fake{react: func(_ *fakeConn, f serverFrame) bool { return f.kind == typeHeaders && f.stream == 3 }}, "the next request"},
		{"fails when cut", open, fake{perRead: func(s string) bool {
			return len(s) == len(preface)+9 || !strings.HasSuffix(s, getBlock[40:]) || len(s) > 40
		}}, "cut at"},

		// These servers send frames that a server may not send.
		{"PING before SETTINGS", open, fake{settings: frames{ping("12345678"), settings()}}, "PING comes before SETTINGS"},
		{"ACK before SETTINGS", open, fake{settings: frames{frame(typeSettings, ack, 0, ""), settings()}}, "SETTINGS comes before SETTINGS"},
		{"ENABLE_PUSH of 1", open, fake{settings: frames{settings(setting(settingPush, 1))}}, "the setting 2 is 1"},
		{"MAX_FRAME_SIZE of 1", open, fake{settings: frames{settings(setting(settingMaxFrameSize, 1))}}, "the setting 5 is 1"},
		{"SETTINGS of 5 bytes", open, fake{settings: frames{settings("12345")}}, "SETTINGS have 5 bytes"},
		{"SETTINGS on a stream", open, fake{settings: frames{frame(typeSettings, 0, 1, "")}}, "SETTINGS is on stream 1"},
		{"SETTINGS are not acknowledged", open, on(typeSettings), "want SETTINGS and their acknowledgment"},
		{"SETTINGS are acknowledged twice", open, on(typeSettings, frame(typeSettings, ack, 0, ""), frame(typeSettings, ack, 0, "")), "nobody sent any"},
		{"PING is not answered", open, on(typePing), "want the answer to PING"},
		{"PING is answered by another", open, on(typePing, frame(typePing, ack, 0, "87654321")), "is answered by"},
		{"PING is answered twice", open, on(typePing, frame(typePing, ack, 0, "settled?"), frame(typePing, ack, 0, "settled?")), "nobody asked"},
		{"PING of 7 bytes", open, on(typePing, frame(typePing, ack, 0, "settled")), "PING has 7 bytes"},
		{"an unknown type", open, on(typeHeaders, frame(typeUnknown, 0, 0, "")), "which a client doesn't know"},
		{"PUSH_PROMISE", open, on(typeHeaders, frame(typePush, endHeaders, 1, "")), "which a client doesn't know"},
		{"unknown flags", open, on(typeHeaders, headers(1, endHeaders|0x40, hi[0].Payload), hi[1]), "has the flags"},
		{"the reserved bit", open, on(typeHeaders, headers(1<<31|1, endHeaders, hi[0].Payload), hi[1]), "reserved bit"},
		{"a frame of 16,385 bytes", open, on(typeHeaders, hi[0], data(1, 0, over16K)), "has 16385 bytes"},
		{"another stream's answer", open, on(typeHeaders, helloFrames(3)...), "which the client hasn't opened"},
		{"RST_STREAM of another stream", open, on(typeHeaders, reset(5, cancel)), "which the client hasn't opened"},
		{"WINDOW_UPDATE of another stream", open, on(typeHeaders, windowUpdate(5, 1)), "which the client hasn't opened"},
		{"WINDOW_UPDATE of 0", open, on(typeHeaders, windowUpdate(0, 0)), "WINDOW_UPDATE of 0"},
		{"WINDOW_UPDATE beyond 2^31-1", open, on(typeHeaders, windowUpdate(0, maxID)), "the connection's window"},
		{"DATA before HEADERS", open, on(typeHeaders, hi[1], hi[0]), "before HEADERS"},
		{"DATA behind END_STREAM", open, on(typeHeaders, append(slices.Clone(hi), data(1, 0, "x"))...), "behind END_STREAM"},
		{"an answer behind an answer", open, on(typeHeaders, append(slices.Clone(hi), hi...)...), "behind END_STREAM"},
		{"HEADERS behind RST_STREAM", resetCase, on(typeHeaders, reset(1, protocolError), hi[0]), "behind RST_STREAM"},
		{"DATA beyond the stream's window", small, none, "beyond the window of stream 1"},
		{"DATA beyond the connection's window", open, on(typeHeaders, append(frames{answerHead(1, ":status: 200", date)},
			slices.Repeat(frames{data(1, 0, k16)}, 5)...)...), "beyond the connection's window"},
		{"padding that isn't zero", open, on(typeHeaders, hi[0], data(1, endStream|padded, "\x01Hello, World!x")), "isn't zero"},
		{"padding that is too long", open, on(typeHeaders, hi[0], data(1, endStream|padded, "\x0eHello, World!")), "as long as the frame"},
		{"PING in a field block", open, on(typeHeaders, headers(1, 0, hi[0].Payload), ping("12345678")), "in the middle of a field block"},
		{"CONTINUATION without HEADERS", open, on(typeHeaders, continuation(1, endHeaders, "")), "CONTINUATION without HEADERS"},
		{"a block that can't be decoded", open, on(typeHeaders, headers(1, endHeaders, "\xff\xff\xff")), "a field block"},
		{"a table of 0 that isn't used", table, none, "update of the table's size"},
		{"a table of more than 0", table, instead(func(f frames) frames { f[0].Payload = "\x3f\x01" + f[0].Payload; return f }), "a field block"},
		{"no :status", open, on(typeHeaders, headers(1, whole, block(date))), "doesn't begin with :status"},
		{":status behind a field", open, on(typeHeaders, headers(1, whole, block(date, ":status: 200"))), ":status isn't the first"},
		{":status twice", open, withField(":status: 200"), ":status isn't the first"},
		{":status of letters", open, on(typeHeaders, headers(1, whole, block(":status: 2xx", date))), ":status is"},
		{"a 101", open, on(typeHeaders, answerHead(1, ":status: 101")), "a 101"},
		{"a 100 that ends", open, on(typeHeaders, headers(1, whole, block(":status: 100"))), "a 100"},
		{"another pseudo-header field", open, withField(":path: /"), "the name of a field"},
		{"a name in upper case", open, withField("X: y"), "the name of a field"},
		{"a value with CR", open, withField("x: y\r"), "x is"},
		{"a value behind a space", open, withField("x:  y"), "x is"},
		{"Connection", open, withField("connection: close"), "the server sends connection"},
		{"Transfer-Encoding", open, withField("transfer-encoding: chunked"), "the server sends transfer-encoding"},
		{"no date", open, on(typeHeaders, headers(1, whole, block(":status: 200"))), "0 date fields"},
		{"two dates", open, withField(date), "2 date fields"},
		{"a wrong date", open, on(typeHeaders, headers(1, whole, block(":status: 200", "date: today"))), "date:"},
		{"two lengths", open, withField("content-length: 13"), "content-length is"},
		{"a length that is none", open, on(typeHeaders, headers(1, whole, block(":status: 200", date, "content-length: x"))), "content-length is"},
		{"another length than the content's", Case{Steps: steps(send(frames{get(1)}, answered(1, 200)))},
			on(typeHeaders, answerHead(1, ":status: 200", date, "content-length: 5"), hi[1]), "i/o timeout"},
		{"a 405 without Allow", open, on(typeHeaders, headers(1, whole, block(":status: 405", date))), "a 405 without allow"},
		{"a 204 with a length", open, on(typeHeaders, headers(1, whole, block(":status: 204", date, "content-length: 0"))), "a 204"},
		{"trailers without END_STREAM", open, on(typeHeaders, hi[0], headers(1, endHeaders, block("x: y"))), "don't end it"},
		{"a pseudo-header field in trailers", open, on(typeHeaders, hi[0], headers(1, whole, block(":status: 200"))), ":status isn't the first"},
		{"GOAWAY of a stream that wasn't opened", fatal, last(typeUnknown, goodbye(5, protocolError)), "has opened none over 0"},
		{"GOAWAY that forgets an answer", each(fails(protocolError, "fatal", "9113 1", "x"), []sent{{"", frames{get(1), ping("12345678")}}})[0],
			last(typePing, goodbye(0, protocolError)), "no stream over 0 was served"},
		{"GOAWAY with a higher stream than before", each(fails(protocolError, "fatal", "9113 1", "x"), []sent{{"", frames{post(1), frame(typeUnknown, 0, 1, "")}}})[0],
			last(typeUnknown, goodbye(0, noError), goodbye(1, protocolError)), "GOAWAY has stream 1"},
		{"GOAWAY of 7 bytes", fatal, last(typeUnknown, frame(typeGoAway, 0, 0, "1234567")), "GOAWAY has 7 bytes"},
		{"RST_STREAM of 5 bytes", resetCase, on(typeHeaders, frame(typeReset, 0, 1, "12345")), "RST_STREAM has 5 bytes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := &runner{Case: test.c, dial: test.f.start(t)}
			timeouts := []time.Duration{timeout}
			// If the runner waits for a frame that never arrives, the first time-out is short. The later ones are long enough for a busy machine.
			if strings.HasPrefix(test.want, "want") || test.want == "i/o timeout" || test.want == "the next request" {
				timeouts = []time.Duration{300 * time.Millisecond, 3 * time.Second, 20 * time.Second}
			}
			var err error
			for _, r.timeout = range timeouts {
				if err = r.run(test.want != "" && test.want != "cut at"); err == nil || strings.Contains(err.Error(), test.want) {
					break
				}
			}
			if test.want == "" && err != nil {
				t.Errorf("a right server: %v", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// A server that has answered may reset the stream before the request has ended, but only after it has waited for patience.
func TestResetAfterAnswer(t *testing.T) {
	for _, test := range []struct {
		code   Code
		ago    time.Duration
		wanted bool
	}{{noError, patience, true}, {noError, 0, false}, {cancel, patience, false}} {
		p := newPeer()
		p.began = true
		s := &stream{opened: true, status: 200, over: true, came: time.Now().Add(-test.ago)}
		p.streams[1] = s
		if err := p.take(serverFrame{kind: typeReset, stream: 1, payload: []byte{0, 0, 0, byte(test.code)}}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []Want{answered(1, 200), cutOff(1, protocolError)} {
			if got := want.met(s); got != test.wanted {
				t.Errorf("%v %v after the answer: %t for %v", test.code, test.ago, got, want)
			}
		}
	}
}
