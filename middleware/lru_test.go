package middleware

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// What was not used for longest makes room, and costs are never more than the capacity.
func TestLRU(t *testing.T) {
	now := time.Now()
	later := now.Add(time.Hour)
	l := lru[int]{capacity: 3}
	for i := range 3 {
		l.put(fmt.Sprint(i), i, 1, later)
	}
	l.get([]byte("0"), now) // 1 is the oldest now
	l.put("3", 3, 1, later)
	for key, want := range map[string]bool{"0": true, "1": false, "2": true, "3": true} {
		if _, ok := l.peek(key, now); ok != want {
			t.Errorf("%s is there: %t, want %t", key, ok, want)
		}
	}
	l.put("big", 4, 4, later)
	if _, ok := l.peek("big", now); ok || len(l.entries) != 3 {
		t.Error("what doesn't fit at all was kept, or has driven others out")
	}
	l.put("0", 5, 2, later) // 2 makes room
	if value, ok := l.peek("0", now); !ok || value != 5 || l.used != 3 {
		t.Errorf("replaced: %d, %t, %d used", value, ok, l.used)
	}
	if _, ok := l.peek("0", later); ok || l.used != 1 {
		t.Error("an entry was there when it had expired")
	}
}

// Whatever is done, the list, the map and the count of costs agree.
func TestLRURandom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Now()
	l := lru[int]{capacity: 50}
	for range 20_000 {
		key := fmt.Sprint(random.IntN(40))
		switch random.IntN(5) {
		case 0:
			l.put(key, 1, random.IntN(9), now.Add(time.Duration(random.IntN(100))))
		case 1:
			l.get([]byte(key), now)
		case 2:
			l.remove([]byte(key))
		case 3:
			l.update(key, now, func(old int, ok bool) (int, int, time.Time, bool) {
				return old + 1, random.IntN(9), now.Add(50), random.IntN(2) == 0
			})
		case 4:
			now = now.Add(time.Duration(random.IntN(3)))
		}
		used, count := 0, 0
		for e := l.newest; e != nil; e = e.older {
			if l.entries[e.key] != e || e.older == nil && l.oldest != e || e.older != nil && e.older.newer != e {
				t.Fatal("the list is broken")
			}
			used += e.cost
			count++
		}
		if used != l.used || count != len(l.entries) || used > l.capacity {
			t.Fatalf("%d entries of %d in the list, %d entries of %d in the map", count, used, len(l.entries), l.used)
		}
	}
}

func BenchmarkLRU(b *testing.B) {
	b.ReportAllocs()
	now := time.Now()
	l := lru[int]{capacity: 1000}
	keys := make([][]byte, 1000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key %d", i)
		l.put(string(keys[i]), i, 1, now.Add(time.Hour))
	}
	for i := range b.N {
		if _, ok := l.get(keys[i%len(keys)], now); !ok {
			b.Fatal("not there")
		}
	}
}
