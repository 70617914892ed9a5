package http2

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// RFC 9218, section 4, and RFC 9651.
func TestParsePriority(t *testing.T) {
	for _, test := range []struct {
		value string
		want  string // urgency, and i for incremental
	}{
		{"", "3"}, {"u=0", "0"}, {"u=7", "7"}, {"i", "3i"}, {"i=?1", "3i"}, {"i=?0", "3"}, {"u=5, i", "5i"}, {"i,u=2", "2i"}, {" u=1 ,\ti ", "1i"},
		// "Unknown priority parameters, priority parameters with out-of-range values, or values of unexpected types MUST be ignored."
		{"u=8", "3"}, {"u=-1", "3"}, {"u=10", "3"}, {"u=1.0", "3"}, {"u=\"1\"", "3"}, {"u=?1", "3"}, {"u", "3"}, {"u=1, i=1", "1"}, {"u=(1 2)",
			"3"},
		{"x, u=1", "1"}, {"x=y, u=1", "1"}, {"x=\"a,u=5\\\",\", u=1", "1"}, {"x=:YQ==:, i", "3i"}, {"x=(a \"b)\" c;d=1);e, u=6", "6"},
		{"*x=-1.5, u=1", "1"},
		{"x=*t/k:n, u=1", "1"}, {"u1=2", "3"},
		{"x=@1659578233, u=1", "1"}, {"x=@-1;a=@2, u=1", "1"}, {"u=@1", "3"}, {"x=%\"a, u=5 %c3%bc\\\", u=1", "1"}, {"x=(@1 %\"a)\");b=%\"c\", u=1", "1"},
		{"x=%\"a, u=1", "3"}, {"u=1, x=%a", "3"}, {"u=1, x=@", "3"}, {"u=1, x=@a", "3"},
		// Parameters of a member are ignored.
		{"u=1;x", "1"}, {"u=1; x=y;z=\"a;b\", i;q=1", "1i"}, {"i;x=?0", "3i"},
		// The last member of a name counts (RFC 9651, section 4.2.2).
		{"u=1, u=2", "2"}, {"i, i=?0", "3"},
		// A value that isn't a dictionary is ignored completely.
		{"u=1,", "3"}, {"u=1,,i", "3"}, {",u=1", "3"}, {"u=1 i", "3"}, {"U=1", "3"}, {"u=", "3"}, {"u=1, =", "3"}, {"u=1, i=?2", "3"},
		{"u=1, x=\"a", "3"},
		{"u=1, x=(a", "3"}, {"u=1, x=(a\"b\")", "3"}, {"u=1, x=:a", "3"}, {"u=1;, i", "3"}, {"u=1;;x", "3"}, {"u=1, \xff", "3"}, {"u=1\x00",
			"3"}, {"u=1, x={}", "3"},
	} {
		got := ParsePriority([]byte(test.value))
		text := fmt.Sprint(got.Urgency)
		if got.Incremental {
			text += "i"
		}
		if text != test.want {
			t.Errorf("%q: %s, want %s", test.value, text, test.want)
		}
	}
}

// No value makes the parser panic or return an invalid priority. The parser doesn't look beyond the value.
func FuzzParsePriority(f *testing.F) {
	for _, seed := range []string{"u=1, i", "x=(a \"b)\" c;d=1);e, u=6", "x=:YQ==:,i=?0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		b := []byte(value)
		if p := ParsePriority(b[:len(b):len(b)]); p.Urgency > 7 {
			t.Fatalf("%+v", p)
		}
		if !strings.ContainsAny(value, "ui*") && ParsePriority(b) != DefaultPriority {
			t.Fatal("a priority out of nothing")
		}
	})
}

// RFC 9218, section 7.1.
func TestPrioritized(t *testing.T) {
	var q Prioritized
	if _, ok := q.Take(1); ok || q.Put(0, DefaultPriority, 5) != FaultPrioritized || q.Put(4, DefaultPriority, 5) != FaultPrioritized {
		t.Error("streams that a client can't open")
	}
	for id := uint32(1); id <= 9; id += 2 {
		if fault := q.Put(id, Priority{Urgency: uint8(id) % 8}, 5); fault != NoFault {
			t.Fatal(fault)
		}
	}
	if q.Put(11, DefaultPriority, 5) != FaultPrioritized || q.Put(7, Priority{Urgency: 6}, 5) != NoFault || q.Put(11, DefaultPriority,
		6) != NoFault {
		t.Error("the bound counts streams")
	}
	for _, test := range []struct {
		id   uint32
		want Priority
		ok   bool
		left int
	}{{1, Priority{Urgency: 1}, true, 5}, {1, Priority{}, false, 5}, {7, Priority{Urgency: 6}, true, 2}, {5, Priority{}, false, 2}, {99,
		Priority{}, false, 0}} {
		if p, ok := q.Take(test.id); p != test.want || ok != test.ok || len(q.entries) != test.left {
			t.Errorf("stream %d: %+v, %t, %d left", test.id, p, ok, len(q.entries))
		}
	}
	if q.entries != nil {
		t.Error("memory is left")
	}
}

// sending is a stream that has frames to send.
type sending struct {
	Sender[sending]
	id     uint32
	frames int // to be sent
}

func schedule(q *Schedule[sending], streams ...*sending) (order string) {
	for _, s := range streams {
		q.Add(&s.Sender)
	}
	for s := q.Next(); s != nil; s = q.Next() {
		order += fmt.Sprintf(" %d", s.id)
		q.Sent(&s.Sender)
		if s.frames--; s.frames == 0 {
			q.Remove(&s.Sender)
		}
	}
	return strings.TrimSpace(order)
}

func stream(id uint32, urgency uint8, incremental bool, frames int) *sending {
	s := &sending{id: id, frames: frames}
	s.Init(s, id, Priority{urgency, incremental})
	return s
}

// RFC 9218, section 10.
func TestSchedule(t *testing.T) {
	for _, test := range []struct {
		rfc     string
		streams []*sending
		want    string
	}{
		{"one", []*sending{stream(1, 3, false, 2)}, "1 1"},
		{"\"in the order of their urgency\"", []*sending{stream(1, 7, false, 2), stream(3, 0, true, 2), stream(5, 3, false, 1)}, "3 3 5 1 1"},
		{"others one by one, \"based on the stream ID\"", []*sending{stream(5, 3, false, 2), stream(1, 3, false, 2), stream(3, 3, false, 2)},
			"1 1 3 3 5 5"},
		{"incremental ones \"share bandwidth\"", []*sending{stream(1, 3, true, 3), stream(3, 3, true, 1), stream(5, 3, true, 2)}, "1 3 5 1 5 1"},
		{"both at one urgency", []*sending{stream(1, 3, true, 2), stream(3, 3, false, 2), stream(5, 3, true, 2), stream(7, 3, false, 1)},
			"1 3 5 3 1 7 5"},
		{"both at two", []*sending{stream(1, 4, true, 2), stream(3, 2, false, 2), stream(5, 2, true, 1), stream(7, 4, false, 1)}, "5 3 3 1 7 1"},
	} {
		var q Schedule[sending]
		if got := schedule(&q, test.streams...); got != test.want {
			t.Errorf("%s: %s, want %s", test.rfc, got, test.want)
		}
		if !q.Empty() {
			t.Errorf("%s: something waits", test.rfc)
		}
	}
}

// A stream that was removed until its window opened is added at its old position, and a priority can change at any time.
func TestScheduleChanges(t *testing.T) {
	var q Schedule[sending]
	a, b, c := stream(1, 3, false, 1), stream(3, 3, false, 1), stream(5, 3, false, 1)
	q.Add(&b.Sender)
	q.Add(&c.Sender)
	q.Add(&c.Sender) // again
	if q.Next() != b {
		t.Error("stream 3 is the first")
	}
	if q.Add(&a.Sender); q.Next() != a {
		t.Error("stream 1 is back")
	}
	q.SetPriority(&c.Sender, Priority{1, true})
	if q.Next() != c {
		t.Error("stream 5 is urgent")
	}
	q.Remove(&c.Sender)
	q.Remove(&c.Sender)
	q.SetPriority(&c.Sender, Priority{3, false}) // while the stream isn't in the schedule
	if c.Waits() || q.Next() != a {
		t.Error("stream 5 doesn't wait")
	}
	if got := schedule(&q, c); got != "1 3 5" || !q.Empty() {
		t.Error(got)
	}
}

// After random changes, Next always returns a stream that a search of all streams selects as well, and no stream starves.
func TestScheduleRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 9))
	var q Schedule[sending]
	var streams []*sending
	for i := range 60 {
		streams = append(streams, stream(uint32(2*i+1), uint8(random.IntN(3)), random.IntN(2) == 0, 0))
	}
	turns := map[*sending]int{} // the turns since the set of streams last changed
	for range 40_000 {
		s := streams[random.IntN(len(streams))]
		switch random.IntN(12) {
		case 0:
			q.Add(&s.Sender)
			clear(turns)
		case 1:
			q.Remove(&s.Sender)
			clear(turns)
		case 2:
			q.SetPriority(&s.Sender, Priority{uint8(random.IntN(3)), random.IntN(2) == 0})
			clear(turns)
		}
		best := slices.DeleteFunc(slices.Clone(streams), func(s *sending) bool { return !s.Waits() })
		if q.Empty() != (len(best) == 0) {
			t.Fatalf("%d streams wait, and it is empty: %t", len(best), q.Empty())
		}
		got := q.Next()
		if len(best) == 0 {
			if got != nil {
				t.Fatal("a stream that doesn't wait")
			}
			continue
		}
		slices.SortFunc(best, func(a, b *sending) int {
			return cmp.Or(cmp.Compare(a.priority.Urgency, b.priority.Urgency), cmp.Compare(a.id, b.id))
		})
		best = slices.DeleteFunc(best, func(s *sending) bool { return s.priority.Urgency > best[0].priority.Urgency })
		whole := slices.IndexFunc(best, func(s *sending) bool { return !s.priority.Incremental })
		if !slices.Contains(best, got) || !got.priority.Incremental && got != best[whole] {
			t.Fatalf("stream %d is next: %+v", got.id, got.priority)
		}
		q.Sent(&got.Sender)
		turns[got]++
		most, least, ring := 0, 1<<30, 0
		for _, s := range best {
			if s.priority.Incremental {
				most, least, ring = max(most, turns[s]), min(least, turns[s]), ring+1
			}
		}
		if ring > 0 && most-least > 1 {
			t.Fatalf("one has had %d turns, and another %d", most, least)
		}
		if ring > 0 && whole >= 0 {
			sum := 0
			for _, s := range best {
				sum += turns[s]
			}
			if alone := turns[best[whole]]; alone < (sum-1)/2 || alone > (sum+1)/2 {
				t.Fatalf("the one that isn't incremental has had %d of %d turns", alone, sum)
			}
		}
	}
}

func TestScheduleAllocs(t *testing.T) {
	var q Schedule[sending]
	var streams []*sending
	for i := range 100 {
		streams = append(streams, stream(uint32(2*i+1), uint8(i%3), i%2 == 0, 0))
		q.Add(&streams[i].Sender)
	}
	value := []byte("u=1, i;x=\"y\", z=(a b)")
	if n := testing.AllocsPerRun(100, func() {
		for _, s := range streams[:10] {
			q.Sent(&q.Next().Sender)
			q.Remove(&s.Sender)
			q.Add(&s.Sender)
			q.SetPriority(&s.Sender, ParsePriority(value))
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkSchedule(b *testing.B) {
	for _, incremental := range []bool{false, true} {
		b.Run(fmt.Sprintf("incremental=%t", incremental), func(b *testing.B) {
			var q Schedule[sending]
			for i := range 100 {
				q.Add(&stream(uint32(2*i+1), 3, incremental, 0).Sender)
			}
			for b.Loop() {
				s := q.Next()
				q.Sent(&s.Sender)
				q.Remove(&s.Sender)
				q.Add(&s.Sender)
			}
		})
	}
}

func BenchmarkParsePriority(b *testing.B) {
	value := []byte("u=1, i")
	for b.Loop() {
		if !ParsePriority(value).Incremental {
			b.Fatal("not incremental")
		}
	}
}

// The zero value is empty and has no memory, as does a trimmed empty schedule. Trim doesn't change a schedule that has streams.
func TestScheduleTrim(t *testing.T) {
	var q Schedule[int]
	if q.Trim(); !q.Empty() || q.Next() != nil {
		t.Fatal("the zero value isn't empty")
	}
	stream := 1
	for _, p := range []Priority{{Urgency: 3}, {Urgency: 3, Incremental: true}} {
		var n Sender[int]
		n.Init(&stream, 1, p)
		q.Add(&n)
		if q.Trim(); q.Next() != &stream {
			t.Fatalf("%+v: the stream that waits is lost", p)
		}
		q.Remove(&n)
		if q.Trim(); q.agenda != nil || !q.Empty() || q.Next() != nil {
			t.Fatalf("%+v: memory is left", p)
		}
	}
}

// Empty reports whether no priority is stored.
func TestPrioritizedEmpty(t *testing.T) {
	var q Prioritized
	if !q.Empty() {
		t.Error("the zero value isn't empty")
	}
	if q.Put(3, Priority{Urgency: 1}, 5); q.Empty() {
		t.Error("a priority is kept, and it is empty")
	}
	if q.Take(5); !q.Empty() {
		t.Error("the priority of a stream that can't be opened any more is kept")
	}
}
