package http2conf

import (
	"slices"
	"strings"
)

const (
	ignoreFlags    = "Unused flags MUST be ignored on receipt."
	ignoreReserved = "The semantics of this bit are undefined, and the bit MUST be ignored when receiving."
	ignoreTypes    = "Implementations MUST ignore and discard frames of unknown types."
	tooLong        = "An endpoint MUST send an error code of FRAME_SIZE_ERROR if a frame exceeds the size defined in SETTINGS_MAX_FRAME_SIZE; filo ends the connection with any type."
	tooShort       = "An endpoint MUST send an error code of FRAME_SIZE_ERROR if a frame is too small to contain mandatory frame data."
	needsStream    = "DATA, HEADERS, PRIORITY, RST_STREAM and CONTINUATION frames MUST be associated with a stream. With the identifier 0x00, the recipient MUST respond with a connection error of type PROTOCOL_ERROR."
	padTooLong     = "If the length of the padding is the length of the frame payload or greater, the recipient MUST treat this as a connection error of type PROTOCOL_ERROR."
)

// over16K is a payload that is a byte longer than frames may be.
var over16K = strings.Repeat("a", maxFrameSize+1)

var frameCases = slices.Concat(
	each(comes("reserved bit", "9113 4.1", ignoreReserved, hello(1)), []sent{
		{"of HEADERS", frames{reserved(get(1))}},
		{"of CONTINUATION", frames{headers(1, endStream, getBlock[:7]), reserved(continuation(1, endHeaders, getBlock[7:]))}},
		{"of SETTINGS", frames{reserved(settings()), get(1)}},
		{"of PING", frames{reserved(ping("12345678")), get(1)}},
		{"of WINDOW_UPDATE", frames{reserved(windowUpdate(0, 1000)), get(1)}},
		{"of PRIORITY", frames{reserved(priority(1, 0)), get(1)}},
		{"of an unknown type", frames{reserved(frame(typeUnknown, 0, 0, "a")), get(1)}},
		{"of an increment", frames{windowUpdate(0, 1<<31|1000), get(1)}},
	}),
	each(comes("reserved bit", "9113 4.1", ignoreReserved, echo(1, "abc")), []sent{
		{"of DATA", frames{post(1), reserved(data(1, endStream, "abc"))}},
	}),
	each(comes("reserved bit", "9113 4.1", ignoreReserved, going(1)), []sent{
		{"of RST_STREAM", frames{post(1), reserved(reset(1, cancel))}},
	}),
	each(comes("unknown flags", "9113 4.1", ignoreFlags, hello(1)), []sent{
		{"of HEADERS", frames{flagged(get(1), 0xd2)}},
		{"of CONTINUATION", frames{headers(1, endStream, getBlock[:7]), continuation(1, 0xff, getBlock[7:])}},
		{"of SETTINGS", frames{flagged(settings(), 0xfe), get(1)}},
		{"of PING", frames{flagged(ping("12345678"), 0xfe), get(1)}},
		{"of WINDOW_UPDATE", frames{flagged(windowUpdate(0, 1000), 0xff), get(1)}},
		{"of PRIORITY", frames{flagged(priority(1, 0), 0xff), get(1)}},
		{"of PRIORITY_UPDATE", frames{flagged(priorityUpdate(1, "u=0"), 0xff), get(1)}},
	}),
	each(comes("unknown flags", "9113 4.1", ignoreFlags, echo(1, "abc")), []sent{
		{"of DATA", frames{post(1), data(1, 0xf6, "ab"), data(1, 0xf7, "c")}},
	}),
	each(comes("unknown flags", "9113 4.1", ignoreFlags, going(1)), []sent{
		{"of RST_STREAM", frames{post(1), flagged(reset(1, cancel), 0xff)}},
	}),
	each(comes("unknown type", "9113 4.1", ignoreTypes, hello(1)), []sent{
		{"on the connection", frames{frame(typeUnknown, 0, 0, "abc"), get(1)}},
		{"empty", frames{frame(typeUnknown, 0, 0, ""), get(1)}},
		{"with all flags", frames{frame(typeUnknown, 0xff, 0, "abc"), get(1)}},
		{"on an idle stream", frames{frame(typeUnknown, 0, 1, "abc"), get(1)}},
		{"on a server's stream", frames{frame(typeUnknown, 0, 2, "abc"), get(1)}},
		{"ALTSVC", frames{frame(0xa, 0, 0, "\x00\x01ah3=\":443\""), get(1)}},
		{"ORIGIN", frames{frame(0xc, 0, 0, "\x00\x09https://a"), get(1)}},
		{"BLOCKED of old drafts", frames{frame(0xb, 0, 0, ""), get(1)}},
		{"of 16,384 bytes", frames{frame(typeUnknown, 0, 0, over16K[1:]), get(1)}},
		{"that looks like others inside", frames{frame(typeUnknown, 0, 0, string(bytesOf(frames{get(1), data(0, 0, "x")}))), get(1)}},
	}),
	each(comes("unknown type", "9113 4.1", ignoreTypes, echo(1, "abcdef")), []sent{
		{"between HEADERS and DATA", frames{post(1), frame(typeUnknown, 0, 1, "x"), data(1, endStream, "abcdef")}},
		{"between DATA and DATA", frames{post(1), data(1, 0, "abc"), frame(typeUnknown, 1, 1, "x"), data(1, endStream, "def")}},
		{"with END_STREAM's bit", frames{post(1), frame(typeUnknown, endStream, 1, "x"), data(1, 0, "abc"), data(1, endStream, "def")}},
	}),
	each(fails(frameSizeError, "too long", "9113 4.2", tooLong), []sent{
		{"HEADERS", frames{headers(1, whole, getBlock+block("x: "+over16K))}},
		{"HEADERS with padding", frames{headers(1, whole|padded, "\xff"+getBlock+block("x: "+over16K[:16000])+strings.Repeat("\x00", 400))}},
		{"CONTINUATION", frames{headers(1, endStream, getBlock), continuation(1, endHeaders, block("x: "+over16K))}},
		{"SETTINGS", frames{settings(strings.Repeat(setting(settingMaxStreams, 100), 2731))}},
		{"PING", frames{ping(over16K)}},
		{"GOAWAY", frames{goAway(noError, over16K)}},
		{"PRIORITY_UPDATE", frames{priorityUpdate(1, over16K)}},
		{"PRIORITY", frames{frame(typePriority, 0, 1, over16K)}},
		{"RST_STREAM", frames{frame(typeReset, 0, 1, over16K)}},
		{"WINDOW_UPDATE", frames{frame(typeWindowUpdate, 0, 0, over16K)}},
		{"an unknown type", frames{frame(typeUnknown, 0, 0, over16K)}},
		{"the longest, of an unknown type", frames{raw("\xff\xff\xff\xfa\x00\x00\x00\x00\x00")}},
		{"the longest DATA", frames{post(1), raw("\xff\xff\xff\x00\x00\x00\x00\x00\x01")}},
		{"DATA", frames{post(1), data(1, endStream, over16K)}},
		{"DATA with padding", frames{post(1), data(1, endStream|padded, "\x10"+over16K)}},
	}),
	each(comes("long", "9113 4.2", "All implementations MUST be capable of receiving and minimally processing frames up to 2^14 octets in length.", echo(1, over16K[1:])), []sent{
		{"DATA of 16,384 bytes", frames{windowUpdate(0, 1000), post(1), data(1, endStream, over16K[1:])}},
	}),
	each(comes("long", "9113 4.2", "All implementations MUST be capable of receiving and minimally processing frames up to 2^14 octets in length.", hello(1)), []sent{
		{"HEADERS of 10,000 bytes", frames{getWith(1, "x: "+over16K[:10000-len(getBlock)-7])}},
		{"SETTINGS of 600 bytes", frames{settings(strings.Repeat(setting(settingMaxStreams, 100), 100)), get(1)}},
	}),
	each(fails(protocolError, "stream 0", "9113 6.1", needsStream), []sent{
		{"DATA", frames{data(0, 0, "abc")}},
		{"empty DATA", frames{data(0, endStream, "")}},
		{"HEADERS", frames{headers(0, whole, getBlock)}},
		{"PRIORITY", frames{frame(typePriority, 0, 0, uint32Of(1)+"\x0f")}},
		{"RST_STREAM", frames{reset(0, cancel)}},
		{"CONTINUATION", frames{continuation(0, endHeaders, getBlock)}},
		{"CONTINUATION in a block", frames{headers(1, endStream, getBlock[:7]), continuation(0, endHeaders, getBlock[7:])}},
	}),
)

var dataCases = slices.Concat(
	each(comes("padding", "9113 6.1", "Padding octets contain no application semantic value.", echo(1, "abc")), []sent{
		{"of DATA, none", frames{post(1), data(1, padded|endStream, "\x00abc")}},
		{"of DATA, a byte", frames{post(1), data(1, padded|endStream, "\x01abc\x00")}},
		{"of DATA, 255 bytes", frames{post(1), data(1, padded|endStream, "\xffabc"+strings.Repeat("\x00", 255))}},
		{"of DATA, in each of three", frames{post(1), data(1, padded, "\x02a\x00\x00"), data(1, padded, "\x03b\x00\x00\x00"), data(1, padded|endStream, "\x01c\x00")}},
		{"of DATA, alone at the end", frames{post(1), data(1, 0, "abc"), data(1, padded|endStream, "\x05\x00\x00\x00\x00\x00")}},
		{"of DATA, alone at the beginning", frames{post(1), data(1, padded, "\x05\x00\x00\x00\x00\x00"), data(1, endStream, "abc")}},
		{"of DATA, which isn't zero: a receiver is not obligated to verify it", frames{post(1), data(1, padded|endStream, "\x03abcxyz")}},
		{"of DATA, beside a Content-Length", frames{postWith(1, "content-length: 3"), data(1, padded|endStream, "\x04abc\x00\x00\x00\x00")}},
	}),
	each(fails(protocolError, "padding", "9113 6.1", padTooLong), []sent{
		{"of DATA, as long as the payload", frames{post(1), data(1, padded|endStream, "\x04abc")}},
		{"of DATA, longer by one", frames{post(1), data(1, padded|endStream, "\x05abc")}},
		{"of DATA, 255", frames{post(1), data(1, padded|endStream, "\xffabc")}},
		{"of DATA, of a payload of one byte", frames{post(1), data(1, padded|endStream, "\x01")}},
	}),
	each(fails(frameSizeError, "padding", "9113 4.2", tooShort+" filo ends the connection."), []sent{
		{"of DATA, without its length", frames{post(1), data(1, padded|endStream, "")}},
	}),
	each(comes("DATA", "9113 6.1", "DATA frames convey arbitrary, variable-length sequences of octets associated with a stream.", echo(1, "abc")), []sent{
		{"one", frames{post(1), data(1, endStream, "abc")}},
		{"byte by byte", frames{post(1), data(1, 0, "a"), data(1, 0, "b"), data(1, endStream, "c")}},
		{"empty at the end", frames{post(1), data(1, 0, "abc"), data(1, endStream, "")}},
		{"empty ones between", frames{post(1), data(1, 0, ""), data(1, 0, "ab"), data(1, 0, ""), data(1, endStream, "c")}},
	}),
	each(comes("DATA", "9113 6.1", "Frames with zero length with the END_STREAM flag set end a request without content.", echo(1, "")), []sent{
		{"empty alone", frames{post(1), data(1, endStream, "")}},
		{"only empty ones", frames{post(1), data(1, 0, ""), data(1, 0, ""), data(1, endStream, "")}},
		{"none", frames{headers(1, whole, postBlock)}},
	}),
	each(comes("DATA", "9113 6.1", "DATA frames convey arbitrary, variable-length sequences of octets associated with a stream.", echo(1, "\x00\x01\xff\r\n\r\n"+preface)), []sent{
		{"of any bytes", frames{post(1), data(1, endStream, "\x00\x01\xff\r\n\r\n"+preface)}},
	}),
)

const selfDependent = "A stream cannot depend on itself. An endpoint MUST treat this as a stream error of type PROTOCOL_ERROR."

var headersCases = slices.Concat(
	each(comes("padding", "9113 6.2", "Padding octets contain no application semantic value.", hello(1)), []sent{
		{"of HEADERS, none", frames{headers(1, whole|padded, "\x00"+getBlock)}},
		{"of HEADERS, a byte", frames{headers(1, whole|padded, "\x01"+getBlock+"\x00")}},
		{"of HEADERS, 255 bytes", frames{headers(1, whole|padded, "\xff"+getBlock+strings.Repeat("\x00", 255))}},
		{"of HEADERS, before CONTINUATION", frames{headers(1, endStream|padded, "\x03"+getBlock[:9]+"\x00\x00\x00"), continuation(1, endHeaders, getBlock[9:])}},
		{"of HEADERS, around nothing", frames{headers(1, endStream|padded, "\x02\x00\x00"), continuation(1, endHeaders, getBlock)}},
		{"of HEADERS, and a priority", frames{headers(1, whole|padded|prioritize, "\x02"+uint32Of(0)+"\x0f"+getBlock+"\x00\x00")}},
		{"isn't CONTINUATION's", frames{headers(1, endStream, getBlock[:7]), continuation(1, endHeaders|padded, getBlock[7:])}},
	}),
	each(fails(protocolError, "padding", "9113 6.2", padTooLong), []sent{
		{"of HEADERS, as long as the payload", frames{headers(1, whole|padded, string(rune(len(getBlock)+1))+getBlock)}},
		{"of HEADERS, longer by one", frames{headers(1, whole|padded, "\x03\x00\x00")}},
		{"of HEADERS, 255", frames{headers(1, whole|padded, "\xff"+getBlock)}},
		{"of HEADERS, which leaves no room for the priority", frames{headers(1, whole|padded|prioritize, "\x02\x00\x00\x00\x00\x00\x00")}},
	}),
	each(fails(frameSizeError, "HEADERS", "9113 4.2", tooShort+" A frame size error in a frame carrying a field block MUST be treated as a connection error."), []sent{
		{"PADDED, and no length of it", frames{headers(1, whole|padded, "")}},
		{"PRIORITY, and no byte of it", frames{headers(1, whole|prioritize, "")}},
		{"PRIORITY, and 4 bytes of it", frames{headers(1, whole|prioritize, uint32Of(0))}},
	}),
	each(comes("HEADERS", "9113 6.2", "Priority signals in HEADERS frames are deprecated; filo ignores them.", hello(1)), []sent{
		{"with a priority", frames{headers(1, whole|prioritize, uint32Of(0)+"\x0f"+getBlock)}},
		{"exclusive", frames{headers(1, whole|prioritize, uint32Of(1<<31)+"\xff"+getBlock)}},
		{"depending on an idle stream", frames{headers(1, whole|prioritize, uint32Of(99)+"\x00"+getBlock)}},
		{"depending on a server's stream", frames{headers(1, whole|prioritize, uint32Of(2)+"\x00"+getBlock)}},
	}),
	each(comes("HEADERS", "7540 5.3.1", selfDependent, wasReset(1, protocolError)), []sent{
		{"depending on themselves", frames{headers(1, whole|prioritize, uint32Of(1)+"\x0f"+getBlock)}},
		{"depending on themselves, exclusively", frames{headers(1, whole|prioritize, uint32Of(1<<31|1)+"\x0f"+getBlock)}},
		{"depending on themselves, with CONTINUATION", frames{headers(1, endStream|prioritize, uint32Of(1)+"\x0f"+getBlock[:5]), continuation(1, endHeaders, getBlock[5:])}},
	}),
	each(comes("HEADERS", "9113 4.3", "Each field block is processed as a discrete unit. A block without a field lacks the mandatory pseudo-header fields.", malformed(1)), []sent{
		{"empty", frames{headers(1, whole, "")}},
		{"empty, with an empty CONTINUATION", frames{headers(1, endStream, ""), continuation(1, endHeaders, "")}},
	}),
)

var priorityCases = slices.Concat(
	each(comes("PRIORITY", "9113 6.3", "The PRIORITY frame can be sent on a stream in any state. Sending or receiving a PRIORITY frame does not affect the state of any stream.", hello(5)), []sent{
		{"on an idle stream, which opens later", frames{priority(5, 0), get(5)}},
		{"on a later stream", frames{priority(9, 5), get(5)}},
		{"on a server's stream", frames{priority(2, 5), get(5)}},
		{"on the last stream of all", frames{priority(maxID, 0), get(5)}},
		{"exclusive", frames{priority(5, 1<<31), get(5)}},
		{"in a circle", frames{priority(5, 7), priority(7, 9), priority(9, 5), get(5)}},
	}),
	each(comes("PRIORITY", "9113 6.3", "A PRIORITY frame with a length other than 5 octets MUST be treated as a stream error of type FRAME_SIZE_ERROR.", cutOff(1, frameSizeError)), []sent{
		{"empty", frames{post(1), frame(typePriority, 0, 1, "")}},
		{"of 6 bytes", frames{post(1), frame(typePriority, 0, 1, uint32Of(0)+"\x0f\x00")}},
		{"of 100 bytes", frames{post(1), frame(typePriority, 0, 1, over16K[:100])}},
	}),
	each(comes("PRIORITY_UPDATE", "9218 7.1", "The PRIORITY_UPDATE frame indicates the priority of a stream that it names, whose Priority Field Value replaces that of the request.", hello(1)), []sent{
		{"before the request", frames{priorityUpdate(1, "u=0, i"), get(1)}},
		{"behind the request", frames{get(1), priorityUpdate(1, "u=7")}},
		{"without a value", frames{priorityUpdate(1, ""), get(1)}},
		{"twice", frames{priorityUpdate(1, "u=1"), priorityUpdate(1, "u=2"), get(1)}},
		{"for streams that never open", frames{priorityUpdate(3, "u=1"), priorityUpdate(5, "u=2"), get(1)}},
		{"with the reserved bit", frames{priorityUpdate(1<<31|1, "u=1"), get(1)}},
		{"with a value that is none, which filo ignores", frames{priorityUpdate(1, "u=\"x"), priorityUpdate(1, "\x00\xff"), priorityUpdate(1, "u=9, i=?2"), get(1)}},
	}),
	each(comes("priority", "9218 5", "The Priority HTTP header field is a Dictionary Structured Field. A value that isn't one is ignored.", hello(1)), []sent{
		{"field", frames{getWith(1, "priority: u=0, i")}},
		{"field of unknown parameters", frames{getWith(1, "priority: u=3, x=5;y, i=?0")}},
		{"field that is out of range", frames{getWith(1, "priority: u=8")}},
		{"field that is none", frames{getWith(1, "priority: ,,=;(")}},
	}),
	each(fails(protocolError, "PRIORITY_UPDATE", "9218 7.1", "The Stream Identifier field in the PRIORITY_UPDATE frame header MUST be zero. Receiving a PRIORITY_UPDATE frame with a field of any other value MUST be treated as a connection error of type PROTOCOL_ERROR."), []sent{
		{"on a stream", frames{frame(typePriorityUpdate, 0, 1, uint32Of(1)+"u=1")}},
	}),
	each(fails(protocolError, "PRIORITY_UPDATE", "9218 7.1", "If a PRIORITY_UPDATE frame is received with a Prioritized Stream ID of 0x00, the recipient MUST respond with a connection error of type PROTOCOL_ERROR."), []sent{
		{"for the connection", frames{priorityUpdate(0, "u=1")}},
		{"for the connection, with the reserved bit", frames{priorityUpdate(1<<31, "u=1")}},
	}),
	each(fails(protocolError, "PRIORITY_UPDATE", "9218 7.1", `Servers that receive a PRIORITY_UPDATE for a push stream in the "idle" state MUST respond with a connection error of type PROTOCOL_ERROR.`), []sent{
		{"for a server's stream", frames{priorityUpdate(2, "u=1")}},
	}),
	each(fails(frameSizeError, "PRIORITY_UPDATE", "9113 4.2", tooShort), []sent{
		{"of 3 bytes", frames{frame(typePriorityUpdate, 0, 0, "\x00\x00\x00")}},
		{"empty", frames{frame(typePriorityUpdate, 0, 0, "")}},
	}),
	[]Case{{
		Name: "PRIORITY_UPDATE/for more streams than may be open", RFC: "9218 7.1", Then: Fails, Code: protocolError,
		Sentence: `The number of streams that have been prioritized but remain in the "idle" state plus the number of active streams MUST NOT exceed the value of the SETTINGS_MAX_CONCURRENT_STREAMS parameter. Servers that receive such a PRIORITY_UPDATE MUST respond with a connection error of type PROTOCOL_ERROR.`,
		Steps: steps(Step{Make: func(server ServerSettings) []Frame {
			var f []Frame
			for i := range min(server.MaxStreams, 900) + 1 {
				f = append(f, priorityUpdate(2*i+1, "u=1"))
			}
			return f
		}}),
	}},
)

var resetCases = slices.Concat(
	each(comes("RST_STREAM", "9113 6.4", "After receiving a RST_STREAM on a stream, the receiver MUST NOT send additional frames for that stream, except for PRIORITY.", going(1), hello(3)), []sent{
		{"behind HEADERS", frames{post(1), reset(1, cancel), get(3)}},
		{"behind DATA", frames{post(1), data(1, 0, "abc"), reset(1, cancel), get(3)}},
		{"twice", frames{post(1), reset(1, cancel), reset(1, cancel), get(3)}},
		{"with NO_ERROR", frames{post(1), reset(1, noError), get(3)}},
		{"with an unknown code", frames{post(1), reset(1, 0xffff0000), get(3)}},
	}),
	each(fails(frameSizeError, "RST_STREAM", "9113 6.4", "A RST_STREAM frame with a length other than 4 octets MUST be treated as a connection error of type FRAME_SIZE_ERROR."), []sent{
		{"empty", frames{post(1), frame(typeReset, 0, 1, "")}},
		{"of 5 bytes", frames{post(1), frame(typeReset, 0, 1, uint32Of(8)+"\x00")}},
		{"of 8 bytes", frames{post(1), frame(typeReset, 0, 1, uint32Of(8)+uint32Of(8))}},
	}),
	each(fails(protocolError, "RST_STREAM", "9113 6.4", "If a RST_STREAM frame identifying an idle stream is received, the recipient MUST treat this as a connection error of type PROTOCOL_ERROR."), []sent{
		{"on a server's stream", frames{reset(2, cancel)}},
		{"on a later stream", frames{get(1), reset(3, cancel)}},
	}),
)

var pushCases = each(fails(protocolError, "PUSH_PROMISE", "9113 8.4", "A client cannot push. Thus, servers MUST treat the receipt of a PUSH_PROMISE frame as a connection error of type PROTOCOL_ERROR."), []sent{
	{"on stream 0", frames{push(0)}},
	{"on a request", frames{post(1), push(1)}},
	{"behind SETTINGS_ENABLE_PUSH", frames{settings(setting(settingPush, 1)), post(1), push(1)}},
	{"empty", frames{post(1), frame(typePush, 0, 1, "")}},
})

const (
	pingOnZero   = "If a PING frame is received with a Stream Identifier field value other than 0x00, the recipient MUST respond with a connection error of type PROTOCOL_ERROR."
	goAwayOnZero = "An endpoint MUST treat a GOAWAY frame with a stream identifier other than 0x00 as a connection error of type PROTOCOL_ERROR."
	pingLength   = "Receipt of a PING frame with a length field value other than 8 MUST be treated as a connection error of type FRAME_SIZE_ERROR."
)

var pingCases = slices.Concat(
	// The runner waits for the answer to each PING, and allows no other.
	each(comes("PING", "9113 6.7", "Receivers of a PING frame that does not include an ACK flag MUST send a PING frame with the ACK flag set in response, with an identical frame payload."), []sent{
		{"one", frames{ping("abcdefgh")}},
		{"of zeros", frames{ping("\x00\x00\x00\x00\x00\x00\x00\x00")}},
		{"three", frames{ping("abcdefgh"), ping("ijklmnop"), ping("qrstuvwx")}},
		{"fifty", slices.Repeat(frames{ping("abcdefgh")}, 50)},
	}),
	each(comes("PING", "9113 6.7", "Receivers of a PING frame that does not include an ACK flag MUST send a PING frame with the ACK flag set in response.", echo(1, "abc")), []sent{
		{"between HEADERS and DATA", frames{post(1), ping("abcdefgh"), data(1, endStream, "abc")}},
		{"between DATA", frames{post(1), data(1, 0, "ab"), ping("abcdefgh"), data(1, endStream, "c")}},
	}),
	each(comes("PING", "9113 6.7", "An endpoint MUST NOT respond to PING frames containing this flag.", hello(1)), []sent{
		{"with ACK", frames{flagged(ping("abcdefgh"), ack), get(1)}},
		{"with ACK, and one without", frames{flagged(ping("abcdefgh"), ack), ping("ijklmnop"), get(1)}},
	}),
	each(fails(frameSizeError, "PING", "9113 6.7", pingLength), []sent{
		{"empty", frames{ping("")}},
		{"of 7 bytes", frames{ping("1234567")}},
		{"of 9 bytes", frames{ping("123456789")}},
		{"of 7 bytes, with ACK", frames{flagged(ping("1234567"), ack)}},
	}),
	each(fails(protocolError, "PING", "9113 6.7", pingOnZero), []sent{
		{"on an idle stream", frames{frame(typePing, 0, 1, "12345678")}},
		{"with ACK, on a stream", frames{frame(typePing, ack, 1, "12345678")}},
	}),
)

var goAwayCases = slices.Concat(
	each(comes("GOAWAY", "9113 6.8", "GOAWAY allows an endpoint to gracefully stop accepting new streams. A client's is about streams that the server would open: filo goes on.", hello(1)), []sent{
		{"behind a request", frames{get(1), goAway(noError, "")}},
		{"with debug data", frames{get(1), goAway(noError, "bye")}},
		{"with an error", frames{get(1), goAway(protocolError, "you did that")}},
		{"with an unknown code", frames{get(1), goAway(0xffff0000, "")}},
		{"twice", frames{get(1), goAway(noError, ""), goAway(noError, "")}},
	}),
	each(comes("GOAWAY", "9113 6.8", "The sender of a GOAWAY frame might gracefully shut down a connection by sending a GOAWAY frame, maintaining the connection in an \"open\" state until all in-progress streams complete.", echo(1, "abc")), []sent{
		{"in a request", frames{post(1), data(1, 0, "ab"), goAway(noError, ""), data(1, endStream, "c")}},
	}),
	each(fails(protocolError, "GOAWAY", "9113 6.8", goAwayOnZero), []sent{
		{"on a stream", frames{frame(typeGoAway, 0, 1, uint32Of(0)+uint32Of(0))}},
	}),
	each(fails(frameSizeError, "GOAWAY", "9113 4.2", tooShort), []sent{
		{"of 7 bytes", frames{frame(typeGoAway, 0, 0, uint32Of(0)+"\x00\x00\x00")}},
		{"empty", frames{frame(typeGoAway, 0, 0, "")}},
	}),
)

const (
	onlyContinuation = "A HEADERS frame without the END_HEADERS flag set MUST be followed by a CONTINUATION frame for the same stream. A receiver MUST treat the receipt of any other type of frame or a frame on a different stream as a connection error of type PROTOCOL_ERROR."
	noHeadersBefore  = "A CONTINUATION frame MUST be preceded by a HEADERS, PUSH_PROMISE or CONTINUATION frame without the END_HEADERS flag set. A recipient that observes violation of this rule MUST respond with a connection error of type PROTOCOL_ERROR."
	anyContinuations = "Any number of CONTINUATION frames can be sent, as long as the preceding frame is on the same stream and is a HEADERS or CONTINUATION frame without the END_HEADERS flag set; filo takes eight."
)

// begins is a field block that goes on.
var begins = headers(1, endStream, getBlock[:9])

// inBlock puts frames into a field block.
func inBlock(f ...Frame) frames {
	return append(append(frames{begins}, f...), continuation(1, endHeaders, getBlock[9:]))
}

// pieces is a request in HEADERS and n CONTINUATION frames.
func pieces(n int) frames {
	f := frames{begins}
	for range n - 1 {
		f = append(f, continuation(1, 0, ""))
	}
	return append(f, continuation(1, endHeaders, getBlock[9:]))
}

var continuationCases = slices.Concat(
	each(comes("CONTINUATION", "9113 6.10", anyContinuations, hello(1)), []sent{
		{"one", pieces(1)},
		{"two", frames{headers(1, endStream, getBlock[:9]), continuation(1, 0, getBlock[9:20]), continuation(1, endHeaders, getBlock[20:])}},
		{"behind empty HEADERS", frames{headers(1, endStream, ""), continuation(1, endHeaders, getBlock)}},
		{"empty at the end", frames{headers(1, endStream, getBlock), continuation(1, endHeaders, "")}},
		{"eight", pieces(8)},
		{"a field name cut in two", frames{headers(1, endStream, getBlock[:3]), continuation(1, endHeaders, getBlock[3:])}},
		{"END_STREAM's bit is not its own", frames{headers(1, endStream, getBlock[:9]), continuation(1, endHeaders|endStream, getBlock[9:])}},
		{"of a request with a priority", frames{headers(1, endStream|prioritize, uint32Of(0)+"\x0f"+getBlock[:9]), continuation(1, endHeaders, getBlock[9:])}},
	}),
	each(comes("CONTINUATION", "9113 6.2", "A HEADERS frame with the END_STREAM flag set signals the end of a stream. CONTINUATION has no such flag.", hello(1), hello(3)), []sent{
		{"END_STREAM's bit ends nothing", frames{headers(1, 0, getBlock[:9]), continuation(1, endHeaders|endStream, getBlock[9:]), data(1, endStream, "abc"), get(3)}},
	}),
	each(comes("CONTINUATION", "9113 8.1", "Trailers are a sequence starting with a HEADERS frame, followed by zero or more CONTINUATION frames, where the HEADERS frame bears an END_STREAM flag.", echo(1, "abc")), []sent{
		{"of trailers", frames{post(1), data(1, 0, "abc"), headers(1, endStream, block("x: y")[:3]), continuation(1, endHeaders, block("x: y")[3:])}},
		{"of an empty trailer section", frames{post(1), data(1, 0, "abc"), headers(1, endStream, ""), continuation(1, endHeaders, "")}},
	}),
	each(fails(enhanceYourCalm, "CONTINUATION", "9113 10.5", "An endpoint that doesn't monitor its use of resources exposes itself to a risk of denial-of-service attack: filo takes eight CONTINUATION frames, and a block of twice the size that a head may have."), []sent{
		{"nine", pieces(9)},
		{"a hundred", pieces(100)},
		{"of 48 KB", frames{headers(1, endStream, getBlock), continuation(1, 0, over16K[1:]), continuation(1, 0, over16K[1:]), continuation(1, endHeaders, over16K[1:])}},
	}),
	each(fails(protocolError, "in a block", "9113 6.2", onlyContinuation), []sent{
		{"DATA", inBlock(data(1, 0, "abc"))},
		{"DATA on another stream", append(frames{post(3)}, frames{headers(5, endStream, getBlock[:9]), data(3, 0, "abc"), continuation(5, endHeaders, getBlock[9:])}...)},
		{"HEADERS", inBlock(headers(1, whole, getBlock))},
		{"HEADERS on another stream", inBlock(get(3))},
		{"PRIORITY", inBlock(priority(1, 0))},
		{"RST_STREAM", inBlock(reset(1, cancel))},
		{"SETTINGS", inBlock(settings())},
		{"SETTINGS with ACK", inBlock(frame(typeSettings, ack, 0, ""))},
		{"PUSH_PROMISE", inBlock(push(1))},
		{"PING", inBlock(ping("12345678"))},
		{"GOAWAY", inBlock(goAway(noError, ""))},
		{"WINDOW_UPDATE", inBlock(windowUpdate(0, 1000))},
		{"WINDOW_UPDATE on the stream", inBlock(windowUpdate(1, 1000))},
		{"PRIORITY_UPDATE", inBlock(priorityUpdate(1, "u=1"))},
		{"CONTINUATION on another stream", inBlock(continuation(3, endHeaders, getBlock[9:]))},
		{"PING behind CONTINUATION", frames{begins, continuation(1, 0, ""), ping("12345678")}},
	}),
	each(fails(protocolError, "in a block", "9113 5.5", "Extension frames that appear in the middle of a field block are not permitted; these MUST be treated as a connection error of type PROTOCOL_ERROR."), []sent{
		{"an unknown type", inBlock(frame(typeUnknown, 0, 0, ""))},
		{"an unknown type on the stream", inBlock(frame(typeUnknown, 0, 1, "abc"))},
	}),
	each(fails(protocolError, "CONTINUATION", "9113 6.10", noHeadersBefore), []sent{
		{"behind END_HEADERS", frames{headers(1, endHeaders, postBlock), continuation(1, endHeaders, block("x: y"))}},
		{"behind its own END_HEADERS", frames{headers(1, 0, postBlock), continuation(1, endHeaders, ""), continuation(1, endHeaders, "")}},
		{"behind DATA", frames{post(1), data(1, 0, "abc"), continuation(1, endHeaders, block("x: y"))}},
		{"behind PING", frames{post(1), ping("12345678"), continuation(1, endHeaders, block("x: y"))}},
		{"on a server's stream", frames{continuation(2, endHeaders, getBlock)}},
	}),
)
