package conformance

import (
	"slices"
	"strings"
)

const (
	inOrder    = "A server that supports pipelining MUST send the corresponding responses in the same order that the requests were received."
	drainOrEnd = "A server MUST read the entire request message body or close the connection after sending its response, since otherwise the remaining data would be misinterpreted as the next request."
)

// smuggled stands where a body is expected. It has the form of a request, but the server must not answer it.
const smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"

var pipelineCases = slices.Concat(
	each(accepted("pipeline", "9112 9.3.2", inOrder, hello(), hello()), []request{
		{"two GETs", get200 + get200},
		{"empty line between", get200 + "\r\n" + get200},
	}),
	each(accepted("pipeline", "9112 9.3.2", inOrder, hello(), status(404), page(), notAllowed(), hello()), []request{
		{"five", get200 + "GET /none HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nDELETE /hello HTTP/1.1\r\nHost: a\r\n\r\n" + get200},
	}),
	each(accepted("pipeline", "9112 9.3.2", inOrder, echo("one"), echo("two"), echo(""), hello()), []request{
		{"POSTs", post + "Content-Length: 3\r\n\r\none" + post + "Transfer-Encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\n\r\n" + post + "\r\n" + get200},
	}),
	each(accepted("pipeline", "9112 2.2", "Older user agents might send an extra CRLF after a POST request.", echo("hello"), hello()), []request{
		{"CRLF after a body", post + "Content-Length: 5\r\n\r\nhello\r\n" + get200},
	}),
	each(accepted("pipeline", "9112 9.3.2", inOrder, slices.Repeat(answers(hello()), 50)...), []request{
		{"fifty", strings.Repeat(get200, 50)},
	}),
	each(accepted("pipeline", "9110 9.3.2", "The server MUST NOT send content in the response to HEAD, and so the next answer follows its head.", helloHead(), hello(), helloHead()), []request{
		{"HEAD between", "HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\n" + get200 + "HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(accepted("pipeline", "9112 9.3", http10, saying(hello(), "Connection", "keep-alive"), hello()), []request{
		{"HTTP/1.0 with keep-alive, then HTTP/1.1", "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + get200},
	}),
	each(Case{
		Name: "pipeline", RFC: "9112 9.6", Want: answers(hello(), hello()), Then: Closes,
		Sentence: "The server MUST NOT process any further requests received on a connection after a close option.",
	}, []request{
		{"close second of three", get200 + get + "Connection: close\r\n\r\n" + get200},
	}),
	each(Case{Name: "pipeline", RFC: "9112 2.2", Sentence: badGrammar, Want: answers(hello(), status(400)), Then: Closes}, []request{
		{"bad second", get200 + "GET /hello HTTP/1.1\r\nHost : a\r\n\r\n" + get200},
		{"garbage second", get200 + "\x00\x00\r\n\r\n"},
		{"bad version second", get200 + "GET /hello\r\n\r\n" + get200},
	}),
	each(Case{Name: "pipeline", RFC: "9112 6.3", Want: answers(echo("hello"), status(400)), Then: Closes,
		Sentence: "Content-Length defines the body length, and what follows is the next request.",
	}, []request{
		{"body longer than announced", post + "Content-Length: 5\r\n\r\nhello, world\r\n\r\n"},
		{"data after the last chunk", chunked + "5\r\nhello\r\n0\r\n\r\n 5\r\nhello\r\n\r\n"},
	}),
)

var unreadCases = slices.Concat(
	each(accepted("unread body", "9112 9.3", drainOrEnd, hello()), []request{
		{"a request inside", get + "Content-Length: 35\r\n\r\n" + smuggled},
		{"CRLF inside", get + "Content-Length: 4\r\n\r\n\r\n\r\n"},
		{"chunked", get + "Transfer-Encoding: chunked\r\n\r\n23\r\n" + smuggled + "\r\n0\r\n\r\n"},
		{"chunked with a trailer", get + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n"},
	}),
	each(accepted("unread body", "9112 9.3", drainOrEnd, hello(), hello()), []request{
		{"and another request", get + "Content-Length: 35\r\n\r\n" + smuggled + get200},
		{"chunked and another request", get + "Transfer-Encoding: chunked\r\n\r\n23\r\n" + smuggled + "\r\n0\r\n\r\n" + get200},
	}),
	each(accepted("unread body", "9112 9.3", drainOrEnd, status(404)), []request{
		{"of a POST to nowhere", "POST /none HTTP/1.1\r\nHost: a\r\nContent-Length: 35\r\n\r\n" + smuggled},
	}),
	each(accepted("unread body", "9112 9.3", drainOrEnd, notAllowed()), []request{
		{"of a method that isn't allowed", "POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 35\r\n\r\n" + smuggled},
	}),
	each(accepted("unread body", "9110 9.3.2", "The server MUST NOT send content in the response to HEAD.", helloHead()), []request{
		{"of a HEAD", "HEAD /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 35\r\n\r\n" + smuggled},
	}),
	each(Case{Name: "unread body", RFC: "9112 9.3", Sentence: drainOrEnd, Want: answers(hello()), Then: Either}, []request{
		{"of 1 MB", get + "Content-Length: 1050000\r\n\r\n" + strings.Repeat(smuggled, 30000)},
	}),
	each(Case{Name: "unread body", RFC: "9112 9.3", Sentence: drainOrEnd, Want: answers(Answer{Status: 200, Or: 413}), Then: ClosesSilently}, []request{
		{"announced with 2^63-1 bytes", get + "Content-Length: 9223372036854775807\r\n\r\n"},
	}),
	each(Case{Name: "unread body", RFC: "9112 7.1", Sentence: chunkGrammar, Want: answers(Answer{Status: 200, Or: 400}), Then: ClosesSilently}, []request{
		{"of a bad chunk", get + "Transfer-Encoding: chunked\r\n\r\nx\r\n"},
		{"of a chunk without end", get + "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloGET /smuggled HTTP/1.1\r\n"},
	}),
)

const incomplete = "A server that receives an incomplete request message MAY send an error response prior to closing the connection; filo sends a 400."

// cutOff returns a group of requests that are incomplete when the client closes its writing half.
func cutOff(name, sentence string, want ...Answer) Case {
	return Case{Name: name, RFC: "9112 8", Sentence: sentence, HalfClose: true, Want: want, Then: Closes}
}

var truncatedCases = slices.Concat(
	each(cutOff("truncated head", incomplete, status(400)), []request{
		{"one byte", "G"},
		{"in the method", "GE"},
		{"after the method", "GET "},
		{"in the target", "GET /hel"},
		{"in the version", "GET /hello HTTP/1"},
		{"before the line end", "GET /hello HTTP/1.1"},
		{"in the line end", "GET /hello HTTP/1.1\r"},
		{"after the request line", "GET /hello HTTP/1.1\r\n"},
		{"in a field", "GET /hello HTTP/1.1\r\nHo"},
		{"after a field", "GET /hello HTTP/1.1\r\nHost: a\r\n"},
		{"before the last LF", "GET /hello HTTP/1.1\r\nHost: a\r\n\r"},
	}),
	each(cutOff("truncated body", "If the sender closes the connection before the indicated number of octets are received, the recipient MUST consider the message incomplete and close.", status(400)), []request{
		{"nothing of it", post + "Content-Length: 5\r\n\r\n"},
		{"a part of it", post + "Content-Length: 5\r\n\r\nhell"},
		{"of 2^63-1 bytes", post + "Content-Length: 9223372036854775807\r\n\r\nhello"},
	}),
	each(cutOff("truncated chunks", "A message that uses chunked is incomplete if the zero-sized chunk that terminates it has not been received.", status(400)), []request{
		{"nothing", chunked},
		{"in the size", chunked + "5"},
		{"before the data", chunked + "5\r\n"},
		{"in the data", chunked + "5\r\nhel"},
		{"after the data", chunked + "5\r\nhello"},
		{"between chunks", chunked + "5\r\nhello\r\n"},
		{"in the last size", chunked + "5\r\nhello\r\n0"},
		{"after the last size", chunked + "5\r\nhello\r\n0\r\n"},
		{"in the trailers", chunked + "5\r\nhello\r\n0\r\nX: y\r\n"},
		{"of 2^63-1 bytes", chunked + "7fffffffffffffff\r\nhello"},
	}),
	each(Case{
		Name: "half-close", RFC: "9112 9.6", HalfClose: true, Want: answers(hello()), Then: ClosesSilently,
		Sentence: "A client that half-closes after its request is still sent the response.",
	}, []request{
		{"after a GET", get200},
		{"after a GET with its unread body", get + "Content-Length: 5\r\n\r\nhello"},
		{"after a GET with a part of its unread body", get + "Content-Length: 5\r\n\r\nhe"},
	}),
	each(Case{
		Name: "half-close", RFC: "9112 9.6", HalfClose: true, Want: answers(echo("hello")), Then: ClosesSilently,
		Sentence: "A client that half-closes after its request is still sent the response.",
	}, []request{
		{"after a POST", post + "Content-Length: 5\r\n\r\nhello"},
		{"after a chunked POST", chunked + "5\r\nhello\r\n0\r\n\r\n"},
	}),
	each(Case{
		Name: "half-close", RFC: "9112 9.3.2", HalfClose: true, Want: answers(hello(), hello()), Then: ClosesSilently,
		Sentence: "Responses to pipelined requests are sent in order, and all of them.",
	}, []request{
		{"after two requests", get200 + get200},
	}),
	each(Case{
		Name: "half-close", RFC: "9112 8", HalfClose: true, Want: answers(hello(), status(400)), Then: Closes,
		Sentence: incomplete,
	}, []request{
		{"in the second request", get200 + "GET /hello HT"},
	}),
	each(Case{
		Name: "half-close", RFC: "9112 9.6", HalfClose: true, Then: ClosesSilently,
		Sentence: "A connection can be closed at any time: without a request there is no answer.",
	}, []request{
		{"without a byte", ""},
	}),
)

var answerCases = slices.Concat(
	each(accepted("HEAD", "9110 9.3.2", "HEAD is identical to GET except that the server MUST NOT send content in the response.", helloHead()), []request{
		{"plain", "HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"absolute-form", "HEAD http://a/hello HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(accepted("HEAD", "9110 9.3.2", "The server SHOULD send the same header fields in response to a HEAD request as for GET.", headOf(page())), []request{
		{"page", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(accepted("HEAD", "9110 9.3.2", "The server MUST NOT send content in the response to HEAD, whatever its status.", headOf(status(404))), []request{
		{"unknown path", "HEAD /none HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(accepted("HEAD", "9110 15.5.6", "The origin server MUST generate an Allow header field in a 405 response.", headOf(notAllowed())), []request{
		{"not allowed", "HEAD /echo HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(closing("HEAD", "9110 9.3.2", "The server MUST NOT send content in the response to HEAD.", helloHead()), []request{
		{"HTTP/1.0", "HEAD /hello HTTP/1.0\r\n\r\n"},
		{"Connection: close", "HEAD /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	}),
	each(Case{
		Name: "HEAD", RFC: "9110 9.3.2", Want: answers(headOf(status(400))), Then: Closes,
		Sentence: "The server MUST NOT send content in the response to HEAD, not with an error either.",
	}, []request{
		{"without Host", "HEAD /hello HTTP/1.1\r\n\r\n"},
		{"bad field", "HEAD /hello HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n"},
		{"two lengths", "HEAD /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"},
	}),
	each(accepted("OPTIONS", "9110 9.3.7", "An OPTIONS request asks for the options of the target resource; filo's handlers name them in Allow.", Answer{
		Status: 405, Or: 204, Header: []Field{{"Allow", ""}},
	}), []request{
		{"of a path", "OPTIONS /hello HTTP/1.1\r\nHost: a\r\n\r\n"},
	}),
	each(accepted("Content-Type", "9110 8.3", "Content-Type describes the associated representation; the echo's is that of the request.", saying(echo("{}"), "Content-Type", "application/json")), []request{
		{"of an echo", post + "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"},
		{"of a chunked echo", post + "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"},
	}),
)

func headOf(a Answer) Answer {
	a.Head, a.Body = true, ""
	return a
}
