package http1

import (
	"math"
	"strings"
	"testing"
)

const wireGET, wirePOST = "GET / HTTP/1.1\r\nHost: a\r\n", "POST / HTTP/1.1\r\nHost: a\r\n"

// wireFrames are heads that the parser accepts, each with its framing, or with the fault for which Frame refuses it.
var wireFrames = []struct {
	rule, head string
	want       Framing
	fault      Fault
}{
	{"without Content-Length and Transfer-Encoding there is no body (RFC 9112, section 6.3)", wirePOST + "\r\n", Framing{}, NoFault},

	{"Content-Length = 1*DIGIT (RFC 9110, section 8.6)", wirePOST + "Content-Length: 10\r\n\r\n", Framing{Length: 10}, NoFault},
	{"Content-Length: any number of digits", wirePOST + "Content-Length: 0000000000000000010\r\n\r\n", Framing{Length: 10}, NoFault},
	{"Content-Length 0", wirePOST + "Content-Length: 0\r\n\r\n", Framing{}, NoFault},
	{"any method may have a body (RFC 9110, section 9.3.1)", wireGET + "content-length: 3\r\n\r\n", Framing{Length: 3}, NoFault},
	{"the largest length", wirePOST + "Content-Length: 9223372036854775807\r\n\r\n", Framing{Length: math.MaxInt64}, NoFault},
	{"\"prevent parsing errors due to integer conversion overflows\" (RFC 9110, section 8.6)",
		wirePOST + "Content-Length: 9223372036854775808\r\n\r\n", Framing{}, FaultContentLength},
	{"an overflow of 64 bits", wirePOST + "Content-Length: 18446744073709551617\r\n\r\n", Framing{}, FaultContentLength},
	{"no sign", wirePOST + "Content-Length: +10\r\n\r\n", Framing{}, FaultContentLength},
	{"no sign", wirePOST + "Content-Length: -10\r\n\r\n", Framing{}, FaultContentLength},
	{"no other base", wirePOST + "Content-Length: 0x10\r\n\r\n", Framing{}, FaultContentLength},
	{"no empty length", wirePOST + "Content-Length:\r\n\r\n", Framing{}, FaultContentLength},
	{"no list", wirePOST + "Content-Length: 10, 10\r\n\r\n", Framing{}, FaultContentLength},
	{"no white space", wirePOST + "Content-Length: 1 0\r\n\r\n", Framing{}, FaultContentLength},
	{"no letters", wirePOST + "Content-Length: 10a\r\n\r\n", Framing{}, FaultContentLength},
	{"no two lengths, though they agree", wirePOST + "Content-Length: 10\r\nContent-Length: 10\r\n\r\n", Framing{}, FaultContentLength},
	{"no two lengths that differ", wirePOST + "Content-Length: 10\r\nA: b\r\ncontent-length: 11\r\n\r\n", Framing{}, FaultContentLength},

	{"chunked (RFC 9112, section 7.1)", wirePOST + "Transfer-Encoding: chunked\r\n\r\n", Framing{Length: -1}, NoFault},
	{"codings are case-insensitive (RFC 9112, section 7)", wirePOST + "transfer-encoding: \t Chunked \r\n\r\n", Framing{Length: -1}, NoFault},
	{"both fields ought to be handled as an error (RFC 9112, section 6.3)",
		wirePOST + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", Framing{}, FaultLengthAndEncoding},
	{"both fields, in the other order", wirePOST + "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", Framing{}, FaultLengthAndEncoding},
	{"both fields, one of them empty", wirePOST + "Content-Length: 1\r\nTransfer-Encoding:\r\n\r\n", Framing{}, FaultLengthAndEncoding},
	{"Transfer-Encoding in HTTP/1.0 is faulty framing (RFC 9112, section 6.1)",
		"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", Framing{}, FaultTransferEncoding},
	{"two fields", wirePOST + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", Framing{}, FaultTransferEncoding},
	{"chunked must not be applied more than once (RFC 9112, section 6.1)",
		wirePOST + "Transfer-Encoding: chunked, chunked\r\n\r\n", Framing{}, FaultTransferEncoding},
	{"chunked isn't the final coding: 400 (RFC 9112, section 6.3)", wirePOST + "Transfer-Encoding: chunked, gzip\r\n\r\n", Framing{}, FaultTransferEncoding},
	{"chunked isn't the final coding: 400 (RFC 9112, section 6.3)", wirePOST + "Transfer-Encoding: gzip\r\n\r\n", Framing{}, FaultTransferEncoding},
	{"a coding that isn't understood: 501 (RFC 9112, section 6.1)", wirePOST + "Transfer-Encoding: gzip, chunked\r\n\r\n", Framing{}, FaultTransferCoding},
	{"several codings that aren't understood", wirePOST + "Transfer-Encoding: br ,gzip,\tchunked\r\n\r\n", Framing{}, FaultTransferCoding},
	{"identity is no coding any more (RFC 9112, section 7)", wirePOST + "Transfer-Encoding: identity\r\n\r\n", Framing{}, FaultTransferEncoding},
	{"identity is no coding any more (RFC 9112, section 7)", wirePOST + "Transfer-Encoding: identity, chunked\r\n\r\n", Framing{}, FaultTransferEncoding},
	{"chunked has no parameters (RFC 9112, section 7.1)", wirePOST + "Transfer-Encoding: chunked;q=1\r\n\r\n", Framing{}, FaultTransferEncoding},
	{"a coding is a token", wirePOST + "Transfer-Encoding: \"gzip\", chunked\r\n\r\n", Framing{}, FaultTransferEncoding},
	{"no empty coding", wirePOST + "Transfer-Encoding:\r\n\r\n", Framing{}, FaultTransferEncoding},
	{"no empty element", wirePOST + "Transfer-Encoding: , chunked\r\n\r\n", Framing{}, FaultTransferEncoding},
	{"no empty element", wirePOST + "Transfer-Encoding: chunked,\r\n\r\n", Framing{}, FaultTransferEncoding},
	{"not what merely looks like chunked", wirePOST + "Transfer-Encoding: xchunked\r\n\r\n", Framing{}, FaultTransferEncoding},
	{"not what merely looks like chunked", wirePOST + "Transfer-Encoding: chunke\xc4\x91\r\n\r\n", Framing{}, FaultTransferEncoding},
	{"not what merely looks like chunked", wirePOST + "Transfer-Encoding: \xffchunked\r\n\r\n", Framing{}, FaultTransferEncoding},
	{"not what merely looks like chunked", wirePOST + "Transfer-Encoding: chunked\t x\r\n\r\n", Framing{}, FaultTransferEncoding},

	{"a server MUST respond with a 400 to a request that lacks Host (RFC 9112, section 3.2)", "GET / HTTP/1.1\r\n\r\n", Framing{}, FaultNoHost},
	{"... in any later minor version", "GET / HTTP/1.2\r\n\r\n", Framing{}, FaultNoHost},
	{"... in absolute form, too", "GET http://a/ HTTP/1.1\r\n\r\n", Framing{}, FaultNoHost},
	{"HTTP/1.0 has no Host", "GET / HTTP/1.0\r\n\r\n", Framing{Close: true}, NoFault},
	{"more than one Host is a 400 (RFC 9112, section 3.2)", wireGET + "Host: a\r\n\r\n", Framing{}, FaultTwoHosts},
	{"more than one Host in HTTP/1.0", "GET / HTTP/1.0\r\nhost: a\r\nHOST: b\r\n\r\n", Framing{}, FaultTwoHosts},
	{"Host may be empty (RFC 9112, section 3.2)", "GET / HTTP/1.1\r\nHost:\r\n\r\n", Framing{}, NoFault},
	{"an invalid Host is a 400 (RFC 9112, section 3.2)", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", Framing{}, FaultHost},
	{"an invalid Host is a 400, in HTTP/1.0, too", "GET / HTTP/1.0\r\nHost: a/b\r\n\r\n", Framing{}, FaultHost},
	{"an invalid Host is a 400, in absolute form, too", "GET http://a/ HTTP/1.1\r\nHost: a@b\r\n\r\n", Framing{}, FaultHost},
	{"a Host with a port", "GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", Framing{}, NoFault},

	{"absolute-form must be accepted (RFC 9112, section 3.2.2)", "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", Framing{}, NoFault},
	{"asterisk-form is for OPTIONS (RFC 9112, section 3.2.4)", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", Framing{}, NoFault},
	{"asterisk-form is for OPTIONS alone", "GET * HTTP/1.1\r\nHost: a\r\n\r\n", Framing{}, FaultTarget},
	{"asterisk-form is one asterisk", "OPTIONS ** HTTP/1.1\r\nHost: a\r\n\r\n", Framing{}, FaultTarget},
	{"authority-form is for CONNECT (RFC 9112, section 3.2.3)", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", Framing{}, NoFault},
	{"authority-form is for CONNECT alone", "GET a:1 HTTP/1.1\r\nHost: a\r\n\r\n", Framing{}, FaultTarget},
	{"CONNECT has no other form", "CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n", Framing{}, FaultTarget},
	{"CONNECT has no other form", "CONNECT * HTTP/1.1\r\nHost: a\r\n\r\n", Framing{}, FaultTarget},
	{"methods are case-sensitive", "connect a:1 HTTP/1.1\r\nHost: a\r\n\r\n", Framing{}, FaultTarget},
	{"percent-encoding in a path", "GET /%41%c3%A9 HTTP/1.1\r\nHost: a\r\n\r\n", Framing{}, NoFault},
	{"a query may hold any \"%\"", "GET /a?%4 HTTP/1.1\r\nHost: a\r\n\r\n", Framing{}, NoFault},
	{"percent-encoding is well-formed", "GET /%4 HTTP/1.1\r\nHost: a\r\n\r\n", Framing{}, FaultTarget},
	{"a path is absolute", "GET a HTTP/1.1\r\nHost: a\r\n\r\n", Framing{}, FaultTarget},

	{"HTTP/1.1 persists (RFC 9112, section 9.3)", wireGET + "\r\n", Framing{}, NoFault},
	{"close ends the connection (RFC 9112, section 9.6)", wireGET + "Connection: close\r\n\r\n", Framing{Close: true}, NoFault},
	{"options are case-insensitive (RFC 9110, section 7.6.1)", wireGET + "connection: CLOSE\r\n\r\n", Framing{Close: true}, NoFault},
	{"Connection is a list (RFC 9110, section 7.6.1)", wireGET + "Connection: ,x ,\tclose,\r\n\r\n", Framing{Close: true}, NoFault},
	{"a list may be spread over fields (RFC 9110, section 5.3)",
		wireGET + "Connection: x\r\nA: b\r\nConnection: close\r\n\r\n", Framing{Close: true}, NoFault},
	{"close among others only", wireGET + "Connection: closed, x-close, \"close\", close x\r\n\r\n", Framing{}, NoFault},
	{"HTTP/1.0 closes (RFC 9112, section 9.3)", "GET / HTTP/1.0\r\nConnection: x\r\n\r\n", Framing{Close: true}, NoFault},
	{"HTTP/1.0 with keep-alive persists", "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", Framing{}, NoFault},
	{"close goes before keep-alive", "GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", Framing{Close: true}, NoFault},
	{"keep-alive is nothing in HTTP/1.1", wireGET + "Connection: keep-alive\r\n\r\n", Framing{}, NoFault},

	{"100-continue (RFC 9110, section 10.1.1)", wirePOST + "Expect: 100-Continue\r\nContent-Length: 1\r\n\r\n",
		Framing{Length: 1, ExpectContinue: true}, NoFault},
	{"100-continue with chunks", wirePOST + "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n",
		Framing{Length: -1, ExpectContinue: true}, NoFault},
	{"no 100 without a body (RFC 9110, section 10.1.1)", wirePOST + "Expect: 100-continue\r\n\r\n", Framing{}, NoFault},
	{"another expectation MAY be answered with 417 (RFC 9110, section 10.1.1)", wirePOST + "Expect: x\r\n\r\n", Framing{}, FaultExpectation},
	{"two expectations", wirePOST + "Expect: 100-continue\r\nExpect: 100-continue\r\n\r\n", Framing{}, FaultExpectation},
	{"a list of expectations", wirePOST + "Expect: 100-continue, x\r\n\r\n", Framing{}, FaultExpectation},
	{"an empty list expects nothing (RFC 9110, sections 5.6.1.2 and 10.1.1)", wirePOST + "Expect:\r\nContent-Length: 1\r\n\r\n", Framing{Length: 1}, NoFault},
	{"an expectation in HTTP/1.0 MUST be ignored (RFC 9110, section 10.1.1)",
		"POST / HTTP/1.0\r\nExpect: x\r\nContent-Length: 1\r\n\r\n", Framing{Length: 1, Close: true}, NoFault},
}

func TestFrame(t *testing.T) {
	for _, test := range wireFrames {
		r, fault := wireRequestOf([]byte(test.head), wireLarge)
		if r == nil && fault == NoFault {
			t.Fatalf("%s: %q isn't complete", test.rule, test.head)
		}
		if fault != test.fault {
			t.Errorf("%s: %q gave %v, want %v", test.rule, test.head, fault, test.fault)
		}
		if fault == NoFault && r.Framing != test.want {
			t.Errorf("%s: %q gave %+v, want %+v", test.rule, test.head, r.Framing, test.want)
		}
	}
}

// A head's framing depends on its own bytes alone: the previous head doesn't affect it, whatever its result was.
func TestFrameAfterAnother(t *testing.T) {
	var p Parser
	for _, before := range wireFrames {
		for _, test := range []struct {
			head string
			want Framing
		}{{wireGET + "\r\n", Framing{}}, {wirePOST + "Content-Length: 1\r\n\r\n", Framing{Length: 1}}} {
			for _, n := range []int{len(before.head), len(before.head) - 2, len(before.head) / 2} {
				p.Reset()
				p.Parse([]byte(before.head)[:n], &wireLarge)
				p.Reset()
				done, fault := p.Parse([]byte(test.head), &wireLarge)
				if !done || fault != NoFault {
					t.Fatal(done, fault)
				}
				if got, fault := p.Frame([]byte(test.head)); fault != NoFault || got != test.want {
					t.Fatalf("%q after %q: %+v, %v", test.head, before.head[:n], got, fault)
				}
			}
		}
	}
}

// Whether a Host is accepted doesn't depend on the Host of the previous request: the shortcut for a repeated Host makes no difference.
func TestFrameHostAfterAnother(t *testing.T) {
	hosts := []string{"", "a", "A", "ab", "a:", "a:80", "a:8o", "[::1]", "[::1", "a b", "a,b", "b"}
	for _, n := range []int{63, 64, 65, 200} {
		hosts = append(hosts, strings.Repeat("h", n), strings.Repeat("h", n-1)+"/", strings.Repeat("h", n-1)+",")
	}
	frame := func(p *Parser, host string) Fault {
		head := []byte("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n")
		p.Reset()
		if done, fault := p.Parse(head, &wireLarge); !done || fault != NoFault {
			t.Fatal(host, done, fault)
		}
		_, fault := p.Frame(head)
		return fault
	}
	for _, before := range hosts {
		for _, host := range hosts {
			var p, fresh Parser
			frame(&p, before)
			for range 2 {
				if got, want := frame(&p, host), frame(&fresh, host); got != want {
					t.Errorf("%q after %q: %v, want %v", host, before, got, want)
				}
			}
		}
	}
}

func TestParseLength(t *testing.T) {
	for _, test := range []struct {
		value string
		want  int64
		ok    bool
	}{
		{"0", 0, true}, {"00", 0, true}, {"7", 7, true}, {"4294967296", 1 << 32, true},
		{"9223372036854775807", math.MaxInt64, true}, {"9223372036854775808", 0, false}, {"9999999999999999999", 0, false},
		{"0000000000000000001", 1, true}, {strings.Repeat("0", 20), 0, false}, {"18446744073709551616", 0, false},
		{"", 0, false}, {" 1", 0, false}, {"1 ", 0, false}, {"+1", 0, false}, {"-1", 0, false}, {"1.0", 0, false},
		{"1e3", 0, false}, {"0x1", 0, false}, {"1_0", 0, false}, {"1,1", 0, false}, {"\xb2", 0, false}, {"/", 0, false}, {":", 0, false},
	} {
		if got, ok := ParseLength([]byte(test.value)); ok != test.ok || ok && got != test.want {
			t.Errorf("ParseLength(%q) = %d, %t, want %d, %t", test.value, got, ok, test.want, test.ok)
		}
	}
}
