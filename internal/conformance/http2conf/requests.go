package http2conf

import (
	"slices"
	"strings"
)

// indexing is a field block that adds :path and :authority to the dynamic table. indexed is the same request, which refers to these entries.
const (
	indexing = "\x82\x87\x44\x06/hello\x41\x01a"
	indexed  = "\x82\x87\xbf\xbe"
	// plain is the same request, which doesn't use the dynamic table.
	plain = "\x82\x87\x04\x06/hello\x01\x01a"
)

// with returns a GET with more fields, on stream 1.
func with(fields ...string) frames { return frames{getWith(1, fields...)} }

// twice returns a case of one request, followed by requests whose field blocks refer to entries that the first request added to HPACK's table.
func twice(name, rfc, sentence string, first []Frame, want Want, second ...Frame) Case {
	var greetings []Want
	for _, f := range second {
		greetings = append(greetings, hello(f.Stream))
	}
	return Case{Name: "HPACK/" + name, RFC: rfc, Sentence: sentence, Steps: steps(fixed(first, want), send(second, greetings...))}
}

// alwaysSame is the rule that a field block changes HPACK's table even if its request is refused.
const alwaysSame = "Field compression is stateful: an endpoint needs to perform decompression even if the frames are to be discarded."

var tableCases = []Case{
	twice("an index of the request before", "7541 2.3.2", "The dynamic table consists of a list of header fields maintained in first-in, first-out order.",
		frames{headers(1, whole, indexing)}, hello(1), headers(3, whole, indexed)),
	twice("an index of a malformed request", "9113 4.3", alwaysSame,
		frames{headers(1, whole, indexing+block("X: y"))}, malformed(1), headers(3, whole, indexed)),
	twice("an index of a request that is too large", "9113 4.3", alwaysSame,
		frames{headers(1, whole, indexing+strings.Repeat("\x00\x01x\x01y", 300))}, answered(1, 431), headers(3, whole, indexed)),
	twice("an index behind what is too large", "9113 4.3", alwaysSame,
		frames{headers(1, whole, plain+strings.Repeat("\x00\x01x\x01y", 600)+"\x40\x01x\x01y")}, answered(1, 431), headers(3, whole, plain+"\xbe")),
	twice("an index of trailers", "9113 4.3", alwaysSame,
		frames{post(1), headers(1, whole, "\x40\x01x\x01y")}, echo(1, ""), headers(3, whole, plain+"\xbe")),
	twice("an index of HEADERS on a stream that the server has reset", "9113 5.1", "An endpoint MUST minimally process and then discard any frames it receives in this state. This means updating header compression state for HEADERS.",
		frames{postWith(1, "X: y"), headers(1, whole, indexing)}, malformed(1), headers(3, whole, indexed)),
	twice("an index of HEADERS that depend on themselves", "9113 4.3", alwaysSame,
		frames{headers(1, whole|prioritize, uint32Of(1)+"\x0f"+indexing)}, wasReset(1, protocolError), headers(3, whole, indexed)),
	twice("an index of two requests before", "7541 2.3.2", "The newest entry has the lowest index.",
		frames{headers(1, whole, indexing)}, hello(1), headers(3, whole, "\x82\x87\xbf\xbe\x40\x01x\x01y"), headers(5, whole, "\x82\x87\xc0\xbf\xbe")),
	// These cases change the size limit for the table of the server's encoder. The runner checks that the server's field blocks respect this limit.
	{Name: "HPACK/a smaller table for answers", RFC: "9113 4.3.1",
		Sentence: "Once an endpoint acknowledges a change to SETTINGS_HEADER_TABLE_SIZE that reduces the maximum below the current size of the dynamic table, its HPACK encoder MUST start the next field block with a Dynamic Table Size Update instruction.",
		Steps: steps(fixed(frames{get(1)}, hello(1)), send(frames{settings(setting(settingTableSize, 0))}), send(frames{get(3), get(5)}, hello(3), hello(5)),
			send(frames{settings(setting(settingTableSize, 100))}), send(frames{get(7)}, hello(7)))},
	{Name: "HPACK/a larger table for answers", RFC: "9113 6.5.2",
		Sentence: "The encoder can select any size equal to or less than this value.",
		Steps:    steps(fixed(frames{get(1)}, hello(1)), send(frames{settings(setting(settingTableSize, 65536)), get(3)}, hello(3)))},
}

// cutOffMalformed is the outcome of a stream whose request turns out to be malformed at a time when the handler may already have begun to answer.
func cutOffMalformed(stream uint32) Want {
	return Want{Stream: stream, What: Reset, Code: protocolError, Status: 200, Or: 400}
}

// ends returns c with another value of Then.
func ends(then Then, c Case) Case {
	c.Then = then
	return c
}

// trailer returns a request with content, followed by these frames.
func trailer(f ...Frame) frames { return append(frames{post(1), data(1, 0, "hello")}, f...) }

var requestCases = slices.Concat(
	// A server doesn't wait for so much content before it calls the handler, so these requests turn out to be malformed while the handler runs.
	each(comes("Content-Length", "9113 8.1.1", "A request is also malformed if the value of a content-length header field does not equal the sum of the DATA frame payload lengths that form the content.", cutOffMalformed(1)), []sent{
		{"of 20,000, and less DATA", frames{postWith(1, "content-length: 20000"), data(1, 0, k16), data(1, endStream, k16[:3999])}},
		{"of 20,000, and more DATA", frames{postWith(1, "content-length: 20000"), data(1, 0, k16), data(1, endStream, k16[:4001])}},
		{"of 20,000, and trailers too early", frames{postWith(1, "content-length: 20000"), data(1, 0, k16), headers(1, whole, block("x: y"))}},
	}),
	each(comes("trailers", "9113 8.1", "An endpoint that receives a HEADERS frame without the END_STREAM flag set after receiving the HEADERS frame that opens a request MUST treat the request as malformed.", cutOffMalformed(1)), []sent{
		{"without END_STREAM", trailer(headers(1, endHeaders, block("x: y")))},
		{"without END_STREAM, and then DATA", trailer(headers(1, endHeaders, block("x: y")), data(1, endStream, "more"))},
		{"without END_STREAM, and then with it", trailer(headers(1, endHeaders, block("x: y")), headers(1, whole, block("x: y")))},
		{"without END_STREAM, empty", trailer(headers(1, endHeaders, ""))},
	}),
	each(comes("trailers", "9113 10.5.1", "A server that receives a larger field block than it is willing to handle can send a 431; behind a request that is under way, filo resets the stream.", cutOffMalformed(1)), []sent{
		{"with 101 fields", trailer(headers(1, whole, block(slices.Repeat([]string{"x: y"}, 101)...)))},
		{"with a value of 16,355 bytes", trailer(headers(1, whole, block("x: "+over16K[:16355])))},
	}),
	each(Case{Name: "Expect", RFC: "9110 10.1.1", Steps: steps(Step{Want: []Want{{Stream: 1, What: Nothing, Interim: []int{100}}}},
		fixed(frames{data(1, endStream, "hello")}, Want{Stream: 1, Status: 200, Body: "hello", Interim: []int{100}})),
		Sentence: "A server that responds with 100 (Continue) does so when the request has the expectation and its content is wanted."}, []sent{
		{"100-continue", frames{postWith(1, "content-length: 5", "expect: 100-continue")}},
		{"100-continue, without a length", frames{postWith(1, "expect: 100-continue")}},
		{"100-continue in upper case", frames{postWith(1, "content-length: 5", "expect: 100-Continue")}},
	}),
	each(comes("Expect", "9110 10.1.1", "A server that receives 100-continue sends either a 100 or the final status; filo's says what it is before the content is asked for, and RST_STREAM that it isn't wanted.", Want{Stream: 1, What: AnsweredEarly, Status: 405}, hello(3)), []sent{
		{"100-continue, and an answer that doesn't depend on the content", frames{headers(1, endHeaders, block(":method: POST", ":scheme: https", ":path: /hello", ":authority: a", "expect: 100-continue")), get(3)}},
	}),
	each(comes("early answer", "9113 8.1", "A server can send a complete response prior to the client sending an entire request.", hello(1), hello(3)), []sent{
		{"and no DATA", frames{headers(1, endHeaders, getBlock), get(3)}},
		{"and DATA", frames{headers(1, endHeaders, getBlock), data(1, 0, "abc"), get(3)}},
		{"and DATA to the end", frames{headers(1, endHeaders, getBlock), data(1, endStream, "abc"), get(3)}},
		{"and trailers", frames{headers(1, endHeaders, getBlock), data(1, 0, "abc"), headers(1, whole, block("x: y")), get(3)}},
	}),
	each(comes("early answer", "9113 8.1", "A server MAY request that the client abort transmission of a request without error by sending a RST_STREAM with an error code of NO_ERROR after sending a complete response; filo does when the client goes on sending.", helloEarly(1), hello(3)), []sent{
		{"and 17,000 bytes", frames{headers(1, endHeaders, getBlock), data(1, 0, k16), data(1, 0, k16[:1000]), get(3)}},
		{"and 17,000 bytes in small frames", append(append(frames{headers(1, endHeaders, getBlock)}, slices.Repeat(frames{data(1, 0, k16[:1000])}, 17)...), get(3))},
	}),
	[]Case{{Name: "early answer/and DATA behind RST_STREAM", RFC: "9113 5.4.2", Sentence: discards, Steps: steps(
		fixed(frames{headers(1, endHeaders, getBlock), data(1, 0, k16), data(1, 0, k16[:1000])}, helloEarly(1)),
		send(frames{data(1, 0, k16), data(1, 0, "abc"), data(1, endStream, "abc"), get(3)}, hello(3)))}},
	each(comes("interleaved", "9113 5", "A single HTTP/2 connection can contain multiple concurrently open streams, with either endpoint interleaving frames from multiple streams.", echo(1, "abcdef"), echo(3, "uvwxyz")), []sent{
		{"with frames of the connection between", frames{post(1), ping("12345678"), post(3), settings(), data(1, 0, "abc"), windowUpdate(0, 5), data(3, endStream, "uvwxyz"),
			frame(typeUnknown, 0, 0, "x"), data(1, endStream, "def")}},
	}),
	each(ends(Leaves, comes("cut short", "9113 8.1", "The last frame in the sequence bears an END_STREAM flag. Without it a request isn't complete.")), []sent{
		{"in the header of a frame", frames{raw("\x00\x00\x20\x01")}},
		{"in HEADERS", frames{raw(string(bytesOf(frames{get(1)})[:20]))}},
		{"before CONTINUATION", frames{headers(1, endStream, getBlock)}},
		{"before DATA", frames{postWith(1, "content-length: 5")}},
		{"in DATA", frames{postWith(1, "content-length: 5"), raw("\x00\x00\x05\x00\x01\x00\x00\x00\x01hel")}},
		{"before the second DATA", frames{postWith(1, "content-length: 5"), data(1, 0, "hel")}},
	}),
)
