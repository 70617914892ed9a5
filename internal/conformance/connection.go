package conformance

import "slices"

const (
	mustClose = "A server that receives a close connection option MUST initiate closure after it sends the final response, and SHOULD send close in it."
	http10    = "If the received protocol is HTTP/1.0 and the keep-alive connection option is present, the connection persists; otherwise it closes after the response."
)

// late marks a case whose client continues to send after a request that ends the connection.
func late(c Case) Case {
	c.Late = true
	return c
}

// closing returns a group whose requests get the wanted answer, after which the server closes the connection.
func closing(name, rfc, sentence string, want Answer) Case {
	return Case{Name: name, RFC: rfc, Sentence: sentence, Want: answers(saying(want, "Connection", "close")), Then: Closes}
}

var connectionCases = slices.Concat(
	each(closing("Connection: close", "9112 9.6", mustClose, hello()), []request{
		{"plain", get + "Connection: close\r\n\r\n"},
		{"lower-case name", get + "connection: close\r\n\r\n"},
		{"first in a list", get + "Connection: close, x\r\n\r\n"},
		{"last in a list", get + "Connection: x, close\r\n\r\n"},
		{"in a list without spaces", get + "Connection: x,close,y\r\n\r\n"},
		{"in a list with tabs", get + "Connection: x\t,\tclose\t,y\r\n\r\n"},
		{"in a second field", get + "Connection: x\r\nConnection: close\r\n\r\n"},
		{"in the first of two fields", get + "Connection: close\r\nConnection: x\r\n\r\n"},
		{"with a body", get + "Connection: close\r\nContent-Length: 5\r\n\r\nhello"},
	}),
	each(closing("Connection: close", "9110 7.6.1", "Connection options are case-insensitive.", hello()), []request{
		{"upper case", get + "Connection: CLOSE\r\n\r\n"},
		{"mixed case", get + "Connection: Close\r\n\r\n"},
		{"mixed case in a list", get + "Connection: X, cLoSe\r\n\r\n"},
	}),
	each(closing("Connection: close", "9110 5.6.1.2", "A recipient MUST parse and ignore a reasonable number of empty list elements.", hello()), []request{
		{"after empty elements", get + "Connection: ,, ,close\r\n\r\n"},
		{"before empty elements", get + "Connection: close,\r\n\r\n"},
	}),
	each(closing("Connection: close", "9112 9.3", "If the close connection option is present, the connection will not persist after the current response.", hello()), []request{
		{"beats keep-alive", get + "Connection: keep-alive, close\r\n\r\n"},
		{"beats keep-alive after it", get + "Connection: close, keep-alive\r\n\r\n"},
		{"beats keep-alive of another field", get + "Connection: keep-alive\r\nConnection: close\r\n\r\n"},
		{"beats keep-alive on HTTP/1.0", "GET /hello HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n"},
	}),
	each(closing("Connection: close", "9112 9.6", mustClose, echo("hello")), []request{
		{"POST", post + "Connection: close\r\nContent-Length: 5\r\n\r\nhello"},
		{"chunked POST", post + "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"},
	}),
	each(closing("Connection: close", "9112 9.6", mustClose, status(404)), []request{
		{"with a 404", "GET /none HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"},
	}),
	each(late(closing("Connection: close", "9112 9.6", "The server MUST NOT process any further requests received on that connection.", hello())), []request{
		{"with garbage behind", get + "Connection: close\r\n\r\n\x00\x01\x02"},
	}),
	each(accepted("Connection", "9110 7.6.1", "The Connection field lists options for this connection; one that isn't known means nothing.", hello()), []request{
		{"unknown option", get + "Connection: x\r\n\r\n"},
		{"close as a part of a word", get + "Connection: closed, not-close, close_, xclose\r\n\r\n"},
		{"close as a parameter", get + "Connection: x;close\r\n\r\n"},
		{"quoted", get + "Connection: \"close\"\r\n\r\n"},
		{"keep-alive", get + "Connection: keep-alive\r\n\r\n"},
		{"empty", get + "Connection:\r\n\r\n"},
		{"only commas", get + "Connection: , ,,\r\n\r\n"},
		{"close in another field", get + "Proxy-Connection: close\r\nX: close\r\n\r\n"},
		{"names of other fields", get + "Connection: Host, Content-Length\r\n\r\n"},
	}),
	each(Case{
		Name: "Connection", RFC: "9110 7.6.1", Want: answers(hello()), Then: Either,
		Sentence: "A connection-option is a token, so what has a space inside is none; to close is safe all the same.",
	}, []request{
		{"close and another word", get + "Connection: close x\r\n\r\n"},
		{"another word and close", get + "Connection: x close\r\n\r\n"},
		{"not tokens", get + "Connection: =;@, close=now\r\n\r\n"},
	}),
	each(closing("HTTP/1.0", "9112 9.3", http10, hello()), []request{
		{"other fields", "GET /hello HTTP/1.0\r\nAccept: */*\r\nX: y\r\n\r\n"},
		{"unknown option", "GET /hello HTTP/1.0\r\nConnection: x\r\n\r\n"},
		{"keep-alive as a part of a word", "GET /hello HTTP/1.0\r\nConnection: keep-alived\r\n\r\n"},
		{"Keep-Alive field alone", "GET /hello HTTP/1.0\r\nKeep-Alive: timeout=5\r\n\r\n"},
	}),
	each(late(closing("Connection: close", "9112 9.6", mustClose, hello())), []request{
		{"with a request behind", get + "Connection: close\r\n\r\n" + get200},
	}),
	each(late(closing("HTTP/1.0", "9112 9.3", http10, hello())), []request{
		{"with a request behind", "GET /hello HTTP/1.0\r\n\r\n" + get200},
	}),
	each(closing("HTTP/1.0", "9112 9.3", http10, echo("hello")), []request{
		{"POST", "POST /echo HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello"},
	}),
	each(closing("HTTP/1.0", "9112 9.3", http10, status(404)), []request{
		{"404", "GET /none HTTP/1.0\r\n\r\n"},
	}),
	each(accepted("HTTP/1.0", "9112 9.3", http10, saying(hello(), "Connection", "keep-alive")), []request{
		{"keep-alive", "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"},
		{"Keep-Alive", "GET /hello HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"},
		{"keep-alive in a list", "GET /hello HTTP/1.0\r\nConnection: x, KEEP-ALIVE\r\n\r\n"},
		{"keep-alive in a second field", "GET /hello HTTP/1.0\r\nConnection: x\r\nConnection: keep-alive\r\n\r\n"},
		{"keep-alive with a body unread", "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello"},
	}),
	each(accepted("HTTP/1.0", "9112 9.3", http10, saying(echo("hello"), "Connection", "keep-alive")), []request{
		{"keep-alive POST", "POST /echo HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello"},
	}),
)

var upgradeCases = slices.Concat(
	each(accepted("Upgrade", "9110 7.8", "A server MAY ignore a received Upgrade header field if it wishes to continue using the current protocol.", hello()), []request{
		{"h2c", get + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n"},
		{"WebSocket", get + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"},
		{"unknown protocol", get + "Connection: upgrade\r\nUpgrade: x/1\r\n\r\n"},
		{"without Connection", get + "Upgrade: h2c\r\n\r\n"},
		{"TLS", get + "Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n\r\n"},
	}),
	each(accepted("Upgrade", "9110 7.8", "The server continues with the current protocol, so the content is what it was.", echo("hello")), []request{
		{"with a body", post + "Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nhello"},
	}),
	each(closing("Upgrade", "9110 7.8", "A server MUST ignore an Upgrade header field that is received in an HTTP/1.0 request.", hello()), []request{
		{"on HTTP/1.0", "GET /hello HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"},
	}),
)
