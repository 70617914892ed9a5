// Package conformance tests a server against the RFCs. Its table pairs each raw request with the RFC's sentence that decides the answer. Each
// request is sent whole, pipelined with another request, and cut in two at every byte.
//
// The server under test has the routes of examples/echo: GET /hello answers "Hello, World!" as text/plain, POST /echo answers with the
// request's body, whatever its size, GET / answers with a page of HTML, OPTIONS * answers 204, other methods at these paths get 405 and other
// paths 404.
package conformance

import (
	"cmp"
	"slices"
)

// A Case holds the bytes that a client sends on one connection, and the expected answers.
type Case struct {
	Name string // unique; topic/case

	// RFC names the document and section that decide the answer, such as "9112 2.2", and Sentence quotes the section. Where the RFC leaves a
	// choice, the sentence also says what filo has chosen: see IsRequired.
	RFC, Sentence string

	// Raw is sent first. If After100 isn't empty, a 100 must arrive, and After100 is sent then.
	Raw, After100 string

	HalfClose bool // the client closes its writing half after Raw
	May100    bool // a 100 is allowed, not required: whether the server sends one depends on how the bytes arrive
	// Late says that the client sends more bytes after a request that ends the connection. The server may answer those bytes with a TCP reset.
	Late bool
	Want []Answer
	Then Then
}

// An Answer describes an expected final response.
type Answer struct {
	Status int
	Or     int     // another status that is accepted; 0: none
	Head   bool    // this answers a HEAD request: it has no body, even if its fields announce one
	Body   string  // "": any; Empty: none
	Header []Field // fields that must be present
}

// Empty is the Body of an answer that must have none.
const Empty = "\x00"

// A Field is an expected header field. In a Connection field, Value is one element of the list. In other fields, Value is the whole value, ""
// matches any value, and a Value that ends in * is a prefix.
type Field struct{ Name, Value string }

// Then says what happens to the connection after the last answer.
type Then int

const (
	Open           Then = iota // the connection stays open, and the next request is answered
	Closes                     // the server closes it, and the last answer says Connection: close
	ClosesSilently             // the server closes it, and the last answer need not announce that
	Either                     // the server keeps it open, or closes it
)

// Table returns all cases.
func Table() []Case {
	return slices.Concat(
		requestLineCases, versionCases, methodCases, targetCases, absoluteCases, hostCases,
		fieldCases, limitCases, lengthCases, codingCases,
		chunkedCases, extensionCases, trailerCases, connectionCases, expectCases,
		pipelineCases, unreadCases, truncatedCases, upgradeCases, answerCases,
	)
}

// Seeds returns the bytes of every case, as a corpus for fuzzing a request parser.
func Seeds() [][]byte {
	var seeds [][]byte
	for _, c := range Table() {
		seeds = append(seeds, []byte(c.Raw+c.After100))
	}
	return seeds
}

// A request holds the fields in which the cases of a group differ.
type request struct{ name, raw string }

// each returns a copy of group for every request. The name of the copy is the group's name, a slash and the request's name.
func each(group Case, requests []request) []Case {
	cases := make([]Case, len(requests))
	for i, r := range requests {
		cases[i] = group
		cases[i].Name += "/" + r.name
		cases[i].Raw = r.raw
	}
	return cases
}

// Most cases begin with one of these heads, which have no final empty line.
const (
	get  = "GET /hello HTTP/1.1\r\nHost: a\r\n"
	post = "POST /echo HTTP/1.1\r\nHost: a\r\n"
)

// get200 is a complete request, which gets a 200. Cases append it to another request.
const get200 = get + "\r\n"

func hello() Answer {
	return Answer{Status: 200, Body: "Hello, World!", Header: []Field{
		{"Content-Type", "text/plain*"}, {"Content-Length", "13"},
	}}
}

func helloHead() Answer { return headOf(hello()) }

var pageType = Field{"Content-Type", "text/html*"}

func page() Answer {
	return Answer{Status: 200, Header: []Field{pageType}}
}

func echo(body string) Answer {
	return Answer{Status: 200, Body: cmp.Or(body, Empty)}
}

func status(code int) Answer {
	return Answer{Status: code}
}

func notAllowed() Answer {
	return Answer{Status: 405, Header: []Field{{"Allow", ""}}}
}

func saying(a Answer, name, value string) Answer {
	a.Header = append(slices.Clone(a.Header), Field{name, value})
	return a
}

func answers(a ...Answer) []Answer { return a }

// refused returns a group, for each, whose requests get this status, after which the server closes the connection.
func refused(code int, name, rfc, sentence string) Case {
	return Case{Name: name, RFC: rfc, Sentence: sentence, Want: answers(status(code)), Then: Closes}
}

// accepted returns a group, for each, whose requests get these answers, after which the connection stays open.
func accepted(name, rfc, sentence string, want ...Answer) Case {
	return Case{Name: name, RFC: rfc, Sentence: sentence, Want: want, Then: Open}
}
