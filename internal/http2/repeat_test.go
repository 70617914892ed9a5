package http2

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/filohttp/filo/internal/field"
	"github.com/filohttp/filo/internal/http1"
)

// repeater takes the blocks of a connection, with a Repeat or without.
type repeater struct {
	decoder *Decoder
	repeat  *Repeat // nil for none
	head    Head
	given   int // how many requests Repeat has given
}

// request says what a block is.
func (r *repeater) request(block []byte) string {
	var head http1.RequestHead
	text, priority, ok := []byte(nil), Priority{}, false
	if r.repeat != nil {
		text, priority, ok = r.repeat.Give(r.decoder, block, &head, nil)
	}
	if ok {
		r.given++
	} else {
		r.head.Begin(&head, nil, &headLimits, false)
		over, err := r.decoder.Decode(block, headLimits.Bytes, &r.head)
		if err != nil {
			return err.Error()
		}
		var fault Fault
		var refused http1.Fault
		if text, _, fault, refused = r.head.End(true, over); fault != NoFault || refused != http1.NoFault {
			return fmt.Sprint(fault, refused)
		}
		if priority = r.head.Priority; r.repeat != nil {
			r.repeat.Keep(block, &r.head)
		}
	}
	var got strings.Builder
	fmt.Fprintf(&got, "%s %s %v", head.Method(text), text[head.TargetStart:head.TargetEnd], priority)
	if framing, fault := head.Frame(text); framing != (http1.Framing{}) || fault != http1.NoFault {
		fmt.Fprintf(&got, " %+v %v", framing, fault)
	}
	var l field.List
	head.GiveFields(&l, text)
	for name, value := range l.All() {
		fmt.Fprintf(&got, "|%s: %s", name, value)
	}
	for i := range text { // the next user of the memory
		text[i] = '!'
	}
	return got.String()
}

// Whatever the blocks of a connection are, a Repeat changes nothing of what they say.
func TestRepeat(t *testing.T) {
	given, kinds := 0, map[string]int{}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		plain, with := repeater{decoder: newDecoder()}, repeater{decoder: newDecoder(), repeat: new(Repeat)}
		var blocks [][]byte
		reduced := false // the table must become smaller
		for range 200 {
			var block []byte
			switch size := random.IntN(16); {
			case reduced: // a size that is allowed
				block = append(block, 0x20)
			case size == 0:
				block = append(block, 0x3f, byte(random.IntN(128)))
			case size == 1:
				block = append(block, 0x20, 0x3f, 0xe1, 0x1f) // nothing, and then as much as at first
			}
			block = append(block, 0x82, 0x86, 0x84, 0x01, 1, 'a')
			if count := plain.decoder.table.count; count > 0 && random.IntN(2) > 0 {
				block = append(block, 0x80|byte(62+random.IntN(int(count))))
			}
			switch random.IntN(4) {
			case 0:
				block = append(block, 0x40, 1, byte('a'+random.IntN(4)), 1, byte('a'+random.IntN(26)))
			case 1:
				block = append(block, 0x00, 1, 'x', 1, byte('a'+random.IntN(26)))
			case 2:
				block = append(append(append(block, 0x00, 8), "priority"...), 3, 'u', '=', byte('0'+random.IntN(8)))
			}
			if random.IntN(16) == 0 {
				block = append(append(block, 0x40, 1, 'l', 127, 0), strings.Repeat("l", 127)...) // not remembered
			}
			if len(blocks) > 0 && !reduced && random.IntN(3) > 0 {
				block = blocks[len(blocks)-1-random.IntN(min(len(blocks), 1+random.IntN(3)))] // mostly the last one
			}
			reduced = false
			blocks = append(blocks, block)
			if random.IntN(32) == 0 {
				size := uint32(random.IntN(200))
				plain.decoder.SetTableSize(size)
				with.decoder.SetTableSize(size)
				reduced = plain.decoder.reduced && random.IntN(4) > 0
			}
			if random.IntN(32) == 0 { // a block that isn't a request
				plain.decoder.Decode(block, headLimits.Bytes, nil)
				with.decoder.Decode(block, headLimits.Bytes, nil)
			}
			want, got := plain.request(block), with.request(block)
			if got != want {
				t.Fatalf("seed %d, block %d (%x):\n%s, want\n%s", seed, len(blocks), block, got, want)
			}
			if plain.decoder.table.list() != with.decoder.table.list() {
				t.Fatalf("seed %d, block %d (%x): the tables differ", seed, len(blocks), block)
			}
			kind, _, _ := strings.Cut(want, " ")
			if kinds[kind]++; kind == "hpack:" {
				break // the connection ends
			}
		}
		given += with.given
	}
	if given < 1000 || kinds["GET"] < 2*given {
		t.Errorf("%d requests were given, of these: %v", given, kinds)
	}
}

// A Repeat that forgets gives nothing to the next connection, whose table may have other fields at the same indices.
func TestRepeatForgets(t *testing.T) {
	var r Repeat
	with := repeater{decoder: newDecoder(), repeat: &r}
	block := []byte{0x82, 0x86, 0x84, 0x01, 1, 'a'} // :authority, not for the table
	for range 3 {
		if got := with.request(block); got != "GET / {3 true}|host: a" {
			t.Fatal(got)
		}
	}
	if with.given != 2 {
		t.Errorf("%d of 3 were given", with.given)
	}
	r.Forget()
	if with.request(block); with.given != 2 {
		t.Error("given although it was forgotten")
	}
}

func BenchmarkRepeat(b *testing.B) {
	d := newDecoder()
	var h Head
	var head http1.RequestHead
	var r Repeat
	block := []byte{0x82, 0x86, 0x84, 0xbe, 0xbf}
	d.Decode(append([]byte{0x41, 9}, "127.0.0.1"...), headLimits.Bytes, nil)
	d.Decode(append(append([]byte{0x7a, 5}, "h2loa"...), 0x82), headLimits.Bytes, nil)
	text := make([]byte, 0, 100)
	for b.Loop() {
		if _, _, ok := r.Give(d, block, &head, text); !ok {
			h.Begin(&head, text, &headLimits, false)
			if _, err := d.Decode(block, headLimits.Bytes, &h); err != nil {
				b.Fatal(err)
			}
			r.Keep(block, &h)
		}
	}
}
