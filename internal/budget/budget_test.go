package budget

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/pace"
)

// "A request may always take more if no other request holds bytes, so that a body over the limit isn't refused for ever." A Take that is refused
// counts no bytes.
func TestBodies(t *testing.T) {
	for _, test := range []struct {
		name                          string
		limit, others, own, queued, n int64
		want                          bool
	}{
		{"up to the limit", 100, 60, 0, 0, 40, true},
		{"over the limit", 100, 60, 0, 0, 41, false},
		{"over the limit, with what it holds", 100, 60, 30, 0, 11, false},
		{"over the limit, as the only one", 100, 0, 30, 0, 1000, true},
		{"over the limit, as the only one, whose bytes wait elsewhere", 100, 0, 30, 50, 1000, true},
		{"over the limit, beside a byte of others", 100, 1, 30, 50, 1000, false},
		{"without a limit", -1, 1 << 50, 0, 0, 1 << 50, true},
		{"no room at all", 0, 1, 0, 0, 1, false},
	} {
		var b Bodies
		b.SetLimit(test.limit)
		var room, others Room
		var client atomic.Int64
		b.Add(&others, test.others)
		b.Add(&room, test.own)
		b.Queue(&client, test.queued)
		before := b.Used()
		if got := b.HasRoom(&room, test.queued, test.n); got != test.want || b.Used() != before {
			t.Errorf("%s: has room: %t; it takes %d", test.name, got, b.Used()-before)
		}
		if got := b.Take(&room, test.queued, test.n); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
		taken := int64(0)
		if test.want {
			taken = test.n
		}
		if b.Used() != before+taken || room.Bytes() != test.own+taken {
			t.Errorf("%s: %d bytes are used, and the body has %d", test.name, b.Used(), room.Bytes())
		}
		b.Give(&room, 10)
		b.Give(&room, 1<<60)
		b.Pass(&others)
		b.Give(&others, 5) // these bytes were already counted for others
		b.Queue(&client, -test.queued)
		if b.Used() != 0 || room.Bytes() != 0 || client.Load() != 0 {
			t.Errorf("%s: in the end %d bytes are used", test.name, b.Used())
		}
	}
}

// "Once half of the limit is used, the queues of one client may use at most 1/clientShare of the limit."
func TestMayQueue(t *testing.T) {
	const limit = 3200
	for _, test := range []struct {
		limit, used, client int64
		n                   int
		want, full          bool
	}{
		{limit, 0, 0, limit / 2, true, false},
		{limit, 0, 0, limit/2 + 1, false, false},
		{limit, limit / 2, 0, 100, true, false},
		{limit, limit / 2, 1, 100, false, false},
		{limit, limit - 100, 0, 100, true, false},
		{limit, limit - 99, 0, 100, false, true},
		{-1, 1 << 50, 1 << 50, 1 << 30, true, false},
	} {
		var b Bodies
		b.SetLimit(test.limit)
		var others, client atomic.Int64
		b.Queue(&others, test.used-test.client)
		b.Queue(&client, test.client)
		if got := b.MayQueue(&client, test.n); got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
		if got := b.IsFull(test.n); got != test.full {
			t.Errorf("%+v: full %t", test, got)
		}
	}
}

// Bodies that take room at the same time never hold more than the limit together.
func TestTakeTogether(t *testing.T) {
	const limit = 1000
	var b Bodies
	b.SetLimit(limit)
	var first Room
	b.Add(&first, 1) // so that no body is the only one that holds bytes
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			var room Room
			for range 2000 {
				if b.Take(&room, 0, 300) && b.Used() > limit {
					t.Error("more than the limit is used")
				}
				b.Give(&room, 300)
			}
		})
	}
	if group.Wait(); b.Used() != 1 {
		t.Errorf("%d bytes are left", b.Used())
	}
}

// cut is a body that may be cut off.
type cut struct {
	b    *Bodies
	over bool // the wait has ended
	was  bool
}

func (c *cut) CutBody(room *Room) bool {
	if c.over {
		return false
	}
	c.b.Pass(room)
	c.was = true
	return true
}

// The body whose client has been silent for the longest is cut off, but only after a second of silence, and only if its wait hasn't ended. After a
// search that has found no such body, the next search has to wait.
func TestCutSilent(t *testing.T) {
	const begin = clock.Time(time.Hour)
	var b Bodies
	b.SetLimit(1)
	var rooms [5]Room
	var bodies [5]cut
	for i := range rooms {
		bodies[i].b = &b
		if i > 0 {
			b.Add(&rooms[i], 100)
		}
	}
	bodies[2].over = true
	for i, since := range []time.Duration{0, 30, 10, 20, 900} {
		b.BeginSilence(&rooms[i], &bodies[i], begin.Add(since*time.Millisecond))
		b.BeginSilence(&rooms[i], &bodies[i], begin.Add(time.Hour)) // it is silent already
	}
	if n := b.Silents(begin.Add(time.Second), 970*time.Millisecond); n != 3 {
		t.Errorf("%d have been silent for so long", n)
	}
	if b.CutSilent(begin.Add(time.Second + 9*time.Millisecond)) {
		t.Error("one is cut off before its second is over")
	}
	if b.CutSilent(begin.Add(time.Second + 13*time.Millisecond)) {
		t.Error("they are searched again at once")
	}
	for i, want := range []int{3, 1} {
		if !b.CutSilent(begin.Add(time.Second+50*time.Millisecond)) || !bodies[want].was {
			t.Errorf("cut %d: %+v", i, bodies)
		}
	}
	if b.CutSilent(begin.Add(time.Second + 60*time.Millisecond)) {
		t.Error("one more is cut off")
	}
	if b.EndSilence(&rooms[4]); b.CutSilent(begin.Add(time.Minute)) {
		t.Error("a body is cut off that isn't silent any more")
	}
	if b.Used() != 200 {
		t.Errorf("%d bytes are used, those of two are left", b.Used())
	}
}

// Answers beyond the limit have no room. Once half of the limit is used, a connection may hold 1/32 of it.
func TestAnswers(t *testing.T) {
	const limit = 3200
	var a Answers
	a.SetLimit(limit)
	held := int64(0)
	has := func() int64 { return held }
	if !a.MayHold(limit/2, nil) || a.MayHold(limit/2+1, has) {
		t.Error("half of the limit is for anybody, and more isn't")
	}
	if !a.Take(limit/2) || a.Used() != limit/2 {
		t.Errorf("%d bytes are used", a.Used())
	}
	if held = 50; !a.MayHold(50, has) || a.MayHold(51, has) {
		t.Error("a connection may have 100 bytes")
	}
	if a.Take(limit/2+1) || a.Used() != limit/2 {
		t.Errorf("%d bytes are used after a refusal", a.Used())
	}
	a.Add(limit)
	if held = 0; a.MayHold(1, has) {
		t.Error("there is room over the limit")
	}
	var unlimited Answers
	unlimited.SetLimit(-1)
	if !unlimited.Take(1<<50) || !unlimited.MayHold(1<<30, nil) || unlimited.Crowded() {
		t.Error("without a limit there is no room")
	}
}

// While more than half of the budget is used, by answers and handlers that wait, clients have a tenth of their normal grace, but at least a second,
// and never more than their normal grace.
func TestCrowded(t *testing.T) {
	var a Answers
	a.SetLimit(4 * waiterCost)
	for _, test := range []struct{ grace, want time.Duration }{
		{time.Minute, 6 * time.Second}, {5 * time.Second, time.Second}, {time.Millisecond, time.Millisecond}, {-1, -1},
	} {
		limits := pace.Limits{Grace: test.grace, Rate: 7}
		if got := a.Limits(limits); got != limits {
			t.Errorf("%v, nothing waits: %v", test.grace, got)
		}
		a.Add(waiterCost + 1)
		a.Wait(1)
		if got := a.Limits(limits); !a.Crowded() || got.Grace != test.want || got.Rate != 7 {
			t.Errorf("%v, crowded: %v", test.grace, got)
		}
		a.Wait(-1)
		if a.Add(-waiterCost - 1); a.Crowded() || a.Waiting() != 0 {
			t.Errorf("%d bytes and %d handlers are left", a.Used(), a.Waiting())
		}
	}
}
