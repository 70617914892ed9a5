package http2conf

import (
	"slices"
	"strings"

	"golang.org/x/net/http2/hpack"
)

// indexing is a request whose :path and :authority stay in the dynamic table, and indexed is the same that finds them there.
const (
	indexing = "\x82\x87\x44\x06/hello\x41\x01a"
	indexed  = "\x82\x87\xbf\xbe"
	// plain is the same without the dynamic table.
	plain = "\x82\x87\x04\x06/hello\x01\x01a"
)

// huffman is a string with the Huffman code of RFC 7541, appendix B.
func huffman(s string) string {
	b := hpack.AppendHuffmanString(nil, s)
	return integer(0x80, 7, len(b)) + string(b)
}

// hpackFails are requests with these bytes behind their fields.
func hpackFails(rfc, sentence string, list []sent) []Case {
	return each(fails(compressionError, "HPACK", rfc, sentence+" A decoding error in a field block MUST be treated as a connection error of type COMPRESSION_ERROR."), list)
}

func behind(bytes string) frames { return frames{headers(1, whole, plain+bytes)} }

// twice is a request, and others behind it that build upon its field block.
func twice(name, rfc, sentence string, first []Frame, want Want, second ...Frame) Case {
	var greetings []Want
	for _, f := range second {
		greetings = append(greetings, hello(f.Stream))
	}
	return Case{Name: "HPACK/" + name, RFC: rfc, Sentence: sentence, Steps: steps(fixed(first, want), send(second, greetings...))}
}

const (
	noIndex     = "Indices strictly greater than the sum of the lengths of both tables MUST be treated as a decoding error."
	badHuffman  = "A padding strictly longer than 7 bits MUST be treated as a decoding error. A padding not corresponding to the most significant bits of the code for the EOS symbol MUST be treated as a decoding error. A Huffman-encoded string literal containing the EOS symbol MUST be treated as a decoding error."
	badInteger  = "Integer encodings that exceed implementation limits -- in value or octet length -- MUST be treated as decoding errors."
	badSize     = "The new maximum size MUST be lower than or equal to the limit determined by the protocol using HPACK. A value that exceeds this limit MUST be treated as a decoding error."
	sizeFirst   = "This dynamic table size update MUST occur at the beginning of the first header block following the change to the dynamic table size; filo allows it at the beginning of a block alone."
	cutBlock    = "A field block that ends inside of a field can't be decoded."
	alwaysSame  = "Field compression is stateful: an endpoint needs to perform decompression even if the frames are to be discarded."
	representns = "A header field representation is an indexed one, or a literal with incremental indexing, without indexing, or never indexed."
)

var hpackCases = slices.Concat(
	each(comes("HPACK", "7541 6", representns, hello(1)), []sent{
		{"names of the static table", frames{headers(1, whole, plain)}},
		{"with indexing", frames{headers(1, whole, indexing)}},
		{"never indexed", frames{headers(1, whole, "\x82\x87\x14\x06/hello\x11\x01a")}},
		{"literal names", frames{headers(1, whole, "\x40\x07:method\x03GET\x10\x07:scheme\x05https\x00\x05:path\x06/hello\x01\x01a")}},
		{"Huffman code", frames{headers(1, whole, "\x82\x87\x04"+huffman("/hello")+"\x01"+huffman("a")+"\x00"+huffman("x-name")+huffman("value"))}},
		{"Huffman code of an empty string", behind("\x00\x01x\x80")},
		{"an index twice in a block", frames{headers(1, whole, plain+"\x40\x01x\x01y\xbe\xbe\xbe")}},
		{"an index of the static table with a value", behind("\x90")},
		{"a number with superfluous zeros", behind("\x00\x7f\x82\x80\x80\x00" + over16K[:129] + "\x01y")},
		{"a field larger than the table", behind("\x40\x01x\x7f\xa1\x1f" + over16K[:4128])},
	}),
	each(comes("HPACK", "7541 4.2", "Multiple updates to the maximum table size can occur between the transmission of two header blocks: the smallest maximum table size, and the final one.", hello(1)), []sent{
		{"an update of the table's size to 0", frames{headers(1, whole, "\x20"+plain)}},
		{"an update of the table's size to 4,096", frames{headers(1, whole, "\x3f\xe1\x1f"+plain)}},
		{"two updates of the table's size", frames{headers(1, whole, "\x20\x3f\xe1\x1f"+plain)}},
		{"an update of the table's size, and CONTINUATION", frames{headers(1, endStream, "\x3f"), continuation(1, endHeaders, "\xe1\x1f"+plain)}},
	}),
	[]Case{
		twice("an index of the request before", "7541 2.3.2", "The dynamic table consists of a list of header fields maintained in first-in, first-out order.",
			frames{headers(1, whole, indexing)}, hello(1), headers(3, whole, indexed)),
		twice("an index of a malformed request", "9113 4.3", alwaysSame,
			frames{headers(1, whole, indexing+block("X: y"))}, malformed(1), headers(3, whole, indexed)),
		twice("an index of a request that is too large", "9113 4.3", alwaysSame,
			frames{headers(1, whole, indexing+strings.Repeat("\x00\x01x\x01y", 300))}, answered(1, 431), headers(3, whole, indexed)),
		twice("an index behind what is too large", "9113 4.3", alwaysSame,
			frames{headers(1, whole, plain+strings.Repeat("\x00\x01x\x01y", 600)+"\x40\x01x\x01y")}, answered(1, 431), headers(3, whole, plain+"\xbe")),
		twice("an index of trailers", "9113 4.3", alwaysSame,
			frames{post(1), headers(1, whole, "\x40\x01x\x01y")}, echo(1, ""), headers(3, whole, plain+"\xbe")),
		twice("an index of HEADERS on a stream that the server has reset", "9113 5.1", "An endpoint MUST minimally process and then discard any frames it receives in this state. This means updating header compression state for HEADERS.",
			frames{postWith(1, "X: y"), headers(1, whole, indexing)}, malformed(1), headers(3, whole, indexed)),
		twice("an index of HEADERS that depend on themselves", "9113 4.3", alwaysSame,
			frames{headers(1, whole|prioritize, uint32Of(1)+"\x0f"+indexing)}, wasReset(1, protocolError), headers(3, whole, indexed)),
		twice("an index of two requests before", "7541 2.3.2", "The newest entry has the lowest index.",
			frames{headers(1, whole, indexing)}, hello(1), headers(3, whole, "\x82\x87\xbf\xbe\x40\x01x\x01y"), headers(5, whole, "\x82\x87\xc0\xbf\xbe")),
		{Name: "HPACK/an index that an update of the table's size has removed", RFC: "7541 4.3", Then: Fails, Code: compressionError,
			Sentence: "Whenever the maximum size for the dynamic table is reduced, entries are evicted from the end of the dynamic table until the size is less than or equal to the maximum size.",
			Steps:    steps(fixed(frames{headers(1, whole, indexing)}, hello(1)), send(frames{headers(3, whole, "\x20\x3f\xe1\x1f"+indexed)}))},
		{Name: "HPACK/an index that a larger entry has removed", RFC: "7541 4.4", Then: Fails, Code: compressionError,
			Sentence: "An attempt to add an entry larger than the maximum size causes the table to be emptied of all existing entries.",
			Steps:    steps(fixed(frames{headers(1, whole, indexing)}, hello(1)), send(frames{headers(3, whole, "\x40\x01x\x7f\xa1\x1f"+over16K[:4128]+indexed)}))},
		// The client's table size: the runner holds the server's blocks to it.
		{Name: "HPACK/a smaller table for answers", RFC: "9113 4.3.1",
			Sentence: "Once an endpoint acknowledges a change to SETTINGS_HEADER_TABLE_SIZE that reduces the maximum below the current size of the dynamic table, its HPACK encoder MUST start the next field block with a Dynamic Table Size Update instruction.",
			Steps: steps(fixed(frames{get(1)}, hello(1)), send(frames{settings(setting(settingTableSize, 0))}), send(frames{get(3), get(5)}, hello(3), hello(5)),
				send(frames{settings(setting(settingTableSize, 100))}), send(frames{get(7)}, hello(7)))},
		{Name: "HPACK/a larger table for answers", RFC: "9113 6.5.2",
			Sentence: "The encoder can select any size equal to or less than this value.",
			Steps:    steps(fixed(frames{get(1)}, hello(1)), send(frames{settings(setting(settingTableSize, 65536)), get(3)}, hello(3)))},
	},
	hpackFails("7541 2.3.3", noIndex, []sent{
		{"the index 62 of an empty table", behind("\xbe")},
		{"an index of two bytes", behind("\xff\x00")},
		{"the largest index", behind("\xff\xff\xff\xff\x7f")},
		{"the name 62 of an empty table, without indexing", behind("\x0f\x2f\x01a")},
		{"the name 62 of an empty table, with indexing", behind("\x7e\x01a")},
		{"the name 62 of an empty table, never indexed", behind("\x1f\x2f\x01a")},
	}),
	hpackFails("7541 6.1", "The index value of 0 is not used. It MUST be treated as a decoding error if found in an indexed header field representation.", []sent{
		{"the index 0", behind("\x80")},
	}),
	hpackFails("7541 5.1", badInteger, []sent{
		{"an index that overflows", behind("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f")},
		{"an index of a name that overflows", behind("\x0f\xff\xff\xff\xff\xff\xff\x7f\x01a")},
		{"the length of a name that overflows", behind("\x00\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")},
		{"the length of a value that overflows", behind("\x00\x01x\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")},
		{"a table size that overflows", frames{headers(1, whole, "\x3f\xff\xff\xff\xff\xff\xff\x7f"+plain)}},
		{"a number of many zeros", behind("\xff" + strings.Repeat("\x80", 100) + "\x00")},
	}),
	hpackFails("7541 5.2", badHuffman, []sent{
		{"EOS in a value", behind("\x00\x01x\x84\xff\xff\xff\xff")},
		{"EOS in a name", behind("\x00\x84\xff\xff\xff\xff\x01y")},
		{"Huffman padding of 8 bits", behind("\x00\x01x\x82\xf8\xff")},
		{"Huffman padding of zeros", behind("\x00\x01x\x81\x18")},
		{"Huffman padding of 8 bits, with indexing", behind("\x40\x01x\x82\xf8\xff")},
		{"a byte of padding alone", behind("\x00\x01x\x81\xff")},
	}),
	hpackFails("7541 6.3", badSize, []sent{
		{"a table size of 4,097", frames{headers(1, whole, "\x3f\xe2\x1f"+plain)}},
		{"a table size of 2^28", frames{headers(1, whole, "\x3f\xe1\xff\xff\x7f"+plain)}},
		{"a good table size, and one of 4,097", frames{headers(1, whole, "\x20\x3f\xe2\x1f"+plain)}},
	}),
	hpackFails("7541 4.2", sizeFirst, []sent{
		{"a table size behind a field", frames{headers(1, whole, "\x82\x20"+plain[1:])}},
		{"a table size at the end", behind("\x3f\xe1\x1f")},
		{"a table size behind a literal", behind("\x00\x01x\x01y\x20")},
	}),
	hpackFails("7541 3.2", cutBlock, []sent{
		{"half an index", behind("\xff\x80")},
		{"half an index of a name", behind("\x0f")},
		{"no name", behind("\x00")},
		{"no name, with indexing", behind("\x40")},
		{"half a name", behind("\x00\x05ab")},
		{"no value", behind("\x00\x01x")},
		{"half a value", behind("\x00\x01x\x05ab")},
		{"half a length", behind("\x00\x01x\x7f\x80")},
		{"half a table size", frames{headers(1, whole, "\x3f")}},
		{"a value of 268 million bytes", behind("\x00\x01x\x7f\xff\xff\xff\x7fa")},
		{"a field that ends before END_HEADERS of CONTINUATION", frames{headers(1, endStream, plain+"\x00\x01x"), continuation(1, endHeaders, "\x05ab")}},
		{"of trailers", frames{post(1), headers(1, whole, "\x00\x01x\x05ab")}},
		{"in the first byte", frames{headers(1, whole, "\x40")}},
	}),
)
