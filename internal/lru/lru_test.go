package lru

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// has reports whether there is an entry, without counting as a use of it.
func (l *Map[V]) has(key string) bool { _, ok := l.entries[key]; return ok }

// The least recently used entry is dropped to make room, and the sum of the costs never exceeds the Capacity.
func TestLRU(t *testing.T) {
	now := time.Now()
	later := now.Add(time.Hour)
	l := Map[int]{Capacity: 3}
	for i := range 3 {
		l.Put(fmt.Sprint(i), Used, now, i, 1, later)
	}
	l.Get([]byte("0"), now) // 1 is the oldest now
	l.Put("3", Used, now, 3, 1, later)
	for key, want := range map[string]bool{"0": true, "1": false, "2": true, "3": true} {
		if l.has(key) != want {
			t.Errorf("%s is there: %t, want %t", key, !want, want)
		}
	}
	l.Put("big", Kept, now, 4, 4, later)
	if l.has("big") || len(l.entries) != 3 {
		t.Error("what doesn't fit at all was kept, or has driven others out")
	}
	l.Put("0", Used, now, 5, 2, later) // 2 makes room
	if value, ok := l.Get([]byte("0"), now); !ok || value != 5 || l.used != 3 {
		t.Errorf("replaced: %d, %t, %d used", value, ok, l.used)
	}
	if _, ok := l.Get([]byte("0"), later); ok || l.used != 1 {
		t.Error("an entry was there when it had expired")
	}
}

// The lowest rank that uses more than its share loses entries. A rank may use the whole Capacity while the other ranks don't need their shares.
func TestLRURanks(t *testing.T) {
	now := time.Now()
	later := now.Add(time.Hour)
	type step struct {
		rank, count int
		use         bool
	}
	for _, test := range []struct {
		why   string
		steps []step
		want  [rankCount]int // how many entries of 160 there are in the end
	}{
		{"notes alone take all", []step{{Note, 1000, true}}, [rankCount]int{160, 0, 0, 0}},
		{"new entries alone take all", []step{{Unused, 1000, false}}, [rankCount]int{0, 160, 0, 0}},
		{"what is kept takes all", []step{{Kept, 1000, false}}, [rankCount]int{0, 0, 0, 160}},
		{"notes leave all others alone", []step{{Unused, 20, false}, {Unused, 60, true}, {Kept, 60, false}, {Note, 1000, true}}, [rankCount]int{20, 20, 60, 60}},
		{"new ones those that are used", []step{{Unused, 60, true}, {Kept, 60, false}, {Unused, 1000, false}}, [rankCount]int{0, 40, 60, 60}},
		{"used ones those that are kept", []step{{Kept, 90, false}, {Unused, 1000, true}}, [rankCount]int{0, 0, 70, 90}},
		{"a share is left to each", []step{{Note, 1000, false}, {Unused, 100, false}, {Unused, 100, true}, {Kept, 1000, false}}, [rankCount]int{10, 30, 40, 80}},
		{"and there again for who comes later", []step{{Kept, 1000, false}, {Unused, 1000, true}, {Unused, 1000, false}, {Note, 1000, false}}, [rankCount]int{10, 30, 40, 80}},
	} {
		l := Map[int]{Capacity: 160}
		n := 0
		for _, step := range test.steps {
			for range step.count {
				n++
				key := fmt.Sprint(n)
				l.Put(key, step.rank, now, n, 1, later)
				if step.use {
					l.Get([]byte(key), now)
				}
			}
		}
		var got [rankCount]int
		for _, e := range l.entries {
			got[e.rank]++
		}
		if got != test.want {
			t.Errorf("%s: %v, want %v", test.why, got, test.want)
		}
	}
}

// A new entry is kept even if it is larger than its rank's share, expired entries make room first, and an entry that is replaced keeps its
// rank.
func TestLRUVictims(t *testing.T) {
	now := time.Now()
	l := Map[int]{Capacity: 16}
	l.Put("soon", Kept, now, 1, 8, now.Add(time.Second))
	l.Put("later", Kept, now, 1, 8, now.Add(time.Hour))
	l.Put("new", Unused, now, 1, 8, now.Add(time.Hour))
	if l.has("soon") || !l.has("later") || !l.has("new") {
		t.Error("the oldest didn't make room for one of half the Capacity")
	}
	l.Get([]byte("new"), now)
	l.Put("new", Unused, now, 2, 7, now.Add(time.Second))
	if rank := l.entries["new"].rank; rank != Used {
		t.Errorf("replaced: rank %d", rank)
	}
	l.Put("note", Note, now, 3, 1, now.Add(time.Hour))
	l.Put("other", Unused, now.Add(time.Second), 3, 1, now.Add(time.Hour))
	if l.has("new") || !l.has("note") || !l.has("later") || !l.has("other") {
		t.Error("what had expired didn't make room")
	}
}

// After any sequence of operations, the lists, the map and the sums of the costs agree.
func TestLRURandom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Now()
	l := Map[int]{Capacity: 50}
	for range 20_000 {
		key, rank := fmt.Sprint(random.IntN(40)), random.IntN(rankCount)
		switch random.IntN(5) {
		case 0:
			l.Put(key, rank, now, 1, random.IntN(9), now.Add(time.Duration(random.IntN(100))))
		case 1:
			l.Get([]byte(key), now)
		case 2:
			l.Remove([]byte(key))
		case 3:
			l.Update(key, rank, now, func(old int, ok bool) (int, int, time.Time, bool) {
				return old + 1, random.IntN(60), now.Add(50), random.IntN(2) == 0
			})
		case 4:
			now = now.Add(time.Duration(random.IntN(3)))
		}
		used, count := 0, 0
		for rank := range l.ranks {
			r, inRank := &l.ranks[rank], 0
			for e := r.newest; e != nil; e = e.older {
				if l.entries[e.key] != e || e.rank != rank || e.older == nil && r.oldest != e || e.older != nil && e.older.newer != e {
					t.Fatal("the list is broken")
				}
				inRank += e.cost
				count++
			}
			if inRank != r.used {
				t.Fatalf("%d in the list of rank %d, which says %d", inRank, rank, r.used)
			}
			used += inRank
		}
		if used != l.used || count != len(l.entries) || used > l.Capacity {
			t.Fatalf("%d entries of %d in the lists, %d entries of %d in the map", count, used, len(l.entries), l.used)
		}
	}
}

func BenchmarkLRU(b *testing.B) {
	b.ReportAllocs()
	now := time.Now()
	l := Map[int]{Capacity: 1000}
	keys := make([][]byte, 1000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key %d", i)
		l.Put(string(keys[i]), Unused, now, i, 1, now.Add(time.Hour))
	}
	for i := range b.N {
		if _, ok := l.Get(keys[i%len(keys)], now); !ok {
			b.Fatal("not there")
		}
	}
}
