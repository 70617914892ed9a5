package http2

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/filohttp/filo/internal/field"
	"golang.org/x/net/http2/hpack"
)

func newEncoder() *Encoder {
	e := new(Encoder)
	e.Reset()
	return e
}

// peer decodes a server's blocks with x/net's decoder and with Decoder, and checks that the results are equal.
type peer struct {
	theirs *hpack.Decoder
	own    *Decoder
}

func newPeer() *peer { return &peer{hpack.NewDecoder(initialTableSize, nil), newDecoder()} }

// allow tells both decoders the SETTINGS_HEADER_TABLE_SIZE that the server has acknowledged.
func (p *peer) allow(size uint32) {
	p.theirs.SetAllowedMaxDynamicTableSize(size)
	p.own.SetTableSize(size)
}

func (p *peer) decode(t testing.TB, block []byte) []hpack.HeaderField {
	t.Helper()
	fields, err := p.theirs.DecodeFull(block)
	if err != nil {
		t.Fatalf("%x: %v", block, err)
	}
	var c collected
	if over, err := p.own.Decode(block, noLimit, &c); err != nil || over || len(c.fields) != len(fields) {
		t.Fatalf("%x: %+v, over: %t: %v; x/net has %v", block, c.fields, over, err, fields)
	}
	for i, f := range c.fields {
		if f.name != fields[i].Name || f.value != fields[i].Value {
			t.Fatalf("%x: %+v, x/net has %v", block, c.fields, fields)
		}
	}
	return fields
}

// An answer's status is encoded as an index if it is in the static table, and otherwise as the name's index and three digits.
func TestAppendStatus(t *testing.T) {
	for status := 100; status < 1000; status++ {
		b := AppendStatus(nil, status)
		got := newPeer().decode(t, b)
		if len(got) != 1 || got[0].Name != ":status" || got[0].Value != fmt.Sprint(status) {
			t.Errorf("%d is %v", status, got)
		}
		want := 5
		switch status {
		case 200, 204, 206, 304, 400, 404, 500:
			want = 1
		}
		if len(b) != want {
			t.Errorf("%d has %d bytes, want %d", status, len(b), want)
		}
	}
}

// Names are sent in lower case, as "field names MUST be converted to lowercase when constructing an HTTP/2 message" (RFC 9113, section 8.2).
// AppendField adds no field to the table, and marks cookies and credentials as never to be indexed.
func TestAppendField(t *testing.T) {
	values := []string{"", "x", strings.Repeat("b", 63), strings.Repeat("b", 64), strings.Repeat("a", 126), strings.Repeat("a", 127), strings.Repeat("a", 500), "\x80\xff", strings.Repeat("\xff", 200)}
	names := []string{"X-Unknown", "x-unknown", "ETAG", "Content-Type", strings.Repeat("Long-", 40)}
	for id := range field.Count {
		names = append(names, id.String())
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		id := field.Lookup(name)
		for _, value := range values {
			p := newPeer()
			got := p.decode(t, AppendField(nil, id, []byte(name), []byte(value)))
			if len(got) != 1 || got[0].Name != strings.ToLower(name) || got[0].Value != value {
				t.Errorf("%s: %s is %v", name, value, got)
			}
			if p.own.table.count != 0 {
				t.Errorf("%s is in the table", name)
			}
			secret := false
			switch strings.ToLower(name) {
			case "authorization", "proxy-authorization", "cookie", "set-cookie":
				secret = true
			}
			if got[0].Sensitive != secret {
				t.Errorf("%s is never indexed: %t, want %t", name, got[0].Sensitive, secret)
			}
		}
		if id == field.Unknown {
			continue
		}
		for _, v := range []int64{0, 7, 13, 1 << 40, -1 << 63} {
			got := newPeer().decode(t, AppendNumber(nil, id, v))
			if len(got) != 1 || got[0].Name != strings.ToLower(name) || got[0].Value != fmt.Sprint(v) {
				t.Errorf("%s: %d is %v", name, v, got)
			}
		}
	}
}

// A name that is in the static table is encoded as its index.
func TestStaticNames(t *testing.T) {
	known := 0
	for i := range staticFields {
		name := staticFields[i][0]
		id := field.Lookup(name)
		if id == field.Unknown {
			continue
		}
		known++
		if index := staticNames[id]; index == 0 || staticFields[index-1][0] != name {
			t.Errorf("%s has the index %d", name, index)
		}
		if n := len(literalNames[id]); n > 2 {
			t.Errorf("%s takes %d bytes", name, n)
		}
	}
	if known < 30 || staticNames[field.Unknown] != 0 {
		t.Errorf("%d names are known, Unknown has the index %d", known, staticNames[field.Unknown])
	}
}

// An Encoder's first block has literals, which are added to the table. In the next blocks each of them is an index of one byte, but secrets
// remain literals. A block between them whose literals are appended without the table changes nothing.
func TestEncoderIndexes(t *testing.T) {
	server, contentType, odd := NewLiteral("Server", "filo"), NewLiteral("Content-Type", "text/plain; charset=utf-8"), NewLiteral("X-Odd", "{<\x80>}")
	cookie := NewLiteral("Set-Cookie", "id=1")
	all := []*Literal{&server, &contentType, &odd, &cookie}
	const fields = "[header field \"server\" = \"filo\" header field \"content-type\" = \"text/plain; charset=utf-8\" " +
		"header field \"x-odd\" = \"{<\\x80>}\" header field \"set-cookie\" = \"id=1\" (sensitive)]"
	e, p := newEncoder(), newPeer()
	for i := range 4 {
		block := e.Begin(nil)
		for _, l := range all {
			block = e.Append(block, l)
		}
		if got := fmt.Sprint(p.decode(t, block)); got != fields {
			t.Errorf("block %d has\n%s, want\n%s", i, got, fields)
		}
		if want := 3 + len(cookie.plain); i > 0 && len(block) != want {
			t.Errorf("block %d has %d bytes, want %d: %x", i, len(block), want, block)
		}
		var plain []byte
		for _, l := range all {
			plain = l.Append(plain)
		}
		if got := fmt.Sprint(p.decode(t, plain)); got != fields {
			t.Errorf("without the table, block %d has\n%s, want\n%s", i, got, fields)
		}
		if p.own.table.count != 3 {
			t.Errorf("the table has\n%s", p.own.table.list())
		}
	}
}

// "the smallest maximum table size that occurs in that interval MUST be signaled in a dynamic table size update. The final maximum size is
// always signaled, resulting in at most two dynamic table size updates." (RFC 7541, section 4.2) If there are two updates, this encoder may
// signal an even smaller size first, namely 0.
func TestEncoderUpdates(t *testing.T) {
	const large = 1 << 20
	for _, test := range []struct {
		what  string
		sizes [][]uint32 // the sizes in SETTINGS before each block
		want  []string   // the updates that the blocks begin with
	}{
		{"none", [][]uint32{{}, {}}, []string{"", ""}},
		{"as it is", [][]uint32{{4096}, {}}, []string{"", ""}},
		{"larger", [][]uint32{{65536}, {large}}, []string{"", ""}},
		{"larger, and as it was", [][]uint32{{large}, {4096}}, []string{"", ""}},
		{"0", [][]uint32{{0}, {}}, []string{"20", ""}},
		{"smaller", [][]uint32{{100}, {}}, []string{"3f45", ""}},
		{"smaller twice", [][]uint32{{100}, {50}}, []string{"3f45", "3f13"}},
		{"smaller and larger at once", [][]uint32{{0, 4096}, {}}, []string{"203fe11f", ""}},
		{"smaller and much larger at once", [][]uint32{{10, large}, {}}, []string{"203fe11f", ""}},
		{"several values, the least in the middle", [][]uint32{{100, 10, 50}, {}}, []string{"203f13", ""}},
		{"several values, the least at the end", [][]uint32{{100, 50, 10}, {}}, []string{"2a", ""}},
		{"smaller, larger later", [][]uint32{{10}, {4096}}, []string{"2a", "3fe11f"}},
		{"smaller, a bit larger later", [][]uint32{{10}, {20}}, []string{"2a", "34"}},
		{"smaller, larger and smaller again", [][]uint32{{10}, {20, 10}}, []string{"2a", ""}},
		{"smaller, later smaller yet and larger", [][]uint32{{10}, {5, 20}}, []string{"2a", "2034"}},
	} {
		e := newEncoder()
		for i, sizes := range test.sizes {
			for _, size := range sizes {
				e.SetTableSize(size, size)
			}
			if got := fmt.Sprintf("%x", e.Begin(nil)); got != test.want[i] {
				t.Errorf("%s: block %d begins with %q, want %q", test.what, i, got, test.want[i])
			}
		}
		// The result is the same if the caller passes the smallest and the last size of several SETTINGS at once.
		e.Reset()
		for i, sizes := range test.sizes {
			if len(sizes) > 0 {
				least := sizes[0]
				for _, size := range sizes {
					least = min(least, size)
				}
				e.SetTableSize(least, sizes[len(sizes)-1])
			}
			if got := fmt.Sprintf("%x", e.Begin(nil)); got != test.want[i] {
				t.Errorf("%s, summed up: block %d begins with %q, want %q", test.what, i, got, test.want[i])
			}
		}
	}
}

// Each second's Date replaces the previous one. As Dates fill the table, other literals are evicted and added again.
func TestEncoderDates(t *testing.T) {
	server := NewLiteral("Server", "filo")
	e, p := newEncoder(), newPeer()
	again := 0
	for second := range 1000 {
		value := fmt.Sprintf("Sun, 22 Nov 2026 10:%02d:%02d GMT", second/60, second%60)
		date := NewLiteral("Date", value)
		for i := range 3 {
			block := e.Append(e.Append(e.Begin(nil), &server), &date)
			if got := p.decode(t, block); len(got) != 2 || got[0].Value != "filo" || got[1].Value != value {
				t.Fatalf("%v", got)
			}
			if i > 1 && len(block) > 4 { // the first block's Date may have evicted Server
				t.Fatalf("second %d, block %d: %x", second, i, block)
			}
			if second > 0 && block[0] == server.indexing[0] {
				again++
			}
		}
	}
	if again < 10 || again > 30 {
		t.Errorf("Server has come into the table %d times, want once in about 62 seconds", again)
	}
}

// If two literals have the same slot, the first one keeps the slot as long as it is in the table. The peer decodes both.
func TestEncoderSlots(t *testing.T) {
	var l [3 * encoderSlots]Literal
	for i := range l {
		l[i] = NewLiteral(fmt.Sprintf("X-%d", i), "value")
	}
	e, p := newEncoder(), newPeer()
	for i := range 100 {
		block := e.Begin(nil)
		for j := range l {
			block = e.Append(block, &l[j])
		}
		for j, f := range p.decode(t, block) {
			if f.Name != fmt.Sprintf("x-%d", j) || f.Value != "value" {
				t.Fatalf("block %d: field %d is %v", i, j, f)
			}
		}
		if got := p.own.table.count; got != encoderSlots-1 {
			t.Fatalf("behind block %d, the table has %d entries, want %d", i, got, encoderSlots-1)
		}
	}
}

// When the numbers of literals have run out, further literals aren't added to tables, so they can't be mistaken for others.
func TestLiteralNumbers(t *testing.T) {
	before := literals.Load()
	defer literals.Store(before)
	first := NewLiteral("X-First", "a")
	literals.Store(1<<32 - 2)
	last, none := NewLiteral("X-Last", "b"), NewLiteral("X-None", "c")
	literals.Store(1<<32 - 1 + before)
	again := NewLiteral("X-Again", "d") // if numbers wrapped around, again would have the number of first
	for _, pair := range [][2]*Literal{{&first, &again}, {&again, &first}, {&last, &none}, {&none, &last}} {
		e, p := newEncoder(), newPeer()
		for range 3 {
			got := p.decode(t, e.Append(e.Append(e.Begin(nil), pair[0]), pair[1]))
			for i, l := range pair {
				if name, value := l.field(t); got[i].Name != name || got[i].Value != value {
					t.Errorf("%v, want %s: %s", got[i], name, value)
				}
			}
		}
	}
}

// A literal stays in the table exactly as long as the literal and all later entries fit there.
func TestEncoderFits(t *testing.T) {
	server, vary := NewLiteral("Server", "filo"), NewLiteral("Vary", "Accept") // entries of 42 bytes each
	for _, test := range []struct {
		size uint32
		want string // the second block
	}{
		{41, server.plain + vary.plain},
		{42, server.indexing + vary.indexing}, // each of the two entries evicts the other
		{83, server.indexing + vary.indexing},
		{84, "\xbf\xbe"},
	} {
		e, p := newEncoder(), newPeer()
		e.SetTableSize(test.size, test.size)
		p.allow(test.size)
		for i := range 3 {
			block := e.Append(e.Append(e.Begin(nil), &server), &vary)
			if p.decode(t, block); i > 0 && string(block) != test.want {
				t.Errorf("in %d bytes, block %d is %x, want %x", test.size, i, block, test.want)
			}
		}
	}
}

// encoderPool has literals of all kinds: small ones, one that is too large for a small table, secrets, and one that is too large for any
// table.
var encoderPool = func() (pool []Literal) {
	for i := range 20 {
		pool = append(pool, NewLiteral(fmt.Sprintf("X-%d", i), strings.Repeat("v", 1<<(i/2))))
	}
	return append(pool, NewLiteral("Server", "filo"), NewLiteral("Content-Type", "text/html"), NewLiteral("Set-Cookie", "a=b"),
		NewLiteral("AUTHORIZATION", "Bearer"), NewLiteral("Vary", ""), NewLiteral("X-Large", strings.Repeat("large", 1000)))
}()

// encodeByScript interprets script as operations of an Encoder, with settings and other workers' blocks in between, and decodes all blocks.
func encodeByScript(t testing.TB, script []byte) {
	e, p := newEncoder(), newPeer()
	least, last, changed := uint32(initialTableSize), uint32(initialTableSize), false
	var block []byte
	var want []hpack.HeaderField
	begun := false
	dates := 0
	flush := func() {
		if !begun {
			return
		}
		got := p.decode(t, block)
		if len(got) != len(want) {
			t.Fatalf("%x: %v, want %v", block, got, want)
		}
		for i, f := range got {
			if f.Name != want[i].Name || f.Value != want[i].Value || f.Sensitive != want[i].Sensitive {
				t.Fatalf("field %d is %+v, want %+v", i, f, want[i])
			}
		}
		block, want, begun = block[:0], want[:0], false
	}
	add := func(l *Literal, table bool) {
		if !begun {
			if changed {
				e.SetTableSize(least, last)
				p.allow(last)
				changed = false
			}
			block, begun = e.Begin(block), true
		}
		name, value := l.field(t)
		want = append(want, hpack.HeaderField{Name: name, Value: value, Sensitive: l.size == neverFits})
		if table {
			block = e.Append(block, l)
		} else {
			block = l.Append(block)
		}
	}
	for i := 0; i < len(script); i++ {
		switch op := script[i]; {
		case op < 0x80:
			add(&encoderPool[int(op)%len(encoderPool)], true)
		case op < 0xa0:
			add(&encoderPool[int(op)%len(encoderPool)], false)
		case op < 0xb0:
			dates++
			l := NewLiteral("Date", fmt.Sprint("second ", dates))
			add(&l, true)
			add(&l, true)
		case op < 0xd0:
			flush()
		default:
			flush()
			size := uint32(op-0xd0) * uint32(op-0xd0) * 3
			if !changed {
				least = size
			}
			least, last, changed = min(least, size), size, true
		}
	}
	flush()
}

// field decodes a literal.
func (l *Literal) field(t testing.TB) (name, value string) {
	f, err := hpack.NewDecoder(0, nil).DecodeFull([]byte(l.plain))
	if err != nil || len(f) != 1 {
		t.Fatalf("%x: %v", l.plain, err)
	}
	return f[0].Name, f[0].Value
}

// The peer decodes the fields of all literals, whatever its settings are and in whatever order the literals are sent.
func TestEncoderAgrees(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		script := make([]byte, random.IntN(300))
		for i := range script {
			script[i] = byte(random.IntN(256))
			if random.IntN(3) > 0 {
				script[i] = byte(random.IntN(len(encoderPool)))
			}
		}
		encodeByScript(t, script)
	}
}

// The encoder's counts of entries and bytes may overflow.
func TestEncoderWraps(t *testing.T) {
	server := NewLiteral("Server", "filo")
	e, p := newEncoder(), newPeer()
	for i := range 3 << 16 / 40 {
		// A table of 60 bytes holds only one of the two literals, so each of them is added again and again.
		l := &encoderPool[i%2]
		if i == 0 {
			e.SetTableSize(60, 60)
			p.allow(60)
		}
		if got := p.decode(t, e.Append(e.Append(e.Begin(nil), l), &server)); got[0].Value != "v" || got[1].Value != "filo" {
			t.Fatal(got)
		}
	}
}

// FuzzHPACKEncode checks what TestEncoderAgrees does, for any script.
func FuzzHPACKEncode(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\xb0\x00\x01\x02\xd0\xff\x00\x80\xa0\xb0\x00\xd5\xb0\xa0\xa0"))
	f.Add(bytes.Repeat([]byte{1, 0x15, 0xa5, 0xb0, 0xe0, 7}, 20))
	f.Fuzz(func(t *testing.T, script []byte) { encodeByScript(t, script[:min(len(script), 2000)]) })
}

// smallAnswer appends the field block of an answer with a short text.
type smallAnswer struct{ contentType, server, date Literal }

func newSmallAnswer() *smallAnswer {
	return &smallAnswer{
		NewLiteral("Content-Type", "text/plain; charset=utf-8"), NewLiteral("Server", "filo"), NewLiteral("Date", "Sun, 22 Nov 2026 10:00:00 GMT"),
	}
}

func (a *smallAnswer) encode(dst []byte, e *Encoder) []byte {
	dst = AppendStatus(e.Begin(dst), 200)
	dst = e.Append(dst, &a.contentType)
	dst = e.Append(dst, &a.server)
	dst = e.Append(dst, &a.date)
	return AppendNumber(dst, field.ContentLength, 13)
}

func (a *smallAnswer) encodeApart(dst []byte) []byte {
	dst = AppendStatus(dst, 200)
	dst = a.contentType.Append(dst)
	dst = a.server.Append(dst)
	dst = a.date.Append(dst)
	return AppendNumber(dst, field.ContentLength, 13)
}

// Encoding a block allocates nothing if there is room for the block's bytes.
func TestEncoderAllocs(t *testing.T) {
	a, e := newSmallAnswer(), newEncoder()
	out := make([]byte, 0, 1024)
	name, value := []byte("X-Name"), []byte(strings.Repeat("value ", 20))
	for what, encode := range map[string]func(){
		"with the table":    func() { a.encode(out, e) },
		"without the table": func() { a.encodeApart(out) },
		"a field":           func() { AppendField(out, field.Unknown, name, value) },
		"an update":         func() { e.SetTableSize(0, initialTableSize); a.encode(out, e) },
	} {
		if n := testing.AllocsPerRun(100, encode); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	a := newSmallAnswer()
	var out []byte
	b.Run("table", func(b *testing.B) {
		b.ReportAllocs()
		e := newEncoder()
		for b.Loop() {
			out = a.encode(out[:0], e)
		}
		b.ReportMetric(float64(len(out)), "wire-B")
	})
	b.Run("apart", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			out = a.encodeApart(out[:0])
		}
		b.ReportMetric(float64(len(out)), "wire-B")
	})
	b.Run("field", func(b *testing.B) {
		b.ReportAllocs()
		value := []byte("Sun, 22 Nov 2026 10:00:00 GMT")
		for b.Loop() {
			out = AppendField(out[:0], field.LastModified, nil, value)
		}
		b.ReportMetric(float64(len(out)), "wire-B")
	})
	b.Run("xnet", func(b *testing.B) {
		b.ReportAllocs()
		var buffer bytes.Buffer
		e := hpack.NewEncoder(&buffer)
		for b.Loop() {
			buffer.Reset()
			for _, f := range []hpack.HeaderField{
				{Name: ":status", Value: "200"}, {Name: "content-type", Value: "text/plain; charset=utf-8"}, {Name: "server", Value: "filo"},
				{Name: "date", Value: "Sun, 22 Nov 2026 10:00:00 GMT"}, {Name: "content-length", Value: "13"},
			} {
				if err := e.WriteField(f); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(buffer.Len()), "wire-B")
	})
}
