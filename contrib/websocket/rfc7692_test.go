package websocket_test

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/filohttp/filo/contrib/websocket"
)

// deflated compresses a message with the standard library's compressor, without the bytes that a sender leaves out.
func deflated(s string) string { return deflatedAfter(s, "") }

// deflatedAfter compresses a message that refers to the messages before it.
func deflatedAfter(s, before string) string {
	var b bytes.Buffer
	w, _ := flate.NewWriterDict(&b, 6, []byte(before))
	io.WriteString(w, s)
	w.Flush()
	return strings.TrimSuffix(b.String(), "\x00\x00\xff\xff")
}

// inflated undoes deflatedAfter. dictionary is the data before the message.
func inflated(t testing.TB, s, dictionary string) string {
	t.Helper()
	b, err := io.ReadAll(flate.NewReaderDict(strings.NewReader(s+"\x00\x00\xff\xff\x01\x00\x00\xff\xff"), []byte(dictionary)))
	if err != nil {
		t.Fatalf("%s isn't compressed: %v", short(s), err)
	}
	return string(b)
}

var long = strings.Repeat("a text that is worth being compressed, ", 20)

var rfc7692 = []rfcCase{
	{"6", "a message whose first frame has RSV1 is compressed", frame(fin|rsv1|text, deflated("short")), echoes(fin|text, "short"), 0},
	{"6", "one without it isn't", frame(fin|text, "short"), echoes(fin|text, "short"), 0},
	{"6", "both may alternate", frame(fin|rsv1|text, deflated("a")) + frame(fin|text, "b") + frame(fin|rsv1|binaryOp, deflated("\xff")),
		[]answer{{fin | text, "a"}, {fin | text, "b"}, {fin | binaryOp, "\xff"}}, 0},
	{"6.1", "RSV1 must not be set in later fragments", frame(rsv1|text, deflated("a")) + frame(fin|rsv1|continuation, ""), nil, 1002},
	{"6.1", "likewise of a message that isn't compressed", frame(text, "a") + frame(fin|rsv1|continuation, ""), nil, 1002},
	{"6.1", "RSV1 must not be set in control frames", frame(fin|rsv1|ping, "a"), nil, 1002},
	{"6.1", "likewise in a close frame", frame(fin|rsv1|closeOp, "\x03\xe8"), nil, 1002},
	{"6", "the other bits have no meaning still", frame(fin|rsv1|rsv2|text, deflated("a")), nil, 1002},
	{"6.2", "a compressed message may be cut into fragments anywhere", frame(rsv1|text, deflated("fragments")[:3]) + frame(continuation, "") +
		frame(fin|continuation, deflated("fragments")[3:]), echoes(fin|text, "fragments"), 0},
	{"6.2", "with control frames in between", frame(rsv1|text, deflated("fragments")[:3]) + frame(fin|ping, "p") + frame(fin|continuation, deflated("fragments")[3:]),
		[]answer{{fin | pong, "p"}, {fin | text, "fragments"}}, 0},
	{"7.2.3.1", "the RFC's message", frame(fin|rsv1|text, "\xf2\x48\xcd\xc9\xc9\x07\x00"), echoes(fin|text, "Hello"), 0},
	{"7.2.3.1", "and its fragments", frame(rsv1|text, "\xf2\x48\xcd") + frame(fin|continuation, "\xc9\xc9\x07\x00"), echoes(fin|text, "Hello"), 0},
	{"7.2.3.3", "a block that isn't compressed", frame(fin|rsv1|text, "\x00\x05\x00\xfa\xffHello\x00"), echoes(fin|text, "Hello"), 0},
	{"7.2.3.4", "a block that says it is the last one", frame(fin|rsv1|text, "\xf3\x48\xcd\xc9\xc9\x07\x00\x00"), echoes(fin|text, "Hello"), 0},
	{"7.2.3.4", "and others behind it, which may refer to it", frame(fin|rsv1|text, "\xf3\x48\xcd\xc9\xc9\x07\x00\xf2\x48\xcd\xc9\xc9\x07\x00"), echoes(fin|text, "HelloHello"), 0},
	{"7.2.3.5", "two blocks", frame(fin|rsv1|text, "\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00"), echoes(fin|text, "Hello"), 0},
	{"7.2.3.6", "an empty message", frame(fin|rsv1|text, "\x00"), echoes(fin|text, ""), 0},
	{"7.2.2", "what can't be decompressed fails the connection", frame(fin|rsv1|text, "\xff\xff\xff"), nil, 1007},
	{"7.2.2", "likewise a reference to before the beginning", frame(fin|rsv1|binaryOp, deflatedAfter(long, long)), nil, 1007},
	{"7.2.2", "likewise very many last blocks", frame(fin|rsv1|text, strings.Repeat("\x03\x00", 100)), nil, 1007},
	{"8.1 of RFC 6455", "text must be UTF-8 when it is decompressed", frame(fin|rsv1|text, deflated("a\xff")), nil, 1007},
	{"8.1 of RFC 6455", "likewise to its end", frame(fin|rsv1|text, deflated("a\xe2\x82")), nil, 1007},
	{"8 of RFC 6455", "binary may be anything", frame(fin|rsv1|binaryOp, deflated("a\xff")), echoes(fin|binaryOp, "a\xff"), 0},
	{"10.4 of RFC 6455", "the limit is for what was decompressed", frame(fin|rsv1|binaryOp, deflated(strings.Repeat("\x00", testLimit))),
		echoes(fin|binaryOp, strings.Repeat("\x00", testLimit)), 0},
	{"10.4 of RFC 6455", "a bomb is refused", frame(fin|rsv1|binaryOp, deflated(strings.Repeat("\x00", 5_000_000))), nil, 1009},
	{"10.4 of RFC 6455", "one byte more is, too", frame(fin|rsv1|binaryOp, deflated(strings.Repeat("\x00", testLimit+1))), nil, 1009},
}

func TestRFC7692(t *testing.T) {
	options := websocket.Options{MaxMessageBytes: testLimit, Compression: websocket.CompressionPerMessage, CompressionMinimum: testLimit + 1}
	inModes(t, options, func(t *testing.T, address string) {
		// The cases of RFC 6455 apply with the extension, too, except for the meaning of RSV1.
		for _, test := range concat(rfc7692, rfc6455) {
			if strings.HasPrefix(test.says, "RSV1 ") && test.section == "5.2" {
				continue
			}
			t.Run(test.section+" "+test.says, func(t *testing.T) {
				t.Parallel()
				test.run(t, address, offerDeflate)
			})
		}
	})
}

// Offers are accepted or declined as section 7.1 requires. The server accepts the first valid offer.
func TestDeflateNegotiation(t *testing.T) {
	const both = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
	for _, test := range []struct {
		says, offer  string
		answer       string
		whenContexts string // the answer of a server that keeps contexts
	}{
		{"nothing is negotiated that wasn't offered", "", "", ""},
		{"an offer without parameters", "permessage-deflate", both, "permessage-deflate"},
		{"7.1.1.1: server_no_context_takeover must be in the answer", "permessage-deflate; server_no_context_takeover", both, "permessage-deflate; server_no_context_takeover"},
		{"7.1.1.2: client_no_context_takeover is taken at its word", "permessage-deflate; client_no_context_takeover", both, "permessage-deflate; client_no_context_takeover"},
		{"7.1.2.1: server_max_window_bits must be in the answer", "permessage-deflate; server_max_window_bits=10", both + "; server_max_window_bits=10",
			"permessage-deflate; server_no_context_takeover; server_max_window_bits=10"},
		{"7.1.2.1: the largest", "permessage-deflate; server_max_window_bits=15", both + "; server_max_window_bits=15", "permessage-deflate; server_max_window_bits=15"},
		{"7.1.2.1: the smallest", "permessage-deflate; server_max_window_bits=8", both + "; server_max_window_bits=8",
			"permessage-deflate; server_no_context_takeover; server_max_window_bits=8"},
		{"7.1.2.1: it needs a value", "permessage-deflate; server_max_window_bits", "", ""},
		{"7.1.2.1: of 8 to 15", "permessage-deflate; server_max_window_bits=7", "", ""},
		{"7.1.2.1: of 8 to 15", "permessage-deflate; server_max_window_bits=16", "", ""},
		{"7.1.2.1: without leading zeros", "permessage-deflate; server_max_window_bits=08", "", ""},
		{"7.1.2.1: and nothing else", "permessage-deflate; server_max_window_bits=1x", "", ""},
		{"7.1.2.2: client_max_window_bits may be without a value", "permessage-deflate; client_max_window_bits", both, "permessage-deflate"},
		{"7.1.2.2: or with one", "permessage-deflate; client_max_window_bits=9", both, "permessage-deflate"},
		{"7.1.2.2: of 8 to 15", "permessage-deflate; client_max_window_bits=16", "", ""},
		{"7.1.2.2: of 8 to 15", "permessage-deflate; client_max_window_bits=0", "", ""},
		{"5.1: a value may be quoted", `permessage-deflate; server_max_window_bits="10"`, both + "; server_max_window_bits=10",
			"permessage-deflate; server_no_context_takeover; server_max_window_bits=10"},
		{"5.1: a quoted value is unquoted", `permessage-deflate; server_max_window_bits="1\0"`, both + "; server_max_window_bits=10",
			"permessage-deflate; server_no_context_takeover; server_max_window_bits=10"},
		{"7.1: an unknown parameter declines the offer", "permessage-deflate; strong", "", ""},
		{"7.1: a parameter that is there twice", "permessage-deflate; client_max_window_bits; client_max_window_bits", "", ""},
		{"7.1: likewise", "permessage-deflate; server_no_context_takeover; server_no_context_takeover", "", ""},
		{"7.1: a value where there is none", "permessage-deflate; server_no_context_takeover=1", "", ""},
		{"7.1: an empty one", `permessage-deflate; client_no_context_takeover=yes`, "", ""},
		{"5: the first valid offer is taken", "permessage-deflate; strong, permessage-deflate; client_no_context_takeover, permessage-deflate", both,
			"permessage-deflate; client_no_context_takeover"},
		{"5: other extensions are declined", "x-webkit-deflate-frame, permessage-deflate", both, "permessage-deflate"},
		{"9.1 of RFC 6455: the field may be there several times", "a; b=c\r\nSec-WebSocket-Extensions: permessage-deflate", both, "permessage-deflate"},
	} {
		t.Run(test.says, func(t *testing.T) {
			for compression, want := range map[websocket.Compression]string{websocket.CompressionOff: "",
				websocket.CompressionPerMessage: test.answer, websocket.CompressionContext: test.whenContexts} {
				address := modes[0].serve(t, websocket.Options{OnMessage: echo, Compression: compression})
				c := connect(t, address)
				c.send(handshake)
				if test.offer != "" {
					c.send("Sec-WebSocket-Extensions: " + test.offer + "\r\n")
				}
				c.send("\r\n")
				if got := field(c.head(), "Sec-WebSocket-Extensions"); got != want {
					t.Errorf("with %d: got %q, want %q", compression, got, want)
				}
			}
		})
	}
}

// field returns the value of a field of a head.
func field(head, name string) string {
	_, rest, _ := strings.Cut(head, "\r\n"+name+": ")
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

// The server compresses a message if compression was negotiated, if the message is long enough, and if compression makes it shorter.
func TestDeflateSends(t *testing.T) {
	random := make([]byte, 2000)
	for i := range random {
		random[i] = byte(rand.Int())
	}
	for _, test := range []struct {
		says, offer, message string
		compressed           bool
	}{
		{"a long message is compressed", "permessage-deflate", long, true},
		{"a short one isn't", "permessage-deflate", long[:511], false},
		{"7.2.1: what doesn't get shorter isn't", "permessage-deflate", string(random), false},
		{"5.1: nothing is without an agreement", "", long, false},
		{"7.1.2.1: a message is that fits in the client's window", "permessage-deflate; server_max_window_bits=10", long, true},
		{"7.1.2.1: one that could refer beyond it isn't", "permessage-deflate; server_max_window_bits=9", long, false},
		{"a very long one", "permessage-deflate", strings.Repeat(long, 200), true},
	} {
		t.Run(test.says, func(t *testing.T) {
			inModes(t, websocket.Options{Compression: websocket.CompressionPerMessage}, func(t *testing.T, address string) {
				var fields []string
				if test.offer != "" {
					fields = append(fields, "Sec-WebSocket-Extensions: "+test.offer+"\r\n")
				}
				c := open(t, address, fields...)
				for range 3 {
					c.send(frame(fin|binaryOp, test.message))
					first, payload, err := c.receive()
					if err != nil || first != fin|binaryOp && first != fin|rsv1|binaryOp {
						t.Fatalf("got %#x, %v", first, err)
					}
					if compressed := first&rsv1 != 0; compressed != test.compressed {
						t.Fatalf("compressed: %t, want %t", compressed, test.compressed)
					}
					if test.compressed {
						payload = inflated(t, payload, "") // section 7.1.1.1: the message must not refer to earlier ones
					}
					if payload != test.message {
						t.Fatalf("got %s", short(payload))
					}
				}
			})
		})
	}
}

// If contexts were negotiated, messages refer to earlier messages, in both directions, but not to messages that weren't compressed.
func TestDeflateContexts(t *testing.T) {
	options := websocket.Options{Compression: websocket.CompressionContext, CompressionMinimum: 1}
	inModes(t, options, func(t *testing.T, address string) {
		c := open(t, address, offerDeflate)
		var out bytes.Buffer
		w, _ := flate.NewWriter(&out, 6)
		var sent, received string
		shortest := 1 << 20
		for i := range 40 {
			message := fmt.Sprintf("%d: %s", i, long[:300+i*10])
			if i%5 == 4 {
				c.send(frame(fin|text, message)) // this message isn't compressed
			} else {
				out.Reset()
				io.WriteString(w, message)
				w.Flush()
				sent += message
				c.send(frame(fin|rsv1|text, strings.TrimSuffix(out.String(), "\x00\x00\xff\xff")))
			}
			first, payload, err := c.receive()
			if err != nil || first != fin|rsv1|text {
				t.Fatalf("%d: got %#x, %v", i, first, err)
			}
			shortest = min(shortest, len(payload))
			if got := inflated(t, payload, received); got != message {
				t.Fatalf("%d: got %s, want %s", i, short(got), short(message))
			}
			received += message
		}
		if shortest > 40 {
			t.Errorf("the shortest message has %d bytes: nothing refers to those before", shortest)
		}
	})
}
