package websocket_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/filohttp/filo/contrib/websocket"
)

// testLimit is the maximum length of a message in these tests.
const testLimit = 100_000

// rfcCase holds the bytes that a client sends to an echo server, and the frames that it must receive.
type rfcCase struct {
	section string // of RFC 6455 or RFC 7692
	says    string // what the section requires
	send    string
	want    []answer // data and pongs
	closes  int      // the code of the server's close frame, 1005 if it has no code; 0 if the connection stays open
}

// answer is a frame of the server.
type answer struct {
	first   byte
	payload string
}

func echoes(first byte, payload ...string) (answers []answer) {
	for _, p := range payload {
		answers = append(answers, answer{first, p})
	}
	return answers
}

const (
	empty    = ""
	umlauts  = "κόσμε, grüße, 日本語, 𝄞"
	fragment = "a text in "
)

var rfc6455 = concat(framingCases, lengthCases(), fragmentCases, controlCases(), closeCases, closeCodeCases(), textCases(), limitCases)

func concat(groups ...[]rfcCase) (all []rfcCase) {
	for _, group := range groups {
		all = append(all, group...)
	}
	return all
}

var framingCases = []rfcCase{
	{"5.1", "a server must close the connection upon a frame that isn't masked", "\x81\x02hi", nil, 1002},
	{"5.1", "likewise for one without a payload", "\x81\x00", nil, 1002},
	{"5.1", "likewise for a control frame", "\x89\x00", nil, 1002},
	{"5.1", "likewise for a frame behind good ones", frame(fin|text, "a") + "\x81\x01b", echoes(fin|text, "a"), 1002},
	{"5.2", "RSV1 must be 0 unless an extension gives it a meaning", frame(fin|rsv1|text, "a"), nil, 1002},
	{"5.2", "RSV2 must be 0", frame(fin|rsv2|text, "a"), nil, 1002},
	{"5.2", "RSV3 must be 0", frame(fin|rsv3|binaryOp, "a"), nil, 1002},
	{"5.2", "RSV bits must be 0 in control frames", frame(fin|rsv1|ping, "a"), nil, 1002},
	{"5.2", "RSV bits must be 0 in continuations", frame(text, "a") + frame(fin|rsv1|continuation, "b"), nil, 1002},
	{"5.2", "an unknown opcode must fail the connection: 3", frame(fin|3, ""), nil, 1002},
	{"5.2", "an unknown opcode must fail the connection: 4", frame(fin|4, "a"), nil, 1002},
	{"5.2", "an unknown opcode must fail the connection: 5", frame(fin|5, "a"), nil, 1002},
	{"5.2", "an unknown opcode must fail the connection: 6", frame(fin|6, "a"), nil, 1002},
	{"5.2", "an unknown opcode must fail the connection: 7", frame(7, "a"), nil, 1002},
	{"5.2", "an unknown opcode must fail the connection: 11", frame(fin|11, ""), nil, 1002},
	{"5.2", "an unknown opcode must fail the connection: 12", frame(fin|12, "a"), nil, 1002},
	{"5.2", "an unknown opcode must fail the connection: 13", frame(fin|13, "a"), nil, 1002},
	{"5.2", "an unknown opcode must fail the connection: 14", frame(fin|14, "a"), nil, 1002},
	{"5.2", "an unknown opcode must fail the connection: 15", frame(fin|15, "a"), nil, 1002},
	{"5.2", "an unknown opcode must fail the connection within a message too", frame(text, "a") + frame(fin|3, ""), nil, 1002},
	{"5.2", "a length must have the fewest bytes: 125 in two", "\x82\xfe\x00\x7d\x00\x00\x00\x00" + strings.Repeat("x", 125), nil, 1002},
	{"5.2", "a length must have the fewest bytes: 0 in two", "\x82\xfe\x00\x00\x00\x00\x00\x00", nil, 1002},
	{"5.2", "a length must have the fewest bytes: 65535 in eight", "\x82\xff\x00\x00\x00\x00\x00\x00\xff\xff\x00\x00\x00\x00", nil, 1002},
	{"5.2", "a length must have the fewest bytes: 1 in eight", "\x82\xff\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00", nil, 1002},
	{"5.2", "the highest bit of a length must be 0", "\x82\xff\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", nil, 1002},
	{"5.2", "likewise where it would be minus one", "\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00", nil, 1002},
	{"5.3", "a payload is unmasked by its own key: zero", maskedFrame(fin|text, "hello", [4]byte{}), echoes(fin|text, "hello"), 0},
	{"5.3", "a payload is unmasked by its own key: all bits", maskedFrame(fin|text, "hello", [4]byte{255, 255, 255, 255}), echoes(fin|text, "hello"), 0},
	{"5.3", "each frame has a key of its own", maskedFrame(text, "hel", [4]byte{1, 2, 3, 4}) + maskedFrame(fin|continuation, "lo", [4]byte{9, 8, 7, 6}),
		echoes(fin|text, "hello"), 0},
	{"5.6", "a binary message is any bytes", frame(fin|binaryOp, "\x00\xff\xfe\x80\n"), echoes(fin|binaryOp, "\x00\xff\xfe\x80\n"), 0},
	{"5.6", "a text message is UTF-8", frame(fin|text, umlauts), echoes(fin|text, umlauts), 0},
	{"5.6", "a message may be empty", frame(fin|text, "") + frame(fin|binaryOp, ""), []answer{{fin | text, ""}, {fin | binaryOp, ""}}, 0},
	{"5.6", "messages come one after the other, in order", frame(fin|text, "1") + frame(fin|binaryOp, "2") + frame(fin|text, "3"),
		[]answer{{fin | text, "1"}, {fin | binaryOp, "2"}, {fin | text, "3"}}, 0},
}

// lengthCases are test cases for the shortest and the longest payload of each encoding of a length.
func lengthCases() (cases []rfcCase) {
	for _, n := range []int{1, 124, 125, 126, 127, 128, 255, 256, 4095, 4096, 8191, 8192, 8193, 65535, 65536, 65537} {
		payload := strings.Repeat("0123456789abcde", n/15+1)[:n]
		cases = append(cases, rfcCase{"5.2", fmt.Sprintf("a payload may have %d bytes", n), frame(fin|binaryOp, payload), echoes(fin|binaryOp, payload), 0})
	}
	return cases
}

var fragmentCases = []rfcCase{
	{"5.4", "a message is what its fragments are together, of the first one's type", frame(text, fragment) + frame(fin|continuation, "pieces"),
		echoes(fin|text, fragment+"pieces"), 0},
	{"5.4", "likewise for binary ones", frame(binaryOp, "\xff") + frame(continuation, "\xfe") + frame(fin|continuation, "\xfd"), echoes(fin|binaryOp, "\xff\xfe\xfd"), 0},
	{"5.4", "fragments may be empty", frame(text, "") + frame(continuation, "") + frame(continuation, "a") + frame(continuation, "") + frame(fin|continuation, ""),
		echoes(fin|text, "a"), 0},
	{"5.4", "all of them", frame(text, "") + frame(continuation, "") + frame(fin|continuation, ""), echoes(fin|text, ""), 0},
	{"5.4", "there may be many", frame(binaryOp, "x") + strings.Repeat(frame(continuation, "y"), 500) + frame(fin|continuation, "z"),
		echoes(fin|binaryOp, "x"+strings.Repeat("y", 500)+"z"), 0},
	{"5.4", "control frames may come in the middle of a message, and must be dealt with there",
		frame(text, "a") + frame(fin|ping, "p") + frame(continuation, "b") + frame(fin|pong, "q") + frame(fin|ping, "") + frame(fin|continuation, "c"),
		[]answer{{fin | pong, "p"}, {fin | pong, ""}, {fin | text, "abc"}}, 0},
	{"5.4", "a close frame too", frame(text, "a") + closeFrame(1000, ""), nil, 1000},
	{"5.4", "control frames must not be fragmented: ping", frame(ping, "a") + frame(fin|continuation, "b"), nil, 1002},
	{"5.4", "control frames must not be fragmented: pong", frame(pong, "a"), nil, 1002},
	{"5.4", "control frames must not be fragmented: close", frame(closeOp, "\x03\xe8"), nil, 1002},
	{"5.4", "a continuation needs a message", frame(fin|continuation, "a"), nil, 1002},
	{"5.4", "likewise one that isn't the last", frame(continuation, "a"), nil, 1002},
	{"5.4", "likewise behind a whole message", frame(fin|text, "a") + frame(fin|continuation, "b"), echoes(fin|text, "a"), 1002},
	{"5.4", "likewise behind the last fragment", frame(text, "a") + frame(fin|continuation, "b") + frame(continuation, "c"), echoes(fin|text, "ab"), 1002},
	{"5.4", "a message must not begin within another one", frame(text, "a") + frame(fin|text, "b"), nil, 1002},
	{"5.4", "likewise one in fragments", frame(binaryOp, "a") + frame(continuation, "b") + frame(binaryOp, "c"), nil, 1002},
	{"5.4", "likewise of the other type", frame(text, "a") + frame(fin|binaryOp, "b"), nil, 1002},
	{"5.4", "a control frame in between doesn't change that", frame(text, "a") + frame(fin|ping, "p") + frame(fin|text, "b"), echoes(fin|pong, "p"), 1002},
}

// controlCases are test cases for pings and pongs.
func controlCases() []rfcCase {
	longest := strings.Repeat("p", 125)
	return []rfcCase{
		{"5.5", "control frames may have up to 125 bytes", frame(fin|ping, longest), echoes(fin|pong, longest), 0},
		{"5.5", "and must have no more: ping", frame(fin|ping, longest+"p"), nil, 1002},
		{"5.5", "and must have no more: pong", frame(fin|pong, strings.Repeat("p", 70000)), nil, 1002},
		{"5.5", "and must have no more: close", closeFrame(1000, longest[:124]), nil, 1002},
		{"5.5.2", "a ping must be answered by a pong", frame(fin|ping, ""), echoes(fin|pong, ""), 0},
		{"5.5.3", "a pong must have the ping's application data", frame(fin|ping, "\x00\xff\xfe"), echoes(fin|pong, "\x00\xff\xfe"), 0},
		{"5.5.3", "several pings may be answered", frame(fin|ping, "1") + frame(fin|ping, "2"), echoes(fin|pong, "1", "2"), 0},
		{"5.5.3", "a pong that nobody asked for isn't answered", frame(fin|pong, "a") + frame(fin|text, "b"), echoes(fin|text, "b"), 0},
		{"5.5.3", "likewise behind a ping", frame(fin|pong, "a") + frame(fin|ping, "b"), echoes(fin|pong, "b"), 0},
	}
}

var closeCases = []rfcCase{
	{"5.5.1", "a close frame must be answered by one, mostly of the same status", closeFrame(1000, ""), nil, 1000},
	{"5.5.1", "with a reason", closeFrame(1000, "I am done, "+umlauts), nil, 1000},
	{"5.5.1", "with the longest reason", closeFrame(4000, strings.Repeat("r", 123)), nil, 4000},
	{"5.5.1", "a close frame may have no payload", frame(fin|closeOp, ""), nil, 1005},
	{"5.5.1", "if it has one, its first two bytes must be a status", frame(fin|closeOp, "\x03"), nil, 1002},
	{"5.5.1", "a reason must be UTF-8", closeFrame(1000, "\xff"), nil, 1007},
	{"5.5.1", "likewise to its end", closeFrame(1000, "\xe2\x82"), nil, 1007},
	{"7.1.7", "an endpoint that has failed the connection must not go on with what comes", frame(fin|3, "") + frame(fin|text, "a") + frame(fin|ping, "b"), nil, 1002},
}

// closeCodeCases are test cases for codes that are allowed, or not allowed, in a close frame.
func closeCodeCases() (cases []rfcCase) {
	for _, code := range []int{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999} {
		cases = append(cases, rfcCase{"7.4", fmt.Sprintf("a close frame may have status %d", code), closeFrame(code, "why"), nil, code})
	}
	for _, code := range []int{0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 5999, 65535} {
		cases = append(cases, rfcCase{"7.4", fmt.Sprintf("a close frame must not have status %d", code), closeFrame(code, "why"), nil, 1002})
	}
	return cases
}

// textCases are test cases for valid and invalid UTF-8.
func textCases() (cases []rfcCase) {
	bad := map[string]string{
		"a continuation byte alone":        "\x80",
		"a byte that is never there":       "a\xffb",
		"another one":                      "\xc0",
		"a rune that ends too early":       "\xe2\x82a",
		"a rune that the end cuts":         "abc\xe2\x82",
		"a rune of four that the end cuts": "\xf0\x9f\x92",
		"an overlong NUL":                  "\xc0\x80",
		"an overlong slash":                "\xe0\x80\xaf",
		"another one, of four":             "\xf0\x80\x80\xaf",
		"a surrogate":                      "\xed\xa0\x80",
		"a pair of them":                   "\xed\xa0\x80\xed\xb0\x80",
		"beyond the last rune":             "\xf4\x90\x80\x80",
		"five bytes":                       "\xf8\x88\x80\x80\x80",
		"after much that is good":          strings.Repeat(umlauts, 50) + "\xbf",
	}
	for name, payload := range bad {
		cases = append(cases,
			rfcCase{"8.1", "text that isn't UTF-8 must fail the connection: " + name, frame(fin|text, payload), nil, 1007},
			rfcCase{"8.1", "wherever it is cut: " + name, frame(text, payload[:len(payload)/2]) + frame(continuation, "") + frame(fin|continuation, payload[len(payload)/2:]), nil, 1007},
			rfcCase{"5.6", "binary may be anything: " + name, frame(fin|binaryOp, payload), echoes(fin|binaryOp, payload), 0})
	}
	for i := range len(umlauts) {
		cases = append(cases, rfcCase{"5.6", fmt.Sprintf("a fragment need not be whole UTF-8: cut at %d", i),
			frame(text, umlauts[:i]) + frame(fin|continuation, umlauts[i:]), echoes(fin|text, umlauts), 0})
	}
	return append(cases,
		rfcCase{"8.1", "text fails as soon as it can't be UTF-8 any more, without its end", frame(text, "a\xff"), nil, 1007},
		rfcCase{"8.1", "likewise within a rune", frame(text, "\xf4") + frame(continuation, "\x90"), nil, 1007},
		rfcCase{"8.1", "likewise within a frame that hasn't all come", frame(fin|text, "\xed\xa0"+strings.Repeat("x", 100))[:20], nil, 1007},
		rfcCase{"8.1", "the last runes are good", frame(fin|text, "\xf4\x8f\xbf\xbf\xef\xbf\xbf\xed\x9f\xbf\xee\x80\x80\x00"), echoes(fin|text, "\xf4\x8f\xbf\xbf\xef\xbf\xbf\xed\x9f\xbf\xee\x80\x80\x00"), 0})
}

var limitCases = []rfcCase{
	{"10.4", "a message may be as long as the limit", frame(fin|binaryOp, strings.Repeat("x", testLimit)), echoes(fin|binaryOp, strings.Repeat("x", testLimit)), 0},
	{"10.4", "and no longer, which its header tells", frame(fin|binaryOp, strings.Repeat("x", testLimit+1))[:14], nil, 1009},
	{"10.4", "likewise in fragments", frame(binaryOp, strings.Repeat("x", testLimit)) + frame(fin|continuation, "y"), nil, 1009},
	{"10.4", "a length that isn't meant", "\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00", nil, 1009},
	{"10.4", "likewise one that would overflow", frame(binaryOp, "a") + "\x80\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00", nil, 1009},
}

// The result of a case doesn't depend on how its bytes arrive: at once, one by one, with the handshake, or cut anywhere.
func TestRFC6455(t *testing.T) {
	inModes(t, websocket.Options{MaxMessageBytes: testLimit}, func(t *testing.T, address string) {
		for _, test := range rfc6455 {
			t.Run(test.section+" "+test.says, func(t *testing.T) {
				t.Parallel()
				test.run(t, address)
			})
		}
	})
}

// Section 5.5.1: a client must send nothing after its close frame. If it does, the server doesn't answer that, and closes the connection at
// once, so the client may get a reset.
func TestNothingBehindClose(t *testing.T) {
	inModes(t, websocket.Options{}, func(t *testing.T, address string) {
		c := open(t, address)
		c.send(frame(fin|text, "a") + closeFrame(1000, "") + frame(fin|text, "b") + frame(fin|ping, "c"))
		c.want(fin|text, "a")
		c.want(fin|closeOp, closePayload(1000, ""))
		if first, payload, err := c.receive(); err == nil {
			t.Errorf("got %#x %s", first, short(payload))
		}
	})
}

// run runs the case with each way to cut the bytes that are sent.
func (test rfcCase) run(t *testing.T, address string, fields ...string) {
	// Errors of sending are ignored: a server that has ended the connection needn't read everything.
	test.check(open(t, address, fields...), func(c *client) { io.WriteString(c, test.send) })
	at := rand.IntN(len(test.send))
	test.check(open(t, address, fields...), func(c *client) {
		io.WriteString(c, test.send[:at])
		io.WriteString(c, test.send[at:])
	})
	if len(test.send) <= 4096 {
		test.check(open(t, address, fields...), func(c *client) {
			for i := range len(test.send) {
				io.WriteString(c, test.send[i:i+1])
			}
		})
		c := connect(t, address)
		c.send(handshake + strings.Join(fields, "") + "\r\n" + test.send)
		if head := c.head(); !strings.HasPrefix(head, "HTTP/1.1 101 ") {
			t.Fatalf("the handshake got %q", head)
		}
		test.check(c, func(*client) {})
	}
}

func (test rfcCase) check(c *client, send func(*client)) {
	c.t.Helper()
	defer c.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		send(c)
	}()
	defer func() { <-sent }()
	for _, want := range test.want {
		c.want(want.first, want.payload)
	}
	switch test.closes {
	case 0:
		<-sent
		c.send(frame(fin|ping, "still there?"))
		c.want(fin|pong, "still there?")
		return
	case 1005:
		c.want(fin|closeOp, "")
	default:
		first, payload, err := c.receive()
		if err != nil || first != fin|closeOp || len(payload) < 2 || int(payload[0])<<8|int(payload[1]) != test.closes {
			c.t.Fatalf("got %#x %s, %v; want a close frame with %d", first, short(payload), err, test.closes)
		}
	}
	<-sent
	c.closeWrite()
	c.wantEnd()
}
