package walklist

import (
	"math/rand/v2"
	"testing"
)

type member struct{ index int32 }

func (m *member) ListIndex() *int32 { return &m.index }

// testWalk is a walk, and the members that it must still visit.
type testWalk struct {
	*Walk
	expected map[*member]bool // members that were there when the walk began, haven't been visited and aren't gone
}

// A walk visits each member exactly once that was in the list at its beginning and wasn't removed. Members that are added or removed during the walk,
// and other walks, don't change that.
func TestWalks(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var list List[*member]
	var conns []*member
	var walks []testWalk
	for step := range 20_000 {
		switch choice := random.IntN(100); {
		case choice < 48 || len(conns) == 0:
			c := new(member)
			list.Add(c)
			conns = append(conns, c)
		case choice < 92:
			i := random.IntN(len(conns))
			c := conns[i]
			list.Remove(c)
			conns[i] = conns[len(conns)-1]
			conns = conns[:len(conns)-1]
			for _, w := range walks {
				delete(w.expected, c)
			}
		case choice < 95 && len(walks) < 4:
			w := testWalk{list.Begin(), make(map[*member]bool)}
			for _, c := range conns {
				w.expected[c] = true
			}
			walks = append(walks, w)
		case len(walks) > 0:
			i := random.IntN(len(walks))
			w := walks[i]
			var batch [PageSize]*member
			n := list.Take(w.Walk, &batch)
			for _, c := range batch[:n] {
				if !w.expected[c] {
					t.Fatalf("step %d: a connection is visited twice, or came later, or is gone", step)
				}
				delete(w.expected, c)
			}
			if n == 0 {
				if len(w.expected) > 0 {
					t.Fatalf("step %d: %d connections weren't visited", step, len(w.expected))
				}
				list.End(w.Walk)
				walks = append(walks[:i], walks[i+1:]...)
			}
		}
		if list.Len() != len(conns) || len(list.walks) != len(walks) {
			t.Fatalf("step %d: %d connections and %d walks are counted, want %d and %d", step, list.Len(), len(list.walks), len(conns), len(walks))
		}
	}
	for _, c := range conns {
		list.Remove(c)
	}
	if len(list.pages) > 1 {
		t.Errorf("%d pages are kept for no connection", len(list.pages))
	}
}
