// Package http2conf tests a server against the RFCs of HTTP/2 with a table of cases. Each case has frames, and the RFC's sentence that
// decides its outcome. The bytes of each case are sent whole, cut in two, and one at a time. The package doesn't use the code of filo's
// server.
//
// The table covers what h2spec and the tests of x/net lack (internal/foreign runs both): each frame in each state of a stream, windows and
// priorities, closed streams that no longer count toward the limit, the contents of HPACK's table, and requests that turn out to be malformed
// while their handler runs. The tests of package http2 cover the rules for a single frame, field block or head, without a connection.
//
// The server under test has these routes: GET /hello answers "Hello, World!" as text/plain, POST /echo answers with the request's body,
// whatever its size, other methods at these paths get 405 and other paths 404. The cases about receive windows also need POST /hold. Its
// handler doesn't read the body, and doesn't answer until the stream has ended.
package http2conf

import "slices"

// A Case holds the frames that a client sends on one connection, and the outcomes that must follow.
type Case struct {
	Name string // unique: topic/case

	// RFC names the document and section that decide the outcome, such as "9113 6.1", and Sentence quotes the section. Where the RFC leaves a
	// choice, the sentence also says what filo has chosen: see conformance.IsRequired.
	RFC, Sentence string

	Steps []Step
	Then  Then
	Code  Code // the code of the GOAWAY, if Then is Fails

	Holds bool // the case needs POST /hold
}

// A Step holds frames that are sent together, and the outcomes that the runner awaits before the next step.
type Step struct {
	Send []Frame
	// Make, if it isn't nil, returns the frames to send, which depend on the server's SETTINGS.
	Make func(server ServerSettings) []Frame
	// Want lists the outcomes. The server must not send anything on a stream that no step has named.
	Want []Want
	// Fixed marks a step that isn't cut, since it only prepares the subject of the case or cleans up after it.
	Fixed bool
	// Rude says that DATA frames are sent even if they exceed the server's windows.
	Rude bool
}

// ServerSettings are the values in the server's first SETTINGS.
type ServerSettings struct {
	MaxStreams    uint32 // math.MaxUint32 for no limit
	InitialWindow uint32
}

// Want is the outcome that a stream must have.
type Want struct {
	Stream uint32
	What   What
	Status int     // of the answer
	Or     int     // another status that is accepted; 0: none
	Body   string  // "": any; Empty: none
	Head   bool    // this answers a HEAD request: it has no body, even if its fields announce one
	Fields []Field // fields that must be present
	Code   Code    // of RST_STREAM
	// Interim lists the statuses of the interim answers that must precede the final one.
	Interim []int
}

// What names an outcome that a stream must have.
type What int

const (
	Answered      What = iota // the whole answer
	AnsweredEarly             // the whole answer, and then RST_STREAM with NO_ERROR, because the request hasn't ended
	Reset                     // RST_STREAM with Code, possibly after a part of an answer with Status, or all of it
	Begun                     // the answer has begun but not ended, and Body is the part of its body that has arrived
	Going                     // the stream is open; an answer with Status may have begun
	Nothing                   // no final answer, only the answers listed in Interim
	Anything                  // anything, or nothing
)

// Field is an expected field. A Value that ends in * is a prefix, and "" matches any value.
type Field struct{ Name, Value string }

// Empty is the Body of an answer that must have none.
const Empty = "\x00"

// Then says what happens to the connection after the steps.
type Then int

const (
	Open    Then = iota // the connection stays open: the next request on it is answered
	OpenOld             // the connection stays open, but the client has used the last stream number, so the runner sends a PING
	Fails               // the server sends GOAWAY with Code, and ends the connection
	Either              // as Open, or as Fails
	Leaves              // the client closes its writing half, and the server must end the connection without an answer
)

// usualSettings stand in for the server's settings where there is no connection to a server.
var usualSettings = ServerSettings{MaxStreams: 100, InitialWindow: defaultWindow}

// Table returns all cases.
func Table() []Case {
	return slices.Concat(
		stateCases(), goAwayCases, windowCases, priorityOrderCases, streamCases, tableCases, requestCases,
	)
}

// Seeds returns the bytes of every case, each after the preface, as a corpus for fuzzing the server's side of a connection.
func Seeds() [][]byte {
	var seeds [][]byte
	for _, c := range Table() {
		b := opening()
		for _, step := range c.Steps {
			for _, f := range step.frames(usualSettings) {
				b = f.Append(b)
			}
		}
		seeds = append(seeds, b)
	}
	return seeds
}

func (s *Step) frames(server ServerSettings) []Frame {
	if s.Make != nil {
		return s.Make(server)
	}
	return s.Send
}

// opening returns the bytes with which the runner begins a connection.
func opening() []byte { return settings().Append([]byte(preface)) }

// send returns a step that is cut, with the given outcomes, if any.
func send(f []Frame, want ...Want) Step { return Step{Send: f, Want: want} }

// fixed returns a step that isn't cut.
func fixed(f []Frame, want ...Want) Step { return Step{Send: f, Want: want, Fixed: true} }

func steps(s ...Step) []Step { return s }

func answered(stream uint32, status int) Want { return Want{Stream: stream, Status: status} }

func hello(stream uint32) Want {
	return Want{Stream: stream, Status: 200, Body: "Hello, World!", Fields: []Field{{"content-type", "text/plain*"}, {"content-length", "13"}}}
}

func helloEarly(stream uint32) Want {
	w := hello(stream)
	w.What = AnsweredEarly
	return w
}

// echo is the answer of /echo.
func echo(stream uint32, body string) Want {
	if body == "" {
		body = Empty
	}
	return Want{Stream: stream, Status: 200, Body: body}
}

// wasReset is the outcome of a stream that the server resets before it answers.
func wasReset(stream uint32, code Code) Want { return Want{Stream: stream, What: Reset, Code: code} }

// malformed is the outcome of a stream that the server resets because the request is malformed, perhaps after a 400. RFC 9113, 8.1.1: "a
// server MAY send an HTTP response prior to closing or resetting the stream."
func malformed(stream uint32) Want {
	return Want{Stream: stream, What: Reset, Code: protocolError, Status: 400}
}

// cutOff is the outcome of a stream that the server resets, perhaps after the handler has begun to answer.
func cutOff(stream uint32, code Code) Want {
	return Want{Stream: stream, What: Reset, Code: code, Status: 200}
}

// begun is the outcome of a stream whose answer has begun: body is the part of its body that must have arrived.
func begun(stream uint32, body string) Want {
	if body == "" {
		body = Empty
	}
	return Want{Stream: stream, What: Begun, Status: 200, Body: body}
}

func going(stream uint32) Want { return Want{Stream: stream, What: Going, Status: 200} }

// sent holds the name and frames in which the cases of a group differ.
type sent struct {
	name   string
	frames []Frame
}

// each returns a copy of group for every list of frames. The frames replace those of the first step that isn't fixed.
func each(group Case, list []sent) []Case {
	at := slices.IndexFunc(group.Steps, func(s Step) bool { return !s.Fixed })
	cases := make([]Case, len(list))
	for i, sent := range list {
		cases[i] = group
		cases[i].Name += "/" + sent.name
		cases[i].Steps = slices.Clone(group.Steps)
		cases[i].Steps[at].Send = sent.frames
	}
	return cases
}

// fails returns a group whose frames make the server end the connection with this code.
func fails(code Code, name, rfc, sentence string) Case {
	return Case{Name: name, RFC: rfc, Sentence: sentence, Steps: steps(Step{}), Then: Fails, Code: code}
}

// comes returns a group whose frames have this outcome, and after which the connection stays open.
func comes(name, rfc, sentence string, want ...Want) Case {
	return Case{Name: name, RFC: rfc, Sentence: sentence, Steps: steps(Step{Want: want})}
}
