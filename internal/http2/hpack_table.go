package http2

import (
	"strings"

	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/syntax"
)

const (
	// entryOverhead is how many bytes a field counts in addition to its name and value (RFC 7541, section 4.1).
	entryOverhead = 32
	// initialTableSize is the maximum size of a dynamic table in bytes until SETTINGS_HEADER_TABLE_SIZE changes it.
	initialTableSize = 4096
	// MaxTableSize bounds the dynamic table of a Decoder, in bytes, since an entry stores its lengths in 16 bits.
	MaxTableSize = 1<<16 - 1
)

// staticFields is the static table (RFC 7541, appendix A). Its first entry has the index 1.
var staticFields = [...][2]string{
	{":authority"},
	{":method", "GET"},
	{":method", "POST"},
	{":path", "/"},
	{":path", "/index.html"},
	{":scheme", "http"},
	{":scheme", "https"},
	{":status", "200"},
	{":status", "204"},
	{":status", "206"},
	{":status", "304"},
	{":status", "400"},
	{":status", "404"},
	{":status", "500"},
	{"accept-charset"},
	{"accept-encoding", "gzip, deflate"},
	{"accept-language"},
	{"accept-ranges"},
	{"accept"},
	{"access-control-allow-origin"},
	{"age"},
	{"allow"},
	{"authorization"},
	{"cache-control"},
	{"content-disposition"},
	{"content-encoding"},
	{"content-language"},
	{"content-length"},
	{"content-location"},
	{"content-range"},
	{"content-type"},
	{"cookie"},
	{"date"},
	{"etag"},
	{"expect"},
	{"expires"},
	{"from"},
	{"host"},
	{"if-match"},
	{"if-modified-since"},
	{"if-none-match"},
	{"if-range"},
	{"if-unmodified-since"},
	{"last-modified"},
	{"link"},
	{"location"},
	{"max-forwards"},
	{"proxy-authenticate"},
	{"proxy-authorization"},
	{"range"},
	{"referer"},
	{"refresh"},
	{"retry-after"},
	{"server"},
	{"set-cookie"},
	{"strict-transport-security"},
	{"transfer-encoding"},
	{"user-agent"},
	{"vary"},
	{"via"},
	{"www-authenticate"},
}

const staticCount = uint32(len(staticFields))

// entry is a field of the static or the dynamic table. Its name begins at text[at] of the table's text, and its value follows the name.
type entry struct {
	at       uint32
	nameLen  uint16
	valueLen uint16
	id       field.ID
	// See Sink.Field.
	validName, validValue bool
}

func (e *entry) name(text []byte) []byte {
	end := e.at + uint32(e.nameLen)
	return text[e.at:end:end]
}

func (e *entry) value(text []byte) []byte {
	start := e.at + uint32(e.nameLen)
	end := start + uint32(e.valueLen)
	return text[start:end:end]
}

func (e *entry) size() uint32 { return uint32(e.nameLen) + uint32(e.valueLen) + entryOverhead }

// The static table as the decoder uses it, and the known field names in lower case.
var (
	staticEntries, staticText = makeStaticEntries()
	lowerNames                = makeLowerNames()
)

func makeStaticEntries() (entries [staticCount + 1]entry, text []byte) {
	for i, f := range staticFields {
		entries[i+1] = entry{uint32(len(text)), uint16(len(f[0])), uint16(len(f[1])), field.Lookup(f[0]), true, true}
		text = append(append(text, f[0]...), f[1]...)
	}
	return entries, text
}

func makeLowerNames() (names [field.Count]string) {
	for id := range field.Count {
		names[id] = strings.ToLower(id.String())
	}
	return names
}

// table is a decoder's dynamic table (RFC 7541, section 2.3.2).
type table struct {
	// ring holds the entries. Its length is a power of two. The index of an entry is the number of entries that were added before it, modulo
	// the length.
	ring  []entry
	added uint32 // how many entries were ever added
	count uint32 // how many of them weren't evicted

	// text holds the names and values of the entries, the oldest first. It may begin with the text of evicted entries.
	text []byte

	size uint32 // total size of the entries (RFC 7541, section 4.1)
	max  uint32 // the limit of size
}

// lookup returns the entry with the given index in the static or dynamic table, and the text to which its offset refers. It returns nil if
// there is no such entry.
func (t *table) lookup(index uint32) (e *entry, text []byte) {
	if index-1 < staticCount {
		return &staticEntries[index], staticText
	}
	age := index - staticCount - 1
	if age >= t.count {
		return nil, nil
	}
	return t.at(age), t.text
}

// at returns the entry with the given age: the number of entries that were added after it.
func (t *table) at(age uint32) *entry { return &t.ring[(t.added-1-age)&uint32(len(t.ring)-1)] }

// dead returns how many bytes of text belong to entries that were evicted.
func (t *table) dead() uint32 {
	if t.count == 0 {
		return uint32(len(t.text))
	}
	return t.at(t.count - 1).at
}

// evict removes the oldest entries until the size is at most max.
func (t *table) evict(max uint32) {
	for t.size > max {
		t.size -= t.at(t.count - 1).size()
		t.count--
	}
}

// resize changes the maximum size (RFC 7541, section 4.3).
func (t *table) resize(max uint32) {
	t.max = max
	t.evict(max)
}

// prepare makes room for n more bytes of text. If the text of evicted entries is at least a quarter of the whole, prepare first moves the
// text of the other entries over it. If that isn't enough, it reallocates the text. rest is the number of bytes of the field block that are
// still undecoded. In most cases the first block of a connection fills the table, so its size says how much memory to allocate.
func (t *table) prepare(n, rest int) {
	const least, most = 64, 1024
	if len(t.text)+n <= cap(t.text) {
		return
	}
	if dead := t.dead(); dead > 0 && int(dead) >= len(t.text)/4 {
		t.text = t.text[:copy(t.text, t.text[dead:])]
		t.rebase(dead)
	}
	if len(t.text)+n > cap(t.text) {
		more := max(n, min(max(n+rest+rest/2, least), most)) // decoding Huffman codes makes the rest longer by about half
		if len(t.text) > 0 {
			more = max(n, len(t.text)/2)
		}
		t.text = append(make([]byte, 0, len(t.text)+more), t.text...)
	}
}

// add adds f as an entry. text is the table's text, followed by the name and the value of f.
func (t *table) add(text []byte, f *fieldView) {
	start := len(t.text)
	size := uint32(len(text)-start) + entryOverhead
	// RFC 7541, section 4.4: an entry that is larger than the table isn't an error, but empties the table.
	if size > t.max {
		t.evict(0)
		t.text = text[:start]
		return
	}
	t.evict(t.max - size)
	if int(t.count) == len(t.ring) {
		const first = 4
		t.setRing(max(first, 2*len(t.ring)))
	}
	t.text = text
	t.added++
	t.count++
	t.size += size
	*t.at(0) = entry{uint32(start), uint16(len(f.name)), uint16(len(f.value)), f.id, f.validName, f.validValue}
}

// setRing reallocates the ring with another length.
func (t *table) setRing(length int) {
	old := *t
	t.ring = make([]entry, length)
	for age := range t.count {
		*t.at(age) = *old.at(age)
	}
}

// trim releases memory that the entries don't need.
func (t *table) trim() {
	if t.count == 0 {
		t.text, t.ring = nil, nil
		return
	}
	dead := t.dead()
	if live := len(t.text) - int(dead); cap(t.text) > live+live/4 {
		text := make([]byte, live)
		copy(text, t.text[dead:])
		t.text = text
		t.rebase(dead)
	}
	length := 1
	for length < int(t.count) {
		length *= 2
	}
	if length < len(t.ring) {
		t.setRing(length)
	}
}

// rebase adjusts the offsets of the entries after n bytes at the beginning of text were removed.
func (t *table) rebase(n uint32) {
	for age := range t.count {
		t.at(age).at -= n
	}
}

// validName reports whether a name is a token in lower case, which a colon may precede (RFC 9113, section 8.2.1).
func validName(name []byte, id field.ID) bool {
	if id != field.Unknown {
		return string(name) == lowerNames[id]
	}
	if len(name) > 0 && name[0] == ':' {
		name = name[1:]
	}
	for _, c := range name {
		if !syntax.IsTokenByte(c) || c-'A' < 26 {
			return false
		}
	}
	return len(name) > 0
}

// validValue reports whether a value has neither control bytes nor white space at its ends (RFC 9113, section 8.2.1). A tab is allowed
// inside.
func validValue(value []byte) bool {
	if len(value) == 0 {
		return true
	}
	if first, last := value[0], value[len(value)-1]; first == ' ' || first == '\t' || last == ' ' || last == '\t' {
		return false
	}
	i := syntax.IndexControl(value, 0)
	for i < len(value) && value[i] == '\t' {
		i = syntax.IndexControl(value, i+1)
	}
	return i == len(value)
}
