// Package conformance tests a server against the RFCs with a table of raw requests, each beside the sentence that decides its answer. It
// sends them whole, pipelined and cut at every byte.
//
// The server under test has the routes of examples/echo: GET /hello answers
// "Hello, World!" as text/plain, POST /echo answers the request's body whatever its
// size, GET / answers a page of HTML, OPTIONS * answers 204, other methods at these
// paths get 405 and other paths 404.
package conformance

import (
	"cmp"
	"slices"
)

// A Case is the bytes of one connection and the expected answers.
type Case struct {
	Name string // unique; topic/case

	// RFC is the document and section that decides, such as "9112 2.2", and Sentence is its text. Where a server may choose, the sentence
	// says what filo has chosen: see IsRequired.
	RFC, Sentence string

	// Raw is sent first. After100 is sent once a 100 has arrived, which is then required.
	Raw, After100 string

	HalfClose bool // the client closes its writing half after Raw
	May100    bool // a 100 may come or not: it depends on how the bytes arrive
	// Late says that the client sends more after a request that closes: the server answers bytes after the end with a reset.
	Late bool
	Want []Answer
	Then Then
}

// An Answer describes an expected final response.
type Answer struct {
	Status int
	Or     int     // another status that is also right; 0: none
	Head   bool    // the answer to a HEAD: no body, whatever the fields say
	Body   string  // "": any; Empty: none
	Header []Field // fields that must be present
}

// Empty is the Body of an answer that must have none.
const Empty = "\x00"

// A Field is an expected header field. In Connection, Value is an element of the list. In other fields it is the whole value, "" stands for
// any value, and a Value that ends in * is a prefix.
type Field struct{ Name, Value string }

// Then says what happens to the connection after the last answer.
type Then int

const (
	Open           Then = iota // it stays open, and the next request is answered
	Closes                     // it is closed, and the last answer says Connection: close
	ClosesSilently             // it is closed; the last answer may say so
	Either                     // it stays open, or is closed
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

// A request is the part of a Case in which the cases of a group differ.
type request struct{ name, raw string }

// each returns a case for every request. The request's name follows the group's.
func each(group Case, requests []request) []Case {
	cases := make([]Case, len(requests))
	for i, r := range requests {
		cases[i] = group
		cases[i].Name += "/" + r.name
		cases[i].Raw = r.raw
	}
	return cases
}

// The heads that most cases begin with.
const (
	get  = "GET /hello HTTP/1.1\r\nHost: a\r\n"
	post = "POST /echo HTTP/1.1\r\nHost: a\r\n"
)

// get200 is a plain request that follows another one.
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

// refused is the group of requests that get status and then no further answer.
func refused(code int, name, rfc, sentence string) Case {
	return Case{Name: name, RFC: rfc, Sentence: sentence, Want: answers(status(code)), Then: Closes}
}

// accepted is the group of requests that get these answers, with the connection left open.
func accepted(name, rfc, sentence string, want ...Answer) Case {
	return Case{Name: name, RFC: rfc, Sentence: sentence, Want: want, Then: Open}
}
