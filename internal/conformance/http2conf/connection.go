package http2conf

import (
	"slices"
	"strings"
)

const (
	allWindows    = "When the value of SETTINGS_INITIAL_WINDOW_SIZE changes, a receiver MUST adjust the size of all stream flow-control windows that it maintains by the difference between the new value and the old value."
	overOfStream  = "A sender MUST NOT allow a flow-control window to exceed 2^31-1 octets. For streams, the sender sends a RST_STREAM with an error code of FLOW_CONTROL_ERROR."
	mustNotExceed = "The sender MUST NOT send a flow-controlled frame with a length that exceeds the space available in either of the flow-control windows advertised by the receiver."
)

// k16 is content of 16,000 bytes. over16K is a payload one byte longer than a frame may hold. The requests in echos use up the connection's window.
var (
	k16     = strings.Repeat("0123456789abcdef", 1000)
	over16K = strings.Repeat("a", maxFrameSize+1)
	echos   = func() (f frames) {
		for id := uint32(1); id <= 7; id += 2 {
			f = append(f, post(id), data(id, endStream, k16))
		}
		return append(f, post(9), data(9, endStream, k16[:1535]))
	}()
	echoed = []Want{echo(1, k16), echo(3, k16), echo(5, k16), echo(7, k16), echo(9, k16[:1535])}
)

// initial returns SETTINGS that set the initial window of streams to n.
func initial(n uint32) Frame { return settings(setting(settingInitialWindow, n)) }

// flow is a case about windows.
func flow(name, rfc, sentence string, s ...Step) Case {
	return Case{Name: "window/" + name, RFC: rfc, Sentence: sentence, Steps: s}
}

// held marks a case whose requests go to /hold.
func held(c Case) Case {
	c.Holds = true
	return c
}

// fill returns a request to /hold with n bytes of DATA.
func fill(stream uint32, n int) frames {
	f := frames{headers(stream, endHeaders, holdBlock)}
	for ; n > 0; n -= maxFrameSize {
		f = append(f, data(stream, 0, over16K[:min(n, maxFrameSize)]))
	}
	return f
}

var windowCases = slices.Concat(
	each(comes("WINDOW_UPDATE", "9113 6.9", "The legal range for the increment to the flow-control window is 1 to 2^31-1 octets.", hello(1)), []sent{
		{"up to 2^31-1, in steps", frames{windowUpdate(0, 1<<30), windowUpdate(0, 1<<30-1-defaultWindow), get(1)}},
		{"of a stream, up to 2^31-1", frames{get(1), windowUpdate(1, maxID-defaultWindow)}},
	}),
	each(comes("WINDOW_UPDATE", "9113 6.9.1", overOfStream, cutOff(1, flowControlError)), []sent{
		{"to 2^31, behind SETTINGS", frames{initial(maxID), post(1), windowUpdate(1, 1)}},
	}),
	each(fails(flowControlError, "SETTINGS", "9113 6.9.2", "An endpoint MUST treat a change to SETTINGS_INITIAL_WINDOW_SIZE that causes any flow-control window to exceed the maximum size as a connection error of type FLOW_CONTROL_ERROR."), []sent{
		{"INITIAL_WINDOW_SIZE that makes a window 2^31", frames{post(1), windowUpdate(1, maxID-defaultWindow), initial(defaultWindow + 1)}},
		{"INITIAL_WINDOW_SIZE of 2^31-1 behind WINDOW_UPDATE", frames{post(1), windowUpdate(1, 1), initial(maxID)}},
	}),
	each(comes("SETTINGS", "9113 6.9.2", "A SETTINGS frame cannot alter the connection flow-control window.", hello(1)), []sent{
		{"INITIAL_WINDOW_SIZE leaves the connection's window alone", frames{windowUpdate(0, maxID-defaultWindow), initial(defaultWindow + 5), get(1)}},
	}),
	each(comes("SETTINGS", "9113 6.5", "Each parameter in a SETTINGS frame replaces any existing value for that parameter.", hello(1)), []sent{
		{"three", frames{settings(), settings(), settings(), get(1)}},
		{"HEADER_TABLE_SIZE of 0 and 4,096 again", frames{settings(setting(settingTableSize, 0), setting(settingTableSize, 4096)), get(1)}},
		{"the same one often: the last counts", frames{settings(setting(settingInitialWindow, 0), setting(settingInitialWindow, 5), setting(settingInitialWindow, 1000)), get(1)}},
	}),
	[]Case{
		flow("none, and then one", "9113 6.9.2", allWindows,
			send(frames{initial(0), get(1)}, begun(1, "")), send(frames{windowUpdate(1, 13)}, hello(1))),
		flow("byte by byte", "9113 6.9", "A sender that receives a WINDOW_UPDATE frame updates the corresponding window by the amount specified in the frame.",
			send(frames{initial(0), get(1)}, begun(1, "")), send(frames{windowUpdate(1, 1)}, begun(1, "H")), send(frames{windowUpdate(1, 1)}, begun(1, "He")),
			send(slices.Repeat(frames{windowUpdate(1, 1)}, 11), hello(1))),
		flow("opened by SETTINGS", "9113 6.9.2", allWindows,
			send(frames{initial(0), get(1), get(3)}, begun(1, ""), begun(3, "")), send(frames{initial(13)}, hello(1), hello(3))),
		flow("opened by SETTINGS in part", "9113 6.9.2", allWindows,
			send(frames{initial(0), get(1)}, begun(1, "")), send(frames{initial(5)}, begun(1, "Hello")), send(frames{initial(1000)}, hello(1))),
		flow("negative", "9113 6.9.2", "A sender MUST track the negative flow-control window and MUST NOT send new flow-controlled frames until it receives WINDOW_UPDATE frames that cause the flow-control window to become positive.",
			send(frames{initial(10), get(1)}, begun(1, "Hello, Wor")), send(frames{initial(4), windowUpdate(1, 6)}, begun(1, "Hello, Wor")),
			send(frames{windowUpdate(1, 1)}, begun(1, "Hello, Worl")), send(frames{windowUpdate(1, 2)}, hello(1))),
		flow("negative, and opened by SETTINGS", "9113 6.9.2", allWindows,
			send(frames{initial(10), get(1)}, begun(1, "Hello, Wor")), send(frames{initial(0)}), send(frames{initial(9)}),
			send(frames{initial(12)}, begun(1, "Hello, World")), send(frames{initial(13)}, hello(1))),
		flow("negative beside a new stream", "9113 6.9.2", allWindows,
			send(frames{initial(10), get(1)}, begun(1, "Hello, Wor")), send(frames{initial(5), get(3)}, begun(3, "Hello")),
			send(frames{windowUpdate(3, 8)}, hello(3)), send(frames{windowUpdate(1, 8)}, hello(1))),
		flow("of the connection doesn't open a stream's", "9113 6.9.1", mustNotExceed,
			send(frames{initial(0), get(1)}, begun(1, "")), send(frames{windowUpdate(0, 1000)}), send(frames{windowUpdate(1, 1000)}, hello(1))),
		flow("of one stream doesn't stop another", "9113 5.2.1", "Flow control operates on individual streams and the entire connection: a stream without a window is no reason for another to wait.",
			send(frames{initial(0), get(1), get(3), windowUpdate(3, 13)}, begun(1, ""), hello(3)), send(frames{windowUpdate(1, 13)}, hello(1))),
		flow("given before the answer", "9113 6.9.1", mustNotExceed,
			send(frames{initial(10), post(1), windowUpdate(1, 100), data(1, endStream, k16[:50])}, echo(1, k16[:50]))),
		flow("given in the middle of a request", "9113 6.9.1", mustNotExceed,
			send(frames{initial(10), post(1), data(1, 0, k16[:25]), windowUpdate(1, 15), data(1, endStream, k16[25:50])}, begun(1, k16[:25])),
			send(frames{windowUpdate(1, 25)}, echo(1, k16[:50]))),
		flow("taken by SETTINGS before the answer", "9113 6.9.2", allWindows,
			send(frames{post(1), data(1, 0, "abc"), initial(0), data(1, endStream, "def")}, begun(1, "")), send(frames{windowUpdate(1, 4)}, begun(1, "abcd")),
			send(frames{initial(2)}, echo(1, "abcdef"))),
		flow("changed when the answer has ended before the request", "9113 6.9.2", allWindows,
			fixed(frames{headers(1, endHeaders, getBlock)}, hello(1)), send(frames{initial(100), windowUpdate(1, 5), initial(0), initial(70_000)}),
			send(frames{data(1, endStream, "abc"), windowUpdate(1, 5)})),
		flow("changed when both have ended", "9113 6.9.2", allWindows,
			fixed(frames{get(1)}, hello(1)), send(frames{initial(100), windowUpdate(1, 5), initial(0), initial(70_000)})),
		flow("isn't needed without content", "9113 6.9", "Of the frame types defined in this document, flow control applies only to DATA frames.",
			send(frames{initial(0), headers(1, whole, block(":method: HEAD", ":scheme: https", ":path: /hello", ":authority: a"))},
				Want{Stream: 1, Status: 200, Head: true, Fields: []Field{{"content-length", "13"}}}),
			send(frames{headers(3, whole, postBlock)}, echo(3, ""))),
		flow("of the connection is used up", "9113 6.9.1", mustNotExceed,
			fixed(echos, echoed...), send(frames{get(11)}, begun(11, "")), send(frames{windowUpdate(11, 1000)}),
			send(frames{windowUpdate(0, 5)}, begun(11, "Hello")), send(frames{windowUpdate(0, 8)}, hello(11))),
		flow("of the connection is used up, and a stream's is over 2^31-1", "9113 6.9.1", overOfStream,
			fixed(echos, echoed...), fixed(frames{get(11)}, begun(11, "")), send(frames{windowUpdate(11, maxID)}, cutOff(11, flowControlError))),
		flow("of the connection is used up, and RST_STREAM", "9113 5.4.2", "These frames can be ignored, except where they modify connection state.",
			fixed(echos, echoed...), fixed(frames{get(11), get(13)}, begun(11, ""), begun(13, "")), send(frames{reset(11, cancel), windowUpdate(0, 13)}, hello(13))),
		flow("of 16,384 bytes for DATA of 20,000", "9113 6.9.1", mustNotExceed,
			send(frames{initial(16384), post(1), data(1, 0, k16), data(1, endStream, k16[:4000])}, begun(1, k16+k16[:384])),
			send(frames{windowUpdate(1, 3616)}, echo(1, k16+k16[:4000]))),
		flow("large, both ways", "9113 5.2.1", "The receiver of a frame sends a WINDOW_UPDATE frame as it consumes data and frees up space in flow-control windows.",
			fixed(append(append(frames{windowUpdate(0, 1<<20), initial(1 << 20), post(1)}, slices.Repeat(frames{data(1, 0, k16)}, 20)...), data(1, endStream, "")),
				echo(1, strings.Repeat(k16, 20)))),

		held(flow("of a stream is used up", "9113 6.9.1", mustNotExceed,
			Step{Make: func(server ServerSettings) []Frame { return fill(1, int(server.InitialWindow)) }}, fixed(frames{reset(1, cancel)}))),
		held(flow("of a stream is overrun", "9113 6.9.1", mustNotExceed+" A receiver MAY respond with a stream error of type FLOW_CONTROL_ERROR.",
			Step{Make: func(server ServerSettings) []Frame { return fill(1, int(server.InitialWindow)+1) }, Rude: true, Want: []Want{wasReset(1, flowControlError)}})),
		held(flow("of a stream is overrun at once", "9113 6.9.1", mustNotExceed+" A receiver MAY respond with a stream error of type FLOW_CONTROL_ERROR.",
			Step{Make: func(server ServerSettings) []Frame {
				return append(fill(1, int(server.InitialWindow)), data(1, 0, k16), data(1, 0, k16), data(1, endStream, k16))
			}, Rude: true, Want: []Want{wasReset(1, flowControlError)}})),
		held(flow("of a stream is overrun by padding", "9113 6.1", "The entire DATA frame payload is included in flow control, including the Pad Length and Padding fields if present.",
			Step{Make: func(server ServerSettings) []Frame {
				return append(fill(1, int(server.InitialWindow)-5), data(1, padded, "\x04a\x00\x00\x00\x00"))
			}, Rude: true, Want: []Want{wasReset(1, flowControlError)}})),
		held(flow("of the connection is another's to use, too", "9113 5.2.2", "Flow control addresses cases where the receiver is unable to process data on one stream yet wants to continue to process other streams in the same connection. filo returns the connection's window on receipt.",
			Step{Make: func(server ServerSettings) []Frame {
				n := int(server.InitialWindow)
				return slices.Concat(fill(1, n), fill(3, n), fill(5, n))
			}},
			fixed(frames{post(7), data(7, 0, k16), data(7, endStream, k16)}, echo(7, k16+k16)), fixed(frames{reset(1, cancel), reset(3, cancel), reset(5, cancel)}))),
		held(Case{
			Name: "window/of the connection is overrun", RFC: "9113 6.9.1", Then: Either, Code: flowControlError,
			Sentence: mustNotExceed + " A receiver MAY respond with a connection error of type FLOW_CONTROL_ERROR; it need not if it has returned the window meanwhile.",
			Steps: steps(Step{Make: func(server ServerSettings) []Frame {
				n := int(server.InitialWindow)
				return slices.Concat(fill(1, n), fill(3, n), fill(5, n), fill(7, n))
			}, Rude: true, Want: []Want{{Stream: 1, What: Anything}, {Stream: 3, What: Anything}, {Stream: 5, What: Anything}, {Stream: 7, What: Anything}}}),
		}),
	},
)

// urgent returns a case about the order in which the server sends two answers after echos has used up the connection's window. Each frame of
// first is a step: the requests on streams 11 and 13, whose answers wait for the window, and further frames on these streams.
func urgent(name, sentence string, first frames, s ...Step) Case {
	c := Case{Name: "priority/" + name, RFC: "9218 10", Sentence: sentence, Steps: steps(fixed(echos, echoed...))}
	for _, f := range first {
		step := send(frames{f})
		if f.is(typeHeaders) {
			step.Want = []Want{begun(f.Stream, "")}
		}
		c.Steps = append(c.Steps, step)
	}
	c.Steps = append(c.Steps, s...)
	return c
}

const (
	byUrgency = "It is RECOMMENDED that, when possible, servers respect the urgency parameter, sending higher-urgency responses before lower-urgency responses."
	inOrder   = "Non-incremental responses of the same urgency SHOULD be served by prioritizing bandwidth allocation in ascending order of the stream ID."
	inTurn    = "Incremental responses of the same urgency SHOULD be served by sharing bandwidth among them; filo goes from one to the other by frames."
)

var priorityOrderCases = []Case{
	urgent("the field", byUrgency, frames{getWith(11, "priority: u=5"), getWith(13, "priority: u=1")},
		send(frames{windowUpdate(0, 13)}, hello(13)), send(frames{windowUpdate(0, 13)}, hello(11))),
	urgent("the default is 3", byUrgency, frames{getWith(11, "priority: u=4"), get(13)},
		send(frames{windowUpdate(0, 13)}, hello(13)), send(frames{windowUpdate(0, 13)}, hello(11))),
	urgent("in the order of the requests", inOrder, frames{getWith(11, "priority: u=3"), getWith(13, "priority: u=3")},
		send(frames{windowUpdate(0, 5)}, begun(11, "Hello")), send(frames{windowUpdate(0, 8)}, hello(11)), send(frames{windowUpdate(0, 13)}, hello(13))),
	urgent("in turn, if none says anything", "RFC 9218 leaves it to the server what it does without a priority signal; filo takes such requests for incremental ones.", frames{get(11), get(13)},
		send(frames{windowUpdate(0, 5)}, begun(11, "Hello")), send(frames{windowUpdate(0, 5)}, begun(13, "Hello")),
		send(frames{windowUpdate(0, 16)}, hello(11), hello(13))),
	urgent("PRIORITY_UPDATE behind the request", byUrgency, frames{get(11), get(13), priorityUpdate(13, "u=0")},
		send(frames{windowUpdate(0, 13)}, hello(13)), send(frames{windowUpdate(0, 13)}, hello(11))),
	urgent("PRIORITY_UPDATE before the request", byUrgency, frames{priorityUpdate(13, "u=0"), get(11), getWith(13, "priority: u=7")},
		send(frames{windowUpdate(0, 13)}, hello(13)), send(frames{windowUpdate(0, 13)}, hello(11))),
	urgent("PRIORITY_UPDATE when an answer has begun", byUrgency, frames{getWith(11, "priority: u=3"), getWith(13, "priority: u=3")},
		send(frames{windowUpdate(0, 5)}, begun(11, "Hello")), send(frames{priorityUpdate(13, "u=0"), windowUpdate(0, 13)}, hello(13)),
		send(frames{windowUpdate(0, 8)}, hello(11))),
	urgent("incremental", inTurn, frames{getWith(11, "priority: i"), getWith(13, "priority: i")},
		send(frames{windowUpdate(0, 5)}, begun(11, "Hello")), send(frames{windowUpdate(0, 5)}, begun(13, "Hello")),
		send(frames{windowUpdate(0, 16)}, hello(11), hello(13))),
	urgent("the more urgent one has no window", byUrgency, frames{get(11), getWith(13, "priority: u=0"), initial(13), initial(0)},
		send(frames{windowUpdate(11, 13), windowUpdate(0, 26)}, hello(11)), send(frames{windowUpdate(13, 13)}, hello(13))),
}

var goAwayCases = each(comes("GOAWAY", "9113 6.8", "GOAWAY allows an endpoint to gracefully stop accepting new streams. A client's is about streams that the server would open: filo goes on.", echo(1, "abc")), []sent{
	{"in a request", frames{post(1), data(1, 0, "ab"), goAway(noError, "bye"), data(1, endStream, "c")}},
	{"twice, with an error", frames{post(1), goAway(protocolError, ""), goAway(0xffff0000, ""), data(1, endStream, "abc")}},
})

const refused = "An endpoint that receives a HEADERS frame that causes its advertised concurrent stream limit to be exceeded MUST treat this as a stream error of type PROTOCOL_ERROR or REFUSED_STREAM; filo takes the latter, so that the client may try again."

// beyond is higher than the number of any stream that full opens.
const beyond = 10_001

// full opens as many streams as the server allows. The first is 1.
func full(server ServerSettings) []Frame {
	var f []Frame
	for i := range min(server.MaxStreams, beyond/2) {
		f = append(f, postWith(2*i+1, "content-length: 3"))
	}
	return f
}

// room returns a case in which stream 1 ends. The client can then open as many other streams as the server allows.
func room(name string, s ...Step) Case {
	return Case{Name: "closed streams don't count/" + name, RFC: "9113 5.1.2",
		Sentence: `Streams that are in the "open" state or in either of the "half-closed" states count toward the maximum number of streams that an endpoint is permitted to open. Closed ones don't.`,
		Steps: append(s, Step{Make: func(server ServerSettings) []Frame {
			f := full(server)[1:]
			return append(f, postWith(beyond, "content-length: 3"))
		}}, fixed(frames{data(beyond, endStream, "abc")}, echo(beyond, "abc")), send(frames{get(beyond + 2)}, hello(beyond+2)))}
}

// answeredEarly returns a step in which stream 1 is answered before its request has ended.
func answeredEarly(fields ...string) Step {
	return fixed(frames{headers(1, endHeaders, getBlock+block(fields...))}, hello(1))
}

var roomCases = []Case{
	room("an answered one", fixed(frames{get(1)}, hello(1))),
	room("a malformed one", fixed(frames{headers(1, whole, block(":method: GET"))}, malformed(1))),
	room("a malformed one that goes on", fixed(frames{postWith(1, "X: y")}, malformed(1))),
	room("one that depends on itself", fixed(frames{headers(1, whole|prioritize, uint32Of(1)+"\x0f"+getBlock)}, wasReset(1, protocolError))),
	room("one that is too large", fixed(with(slices.Repeat([]string{"x: y"}, 101)...), answered(1, 431))),
	room("one that the client has reset", fixed(frames{postWith(1, "content-length: 3"), reset(1, cancel)})),
	room("one with too much DATA", fixed(frames{postWith(1, "content-length: 3"), data(1, 0, "abcd")}, malformed(1))),
	room("one with WINDOW_UPDATE of 0", fixed(frames{postWith(1, "content-length: 3"), windowUpdate(1, 0)}, wasReset(1, protocolError))),
	room("one that was answered early, and has ended", answeredEarly(), send(frames{data(1, endStream, "abc")})),
	room("one that was answered early, and has ended with trailers", answeredEarly(), send(frames{headers(1, whole, block("x: y"))})),
	room("one that was answered early, and reset by the client", answeredEarly(), send(frames{reset(1, noError)})),
	room("one that was answered early, and reset by the server", answeredEarly(), send(frames{data(1, 0, k16), data(1, 0, k16[:1000])}, helloEarly(1))),
	room("one that was answered early, and has ended with another length than announced", answeredEarly("content-length: 20000"),
		send(frames{data(1, endStream, "abc")})),
	room("one that was answered early, and has sent more than announced", answeredEarly("content-length: 20000"),
		send(frames{data(1, 0, k16), data(1, endStream, k16)}, Want{Stream: 1, What: Anything})),
	room("one that was answered early, and has WINDOW_UPDATE of 0", answeredEarly(), send(frames{windowUpdate(1, 0)}, cutOff(1, protocolError))),
	room("one that was answered early, and has DATA and then HEADERS", answeredEarly(), send(frames{data(1, 0, "abc"), headers(1, endHeaders, block("x: y"))},
		cutOff(1, protocolError))),
}

var streamCases = slices.Concat(
	roomCases,
	each(comes("stream", "9113 5.1.1", "An endpoint may skip a stream identifier, with the effect being that the skipped stream is immediately closed.", hello(1), hello(9), hello(1001)), []sent{
		{"numbers with gaps", frames{get(1), get(9), get(1001)}},
	}),
	each(ends(OpenOld, comes("stream", "9113 5.1.1", "Streams are identified by an unsigned 31-bit integer.", hello(1), hello(maxID))), []sent{
		{"2^31-1", frames{get(1), get(maxID)}},
	}),
	each(Case{
		Name: "stream", RFC: "9113 5.1.1", Then: Fails, Code: streamClosed,
		Sentence: "Stream identifiers cannot be reused. The first use of a stream closes all idle ones with lower numbers; filo says STREAM_CLOSED of HEADERS on any of them.",
		Steps:    steps(fixed(frames{get(5)}, hello(5)), Step{}),
	}, []sent{
		{"with a lower number", frames{get(3)}},
		{"with a lower number, and a field block of two frames", frames{headers(3, endStream, getBlock[:9]), continuation(3, endHeaders, getBlock[9:])}},
		{"with the same number", frames{get(5)}},
		{"with the same number, behind another", frames{get(7), get(5)}},
	}),
	[]Case{
		{Name: "too many streams/one", RFC: "9113 5.1.2", Sentence: refused, Steps: steps(
			Step{Make: full}, send(frames{get(beyond)}, wasReset(beyond, refusedStream)),
			send(frames{data(1, endStream, "abc")}, echo(1, "abc")), send(frames{get(beyond + 2)}, hello(beyond+2)))},
		{Name: "too many streams/three", RFC: "9113 5.1.2", Sentence: refused, Steps: steps(
			Step{Make: full}, send(frames{get(beyond), post(beyond + 2), get(beyond + 4)},
				wasReset(beyond, refusedStream), wasReset(beyond+2, refusedStream), wasReset(beyond+4, refusedStream)),
			send(frames{data(1, endStream, "abc")}, echo(1, "abc")))},
		{Name: "too many streams/with DATA", RFC: "9113 5.4.2", Sentence: discards, Steps: steps(
			Step{Make: full}, send(frames{post(beyond), data(beyond, 0, "abc"), data(beyond, endStream, "def")}, wasReset(beyond, refusedStream)),
			send(frames{data(1, endStream, "abc")}, echo(1, "abc")))},
		{Name: "too many streams/RST_STREAM makes room", RFC: "9113 5.1.2",
			Sentence: `Streams that are in the "open" state or in either of the "half-closed" states count toward the maximum number of streams.`, Steps: steps(
				Step{Make: full}, send(frames{reset(1, cancel)}), send(frames{get(beyond)}, hello(beyond)))},
		{Name: "too many streams/a field block is decoded all the same", RFC: "9113 4.3",
			Sentence: "An endpoint receiving HEADERS needs to reassemble field blocks and perform decompression even if the frames are to be discarded.", Steps: steps(
				Step{Make: full}, send(frames{headers(beyond, whole, indexing)}, wasReset(beyond, refusedStream)),
				send(frames{data(1, endStream, "abc")}, echo(1, "abc")), send(frames{headers(beyond+2, whole, indexed)}, hello(beyond+2)))},
		{Name: "too many streams/one with a field block that can't be decoded", RFC: "9113 4.3", Then: Fails, Code: compressionError,
			Sentence: "A receiver MUST terminate the connection with a connection error of type COMPRESSION_ERROR if it does not decompress a field block.",
			Steps:    steps(Step{Make: full}, send(frames{headers(beyond, whole, "\xff\xff\xff\xff\xff\xff\xff")}))},
	},
)
