package http2conf

import "slices"

const (
	prefaceWrong = "Clients and servers MUST treat an invalid connection preface as a connection error of type PROTOCOL_ERROR. Servers can identify HTTP/2 by the presence of the preface: where HTTP/1.1 is served too, filo takes anything else for that."
	prefaceCut   = "If a connection ends before its preface or a frame is complete, nothing was asked for that could be answered."
)

// bare returns the group with cases that send the preface themselves.
func bare(c Case) Case {
	c.Bare = true
	return c
}

// over returns the group for these connections alone.
func over(o Over, c Case) Case {
	c.Over = o
	return c
}

// ends returns the group with another end.
func ends(then Then, c Case) Case {
	c.Then = then
	return c
}

// by1 is a group of requests by HTTP/1.1 that get these answers.
func by1(then Then, name, rfc, sentence string, statuses ...int) Case {
	return Case{Name: name, RFC: rfc, Sentence: sentence, Steps: steps(Step{HTTP1: statuses}), Then: then, Over: Clear, Bare: true}
}

// chrome are the first frames of a browser.
var chrome = frames{
	raw(preface),
	settings(setting(settingTableSize, 65536), setting(settingPush, 0), setting(settingInitialWindow, 6291456), setting(settingMaxHeaderList, 262144)),
	windowUpdate(0, 15663105),
	headers(1, whole|prioritize, uint32Of(1<<31)+"\xff"+getBlock),
}

const get1 = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"

var prefaceCases = slices.Concat(
	each(bare(comes("preface", "9113 3.4", "Clients are permitted to send additional frames to the server immediately after sending the client connection preface, without waiting to receive the server connection preface.", hello(1))), []sent{
		{"a request behind it", frames{raw(preface), settings(), get(1)}},
		{"a browser's first frames", chrome},
	}),
	each(bare(comes("preface", "9113 3.4", "Clients are permitted to send additional frames to the server immediately after sending the client connection preface.", hello(1), echo(3, "hello"), hello(5))), []sent{
		{"three requests behind it", frames{raw(preface), settings(), get(1), post(3), data(3, endStream, "hello"), get(5)}},
	}),
	each(bare(ends(Refused, comes("wrong preface", "9113 3.4", prefaceWrong))), []sent{
		{"another first byte", frames{raw("XRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), settings()}},
		{"HTTP/2.1", frames{raw("PRI * HTTP/2.1\r\n\r\nSM\r\n\r\n"), settings()}},
		{"lower case", frames{raw("pri * http/2.0\r\n\r\nsm\r\n\r\n"), settings()}},
		{"without SM", frames{raw("PRI * HTTP/2.0\r\n\r\n\r\n\r\n\r\n\r\n"), settings()}},
		{"another last byte", frames{raw("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r"), settings()}},
		{"with a field", frames{raw("PRI * HTTP/2.0\r\nHost: a\r\n\r\nSM\r\n\r\n"), settings()}},
	}),
	each(bare(over(TLS, ends(Refused, comes("wrong preface", "9113 3.4", "Once TLS negotiation is complete, both the client and the server MUST send a connection preface. An invalid one is a connection error of type PROTOCOL_ERROR.")))), []sent{
		{"none, but SETTINGS", frames{settings(), get(1)}},
		{"GET by HTTP/1.1", frames{raw(get1)}},
		{"TLS inside TLS", frames{raw("\x16\x03\x01\x00\xf1\x01\x00\x00\xed\x03\x03abcdefghijklmnopqrstuvwxyz")}},
	}),
	each(by1(Other, "HTTP/1.1", "9113 3.3", "A client that knows that a server supports HTTP/2 can send the connection preface. Servers can identify these connections by the presence of the connection preface; others are HTTP/1.1.", 200), []sent{
		{"GET", frames{raw(get1)}},
		{"a method like the preface's", frames{raw("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 24\r\n\r\n" + preface)}},
		{"Upgrade: h2c", frames{raw("GET /hello HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")}},
	}),
	each(by1(Other, "HTTP/1.1", "9112 9.3.2", "A server MAY process a sequence of pipelined requests; it MUST send the corresponding responses in the same order.", 200, 200), []sent{
		{"two GETs", frames{raw(get1 + get1)}},
	}),
	each(Case{
		Name: "HTTP/1.1", RFC: "9113 3.4", Then: Refused, Over: Clear, Bare: true,
		Sentence: "The client sends the client connection preface as the first application data octets of a connection.",
		Steps:    steps(Step{Send: frames{raw(get1)}, HTTP1: []int{200}, Fixed: true}, Step{}),
	}, []sent{
		{"and then the preface", frames{raw(preface), settings(), get(1)}},
	}),
	each(bare(ends(Leaves, comes("cut short", "9113 3.4", prefaceCut))), []sent{
		{"after a byte", frames{raw(preface[:1])}},
		{"after PRI", frames{raw(preface[:3])}},
		{"after the first line", frames{raw(preface[:16])}},
		{"after the first empty line", frames{raw(preface[:18])}},
		{"before the last byte", frames{raw(preface[:23])}},
		{"behind the preface", frames{raw(preface)}},
		{"in SETTINGS", frames{raw(preface), raw("\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03")}},
		{"behind SETTINGS", frames{raw(preface), settings()}},
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
