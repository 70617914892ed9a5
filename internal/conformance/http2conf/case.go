// Package http2conf tests a server against the RFCs of HTTP/2 with a table of cases. Each case has frames, and the sentence that decides
// its outcome. Each case is run whole, cut in two and byte by byte. The package knows nothing of the server's own code.
//
// The table has what h2spec and the tests of x/net lack (internal/foreign runs both): each frame in each state of a stream, windows and
// priorities, streams that no longer count, the contents of HPACK's table, and requests that turn out to be malformed when their handler
// runs. The rules for a single frame, field block or head are tested by package http2, without a connection.
//
// The server under test has these routes: GET /hello answers "Hello, World!" as text/plain, POST /echo answers the request's body whatever
// its size, other methods at these paths get 405 and other paths 404. If there is also POST /hold, which reads nothing of its body and
// doesn't answer until its stream is over, the cases about receive windows are run, too.
package http2conf

import "slices"

// A Case is what a client sends on one connection, and what must come back.
type Case struct {
	Name string // unique: the topic, "/", and what is special

	// RFC is the document and section that decides, such as "9113 6.1", and Sentence is its text. Where a server may choose, the sentence
	// says what filo chose: see conformance.IsRequired.
	RFC, Sentence string

	Steps []Step
	Then  Then
	Code  Code // the code of the GOAWAY, if Then is Fails

	Holds bool // the case needs POST /hold
}

// A Step is frames that are sent at once, and what must have come before the next step.
type Step struct {
	Send []Frame
	// Make, if it isn't nil, makes the frames according to the server's SETTINGS.
	Make func(server ServerSettings) []Frame
	// Want is what must come. Nothing may come on a stream that no step has named.
	Want []Want
	// Fixed marks a step that only prepares the case's subject, or comes after it. Such a step isn't cut.
	Fixed bool
	// Rude says that DATA are sent whatever the windows are.
	Rude bool
}

// ServerSettings are the values in the server's first SETTINGS.
type ServerSettings struct {
	MaxStreams    uint32 // math.MaxUint32 for no limit
	InitialWindow uint32
}

// Want is what must come on a stream.
type Want struct {
	Stream uint32
	What   What
	Status int     // of the answer
	Or     int     // another status that is also right; 0: none
	Body   string  // "": any; Empty: none
	Head   bool    // the answer to a HEAD: no body, whatever the fields say
	Fields []Field // fields that must be present
	Code   Code    // of RST_STREAM
	// Interim are the statuses of the interim answers that must come first.
	Interim []int
}

// What names an outcome that a stream must have.
type What int

const (
	Answered      What = iota // the whole answer
	AnsweredEarly             // the whole answer and, since the request goes on, RST_STREAM with NO_ERROR
	Reset                     // RST_STREAM with Code; before that an answer with Status may have begun, or have been whole
	Begun                     // the answer has begun, and Body is the part of its body that has come so far
	Going                     // an answer with Status may have begun, and hasn't ended
	Nothing                   // nothing but interim answers
	Anything                  // anything, or nothing
)

// Field is an expected field. A value that ends in * is a prefix, and "" is any.
type Field struct{ Name, Value string }

// Empty is the Body of an answer that must have none.
const Empty = "\x00"

// Then says what happens to the connection after the steps.
type Then int

const (
	Open    Then = iota // it goes on: the next request on it is answered
	OpenOld             // it goes on, but has no number left for another stream: a PING is answered
	Fails               // it ends after a GOAWAY with Code
	Either              // it goes on, or ends with GOAWAY and Code
	Leaves              // the client closes its writing half, and the server must end the connection without an answer
)

// usualSettings are used where no server's settings are known.
var usualSettings = ServerSettings{MaxStreams: 100, InitialWindow: defaultWindow}

// Table returns all cases.
func Table() []Case {
	return slices.Concat(
		stateCases(), goAwayCases, windowCases, priorityOrderCases, streamCases, tableCases, requestCases,
	)
}

// Seeds returns the bytes of every case with the preface, as a corpus for fuzzing a server's end of a connection.
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

// send is a step that is cut, with the given outcomes, if any.
func send(f []Frame, want ...Want) Step { return Step{Send: f, Want: want} }

// fixed is a step that isn't cut.
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

// wasReset is a stream that the server resets before it has answered.
func wasReset(stream uint32, code Code) Want { return Want{Stream: stream, What: Reset, Code: code} }

// malformed is a stream that is reset because its request is malformed. RFC 9113, 8.1.1: "a server MAY send an HTTP response prior to
// closing or resetting the stream."
func malformed(stream uint32) Want {
	return Want{Stream: stream, What: Reset, Code: protocolError, Status: 400}
}

// cutOff is a stream that is reset although its handler may have begun to answer.
func cutOff(stream uint32, code Code) Want {
	return Want{Stream: stream, What: Reset, Code: code, Status: 200}
}

// begun is a stream whose answer has begun, with the part of the body that must have come so far.
func begun(stream uint32, body string) Want {
	if body == "" {
		body = Empty
	}
	return Want{Stream: stream, What: Begun, Status: 200, Body: body}
}

func going(stream uint32) Want { return Want{Stream: stream, What: Going, Status: 200} }

// sent is the part of a Case in which the cases of a group differ.
type sent struct {
	name   string
	frames []Frame
}

// each returns a case for every list of frames: the frames are the first step of the group that isn't fixed.
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

// fails is the group of frames that end the connection.
func fails(code Code, name, rfc, sentence string) Case {
	return Case{Name: name, RFC: rfc, Sentence: sentence, Steps: steps(Step{}), Then: Fails, Code: code}
}

// comes is the common part of cases whose frames have this outcome, and after which the connection goes on.
func comes(name, rfc, sentence string, want ...Want) Case {
	return Case{Name: name, RFC: rfc, Sentence: sentence, Steps: steps(Step{Want: want})}
}
