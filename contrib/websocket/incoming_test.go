package websocket

import "testing"

// An incomplete message counts with all the memory that it holds, and holds little more than its bytes.
func TestIncompleteMessageMemory(t *testing.T) {
	for range 100 {
		putBuffer(&buffer{make([]byte, maxKeptBuffer)})
	}
	options := &shared{Options: one(nil).withDefaults()}
	c := &Conn{options: options}
	for range 100 {
		in := new(incoming)
		in.reset(c)
		in.kind = Binary
		for _, size := range []int{1, 2, 10, 8 << 10, 100, 100 << 10} {
			before := options.incomplete.Load() - int64(in.held)
			if _, _, err := in.gather(c, eventData, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			held, counted := cap(in.data.b), options.incomplete.Load()-before
			if int64(held) != counted {
				t.Fatalf("a message of %d bytes holds %d and counts %d", len(in.data.b), held, counted)
			}
			if held > 2*len(in.data.b)+64 {
				t.Fatalf("a message of %d bytes holds %d", len(in.data.b), held)
			}
		}
		in.release()
	}
	if n := options.incomplete.Load(); n != 0 {
		t.Errorf("%d bytes still count", n)
	}
}
