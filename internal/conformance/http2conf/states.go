package http2conf

import (
	"slices"
	"strings"
)

// A way brings stream 5 into a state, while stream 1 waits for the rest of its content.
type way struct {
	name string
	step Step
	// refuses is the sentence about frames that aren't allowed in this state, and allows is the sentence about allowed frames. rfc names the
	// section of both.
	rfc, refuses, allows string
}

// outcomeCodes maps the letters in a row's outcomes to error codes.
var outcomeCodes = map[string]Code{
	"P": protocolError, "S": streamClosed, "F": frameSizeError, "W": flowControlError, "C": compressionError,
}

// A row holds frames on stream 5, with their outcome in each state.
type row struct {
	name   string
	frames []Frame
	body   string // the request's body, in the state open
	// rfc and sentence decide the outcome err in any state. The sentences of the state decide the other outcomes.
	rfc, sentence string
	err           string
	// want lists the outcomes for stream 5, one a state, in the order of ways. A letter is the code of RST_STREAM, and "!" with a letter the
	// code of GOAWAY. "400" stands for a malformed request, and "=" for no effect. An answer is "ended" if it comes because the request has
	// ended, "early" if it comes before the request has ended, and "written" if it comes because the window now allows it. "narrow" has no
	// effect yet, but the answer will need a larger window.
	want string
}

const (
	discards = "The peer that sends the RST_STREAM frame MUST be prepared to receive any frames that were sent or enqueued for sending by the remote peer. These frames can be ignored, except where they modify connection state."
	onClosed = "An endpoint MAY treat receipt of any other type of frame than PRIORITY on a closed stream as a connection error of type STREAM_CLOSED; filo does so with HEADERS, and resets the stream for DATA."
	onIdle   = "Receiving any frame other than HEADERS or PRIORITY on a stream in this state MUST be treated as a connection error of type PROTOCOL_ERROR."
	lateOnes = "An endpoint that sends a frame with the END_STREAM flag set or a RST_STREAM frame might receive a WINDOW_UPDATE or RST_STREAM frame from its peer in the time before the peer receives and processes the frame that closes the stream."
	onHalf   = "If an endpoint receives additional frames, other than WINDOW_UPDATE, PRIORITY, or RST_STREAM, for a stream that is in this state, it MUST respond with a stream error of type STREAM_CLOSED."
	// filo resets such a stream only if the client sends much DATA on it.
	onAnswered = "An endpoint can receive any type of frame in this state."
	onOpen     = `A stream in the "open" state may be used by both peers to send frames of any type.`
)

// sibling is a request that waits for the rest of its content.
var sibling = frames{postWith(1, "content-length: 5"), data(1, 0, "hel")}

var ways = [8]way{
	{"idle", fixed(sibling), "9113 5.1", onIdle, onIdle},
	{"open", fixed(append(slices.Clone(sibling), post(5)), going(5)), "9113 5.1", onOpen, onOpen},
	// The initial window is 0, so the answer can't end before the client sends WINDOW_UPDATE.
	{"half-closed (remote)", fixed(append(append(frames{settings(setting(settingInitialWindow, 0))}, sibling...), get(5)), begun(5, "")),
		"9113 5.1", onHalf, onHalf},
	{"half-closed (local)", fixed(append(slices.Clone(sibling), headers(5, endHeaders, getBlock)), hello(5)), "9113 5.1", onAnswered, onAnswered},
	{"closed", fixed(append(slices.Clone(sibling), get(5)), hello(5)), "9113 5.1", onClosed, lateOnes},
	{"closed by the client's RST_STREAM", fixed(append(slices.Clone(sibling), post(5), reset(5, cancel)), going(5)), "9113 5.1", onClosed, lateOnes},
	{"closed by a later stream", fixed(append(slices.Clone(sibling), get(7)), hello(7)), "9113 5.1", onClosed, lateOnes},
	{"closed by the server's RST_STREAM", fixed(append(slices.Clone(sibling), postWith(5, "X: y")), malformed(5)), "9113 5.4.2", discards, discards},
}

var rows = []row{
	{"HEADERS", frames{headers(5, endHeaders, getBlock)}, "", "9113 8.1",
		"An endpoint that receives a HEADERS frame without the END_STREAM flag set after receiving the HEADERS frame that opens a request MUST treat the request as malformed.",
		"P", "early P S P !S !S !S ="},
	{"HEADERS and CONTINUATION", frames{headers(5, 0, getBlock[:9]), continuation(5, endHeaders, getBlock[9:])}, "", "9113 8.1",
		"An endpoint that receives a HEADERS frame without the END_STREAM flag set after receiving the HEADERS frame that opens a request MUST treat the request as malformed.",
		"P", "early P S P !S !S !S ="},
	{"HEADERS of trailers", frames{headers(5, whole, block("x: y"))}, "", "9113 8.3.1",
		"An HTTP request that omits mandatory pseudo-header fields is malformed.",
		"400", "400 ended S = !S !S !S ="},
	{"HEADERS that depend on themselves", frames{headers(5, whole|prioritize, uint32Of(5)+"\x0f"+block("x: y"))}, "", "7540 5.3.1",
		"A stream cannot depend on itself. An endpoint MUST treat this as a stream error of type PROTOCOL_ERROR.",
		"P", "P P S P !S !S !S ="},
	{"HEADERS that can't be decoded", frames{headers(5, whole, "\xff\xff\xff\xff\xff\xff\xff")}, "", "9113 4.3",
		"A decoding error in a field block MUST be treated as a connection error of type COMPRESSION_ERROR.",
		"C", "!C !C !C !C !S !S !S !C"},
	{"DATA", frames{data(5, 0, "abc")}, "abc", "", "", "", "!P = S = S S S ="},
	{"DATA with END_STREAM", frames{data(5, endStream, "abc")}, "abc", "", "", "", "!P ended S = S S S ="},
	{"DATA that are empty", frames{data(5, 0, "")}, "", "", "", "", "!P = S = S S S ="},
	{"DATA of padding alone", frames{data(5, padded, "\x02\x00\x00")}, "", "", "", "", "!P = S = S S S ="},
	{"PRIORITY", frames{priority(5, 0)}, "", "9113 6.3",
		`The PRIORITY frame can be sent on a stream in any state, including "idle" or "closed".`,
		"", "= = = = = = = ="},
	{"PRIORITY of 4 bytes", frames{frame(typePriority, 0, 5, uint32Of(0))}, "", "9113 6.3",
		"A PRIORITY frame with a length other than 5 octets MUST be treated as a stream error of type FRAME_SIZE_ERROR. An idle stream can't be reset: filo ends the connection.",
		"F", "!F F F F F F F ="},
	{"PRIORITY that depends on itself", frames{priority(5, 5)}, "", "7540 5.3.1",
		"A stream cannot depend on itself. An endpoint MUST treat this as a stream error of type PROTOCOL_ERROR. An idle stream can't be reset: filo ends the connection; and it ignores the frame on a closed one.",
		"P", "!P P P P = = = ="},
	{"RST_STREAM", frames{reset(5, cancel)}, "", "9113 6.4",
		"RST_STREAM frames MUST NOT be sent for a stream in the \"idle\" state. If a RST_STREAM frame identifying an idle stream is received, the recipient MUST treat this as a connection error of type PROTOCOL_ERROR.",
		"P", "!P = = = = = = ="},
	{"WINDOW_UPDATE", frames{windowUpdate(5, 4096)}, "", "", "", "", "!P = written = = = = ="},
	{"WINDOW_UPDATE of 0", frames{windowUpdate(5, 0)}, "", "9113 6.9",
		"A receiver MUST treat the receipt of a WINDOW_UPDATE frame with a flow-control window increment of 0 as a stream error of type PROTOCOL_ERROR.",
		"P", "!P P P P P P P ="},
	{"WINDOW_UPDATE of all", frames{windowUpdate(5, maxID)}, "", "9113 6.9.1",
		"If a sender receives a WINDOW_UPDATE that causes a flow-control window to exceed this maximum, it MUST terminate the stream: it sends a RST_STREAM with an error code of FLOW_CONTROL_ERROR.",
		"W", "!P W written W = = = ="},
	{"SETTINGS that widen its window", frames{initial(70_000)}, "", "9113 6.9.2", allWindows, "", "= = written = = = = ="},
	{"SETTINGS that narrow its window", frames{initial(0)}, "", "9113 6.9.2", allWindows, "", "= narrow = = = = = ="},
	{"PRIORITY_UPDATE", frames{priorityUpdate(5, "u=1")}, "", "9218 7.1",
		`Clients SHOULD provide a Prioritized Stream ID that refers to a stream in the "open", "half-closed (local)", or "idle" state. Servers can discard frames where the Prioritized Stream ID refers to a stream in the "half-closed (local)" or "closed" state.`,
		"", "= = = = = = = ="},
	{"an unknown type", frames{frame(typeUnknown, 0xff, 5, "abc")}, "", "9113 5.1",
		"Receipt of frames for which the semantics are unknown cannot be treated as an error, as the conditions for sending and receiving those frames are also unknown.",
		"", "= = = = = = = ="},
}

// stateCases returns a case for each row in each state.
func stateCases() []Case {
	var cases []Case
	for i := range ways {
		for j := range rows {
			cases = append(cases, stateCase(&ways[i], &rows[j], strings.Fields(rows[j].want)[i]))
		}
	}
	return cases
}

func stateCase(at *way, r *row, outcome string) Case {
	c := Case{Name: at.name + "/" + r.name, RFC: at.rfc, Sentence: at.refuses, Steps: steps(at.step, send(r.frames))}
	letter, connection := strings.CutPrefix(outcome, "!")
	code, fault := outcomeCodes[letter]
	switch {
	case r.rfc != "" && letter == r.err:
		c.RFC, c.Sentence = r.rfc, r.sentence
	case !fault:
		c.Sentence = at.allows
	}
	if connection {
		c.Then, c.Code = Fails, code
		return c
	}
	switch outcome {
	case "=", "narrow":
	case "ended":
		c.Steps[1].Want = []Want{echo(5, r.body)}
	case "early":
		c.Steps[1].Want = []Want{hello(5)}
	case "written":
		c.Steps[1].Want = []Want{hello(5)}
	case "400":
		c.Steps[1].Want = []Want{malformed(5)}
	default:
		c.Steps[1].Want = []Want{cutOff(5, code)}
	}
	c.Steps = append(c.Steps, at.end(r, outcome))
	return c
}

// end returns the step that ends the sibling's request, and also the request on stream 5 if that stream is still open.
func (at *way) end(r *row, outcome string) Step {
	end := fixed(nil, echo(1, "hello"))
	goesOn := (outcome == "=" || outcome == "narrow") && r.name != "RST_STREAM"
	switch {
	case at.name == "open" && goesOn:
		end.Send = frames{data(5, endStream, "abc"), windowUpdate(5, 100)}
		end.Want = append(end.Want, echo(5, r.body+"abc"))
	case at.name == "half-closed (remote)" && goesOn:
		end.Send = frames{windowUpdate(5, 100)}
		end.Want = append(end.Want, hello(5))
	}
	// The way or the row may have set the initial window to 0, so this opens a window for the answer on stream 1.
	end.Send = append(end.Send, windowUpdate(1, 100), data(1, endStream, "lo"))
	return end
}
