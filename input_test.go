package filo

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// wireInput is an inputBuffer and what must be in it.
type wireInput struct {
	inputBuffer
	t      *testing.T
	random *rand.Rand
	unseen []byte      // received and not taken
	lent   [][2][]byte // each what was lent, and a copy from then
}

// receive puts up to n bytes into the buffer as a connection would.
func (in *wireInput) receive(n int) {
	before, full := len(in.buf), in.pinned+in.len()
	space := in.space()
	if len(space) == 0 {
		in.t.Fatal("no space")
	}
	if len(in.buf) != before && (full < before || len(in.buf) != max(2*full, readBufferSize)) {
		in.t.Fatalf("the buffer grew from %d to %d for %d bytes", before, len(in.buf), full)
	}
	// The space is the connection's to write to, all of it.
	for i := range space {
		space[i] = 0xEE
	}
	n = min(n, len(space))
	for i := range n {
		space[i] = byte(in.random.Uint32())
	}
	in.received(n)
	in.unseen = append(in.unseen, space[:n]...)
}

// take takes n bytes, and lends them if lend is set.
func (in *wireInput) take(n int, lend bool) {
	taken := in.unread()[:n]
	in.advance(n)
	in.unseen = in.unseen[n:]
	if lend {
		in.pin()
		in.lent = append(in.lent, [2][]byte{taken, bytes.Clone(taken)})
	}
}

func (in *wireInput) check() {
	in.t.Helper()
	if !bytes.Equal(in.unread(), in.unseen) || in.len() != len(in.unseen) {
		in.t.Fatalf("%d unread bytes are wrong", in.len())
	}
	if unread := in.unread(); cap(unread) != len(unread) {
		in.t.Fatal("appending to the unread bytes would change the buffer")
	}
	for _, lent := range in.lent {
		if !bytes.Equal(lent[0], lent[1]) {
			in.t.Fatalf("%d lent bytes have changed", len(lent[0]))
		}
	}
}

// Nothing that was received is lost, and what was lent stays as it is until unpin, whatever is received meanwhile.
func TestInputBuffer(t *testing.T) {
	random := rand.New(rand.NewPCG(13, 14))
	sizes := []int{1, 10, 1000, readBufferSize, 3 * readBufferSize}
	for range 100 {
		in := &wireInput{t: t, random: random}
		for range 60 {
			switch n := random.IntN(sizes[random.IntN(len(sizes))] + 1); random.IntN(7) {
			case 0, 1, 2:
				in.receive(n)
			case 3:
				in.take(min(n, in.len()), true)
			case 4:
				in.take(min(n, in.len()), false)
			case 5:
				in.take(in.len(), false)
			case 6:
				if random.IntN(4) == 0 {
					in.unpin()
					in.lent = nil
				}
			}
			in.check()
		}
	}
}

// "room returns how many bytes, unread ones included, fit without moving any": a body of that size is read in place, and one
// more byte doesn't fit.
func TestInputBufferRoom(t *testing.T) {
	random := rand.New(rand.NewPCG(15, 16))
	for range 200 {
		in := &wireInput{t: t, random: random}
		in.receive(1 + random.IntN(readBufferSize))
		in.take(random.IntN(in.len()+1), true)
		if in.len() == 0 {
			continue
		}
		size, first := in.room(), unsafe.SliceData(in.unread())
		for in.len() < size {
			in.receive(1 + random.IntN(size-in.len()))
		}
		in.check()
		if unsafe.SliceData(in.unread()) != first || len(in.buf) != readBufferSize {
			t.Fatal("the bytes were moved")
		}
		in.receive(1)
		in.check()
		if unsafe.SliceData(in.unread()) == first && in.pinned > 0 {
			t.Fatal("more than the room fits")
		}
	}
}

// A request's memory is used again for the next one, without the buffer's growing.
func TestInputBufferStaysSmall(t *testing.T) {
	in := &wireInput{t: t, random: rand.New(rand.NewPCG(17, 18))}
	for range 20 {
		for in.len() < 3000 {
			in.receive(1000)
		}
		in.take(1000, true)
		for range 20 {
			in.receive(2000)
			in.take(in.len()-100, false)
		}
		in.check()
		in.unpin()
		in.lent = nil
	}
	if len(in.buf) != readBufferSize {
		t.Errorf("the buffer has grown to %d bytes", len(in.buf))
	}
}

// A worker keeps a buffer of up to maxKeptReadBuffer for the next connection, and nothing of what was in it.
func TestInputBufferReset(t *testing.T) {
	for _, size := range []int{readBufferSize, maxKeptReadBuffer, 2 * maxKeptReadBuffer} {
		in := &wireInput{t: t, random: rand.New(rand.NewPCG(19, 20))}
		for in.len() < size {
			in.receive(size)
		}
		in.take(size/2, true)
		in.reset()
		in.unseen, in.lent = nil, nil
		in.check()
		if kept := len(in.buf); kept > maxKeptReadBuffer || size <= maxKeptReadBuffer && kept != size {
			t.Errorf("of %d bytes %d were kept", size, kept)
		}
		in.receive(10)
		in.check()
	}
}

// Heads of all sizes, pipelined, come out of the buffer as they were sent, in pieces of whatever size they arrive; so do
// empty lines between them.
func TestHeadsThroughTheBuffer(t *testing.T) {
	var input strings.Builder
	var want []string
	for i, size := range []int{0, 10, 1000, 3900, 4000, 4095, 4096, 5000, 0, 8191, 8192, 12_000, 16_000, 1, 1} {
		padding := strings.Repeat(string(rune('a'+i)), size)
		fmt.Fprintf(&input, "%sGET /%d HTTP/1.1\r\nHost: a\r\nX-Padding: %s\r\nX-Last: %d\r\n\r\n", strings.Repeat("\r\n", i%5), i, padding, i)
		want = append(want, fmt.Sprintf("/%d %s %d", i, padding, i))
	}
	var got []string
	s := wireServer(t, func(c *Ctx) error {
		h := &c.Request.Header
		got = append(got, fmt.Sprintf("%s %s %s", c.Request.Target(), h.Get("x-padding"), h.Get("X-LAST")))
		return c.NoContent()
	})
	for _, piece := range []int{1, 2, 7, 100, 1460, 4095, 4096, 4097, 10_000, input.Len()} {
		var cuts []int
		for cut := piece; cut < input.Len(); cut += piece {
			cuts = append(cuts, cut)
		}
		got = nil
		answers := wireServe(t, s, &wireConn{parts: wireParts(input.String(), cuts...)})
		if !slices.Equal(got, want) || strings.Count(answers, "HTTP/1.1 204 ") != len(want) || strings.Count(answers, "HTTP/1.1 ") != len(want) {
			t.Errorf("in pieces of %d: %d requests, want %d: %.200q\n%.2000s", piece, len(got), len(want), got, answers)
		}
	}
}
