package field

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/filohttp/filo/internal/syntax"
)

// modelField is a field of the model that List is compared with: a plain list.
type modelField struct{ name, value string }

type modelList []modelField

func (m modelList) index(name string) int {
	return slices.IndexFunc(m, func(f modelField) bool { return strings.EqualFold(f.name, name) })
}

// set does what List.Set's comment says: "Set replaces all fields called name with a single field that has the value, at the position of the
// first of them."
func (m modelList) set(name, value string) modelList {
	at := m.index(name)
	if at < 0 {
		return m.add(name, value)
	}
	if !syntax.IsToken(name) {
		return m
	}
	rest := m[at+1:].del(name)
	return append(append(slices.Clone(m[:at]), modelField{name, cleaned(value)}), rest...)
}

func (m modelList) add(name, value string) modelList {
	if !syntax.IsToken(name) {
		return m
	}
	return append(slices.Clone(m), modelField{name, cleaned(value)})
}

func (m modelList) del(name string) modelList {
	return slices.DeleteFunc(slices.Clone(m), func(f modelField) bool { return strings.EqualFold(f.name, name) })
}

// cleaned returns what a List makes of a value: control bytes become spaces, and white space around a value is no part of it (RFC 9110,
// section 5.5).
func cleaned(value string) string {
	b := []byte(value)
	for i, c := range b {
		if c < 0x20 && c != '\t' || c == 0x7f {
			b[i] = ' '
		}
	}
	return strings.Trim(string(b), " \t")
}

// checkList compares all results of a List's methods with the model.
func checkList(t *testing.T, h *List, want modelList, names []string) {
	t.Helper()
	var all modelList
	for name, value := range h.All() {
		if cap(name) != len(name) || cap(value) != len(value) {
			t.Fatalf("appending to %q or %q would change what is behind it", name, value)
		}
		all = append(all, modelField{string(name), string(value)})
	}
	if !slices.Equal(all, want) || h.Len() != len(want) {
		t.Fatalf("%d fields %q, want %q", h.Len(), all, want)
	}
	for _, name := range names {
		var values []string
		for _, f := range want {
			if strings.EqualFold(f.name, name) {
				values = append(values, f.value)
			}
		}
		var got []string
		for value := range h.Values(name) {
			got = append(got, string(value))
		}
		first, has := "", len(values) > 0
		if has {
			first = values[0]
		}
		if !slices.Equal(got, values) || (h.Find(name, 0) >= 0) != has || string(h.Get(name)) != first ||
			(h.Get(name) != nil) != has {
			t.Fatalf("%q has the values %q (%t), want %q; first %q", name, got, h.Find(name, 0) >= 0, values, h.Get(name))
		}
	}
}

// parsedList returns the List of a message that was received with these fields, over a connection's buffer.
func parsedList(fields string) (l *List, buffer []byte) {
	buffer = []byte("GET / HTTP/1.1\r\n" + fields + "\r\nGET /next HTTP/1.1\r\n\r\n")
	var entries []Entry
	for at := len("GET / HTTP/1.1\r\n"); fields != ""; {
		line, rest, _ := strings.Cut(fields, "\r\n")
		name, value, _ := strings.Cut(line, ":")
		start := at + len(name) + 1 + len(value) - len(strings.TrimLeft(value, " \t"))
		entries = Append(entries, buffer, &Entry{
			Name: uint32(at), NameLen: uint16(len(name)), Value: uint32(start), ValueLen: uint32(len(strings.Trim(value, " \t"))),
		})
		at, fields = at+len(line)+2, rest
	}
	borrowed := Borrow(buffer[:len(buffer)-len("GET /next HTTP/1.1\r\n\r\n")], entries)
	return &borrowed, buffer
}

var (
	testNames = []string{"Content-Type", "content-type", "CONTENT-TYPE", "X-A", "x-a", "X-B", "Set-Cookie", "set-COOKIE", "x-c", "ETag"}
	// badNames aren't tokens: no field can have such a name.
	badNames   = []string{"", " ", "X A", "X:", "X-A ", " X-A", "X\r\nY", "X\x00", "é", "X\x7f", "(", "X-A:b\r\nX-C"}
	testValues = []string{"", "a", "b c", " d ", "\te\t", "f\tg", "h\r\nX-Injected: 1", "\r\n", "\x00\x01\x1f\x7f", "é\xff", "\n i", "j \r", strings.Repeat("k", 300)}
)

// A List is an ordered list: after any sequence of operations, on a request or a response, it has the same fields as a plain list. The connection's
// buffer never changes.
func TestListModel(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	names := append(slices.Clone(testNames), badNames...)
	for range 300 {
		h, model := new(List), modelList(nil)
		var buffer, before []byte
		if random.IntN(2) == 0 {
			var fields strings.Builder
			for range random.IntN(8) {
				f := modelField{testNames[random.IntN(len(testNames))], testValues[random.IntN(6)]}
				fmt.Fprintf(&fields, "%s:%s\r\n", f.name, f.value)
				model = model.add(f.name, f.value)
			}
			h, buffer = parsedList(fields.String())
			before = bytes.Clone(buffer)
		}
		for range 40 {
			name, value := names[random.IntN(len(names))], testValues[random.IntN(len(testValues))]
			switch random.IntN(16) {
			case 0, 1, 2:
				h.Set(name, value)
				model = model.set(name, value)
			case 3, 4:
				h.SetBytes(name, []byte(value))
				model = model.set(name, value)
			case 5, 6, 7, 8:
				h.Add(name, value)
				model = model.add(name, value)
			case 9, 10:
				h.AddBytes(name, []byte(value))
				model = model.add(name, value)
			case 11, 12:
				h.Del(name)
				model = model.del(name)
			case 13:
				// The value is borrowed from the list itself, whose buffer may move while the value is copied.
				other := testNames[random.IntN(len(testNames))]
				own, there := h.Get(other), model.index(other) >= 0
				h.SetBytes(name, own)
				text := ""
				if there {
					text = model[model.index(other)].value
				}
				model = model.set(name, text)
			case 14:
				if random.IntN(10) == 0 {
					h.Reset()
					model = nil
				}
			}
			checkList(t, h, model, names)
		}
		if !bytes.Equal(buffer, before) {
			t.Fatalf("the connection's buffer was changed from %q to %q", before, buffer)
		}
	}
}

// "Del removes all fields called name", wherever they are among other fields, and keeps the order of the others.
func TestListDelInterleaved(t *testing.T) {
	for pattern := range 1 << 7 {
		for _, borrowed := range []bool{false, true} {
			for _, set := range []bool{false, true} {
				h, fields, model := new(List), "", modelList(nil)
				for i := range 7 {
					name := "x-keep"
					if pattern>>i&1 != 0 {
						name = []string{"X-Del", "x-del", "X-DEL"}[i%3]
					}
					fields += fmt.Sprintf("%s: %d\r\n", name, i)
					h.Add(name, fmt.Sprint(i))
					model = model.add(name, fmt.Sprint(i))
				}
				if borrowed {
					h, _ = parsedList(fields)
				}
				if set {
					h.Set("x-Del", "new")
					model = model.set("x-Del", "new")
				} else {
					h.Del("x-Del")
					model = model.del("x-Del")
				}
				checkList(t, h, model, []string{"X-Del", "X-Keep"})
			}
		}
	}
}

// An iteration may stop early, and yields the fields in order.
func TestListIteration(t *testing.T) {
	var h List
	for i := range 5 {
		h.Add("A", fmt.Sprint(i))
		h.Add("b", fmt.Sprint(-i))
	}
	for stop := range 6 {
		var values, all []string
		for value := range h.Values("a") {
			if len(values) == stop {
				break
			}
			values = append(values, string(value))
		}
		for name, value := range h.All() {
			if len(all) == stop {
				break
			}
			all = append(all, string(name)+string(value))
		}
		if got, want := strings.Join(values, " "), "0 1 2 3 4"[:max(0, min(2*stop-1, 9))]; got != want {
			t.Errorf("stopped after %d: %q, want %q", stop, got, want)
		}
		if got, want := strings.Join(all, " "), strings.Join([]string{"A0", "b0", "A1", "b-1", "A2"}[:min(stop, 5)], " "); got != want {
			t.Errorf("all, stopped after %d: %q, want %q", stop, got, want)
		}
	}
}

// The setters for one field do the same as Set with its name.
func TestListSetters(t *testing.T) {
	for _, before := range []modelList{nil, {{"X-A", "1"}}, {{"content-type", "x"}, {"X-A", "1"}, {"Content-Type", "y"}, {"content-length", "7"}}} {
		for _, borrowed := range []bool{false, true} {
			fresh := func() *List {
				fields := ""
				h := new(List)
				for _, f := range before {
					fields += f.name + ": " + f.value + "\r\n"
					h.Add(f.name, f.value)
				}
				if borrowed {
					h, _ = parsedList(fields)
				}
				return h
			}
			h := fresh()
			line := NewLine("Content-Type", "text/plain")
			h.SetLine(&line)
			checkList(t, h, before.set("Content-Type", "text/plain"), testNames)
			h = fresh()
			h.SetID(ContentType, "a/b")
			checkList(t, h, before.set("Content-Type", "a/b"), testNames)
			for _, n := range []int64{0, 7, -1, 1<<63 - 1, -1 << 63} {
				h = fresh()
				h.SetInt(ContentLength, n)
				checkList(t, h, before.set("Content-Length", fmt.Sprint(n)), []string{"content-length"})
			}
		}
	}
}

// The longest name has 65,535 bytes.
func TestListLongNames(t *testing.T) {
	longest := strings.Repeat("n", 1<<16-1)
	var h List
	h.Set(longest, "a")
	h.Add(longest+"n", "b")
	h.Set(longest+"n", "b")
	h.Add("X", "c")
	checkList(t, &h, modelList{{longest, "a"}, {"X", "c"}}, []string{longest, longest + "n", "x"})
}

// Fields are sent in the list's order, with the case and the value with which they were set.
func TestListOnTheWire(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	for range 300 {
		var h List
		var want modelList
		for range random.IntN(10) {
			f := modelField{testNames[random.IntN(len(testNames))], testValues[random.IntN(len(testValues))]}
			if random.IntN(3) == 0 {
				h.Set(f.name, f.value)
				want = want.set(f.name, f.value)
			} else {
				h.Add(f.name, f.value)
				want = want.add(f.name, f.value)
			}
		}
		var got, wire []byte
		for i := range h.Len() {
			got = h.AppendLine(got, i)
		}
		for _, f := range want {
			wire = fmt.Appendf(wire, "%s: %s\r\n", f.name, f.value)
		}
		if !bytes.Equal(got, wire) {
			t.Fatalf("%q on the wire, want %q", got, wire)
		}
	}
}

// A request's fields are in the connection's buffer until one is set: then the list copies the buffer, once. The buffer, and slices that were
// borrowed from it, don't change.
func TestListCopyOnWrite(t *testing.T) {
	const fields = "X-A: 1\r\nX-B: 2\r\nX-A: 3\r\n"
	for name, change := range map[string]func(h *List){
		"Set":          func(h *List) { h.Set("X-A", "4") },
		"SetBytes":     func(h *List) { h.SetBytes("X-B", []byte("4")) },
		"Add":          func(h *List) { h.Add("X-C", "4") },
		"SetLine":      func(h *List) { line := NewLine("X-B", "4"); h.SetLine(&line) },
		"Set longer":   func(h *List) { h.Set("X-B", strings.Repeat("4", 10_000)) },
		"Del":          func(h *List) { h.Del("X-A") },
		"Reset":        func(h *List) { h.Reset(); h.Add("X-D", "4") },
		"refused name": func(h *List) { h.Set("X D", "4") },
	} {
		h, buffer := parsedList(fields)
		before, borrowed := bytes.Clone(buffer), h.Get("X-B")
		change(h)
		change(h)
		if !bytes.Equal(buffer, before) || string(borrowed) != "2" {
			t.Errorf("%s changed the connection's buffer to %q, and what was borrowed to %q", name, buffer, borrowed)
		}
		if h.borrowed {
			continue
		}
		for i := range buffer {
			buffer[i] = 'z'
		}
		for _, value := range h.All() {
			if bytes.Contains(value, []byte("z")) {
				t.Errorf("after %s a value still lies in the connection's buffer", name)
			}
		}
	}
}

// A list may be spread over several fields (RFC 9110, section 5.6.1).
func TestHasToken(t *testing.T) {
	h, _ := parsedList("Connection: a\r\nX-A: upgrade\r\nCONNECTION: b, close\r\nconnection:\r\n")
	for token, want := range map[string]bool{"a": true, "b": true, "close": true, "upgrade": false, "connection": false} {
		if h.HasToken(Connection, token) != want {
			t.Errorf("Connection has %q: %t", token, !want)
		}
	}
}

// Adopt and Copy make the same list of a message's bytes. Copy keeps no reference to the bytes.
func TestAdoptAndCopy(t *testing.T) {
	want := modelList{{"X-A", "1"}, {"ETag", "2"}}
	parsed, buffer := parsedList("X-A: 1\r\nETag: 2\r\n")
	var adopted, copied List
	before := adopted.Adopt(buffer, parsed.entries)
	copied.Copy(buffer, parsed.entries)
	checkList(t, &adopted, want, testNames)
	for i := range buffer {
		buffer[i] = 'z'
	}
	checkList(t, &copied, want, testNames)
	if len(before) != 0 {
		t.Errorf("Adopt returned %d entries", len(before))
	}
	if adopted.Reset(); adopted.Len() != 0 || string(buffer) != strings.Repeat("z", len(buffer)) {
		t.Errorf("after Reset there are %d fields, and the buffer is %q", adopted.Len(), buffer)
	}
}

// ResetWithin empties a list, and keeps its buffer if that is no larger than the size.
func TestResetWithin(t *testing.T) {
	for _, size := range []int{10, 1000} {
		var l List
		l.Add("X-A", strings.Repeat("a", 100))
		l.ResetWithin(size)
		if l.Len() != 0 || (cap(l.buf) == 0) != (size < 100) {
			t.Errorf("within %d: %d fields, a buffer of %d", size, l.Len(), cap(l.buf))
		}
	}
}
