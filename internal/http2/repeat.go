package http2

import (
	"bytes"

	"github.com/filohttp/filo/internal/http1"
)

// Repeat remembers the last request of a connection, for a client that asks for the same thing again. Once the decoder's table holds the
// fields of a request, its block is a few indices, and the same bytes say the same: they needn't be decoded and checked once more. A Repeat
// is for one connection at a time: call Forget before another one uses it. It keeps its memory.
type Repeat struct {
	block    []byte     // empty if nothing is remembered
	before   tableState // as the decoder's table was when the last block came
	head     http1.RequestHead
	text     []byte // that head lies in
	priority Priority
}

// maxRepeat is how long a block may be that is remembered, in bytes. A longer one has texts of its own, which mostly differ.
const maxRepeat = 64

// Forget forgets the request.
func (r *Repeat) Forget() { r.block = r.block[:0] }

// Give gives the request that was kept, if the block says the same. Its text is appended to b, which is empty. If ok is false, nothing is
// remembered any more, and the block must be decoded.
func (r *Repeat) Give(d *Decoder, block []byte, head *http1.RequestHead, b []byte) (text []byte, priority Priority, ok bool) {
	now := d.table.state()
	if len(r.block) == 0 || now != r.before || d.reduced || !bytes.Equal(block, r.block) {
		r.before = now
		r.Forget()
		return b, UnsaidPriority, false
	}
	head.Set(&r.head)
	return append(b, r.text...), r.priority, true
}

// Keep keeps a request that h has made of the block for which Give has given nothing. The request is valid, has no content, and doesn't ask
// for another protocol. A block that has changed the decoder's table isn't found again, since it would change the table once more.
func (r *Repeat) Keep(block []byte, h *Head) {
	if len(block) > maxRepeat {
		return
	}
	r.block, r.text, r.priority = append(r.block, block...), append(r.text[:0], h.b...), h.Priority
	r.head.Set(h.head)
}

// tableState says whether a table has changed: the entries that were added last, as many as there are, are the table's.
type tableState struct{ added, count, max uint32 }

func (t *table) state() tableState { return tableState{t.added, t.count, t.max} }
