package conformance

import (
	"slices"
	"strings"
)

// chunked is the head of a request with a chunked body.
const chunked = post + "Transfer-Encoding: chunked\r\n\r\n"

const (
	chunkGrammar   = "chunk = chunk-size [ chunk-ext ] CRLF chunk-data CRLF; chunk-size = 1*HEXDIG"
	chunkExtension = `chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )`
)

var chunkedCases = slices.Concat(
	each(accepted("chunk", "9112 7.1", chunkGrammar, echo("hello, world")), []request{
		{"one", chunked + "c\r\nhello, world\r\n0\r\n\r\n"},
		{"two", chunked + "7\r\nhello, \r\n5\r\nworld\r\n0\r\n\r\n"},
		{"of one byte each", chunked + "1\r\nh\r\n1\r\ne\r\nA\r\nllo, world\r\n0\r\n\r\n"},
		{"upper-case size", chunked + "C\r\nhello, world\r\n0\r\n\r\n"},
		{"leading zeros in the size", chunked + "00c\r\nhello, world\r\n0\r\n\r\n"},
		{"size of 16 digits", chunked + "000000000000000c\r\nhello, world\r\n0\r\n\r\n"},
		{"last-chunk of several zeros", chunked + "c\r\nhello, world\r\n0000\r\n\r\n"},
	}),
	each(accepted("chunk", "9112 7.1", "The chunk-data is exactly chunk-size octets, whatever they are.", echo("0\r\n\r\n5\r\n\x00")), []request{
		{"data like framing", chunked + "9\r\n0\r\n\r\n5\r\n\x00\r\n0\r\n\r\n"},
	}),
	each(accepted("chunk", "9112 7.1", "The chunked coding is complete when a chunk with a chunk-size of zero is received.", echo("")), []request{
		{"none", chunked + "0\r\n\r\n"},
	}),
	each(refused(400, "chunk size", "9112 7.1", chunkGrammar), []request{
		{"empty", chunked + "\r\nhello\r\n0\r\n\r\n"},
		{"not hexadecimal", chunked + "g\r\nhello\r\n0\r\n\r\n"},
		{"hexadecimal and not", chunked + "5g\r\nhello\r\n0\r\n\r\n"},
		{"minus", chunked + "-5\r\nhello\r\n0\r\n\r\n"},
		{"minus zero", chunked + "5\r\nhello\r\n-0\r\n\r\n"},
		{"plus", chunked + "+5\r\nhello\r\n0\r\n\r\n"},
		{"0x", chunked + "0x5\r\nhello\r\n0\r\n\r\n"},
		{"underscore", chunked + "0_5\r\nhello\r\n0\r\n\r\n"},
		{"point", chunked + "5.0\r\nhello\r\n0\r\n\r\n"},
		{"quoted", chunked + "\"5\"\r\nhello\r\n0\r\n\r\n"},
		{"space before", chunked + " 5\r\nhello\r\n0\r\n\r\n"},
		{"tab before", chunked + "\t5\r\nhello\r\n0\r\n\r\n"},
		{"space after", chunked + "5 \r\nhello\r\n0\r\n\r\n"},
		{"tab after", chunked + "5\t\r\nhello\r\n0\r\n\r\n"},
		{"space inside", chunked + "0 5\r\nhello\r\n0\r\n\r\n"},
		{"NUL after", chunked + "5\x00\r\nhello\r\n0\r\n\r\n"},
		{"comma", chunked + "5,5\r\nhello\r\n0\r\n\r\n"},
		{"non-ASCII digit", chunked + "\xef\xbc\x95\r\nhello\r\n0\r\n\r\n"},
		{"space after the last", chunked + "5\r\nhello\r\n0 \r\n\r\n"},
		{"data without one", post + "Transfer-Encoding: chunked\r\n\r\nhello, world\r\n0\r\n\r\n"},
	}),
	each(refused(400, "chunk size", "9112 7.1", "Recipients MUST anticipate potentially large hexadecimal numerals and prevent parsing errors due to integer conversion overflows."), []request{
		{"2^63", chunked + "8000000000000000\r\nhello\r\n0\r\n\r\n"},
		{"2^64-1", chunked + "ffffffffffffffff\r\nhello\r\n0\r\n\r\n"},
		{"2^64+5", chunked + "10000000000000005\r\nhello\r\n0\r\n\r\n"},
		{"17 digits", chunked + "00000000000000005\r\nhello\r\n0\r\n\r\n"},
		{"17 zeros", chunked + "5\r\nhello\r\n00000000000000000\r\n\r\n"},
		{"5,000 digits", chunked + strings.Repeat("0", 5000) + "5\r\nhello\r\n0\r\n\r\n"},
	}),
	each(refused(400, "chunk end", "9112 7.1", chunkGrammar), []request{
		{"no CRLF after the data", chunked + "5\r\nhello0\r\n\r\n"},
		{"more data than announced", chunked + "5\r\nhello!\r\n0\r\n\r\n"},
		{"less data than announced", chunked + "7\r\nhello\r\n0\r\n\r\n"},
		{"LF after the size", chunked + "5\nhello\r\n0\r\n\r\n"},
		{"LF after the data", chunked + "5\r\nhello\n0\r\n\r\n"},
		{"CR after the data", chunked + "5\r\nhello\r0\r\n\r\n"},
		{"LF CR after the data", chunked + "5\r\nhello\n\r0\r\n\r\n"},
		{"CR CR LF after the size", chunked + "5\r\r\nhello\r\n0\r\n\r\n"},
		{"CR after the size", chunked + "5\rhello\r\n0\r\n\r\n"},
		{"CR and another byte after the size", chunked + "5\rXhello\r\n0\r\n\r\n"},
		{"two bytes that aren't CRLF after the data", chunked + "5\r\nhelloXX0\r\n\r\n"},
		{"LF after the last size", chunked + "5\r\nhello\r\n0\n\r\n"},
		{"LF at the end", chunked + "5\r\nhello\r\n0\r\n\n"},
		{"CR at the end", chunked + "5\r\nhello\r\n0\r\n\r\r\n"},
		{"data after the last size", chunked + "5\r\nhello\r\n0\r\nGET / HTTP/1.1\r\n\r\n"},
	}),
)

var extensionCases = slices.Concat(
	each(accepted("chunk extension", "9112 7.1.1", "A recipient MUST ignore unrecognized chunk extensions.", echo("hello")), []request{
		{"name", chunked + "5;a\r\nhello\r\n0\r\n\r\n"},
		{"name and value", chunked + "5;a=b\r\nhello\r\n0\r\n\r\n"},
		{"quoted value", chunked + "5;a=\"b\"\r\nhello\r\n0\r\n\r\n"},
		{"empty quoted value", chunked + "5;a=\"\"\r\nhello\r\n0\r\n\r\n"},
		{"space and semicolon in a quoted value", chunked + "5;a=\"b; c=d\"\r\nhello\r\n0\r\n\r\n"},
		{"escapes in a quoted value", chunked + "5;a=\"\\\"\\\\\"\r\nhello\r\n0\r\n\r\n"},
		{"tab in a quoted value", chunked + "5;a=\"\t\"\r\nhello\r\n0\r\n\r\n"},
		{"obs-text in a quoted value", chunked + "5;a=\"\xc3\xa9\"\r\nhello\r\n0\r\n\r\n"},
		{"three", chunked + "5;a;b=c;d=\"e\"\r\nhello\r\n0\r\n\r\n"},
		{"on the last chunk", chunked + "5\r\nhello\r\n0;a=b\r\n\r\n"},
		{"every tchar", chunked + "5;!#$%&'*+-.^_`|~09azAZ=!#$%&'*+-.^_`|~\r\nhello\r\n0\r\n\r\n"},
		{"of 1,000 bytes", chunked + "5;a=" + strings.Repeat("b", 1000) + "\r\nhello\r\n0\r\n\r\n"},
	}),
	each(refused(400, "chunk extension", "9112 7.1.1", chunkExtension), []request{
		{"semicolon alone", chunked + "5;\r\nhello\r\n0\r\n\r\n"},
		{"two semicolons", chunked + "5;;a\r\nhello\r\n0\r\n\r\n"},
		{"semicolon at the end", chunked + "5;a;\r\nhello\r\n0\r\n\r\n"},
		{"no name", chunked + "5;=b\r\nhello\r\n0\r\n\r\n"},
		{"no value", chunked + "5;a=\r\nhello\r\n0\r\n\r\n"},
		{"unclosed quotes", chunked + "5;a=\"b\r\nhello\r\n0\r\n\r\n"},
		{"quotes inside a token", chunked + "5;a=b\"c\r\nhello\r\n0\r\n\r\n"},
		{"text after quotes", chunked + "5;a=\"b\"c\r\nhello\r\n0\r\n\r\n"},
		{"two words", chunked + "5;a b\r\nhello\r\n0\r\n\r\n"},
		{"two values", chunked + "5;a=b=c\r\nhello\r\n0\r\n\r\n"},
		{"comma", chunked + "5;a,b\r\nhello\r\n0\r\n\r\n"},
		{"quoted name", chunked + "5;\"a\"=b\r\nhello\r\n0\r\n\r\n"},
		{"escape at the end of quotes", chunked + "5;a=\"b\\\r\nhello\r\n0\r\n\r\n"},
		{"NUL", chunked + "5;a\x00\r\nhello\r\n0\r\n\r\n"},
		{"NUL in quotes", chunked + "5;a=\"\x00\"\r\nhello\r\n0\r\n\r\n"},
		{"non-ASCII token", chunked + "5;\xc3\xa9\r\nhello\r\n0\r\n\r\n"},
		{"malformed on the last chunk", chunked + "5\r\nhello\r\n0;\r\n\r\n"},
	}),
	each(refused(400, "chunk extension", "9112 7.1.1", "BWS is whitespace that MUST NOT be sent; recipients differ on it, and filo refuses it."), []request{
		{"space before the semicolon", chunked + "5 ;a\r\nhello\r\n0\r\n\r\n"},
		{"space after the semicolon", chunked + "5; a\r\nhello\r\n0\r\n\r\n"},
		{"spaces around the equals sign", chunked + "5;a = b\r\nhello\r\n0\r\n\r\n"},
		{"space at the end", chunked + "5;a \r\nhello\r\n0\r\n\r\n"},
		{"tab at the end", chunked + "5;a=\"b\"\t\r\nhello\r\n0\r\n\r\n"},
	}),
	each(refused(400, "chunk extension", "9112 7.1.1", "An extension ends in CRLF; one that a bare LF or CR ends for some recipients hides what follows from others."), []request{
		{"LF", chunked + "5;a\nhello\r\n0\r\n\r\n"},
		{"LF before CRLF", chunked + "5;a\n\r\nhello\r\n0\r\n\r\n"},
		{"LF in quotes", chunked + "5;a=\"\n\"\r\nhello\r\n0\r\n\r\n"},
		{"CR", chunked + "5;a\rb\r\nhello\r\n0\r\n\r\n"},
		{"CR before CRLF", chunked + "5;a\r\r\nhello\r\n0\r\n\r\n"},
	}),
	each(refused(400, "chunk extension", "9112 7.1.1", "A server ought to limit the total length of chunk extensions received in a request and generate a 4xx if it is exceeded."), []request{
		{"of 10,000 bytes", chunked + "5;a=" + strings.Repeat("b", 10000) + "\r\nhello\r\n0\r\n\r\n"},
		{"of 1,000 bytes twenty times", chunked + strings.Repeat("1;a="+strings.Repeat("b", 1000)+"\r\nh\r\n", 20) + "0\r\n\r\n"},
		{"without end", chunked + "5;a=" + strings.Repeat("b", 20000)},
	}),
)

var trailerCases = slices.Concat(
	each(accepted("trailer", "9112 7.1.2", "A trailer section allows the sender to include additional fields at the end of a chunked message.", echo("hello")), []request{
		{"one field", chunked + "5\r\nhello\r\n0\r\nX: y\r\n\r\n"},
		{"two fields", chunked + "5\r\nhello\r\n0\r\nX: y\r\nZ:\r\n\r\n"},
		{"announced", post + "Trailer: X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n"},
		{"obs-text", chunked + "5\r\nhello\r\n0\r\nX: \xc3\xa9\r\n\r\n"},
		{"after an extension", chunked + "5\r\nhello\r\n0;a=b\r\nX: y\r\n\r\n"},
	}),
	each(refused(400, "trailer", "9112 7.1.2", "trailer-section = *( field-line CRLF ), and what holds for a field line holds here."), []request{
		{"no colon", chunked + "5\r\nhello\r\n0\r\nX\r\n\r\n"},
		{"empty name", chunked + "5\r\nhello\r\n0\r\n: y\r\n\r\n"},
		{"space before the colon", chunked + "5\r\nhello\r\n0\r\nX : y\r\n\r\n"},
		{"space in the name", chunked + "5\r\nhello\r\n0\r\nX Y: z\r\n\r\n"},
		{"obs-fold", chunked + "5\r\nhello\r\n0\r\nX: y\r\n z\r\n\r\n"},
		{"leading space", chunked + "5\r\nhello\r\n0\r\n X: y\r\n\r\n"},
		{"NUL", chunked + "5\r\nhello\r\n0\r\nX: y\x00\r\n\r\n"},
		{"control byte", chunked + "5\r\nhello\r\n0\r\nX: y\x01\r\n\r\n"},
		{"LF", chunked + "5\r\nhello\r\n0\r\nX: y\n\r\n"},
		{"LF as the empty line", chunked + "5\r\nhello\r\n0\r\nX: y\r\n\n"},
		{"bare CR", chunked + "5\r\nhello\r\n0\r\nX: y\rz\r\n\r\n"},
		{"non-ASCII name", chunked + "5\r\nhello\r\n0\r\n\xc3\xa9: y\r\n\r\n"},
	}),
	each(refused(400, "trailer", "9110 6.5.1", "Fields that describe message framing, routing, authentication and the like cannot be processed outside the header section."), []request{
		{"Content-Length", chunked + "5\r\nhello\r\n0\r\nContent-Length: 5\r\n\r\n"},
		{"Transfer-Encoding", chunked + "5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"lower-case transfer-encoding", chunked + "5\r\nhello\r\n0\r\ntransfer-encoding: chunked\r\n\r\n"},
		{"Host", chunked + "5\r\nhello\r\n0\r\nHost: b\r\n\r\n"},
		{"Host among others", chunked + "5\r\nhello\r\n0\r\nX: y\r\nHOST: b\r\nZ: y\r\n\r\n"},
	}),
	each(Case{
		Name: "trailer", RFC: "6585 5", Want: answers(Answer{Status: 431, Or: 400}), Then: Closes,
		Sentence: "431 is for when the total size of request header fields is too large; filo's limits hold for trailers too.",
	}, []request{
		{"200 fields", chunked + "5\r\nhello\r\n0\r\n" + numberedFields(200) + "\r\n"},
		{"field of 20,000 bytes", chunked + "5\r\nhello\r\n0\r\nX: " + strings.Repeat("y", 20000) + "\r\n\r\n"},
	}),
)
