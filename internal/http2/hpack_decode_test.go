package http2

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/filohttp/filo/internal/field"
	"golang.org/x/net/http2/hpack"
)

// collected is a Sink that keeps a copy of each field.
type collected struct{ fields []collectedField }

type collectedField struct {
	name, value string
	id          field.ID
	valid       bool
}

func (c *collected) Field(name, value []byte, id field.ID, valid bool) {
	if cap(name) != len(name) || cap(value) != len(value) {
		panic("appending to a name or a value would overwrite what is behind it")
	}
	c.fields = append(c.fields, collectedField{string(name), string(value), id, valid})
}

// list returns the fields as "name: value" lines.
func (c *collected) list() string {
	var b strings.Builder
	for _, f := range c.fields {
		fmt.Fprintf(&b, "%s: %s\n", f.name, f.value)
	}
	return b.String()
}

const noLimit = 1 << 30

func newDecoder() *Decoder {
	d := new(Decoder)
	d.Reset()
	return d
}

// mustDecode decodes a block without a limit.
func mustDecode(t *testing.T, d *Decoder, block []byte) *collected {
	t.Helper()
	var c collected
	over, err := d.Decode(block, noLimit, &c)
	if over || err != nil {
		t.Fatalf("%x: %v, over: %t", block, err, over)
	}
	d.table.check(t)
	return &c
}

// check checks the table's invariants.
func (t *table) check(test testing.TB) {
	test.Helper()
	size, end := uint32(0), t.dead()
	for age := int(t.count) - 1; age >= 0; age-- {
		e := t.at(uint32(age))
		if e.at != end {
			test.Fatalf("entry %d lies at %d, want %d", age, e.at, end)
		}
		end += uint32(e.nameLen) + uint32(e.valueLen)
		size += e.size()
	}
	if int(end) != len(t.text) || size != t.size || t.size > t.max || int(t.count) > len(t.ring) {
		test.Fatalf("%d entries of %d bytes, which end at %d: %+v", t.count, size, end, t)
	}
}

// list returns the table as RFC 7541, appendix C, prints it, without the padding of the numbers.
func (t *table) list() string {
	var b strings.Builder
	for age := range t.count {
		e := t.at(age)
		fmt.Fprintf(&b, "[%d] (s = %d) %s: %s\n", age+1, e.size(), e.name(t.text), e.value(t.text))
	}
	fmt.Fprintf(&b, "Table size: %d\n", t.size)
	return b.String()
}

func unhex(s string) []byte {
	var b []byte
	if _, err := fmt.Sscanf(strings.ReplaceAll(s, " ", ""), "%x", &b); err != nil {
		panic(err)
	}
	return b
}

type exampleBlock struct{ block, fields, table string }

// The examples of RFC 7541, appendix C, each with the dynamic table after it.
var examples = []struct {
	section string
	size    uint32 // the maximum size of the table
	blocks  []exampleBlock
}{
	{"C.2.1", 4096, []exampleBlock{{
		"400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
		"custom-key: custom-header\n",
		"[1] (s = 55) custom-key: custom-header\nTable size: 55\n",
	}}},
	{"C.2.2", 4096, []exampleBlock{{"040c 2f73 616d 706c 652f 7061 7468", ":path: /sample/path\n", "Table size: 0\n"}}},
	{"C.2.3", 4096, []exampleBlock{{"1008 7061 7373 776f 7264 0673 6563 7265 74", "password: secret\n", "Table size: 0\n"}}},
	{"C.2.4", 4096, []exampleBlock{{"82", ":method: GET\n", "Table size: 0\n"}}},
	{"C.3", 4096, []exampleBlock{
		{
			"8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
			":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n",
			"[1] (s = 57) :authority: www.example.com\nTable size: 57\n",
		},
		{
			"8286 84be 5808 6e6f 2d63 6163 6865",
			":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache\n",
			"[1] (s = 53) cache-control: no-cache\n[2] (s = 57) :authority: www.example.com\nTable size: 110\n",
		},
		{
			"8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
			":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value\n",
			"[1] (s = 54) custom-key: custom-value\n[2] (s = 53) cache-control: no-cache\n" +
				"[3] (s = 57) :authority: www.example.com\nTable size: 164\n",
		},
	}},
	{"C.4", 4096, []exampleBlock{
		{
			"8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
			":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n",
			"[1] (s = 57) :authority: www.example.com\nTable size: 57\n",
		},
		{
			"8286 84be 5886 a8eb 1064 9cbf",
			":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache\n",
			"[1] (s = 53) cache-control: no-cache\n[2] (s = 57) :authority: www.example.com\nTable size: 110\n",
		},
		{
			"8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
			":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value\n",
			"[1] (s = 54) custom-key: custom-value\n[2] (s = 53) cache-control: no-cache\n" +
				"[3] (s = 57) :authority: www.example.com\nTable size: 164\n",
		},
	}},
	{"C.5", 256, []exampleBlock{
		{
			"4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d 546e " +
				"1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
			":status: 302\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com\n",
			"[1] (s = 63) location: https://www.example.com\n[2] (s = 65) date: Mon, 21 Oct 2013 20:13:21 GMT\n" +
				"[3] (s = 52) cache-control: private\n[4] (s = 42) :status: 302\nTable size: 222\n",
		},
		{
			"4803 3330 37c1 c0bf",
			":status: 307\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com\n",
			"[1] (s = 42) :status: 307\n[2] (s = 63) location: https://www.example.com\n[3] (s = 65) date: Mon, 21 Oct 2013 20:13:21 GMT\n" +
				"[4] (s = 52) cache-control: private\nTable size: 222\n",
		},
		{
			"88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f 6f3d " +
				"4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
			":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\nlocation: https://www.example.com\n" +
				"content-encoding: gzip\nset-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n",
			"[1] (s = 98) set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n[2] (s = 52) content-encoding: gzip\n" +
				"[3] (s = 65) date: Mon, 21 Oct 2013 20:13:22 GMT\nTable size: 215\n",
		},
	}},
	{"C.6", 256, []exampleBlock{
		{
			"4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
			":status: 302\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com\n",
			"[1] (s = 63) location: https://www.example.com\n[2] (s = 65) date: Mon, 21 Oct 2013 20:13:21 GMT\n" +
				"[3] (s = 52) cache-control: private\n[4] (s = 42) :status: 302\nTable size: 222\n",
		},
		{
			"4883 640e ffc1 c0bf",
			":status: 307\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com\n",
			"[1] (s = 42) :status: 307\n[2] (s = 63) location: https://www.example.com\n[3] (s = 65) date: Mon, 21 Oct 2013 20:13:21 GMT\n" +
				"[4] (s = 52) cache-control: private\nTable size: 222\n",
		},
		{
			"88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 " +
				"d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
			":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\nlocation: https://www.example.com\n" +
				"content-encoding: gzip\nset-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n",
			"[1] (s = 98) set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n[2] (s = 52) content-encoding: gzip\n" +
				"[3] (s = 65) date: Mon, 21 Oct 2013 20:13:22 GMT\nTable size: 215\n",
		},
	}},
}

// RFC 7541, appendix C.
func TestDecoderExamples(t *testing.T) {
	for _, example := range examples {
		t.Run(example.section, func(t *testing.T) {
			d := newDecoder()
			d.table.resize(example.size)
			for i, b := range example.blocks {
				if got := mustDecode(t, d, unhex(b.block)).list(); got != b.fields {
					t.Errorf("block %d has\n%swant\n%s", i, got, b.fields)
				}
				if got := d.table.list(); got != b.table {
					t.Errorf("behind block %d, the table is\n%swant\n%s", i, got, b.table)
				}
			}
		})
	}
}

// The integers of RFC 7541, appendix C.1, and those at which the number of bytes changes.
func TestIntegers(t *testing.T) {
	for _, test := range []struct {
		v    uint32
		bits uint
		want string
	}{
		{10, 5, "0a"}, {1337, 5, "1f9a0a"}, {42, 8, "2a"}, // C.1
		{30, 5, "1e"}, {31, 5, "1f00"}, {127, 7, "7f00"}, {126, 7, "7e"}, {254, 7, "7f7f"}, {255, 7, "7f8001"}, {1<<28 - 1 + 15, 4, "0fffffff7f"},
	} {
		got := appendInt(nil, 0, test.bits, test.v)
		if fmt.Sprintf("%x", got) != test.want {
			t.Errorf("%d in %d bits is %x, want %s", test.v, test.bits, got, test.want)
		}
		v, rest, err := readInt(append(got, "rest"...), test.bits)
		if v != test.v || string(rest) != "rest" || err != nil {
			t.Errorf("%x is %d in front of %q, want %d: %v", got, v, rest, test.v, err)
		}
	}
}

// Each block ends the connection: "A decoding error in a field block MUST be treated as a connection error of type COMPRESSION_ERROR" (RFC
// 9113, section 4.3).
func TestDecoderMalformed(t *testing.T) {
	for _, test := range []struct {
		what  string
		block string
		want  HPACKError
	}{
		{"RFC 7541, 6.1: the index 0", "80", errIndex},
		{"2.3.3: an index behind both tables", "be", errIndex},
		{"behind both tables, of two bytes", "ff00", errIndex},
		{"the largest index", "ffffffff7f", errIndex},
		{"the name of an index behind both tables, without indexing", "0f2f 0161", errIndex},
		{"the name of an index behind both tables, with indexing", "7e 0161", errIndex},
		{"the name of an index behind both tables, never indexed", "1f2f 0161", errIndex},
		{"5.1: an index of too many bytes", "ff8080808000", errInteger},
		{"an index that overflows", "ffffffffffffffffffff7f", errInteger},
		{"the index of a name that overflows", "0fffffffff7f 0161", errInteger},
		{"a length that overflows", "00 7fffffffffffffffffff01", errInteger},
		{"a size that overflows", "3fffffffffffff7f", errInteger},
		{"a name longer than the block", "00 0561", errCutShort},
		{"a value longer than the block", "00 0161 0262", errCutShort},
		{"a value of 268 million bytes", "00 0161 7fffffff7f 62", errCutShort},
		{"no value", "00 0161", errCutShort},
		{"no name", "00", errCutShort},
		{"no name, with indexing", "40", errCutShort},
		{"half an index", "ff80", errCutShort},
		{"half an index of a name", "0f", errCutShort},
		{"half a length", "00 7f80", errCutShort},
		{"half a size", "3f", errCutShort},
		{"5.2: EOS in a value", "00 0161 84ffffffff", errHuffman},
		{"EOS in a name", "00 84ffffffff 0161", errHuffman},
		{"padding of 8 bits", "00 0161 82f8ff", errHuffman},
		{"padding of zeros", "00 0161 8118", errHuffman},
		{"padding of 8 bits, with indexing", "40 0161 82f8ff", errHuffman},
		{"4.2: an update behind a field", "82 20", errLateUpdate},
		{"an update behind a literal", "00 0161 0162 3f01", errLateUpdate},
		{"6.3: an update to more than the setting", "3fe21f", errTableSize},
		{"a good update and one to more", "20 3fe21f", errTableSize},
	} {
		var c collected
		_, err := newDecoder().Decode(unhex(test.block), noLimit, &c)
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %s: %v, want %v", test.what, test.block, err, test.want)
		}
		// A block that is decoded without a sink has the same errors.
		if _, err := newDecoder().Decode(unhex(test.block), noLimit, nil); !errors.Is(err, test.want) {
			t.Errorf("%s, without a sink: %v, want %v", test.what, err, test.want)
		}
	}
}

// A block that is cut anywhere either ends the connection, or has exactly the fields before the cut.
func TestDecoderCut(t *testing.T) {
	for _, fields := range [][]hpack.HeaderField{chrome, loader} {
		first, second := encodedTwice(fields)
		for n := range len(first) {
			var c collected
			_, err := newDecoder().Decode(first[:n:n], noLimit, &c)
			if err != nil && !errors.Is(err, errCutShort) {
				t.Errorf("cut at %d: %v", n, err)
			}
			for i, f := range c.fields {
				if f.name != fields[i].Name || f.value != fields[i].Value {
					t.Errorf("cut at %d: %q is %q, want %q", n, f.name, f.value, fields[i].Value)
				}
			}
			if err == nil && n > 0 && len(c.fields) == 0 {
				t.Errorf("cut at %d: neither fields nor an error", n)
			}
		}
		d := newDecoder()
		for i, block := range [][]byte{first, second, second} {
			for j, f := range mustDecode(t, d, block).fields {
				if f.name != fields[j].Name || f.value != fields[j].Value {
					t.Errorf("block %d: %q is %q, want %q", i, f.name, f.value, fields[j].Value)
				}
			}
		}
	}
}

// Updates of the table's size at the beginning of a block (RFC 7541, section 4.2; RFC 9113, section 4.3.1).
func TestDecoderUpdates(t *testing.T) {
	const added = "40 0161 0162 40 0163 0164" // two entries of 34 bytes
	for _, test := range []struct {
		what    string
		setting []uint32 // the settings that are acknowledged before the last block
		blocks  []string
		want    error
		count   uint32 // the number of entries that are left
	}{
		{"none", nil, []string{added, "bebf"}, nil, 2},
		{"to 0", nil, []string{added, "20"}, nil, 0},
		{"to 0 and back", nil, []string{added, "20 3fe11f"}, nil, 0},
		{"to 0 and back, and then an index of what was", nil, []string{added, "20 3fe11f be"}, errIndex, 0},
		{"to one entry", nil, []string{added, "3f03 be"}, nil, 1},
		{"to one byte less than both", nil, []string{added, "3f24"}, nil, 1},
		{"to both", nil, []string{added, "3f25"}, nil, 2},
		{"to 4096", nil, []string{added, "3fe11f bebf"}, nil, 2},
		{"three", nil, []string{added, "3f25 3f26 3f25 be"}, nil, 2},
		{"a larger setting isn't used", []uint32{8192}, []string{added, "bebf"}, nil, 2},
		{"to a larger setting", []uint32{8192}, []string{added, "3fe13f bebf"}, nil, 2},
		{"to more than a larger setting", []uint32{8192}, []string{added, "3fe23f"}, errTableSize, 2},
		{"a smaller setting is used", []uint32{34}, []string{added, "3f03 be"}, nil, 1},
		{"a smaller setting isn't used", []uint32{34}, []string{added, "be"}, errNoReduction, 2},
		{"a smaller setting isn't used by an empty block", []uint32{34}, []string{added, ""}, errNoReduction, 2},
		{"a smaller setting and an update to more", []uint32{34}, []string{added, "3f04"}, errTableSize, 2},
		{"a smaller setting and one that is larger again", []uint32{34, 4096}, []string{added, "bebf"}, nil, 2},
		{"a setting as large as the table", []uint32{4096}, []string{added, "bebf"}, nil, 2},
		{"a setting smaller than the last, but not than the table", []uint32{200}, []string{"3f25" + added, "3f03"}, nil, 1},
	} {
		d := newDecoder()
		var c collected
		var err error
		for i, block := range test.blocks {
			if i == len(test.blocks)-1 {
				for _, size := range test.setting {
					d.SetTableSize(size)
				}
			}
			if _, err = d.Decode(unhexAny(block), noLimit, &c); err != nil && i < len(test.blocks)-1 {
				t.Fatal(err)
			}
		}
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.what, err, test.want)
		}
		if d.table.count != test.count {
			t.Errorf("%s: %d entries are left, want %d", test.what, d.table.count, test.count)
		}
		d.table.check(t)
	}
}

func unhexAny(s string) []byte {
	if s == "" {
		return nil
	}
	return unhex(s)
}

// "an attempt to add an entry larger than the maximum size causes the table to be emptied of all existing entries and results in an empty
// table. [...] A new entry can reference the name of an entry in the dynamic table that will be evicted" (RFC 7541, section 4.4)
func TestDecoderEviction(t *testing.T) {
	d := newDecoder()
	d.table.resize(100)
	mustDecode(t, d, unhex("40 0161 0162")) // a: b, 34 bytes
	mustDecode(t, d, unhex("40 0163 0164")) // c: d, 34 bytes
	// This entry uses the name of the entry a: b, and evicts that entry.
	if got := mustDecode(t, d, append(unhex("7f00 05"), "12345"...)).list(); got != "a: 12345\n" {
		t.Errorf("%q", got)
	}
	if got, want := d.table.list(), "[1] (s = 38) a: 12345\n[2] (s = 34) c: d\nTable size: 72\n"; got != want {
		t.Errorf("the table is\n%swant\n%s", got, want)
	}
	// This entry uses the name of the entry c: d, and is as large as the table.
	value := strings.Repeat("v", 100-32-1)
	if got := mustDecode(t, d, append(unhex("7f00 43"), value...)).list(); got != "c: "+value+"\n" {
		t.Errorf("%q", got)
	}
	if d.table.count != 1 || d.table.size != 100 {
		t.Errorf("the table is\n%s", d.table.list())
	}
	// This entry is a byte larger than the table. That is no error, but empties the table.
	if got := mustDecode(t, d, append(unhex("7e 44"), value+"v"...)).list(); got != "c: "+value+"v\n" {
		t.Errorf("%q", got)
	}
	if d.table.count != 0 || d.table.size != 0 {
		t.Errorf("the table is\n%s", d.table.list())
	}
}

// A field counts its name, its value and 32 bytes against the limit. The size of the block is limited, too. The sink receives no field over
// the limit, but the table is updated correctly.
func TestDecoderLimit(t *testing.T) {
	entry := append(unhex("40 0178 7f81 0f"), strings.Repeat("y", 127+1921)...) // x: y…, an entry of 2,081 bytes
	for _, test := range []struct {
		what   string
		block  []byte
		limit  int
		fields int
		over   bool
	}{
		{"one field, exactly", unhex("82"), 42, 1, false},
		{"one field, a byte over", unhex("82"), 41, 0, true},
		{"two fields, exactly", unhex("8286"), 42 + 43, 2, false},
		{"two fields, a byte over", unhex("8286"), 42 + 42, 1, true},
		{"a small field behind one that is over", unhex("00 0161 2b 61616161 61616161 61616161 61616161 61616161 61616161 61616161 61616161 61616161 61616161 616161 82"), 60, 0, true},
		{"an empty block", nil, 0, 0, false},
		{"the block itself", append(unhex("3fe11f"), unhex("82")...), 42, 1, false},
		{"updates alone", bytes.Repeat([]byte{0x20}, 50), 50, 0, false},
		{"updates alone, a byte over", bytes.Repeat([]byte{0x20}, 51), 50, 0, true},
		{"a literal", unhex("40 0161 0162"), 34, 1, false},
		{"a literal, a byte over", unhex("40 0161 0162"), 33, 0, true},
		{"a bomb", append(slices.Clone(entry), bytes.Repeat([]byte{0xbe}, 10000)...), 16384, 7, true},
		{"a cookie", unhex("60 0161"), 39, 1, false},
		{"crumbs", unhex("60 0161 60 0162 60 0163"), 39 + 3 + 3, 3, false},
		{"crumbs, a byte over", unhex("60 0161 60 0162 60 0163"), 39 + 3 + 2, 2, true},
		{"crumbs with a field between", unhex("60 0161 82 60 0163"), 39 + 42 + 3, 3, false},
		{"a bomb of crumbs", append(unhex("60 0161"), bytes.Repeat([]byte{0xbe}, 1000)...), 1003, 1 + (1003-39)/3, true},
	} {
		d := newDecoder()
		var c collected
		over, err := d.Decode(test.block, test.limit, &c)
		if err != nil || over != test.over || len(c.fields) != test.fields {
			t.Errorf("%s: %d fields, over: %t, want %d, %t: %v", test.what, len(c.fields), over, test.fields, test.over, err)
		}
		// The next block finds the same table as without the limit.
		other := newDecoder()
		mustDecode(t, other, test.block)
		none := newDecoder()
		if over, err := none.Decode(test.block, test.limit, nil); over || err != nil {
			t.Errorf("%s, without a sink: %v, over: %t", test.what, err, over)
		}
		if got, want := d.table.list(), other.table.list(); got != want || none.table.list() != want {
			t.Errorf("%s: the table is\n%s, and without a sink\n%s, want\n%s", test.what, got, none.table.list(), want)
		}
	}
}

// A field is valid if RFC 9113, section 8.2.1, allows its name and its value. The result is the same for a field from the table.
func TestDecoderValid(t *testing.T) {
	for _, test := range []struct {
		name, value string
		valid       bool
	}{
		{"accept", "text/html", true},
		{"x-unknown", "", true},
		{"a1!#$%&'*+-.^_`|~", "~\x80\xff inside\tit ", false},
		{"a1!#$%&'*+-.^_`|~", "~\x80\xff inside\tit", true},
		{":path", "/", true},
		{":unknown", "x", true}, // Head checks that no request has it
		{":", "x", false},
		{"::", "x", false},
		{"", "x", false},
		{"Accept", "x", false},
		{"accepT", "x", false},
		{"X-unknown", "x", false},
		{"x-unknowN", "x", false},
		{":Path", "x", false},
		{"x unknown", "x", false},
		{"x:unknown", "x", false},
		{"x\x00", "x", false},
		{"x\x7f", "x", false},
		{"x\x80", "x", false},
		{"x\xff", "x", false},
		{"accept", " x", false},
		{"accept", "\tx", false},
		{"accept", "x ", false},
		{"accept", "x\t", false},
		{"accept", " ", false},
		{"accept", "a\tb\tc", true},
		{"accept", "a\tb\tc\nd", false},
		{"accept", "12345678\x00", false},
		{"accept", "\x0012345678", false},
		{"accept", "x\ry", false},
		{"accept", "x\ny", false},
		{"accept", "x\x1fy", false},
		{"accept", "x\x7fy", false},
	} {
		for name, block := range literals3(test.name, test.value) {
			d := newDecoder()
			c := mustDecode(t, d, block)
			if name == "with indexing" {
				d.Trim(0)
				c.fields = append(c.fields, mustDecode(t, d, []byte{0xbe}).fields...)
			}
			for i, f := range c.fields {
				if f.name != test.name || f.value != test.value || f.valid != test.valid || f.id != field.Lookup(test.name) {
					t.Errorf("%s, field %d: %q: %q is %+v, want valid: %t", name, i, test.name, test.value, f, test.valid)
				}
			}
		}
	}

	// A name that refers to the entry of another field is valid even if that field's value isn't.
	d := newDecoder()
	mustDecode(t, d, literals3("x-name", "a\x00b")["with indexing"])
	if f := mustDecode(t, d, unhex("7e 0162")).fields[0]; f.name != "x-name" || !f.valid {
		t.Errorf("%+v", f)
	}
	mustDecode(t, d, literals3("X-Name", "b")["with indexing"])
	if f := mustDecode(t, d, unhex("7e 0162")).fields[0]; f.name != "X-Name" || f.valid {
		t.Errorf("%+v", f)
	}
}

// literals3 returns the representations of a field as a literal.
func literals3(name, value string) map[string][]byte {
	literal := func(first byte, huffman bool) []byte {
		b := []byte{first}
		for _, s := range []string{name, value} {
			if huffman {
				code := huffmanEncoded(nil, s)
				b = append(appendInt(b, 0x80, 7, uint32(len(code))), code...)
			} else {
				b = append(appendInt(b, 0, 7, uint32(len(s))), s...)
			}
		}
		return b
	}
	return map[string][]byte{
		"with indexing": literal(0x40, false), "without indexing": literal(0, false), "never indexed": literal(0x10, false),
		"with indexing and Huffman": literal(0x40, true), "without indexing, with Huffman": literal(0, true),
	}
}

// randomFields returns the fields of a block. The same names and values often occur in several blocks.
func randomFields(random *rand.Rand) []hpack.HeaderField {
	names := []string{
		"user-agent", "x-a", "x-long-name-of-a-field", "accept", "cookie", "referer", "x-b", "Date", "if-none-match", ":path", ":method", ":authority", "",
	}
	values := []string{"GET", "/", "", "a", "*/*", "www.example.com", "gzip, deflate", "session=0123456789abcdef"}
	fields := make([]hpack.HeaderField, random.IntN(16))
	for i := range fields {
		f := hpack.HeaderField{Name: names[random.IntN(len(names))], Sensitive: random.IntN(10) == 0}
		switch random.IntN(8) {
		case 0:
			f.Name = randomText(random, 40)
			fallthrough
		case 1, 2:
			f.Value = randomText(random, 300)
		case 3:
			if random.IntN(8) == 0 {
				f.Value = randomText(random, 5000) // may be larger than the table
			}
		default:
			f.Value = values[random.IntN(len(values))]
		}
		fields[i] = f
	}
	return fields
}

// A decoder decodes what x/net's encoder encodes, over many blocks and table sizes, even if fields are discarded or the table is trimmed
// between blocks.
func TestDecoderAgrees(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var b bytes.Buffer
		e := hpack.NewEncoder(&b)
		d := newDecoder()
		size := uint32(initialTableSize)
		for range 60 {
			b.Reset()
			switch random.IntN(12) {
			case 0:
				size = uint32(random.IntN(initialTableSize + 1))
				e.SetMaxDynamicTableSize(size)
			case 1:
				e.SetMaxDynamicTableSize(uint32(random.IntN(200)))
				e.SetMaxDynamicTableSize(size)
			case 2:
				d.Trim(0)
				d.table.check(t)
			case 3:
				// The peer allows a larger or a smaller table.
				most := uint32(random.IntN(3 * initialTableSize))
				e.SetMaxDynamicTableSizeLimit(most)
				d.SetTableSize(most)
			}
			want := randomFields(random)
			for _, f := range want {
				if err := e.WriteField(f); err != nil {
					t.Fatal(err)
				}
			}
			if len(want) == 0 {
				continue // x/net's encoder writes a required update only together with a field
			}
			if random.IntN(5) == 0 {
				limit, sink := 0, Sink(nil)
				if random.IntN(2) == 0 {
					limit, sink = random.IntN(1000), new(collected)
				}
				if _, err := d.Decode(b.Bytes(), limit, sink); err != nil {
					t.Fatal(err)
				}
				d.table.check(t)
				continue
			}
			got := mustDecode(t, d, b.Bytes())
			if len(got.fields) != len(want) {
				t.Fatalf("%d fields, want %d", len(got.fields), len(want))
			}
			for i, f := range got.fields {
				if f.name != want[i].Name || f.value != want[i].Value || f.id != field.Lookup(want[i].Name) {
					t.Fatalf("field %d is %+v, want %+v", i, f, want[i])
				}
			}
			if d.table.max != e.MaxDynamicTableSize() {
				t.Fatalf("the table has at most %d bytes, want %d", d.table.max, e.MaxDynamicTableSize())
			}
		}
	}
}

// A table takes only the memory that it needs: none at first, and little more than its entries after it was trimmed. However it is used, it
// takes at most a few times its size.
func TestDecoderMemory(t *testing.T) {
	d := newDecoder()
	mustDecode(t, d, unhex("828684"))
	if d.table.text != nil || d.table.ring != nil {
		t.Errorf("a table without entries has memory: %+v", d.table)
	}
	first, second := encodedTwice(chrome)
	mustDecode(t, d, first)
	d.Trim(0)
	if got := cap(d.table.text) + 12*cap(d.table.ring); got > 1200 {
		t.Errorf("the table has %d bytes of memory for %d", got, d.table.size)
	}
	before := mustDecode(t, d, second).list()
	mustDecode(t, d, append(unhex("00 0161 7f8140"), make([]byte, 8192+127+1)...)) // a field that doesn't enter the table
	d.Trim(0)
	if got := cap(d.table.text) + 12*cap(d.table.ring); got > 1200 {
		t.Errorf("the table has %d bytes of memory for %d", got, d.table.size)
	}
	if after := mustDecode(t, d, second).list(); after != before {
		t.Errorf("after Trim, the fields are\n%swant\n%s", after, before)
	}
	mustDecode(t, d, []byte{0x20})
	d.Trim(0)
	if d.table.text != nil || d.table.ring != nil {
		t.Errorf("a table without entries has memory: %+v", d.table)
	}

	random := rand.New(rand.NewPCG(5, 6))
	d = newDecoder()
	for range 5000 {
		value := []byte(randomText(random, 4200))
		if random.IntN(4) > 0 {
			value = value[:min(len(value), random.IntN(60))]
		}
		indexed := uint32(random.IntN(2))
		block := appendString(appendInt(nil, byte(indexed*0x40), 4+2*uint(indexed), uint32(1+random.IntN(61))), value)
		if d.table.count > 0 && random.IntN(2) == 0 {
			block = appendString(appendInt(nil, byte(indexed*0x40), 4+2*uint(indexed), staticCount+1+uint32(random.IntN(int(d.table.count)))), value)
		}
		mustDecode(t, d, block)
	}
	// Decoding a literal may need nearly twice as many bytes as the encoded literal has.
	if got := cap(d.table.text); got > 8*initialTableSize {
		t.Errorf("the text of the table has %d bytes of memory", got)
	}
}

// After Reset a decoder behaves like a new one.
func TestDecoderReset(t *testing.T) {
	d := newDecoder()
	first, _ := encodedTwice(chrome)
	d.SetTableSize(100)
	if _, err := d.Decode(append([]byte{0x20}, first...), noLimit, nil); err != nil {
		t.Fatal(err)
	}
	d.Reset()
	if got, want := mustDecode(t, d, first).list(), mustDecode(t, newDecoder(), first).list(); got != want {
		t.Errorf("after Reset, the fields are\n%swant\n%s", got, want)
	}
}

// The static table is equal to that of x/net (RFC 7541, appendix A).
func TestStaticTable(t *testing.T) {
	if staticCount != 61 {
		t.Fatalf("%d entries", staticCount)
	}
	for i := byte(1); i <= 61; i++ {
		want, err := hpack.NewDecoder(0, nil).DecodeFull([]byte{0x80 | i})
		if err != nil {
			t.Fatal(err)
		}
		f := mustDecode(t, newDecoder(), []byte{0x80 | i}).fields[0]
		if f.name != want[0].Name || f.value != want[0].Value || !f.valid || f.id != field.Lookup(f.name) || !validName([]byte(f.name), f.id) {
			t.Errorf("%d is %+v, want %v", i, f, want[0])
		}
	}
}

// A decoder allocates only while its table grows.
func TestDecoderAllocs(t *testing.T) {
	for _, fields := range [][]hpack.HeaderField{chrome, loader} {
		first, second := encodedTwice(fields)
		// Each run adds all fields to the table once more.
		d, c := newDecoder(), new(counted)
		for what, block := range map[string][]byte{"repeated": second, "first": first} {
			if n := testing.AllocsPerRun(300, func() {
				if _, err := d.Decode(first, noLimit, c); err != nil {
					t.Fatal(err)
				}
				if _, err := d.Decode(block, noLimit, c); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("a %s block makes %v allocations", what, n)
			}
		}
		if n := testing.AllocsPerRun(100, func() {
			if _, err := d.Decode(append(first[:len(first):len(first)], 0x80), noLimit, c); !errors.Is(err, errIndex) {
				t.Fatal(err)
			}
		}); n > 1 { // one allocation is append's
			t.Errorf("an error makes %v allocations", n-1)
		}
	}
}

// counted counts the fields.
type counted struct{ fields, bytes int }

func (c *counted) Field(name, value []byte, _ field.ID, _ bool) {
	c.fields++
	c.bytes += len(name) + len(value)
}

// FuzzHPACKDecode checks that any two blocks are decoded as x/net decodes them, except where this decoder is stricter.
func FuzzHPACKDecode(f *testing.F) {
	for _, example := range examples {
		for _, b := range example.blocks {
			f.Add(unhex(b.block), unhex("828684be"))
		}
	}
	for _, fields := range [][]hpack.HeaderField{chrome, loader} {
		first, second := encodedTwice(fields)
		f.Add(first, second)
	}
	f.Add(unhex("3fe11f 40 0161 0162 20"), unhex("20 3f25 be"))
	f.Add(unhex("00 0161 82f8ff"), unhex("ff8080808000"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		d, limited, discarding := newDecoder(), newDecoder(), newDecoder()
		theirs := hpack.NewDecoder(initialTableSize, nil)
		for _, block := range [][]byte{first, second} {
			var got, part collected
			over, err := d.Decode(block, noLimit, &got)
			d.table.check(t)
			want, theirErr := theirs.DecodeFull(block)

			limit := 10 * len(first)
			partOver, partErr := limited.Decode(block, limit, &part)
			_, discardErr := discarding.Decode(block, limit, nil)
			if partErr != err || discardErr != err || limited.table.list() != d.table.list() || discarding.table.list() != d.table.list() {
				t.Fatalf("%x: with a limit %v, without a sink %v, want %v; tables\n%s%s%s", block, partErr, discardErr, err,
					limited.table.list(), discarding.table.list(), d.table.list())
			}
			if err == nil && !partOver && !slices.Equal(part.fields, got.fields) || !slices.Equal(part.fields, got.fields[:len(part.fields)]) {
				t.Fatalf("%x: within a limit %+v, want %+v", block, part.fields, got.fields)
			}

			switch {
			case errors.Is(err, errInteger), errors.Is(err, errLateUpdate):
				return // x/net accepts longer integers, and accepts updates anywhere while its table is empty
			case err == nil && theirErr != nil && strings.Contains(theirErr.Error(), "dynamic table size update") && len(block) > 0 && block[0]&0xe0 == 0x20:
				return // x/net accepts one update at the beginning of a block, and RFC 7541, section 4.2, allows two
			case (err == nil) != (theirErr == nil):
				t.Fatalf("%x: %v, x/net says %v", block, err, theirErr)
			case err != nil:
				return
			case over || len(got.fields) != len(want):
				t.Fatalf("%x: %d fields, want %d", block, len(got.fields), len(want))
			}
			for i, f := range got.fields {
				if f.name != want[i].Name || f.value != want[i].Value {
					t.Fatalf("%x: %q: %q, want %v", block, f.name, f.value, want[i])
				}
			}
		}
	})
}

// Fields that browsers and load generators send.
var chrome = []hpack.HeaderField{
	{Name: ":method", Value: "GET"},
	{Name: ":authority", Value: "www.example.com"},
	{Name: ":scheme", Value: "https"},
	{Name: ":path", Value: "/products/42?ref=home"},
	{Name: "sec-ch-ua", Value: `"Chromium";v="142", "Google Chrome";v="142", "Not_A Brand";v="99"`},
	{Name: "sec-ch-ua-mobile", Value: "?0"},
	{Name: "sec-ch-ua-platform", Value: `"Linux"`},
	{Name: "upgrade-insecure-requests", Value: "1"},
	{Name: "user-agent", Value: userAgent},
	{Name: "accept", Value: "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7"},
	{Name: "sec-fetch-site", Value: "none"},
	{Name: "sec-fetch-mode", Value: "navigate"},
	{Name: "sec-fetch-user", Value: "?1"},
	{Name: "sec-fetch-dest", Value: "document"},
	{Name: "accept-encoding", Value: "gzip, deflate, br, zstd"},
	{Name: "accept-language", Value: "en-US,en;q=0.9"},
	{Name: "priority", Value: "u=0, i"},
	{Name: "cookie", Value: "session=0123456789abcdef0123456789abcdef; theme=dark; _ga=GA1.1.1234567890.1234567890"},
}

var loader = []hpack.HeaderField{
	{Name: ":method", Value: "GET"},
	{Name: ":scheme", Value: "http"},
	{Name: ":authority", Value: "127.0.0.1:9001"},
	{Name: ":path", Value: "/"},
	{Name: "user-agent", Value: "h2load nghttp2/1.52.0"},
}

// encodedTwice returns the block of a connection's first request with the fields, and the block of each later request with them.
func encodedTwice(fields []hpack.HeaderField) (first, second []byte) {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, block := range []*[]byte{&first, &second} {
		b.Reset()
		for _, f := range fields {
			if err := e.WriteField(f); err != nil {
				panic(err)
			}
		}
		*block = bytes.Clone(b.Bytes())
	}
	return first, second
}

func BenchmarkDecode(b *testing.B) {
	for _, client := range []struct {
		name   string
		fields []hpack.HeaderField
	}{{"chrome", chrome}, {"h2load", loader}} {
		first, second := encodedTwice(client.fields)
		b.Run(client.name+"/first", func(b *testing.B) {
			b.ReportAllocs()
			c := new(counted)
			for b.Loop() {
				d := newDecoder()
				if _, err := d.Decode(first, noLimit, c); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(client.name+"/again", func(b *testing.B) {
			b.ReportAllocs()
			c, d := new(counted), newDecoder()
			if _, err := d.Decode(first, noLimit, c); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := d.Decode(second, noLimit, c); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(client.name+"/first-xnet", func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				d := hpack.NewDecoder(initialTableSize, func(f hpack.HeaderField) { n += len(f.Value) })
				if _, err := d.Write(first); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(client.name+"/again-xnet", func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			d := hpack.NewDecoder(initialTableSize, func(f hpack.HeaderField) { n += len(f.Value) })
			if _, err := d.Write(first); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := d.Write(second); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// An idle connection doesn't keep the memory of a large field block. A small block keeps it.
func TestTrim(t *testing.T) {
	for size, kept := range map[int]bool{1000: true, 30_000: false} {
		d := newDecoder()
		mustDecode(t, d, literals3("x-name", "value")["with indexing"])
		mustDecode(t, d, literals3("x-large", strings.Repeat("a", size))["without indexing"])
		before := cap(d.table.text)
		d.Trim(12 << 10)
		if after := cap(d.table.text); after > 12<<10 || kept != (after == before) {
			t.Errorf("after a value of %d bytes %d of %d bytes are kept", size, after, before)
		}
		if f := mustDecode(t, d, []byte{0xbe}).fields; len(f) != 1 || f[0].name != "x-name" || f[0].value != "value" {
			t.Errorf("the table has %+v", f)
		}
	}
}
