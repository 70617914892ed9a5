package conformance

import "slices"

const (
	sends100 = "Upon receiving a 100-continue expectation, an origin server MUST send either a 100 or a final status; filo sends the 100 when the handler first reads."
	omits100 = "A server MAY omit sending a 100 if it has already received some or all of the content, or if the framing indicates that there is no content."
)

// awaiting returns a group of requests whose client sends the body only after a 100.
func awaiting(body, want string) Case {
	return Case{Name: "Expect", RFC: "9110 10.1.1", Sentence: sends100, After100: body, Want: answers(echo(want)), Then: Open}
}

// may100 marks a case in which the server may send a 100 before the answer. Whether it does depends on how much of the request has arrived
// when the handler reads the body.
func may100(c Case) Case {
	c.May100 = true
	return c
}

var expectCases = slices.Concat(
	each(awaiting("hello", "hello"), []request{
		{"body after the 100", post + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"},
		{"Expect last", post + "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n"},
	}),
	each(awaiting("5\r\nhello\r\n0\r\n\r\n", "hello"), []request{
		{"chunked body after the 100", post + "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"},
	}),
	each(Case{
		Name: "Expect", RFC: "9110 10.1.1", After100: "hello", Want: answers(echo("hello")), Then: Open,
		Sentence: "The Expect field value is case-insensitive.",
	}, []request{
		{"capital", post + "Expect: 100-Continue\r\nContent-Length: 5\r\n\r\n"},
		{"upper case", post + "EXPECT: 100-CONTINUE\r\nContent-Length: 5\r\n\r\n"},
		{"whitespace around", post + "Expect: \t100-continue \r\nContent-Length: 5\r\n\r\n"},
	}),
	each(Case{
		Name: "Expect", RFC: "9110 10.1.1", Sentence: sends100, After100: "hello",
		Want: answers(saying(echo("hello"), "Connection", "close")), Then: Closes,
	}, []request{
		{"with Connection: close", post + "Expect: 100-continue\r\nConnection: close\r\nContent-Length: 5\r\n\r\n"},
	}),
	each(may100(accepted("Expect", "9110 10.1.1", omits100, echo("hello"))), []request{
		{"body with the head", post + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello"},
		{"chunked body with the head", post + "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"},
	}),
	each(accepted("Expect", "9110 10.1.1", omits100, echo("")), []request{
		{"empty body", post + "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n"},
		{"no body", post + "Expect: 100-continue\r\n\r\n"},
	}),
	each(accepted("Expect", "9110 10.1.1", omits100, hello()), []request{
		{"GET without a body", get + "Expect: 100-continue\r\n\r\n"},
	}),
	each(Case{
		Name: "Expect", RFC: "9110 10.1.1", HalfClose: true, Want: answers(hello()), Then: ClosesSilently,
		Sentence: "A server MAY respond with a final status at once; a client that waited for a 100 then never sends its content.",
	}, []request{
		{"handler that doesn't read", get + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"},
		{"handler that doesn't read, chunked", get + "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"},
	}),
	each(Case{
		Name: "Expect", RFC: "9110 10.1.1", Want: answers(hello()), Then: Either,
		Sentence: "A server that responds with a final status instead of 100 SHOULD indicate whether it intends to close the connection or continue reading.",
	}, []request{
		{"handler that doesn't read, body there", get + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello"},
	}),
	each(Case{
		Name: "Expect", RFC: "9110 10.1.1", Want: answers(status(417)), Then: Either,
		Sentence: "A server that receives an Expect field value containing a member other than 100-continue MAY respond with a 417; filo does.",
	}, []request{
		{"unknown", get + "Expect: nonsense\r\n\r\n"},
		{"unknown and parameter", get + "Expect: x=y;z\r\n\r\n"},
		{"200-ok", get + "Expect: 200-ok\r\n\r\n"},
		{"longer word", get + "Expect: 100-continued\r\n\r\n"},
		{"number alone", get + "Expect: 100\r\n\r\n"},
		{"known and unknown", get + "Expect: 100-continue, x\r\n\r\n"},
		{"known and unknown in two fields", get + "Expect: 100-continue\r\nExpect: x\r\n\r\n"},
		{"unknown, on POST", post + "Expect: x\r\nContent-Length: 5\r\n\r\nhello"},
	}),
	each(closing("Expect", "9110 10.1.1", "A server that receives a 100-continue expectation in an HTTP/1.0 request MUST ignore that expectation.", echo("hello")), []request{
		{"HTTP/1.0", "POST /echo HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello"},
		{"unknown on HTTP/1.0", "POST /echo HTTP/1.0\r\nExpect: x\r\nContent-Length: 5\r\n\r\nhello"},
	}),
	each(refused(400, "Expect", "9112 6.3", "Invalid framing gets its 400, and no 100 before it."), []request{
		{"with two lengths", post + "Expect: 100-continue\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"},
		{"without Host", "POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"},
	}),
	each(may100(refused(400, "Expect", "9112 7.1", chunkGrammar)), []request{
		{"and a bad chunk", post + "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"},
	}),
)
