package http1

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/filohttp/filo/internal/field"
)

// wireInput is an Input, together with the bytes that it must contain.
type wireInput struct {
	Input
	t      *testing.T
	random *rand.Rand
	unseen []byte      // the bytes that were received and not consumed
	lent   [][2][]byte // each slice that was lent, with a copy from that time
}

// receive puts up to n bytes into the buffer as a connection would.
func (in *wireInput) receive(n int) {
	before, full := len(in.buf), in.pinned+in.Len()
	space := in.Space()
	if len(space) == 0 {
		in.t.Fatal("no space")
	}
	if len(in.buf) != before && (full < before || len(in.buf) != max(2*full, ReadBufferSize)) {
		in.t.Fatalf("the buffer grew from %d to %d for %d bytes", before, len(in.buf), full)
	}
	// The connection may write to all of the space.
	for i := range space {
		space[i] = 0xEE
	}
	n = min(n, len(space))
	for i := range n {
		space[i] = byte(in.random.Uint32())
	}
	in.Received(n)
	in.unseen = append(in.unseen, space[:n]...)
}

// take consumes n bytes, and lends them if lend is set.
func (in *wireInput) take(n int, lend bool) {
	taken := in.Unread()[:n]
	in.Advance(n)
	in.unseen = in.unseen[n:]
	if lend {
		in.Pin()
		in.lent = append(in.lent, [2][]byte{taken, bytes.Clone(taken)})
	}
}

func (in *wireInput) check() {
	in.t.Helper()
	if !bytes.Equal(in.Unread(), in.unseen) || in.Len() != len(in.unseen) {
		in.t.Fatalf("%d unread bytes are wrong", in.Len())
	}
	if unread := in.Unread(); cap(unread) != len(unread) {
		in.t.Fatal("appending to the unread bytes would change the buffer")
	}
	for _, lent := range in.lent {
		if !bytes.Equal(lent[0], lent[1]) {
			in.t.Fatalf("%d lent bytes have changed", len(lent[0]))
		}
	}
}

// No received byte is lost. Lent bytes don't change until Unpin, whatever is received before that.
func TestInputBuffer(t *testing.T) {
	random := rand.New(rand.NewPCG(13, 14))
	sizes := []int{1, 10, 1000, ReadBufferSize, 3 * ReadBufferSize}
	for range 100 {
		in := &wireInput{t: t, random: random}
		for range 60 {
			switch n := random.IntN(sizes[random.IntN(len(sizes))] + 1); random.IntN(7) {
			case 0, 1, 2:
				in.receive(n)
			case 3:
				in.take(min(n, in.Len()), true)
			case 4:
				in.take(min(n, in.Len()), false)
			case 5:
				in.take(in.Len(), false)
			case 6:
				if random.IntN(4) == 0 {
					in.Unpin()
					in.lent = nil
				}
			}
			in.check()
		}
	}
}

// A body of Room bytes is received without moving any byte, and a larger body isn't.
func TestInputBufferRoom(t *testing.T) {
	random := rand.New(rand.NewPCG(15, 16))
	for range 200 {
		in := &wireInput{t: t, random: random}
		in.receive(1 + random.IntN(ReadBufferSize))
		in.take(random.IntN(in.Len()+1), true)
		if in.Len() == 0 {
			continue
		}
		size, first := in.Room(), unsafe.SliceData(in.Unread())
		for in.Len() < size {
			in.receive(1 + random.IntN(size-in.Len()))
		}
		in.check()
		if unsafe.SliceData(in.Unread()) != first || len(in.buf) != ReadBufferSize {
			t.Fatal("the bytes were moved")
		}
		in.receive(1)
		in.check()
		if unsafe.SliceData(in.Unread()) == first && in.pinned > 0 {
			t.Fatal("more than the room fits")
		}
	}
}

// The memory of a request is reused for the next request, so the buffer doesn't grow.
func TestInputBufferStaysSmall(t *testing.T) {
	in := &wireInput{t: t, random: rand.New(rand.NewPCG(17, 18))}
	for range 20 {
		for in.Len() < 3000 {
			in.receive(1000)
		}
		in.take(1000, true)
		for range 20 {
			in.receive(2000)
			in.take(in.Len()-100, false)
		}
		in.check()
		in.Unpin()
		in.lent = nil
	}
	if len(in.buf) != ReadBufferSize {
		t.Errorf("the buffer has grown to %d bytes", len(in.buf))
	}
}

// A worker keeps a buffer of up to maxKeptReadBuffer for the next connection, but none of the bytes in it.
func TestInputBufferReset(t *testing.T) {
	for _, size := range []int{ReadBufferSize, maxKeptReadBuffer, 2 * maxKeptReadBuffer} {
		in := &wireInput{t: t, random: rand.New(rand.NewPCG(19, 20))}
		for in.Len() < size {
			in.receive(size)
		}
		in.take(size/2, true)
		in.Reset()
		in.unseen, in.lent = nil, nil
		in.check()
		if kept := len(in.buf); kept > maxKeptReadBuffer || size <= maxKeptReadBuffer && kept != size {
			t.Errorf("of %d bytes %d were kept", size, kept)
		}
		in.receive(10)
		in.check()
	}
}

// Pipelined heads of all sizes, with empty lines between them, are parsed from the buffer as they were sent, whatever the sizes of the
// received pieces are.
func TestHeadsThroughTheBuffer(t *testing.T) {
	var input strings.Builder
	var want []string
	for i, size := range []int{0, 10, 1000, 3900, 4000, 4095, 4096, 5000, 0, 8191, 8192, 12_000, 16_000, 1, 1} {
		padding := strings.Repeat(string(rune('a'+i)), size)
		fmt.Fprintf(&input, "%sGET /%d HTTP/1.1\r\nHost: a\r\nX-Padding: %s\r\nX-Last: %d\r\n\r\n", strings.Repeat("\r\n", i%5), i, padding, i)
		want = append(want, fmt.Sprintf("/%d %s %d", i, padding, i))
	}
	for _, piece := range []int{1, 2, 7, 100, 1460, 4095, 4096, 4097, 10_000, input.Len()} {
		var got []string
		var in Input
		var p Parser
		p.Reset()
	pieces:
		for rest := input.String(); ; {
			done, fault := p.Parse(in.Unread(), &wireLarge)
			switch {
			case fault != NoFault:
				t.Fatalf("in pieces of %d: %v after %.200q", piece, fault, got)
			case done:
				head := in.Unread()[:p.Len():p.Len()]
				var fields field.List
				p.GiveFields(&fields, head)
				in.Advance(len(head))
				in.Pin()
				got = append(got, fmt.Sprintf("%s %s %s", head[p.TargetStart:p.TargetEnd], fields.Get("x-padding"), fields.Get("X-LAST")))
				p.Reset()
				in.Unpin()
				continue
			}
			in.Advance(p.TakeEmptyLines())
			if rest == "" {
				break pieces
			}
			n := copy(in.Space(), rest[:min(piece, len(rest))])
			in.Received(n)
			rest = rest[n:]
		}
		if !slices.Equal(got, want) || in.Len() != 0 {
			t.Errorf("in pieces of %d: %d requests, want %d: %.200q", piece, len(got), len(want), got)
		}
	}
}

// Save copies the bytes, and keeps no reference to their old memory.
func TestInputSave(t *testing.T) {
	for _, size := range []int{1, 255, 256, 257, 5000} {
		var in Input
		b := bytes.Repeat([]byte("a"), size)
		in.Save(b)
		b[0] = 'b'
		if !bytes.Equal(in.Unread(), bytes.Repeat([]byte("a"), size)) || len(in.Space()) < size {
			t.Errorf("of %d bytes there are %d, with room for %d", size, in.Len(), len(in.Space()))
		}
	}
}

// TakeOver moves the buffer if copying the bytes would need a new buffer, or if there are too many bytes to copy.
func TestInputTakeOver(t *testing.T) {
	filled := func(size, taken, unread int) (in Input) {
		if size > 0 {
			in.buf = make([]byte, size)
			in.Received(copy(in.Space(), strings.Repeat("-", taken)+strings.Repeat("x", unread)))
			in.Advance(taken)
		}
		return in
	}
	for _, test := range []struct {
		in, from, taken, unread int // the sizes of the two buffers, and how many bytes of the second buffer were consumed and not consumed
		moved                   bool
	}{
		{0, 0, 0, 0, false}, {ReadBufferSize, 0, 0, 0, false}, {0, ReadBufferSize, 0, 0, true}, {0, ReadBufferSize, 10, 100, true},
		{ReadBufferSize, ReadBufferSize, 10, 100, false}, {0, 512, 10, 100, false}, {ReadBufferSize, 3 * ReadBufferSize, 0, ReadBufferSize + 1, true},
		{4 * ReadBufferSize, 3 * ReadBufferSize, 0, ReadBufferSize + 1, false},
	} {
		in, from := filled(test.in, 0, 0), filled(test.from, test.taken, test.unread)
		buffer := from.buf
		in.TakeOver(&from)
		if string(in.Unread()) != strings.Repeat("x", test.unread) || from.Len() != 0 || from.buf != nil {
			t.Errorf("%+v: %d bytes are unread, and %d where they were", test, in.Len(), from.Len())
		}
		if moved := len(buffer) > 0 && len(in.buf) > 0 && &in.buf[0] == &buffer[0]; moved != test.moved {
			t.Errorf("%+v: the buffer has moved: %t", test, moved)
		}
		if space := in.Space(); len(space) == 0 {
			t.Errorf("%+v: no space", test)
		}
	}
}

// The enlarged buffer contains the unread bytes, and is small enough for a worker to keep.
func TestInputEnlarge(t *testing.T) {
	var in Input
	in.Received(copy(in.Space(), "takenunread"))
	in.Advance(len("taken"))
	in.Enlarge()
	if got := string(in.Unread()); got != "unread" || len(in.Space()) != maxKeptReadBuffer-len("unread") {
		t.Errorf("%q is unread, and there is room for %d bytes", got, len(in.Space()))
	}
	space := in.Space()
	in.Enlarge()
	if &in.Space()[0] != &space[0] {
		t.Error("the buffer has changed once more")
	}
	in.Reset()
	if len(in.Space()) != maxKeptReadBuffer {
		t.Error("the buffer isn't kept")
	}
	in = Input{buf: make([]byte, ReadBufferSize), pinned: 1, r: 1, w: 1}
	if in.Enlarge(); len(in.buf) != ReadBufferSize {
		t.Error("lent bytes have moved")
	}
}
