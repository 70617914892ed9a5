package http3filo

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo/internal/clock"
)

// The stream gets a deadline only when a wait must end. That deadline ends the wait.
func TestDeadline(t *testing.T) {
	const never = -1
	type step struct {
		at    int           // in seconds
		begin time.Duration // the limit of a wait that begins; 0 is no limit
		until int           // if not 0, no wait begins, but the handler sets its deadline: in seconds, or -1 for none
		stop  bool          // if set, no wait begins, but the request ends
	}
	for _, test := range []struct {
		name  string
		steps []step
		want  int // when the stream's deadline passes, in seconds
	}{
		{"a wait's limit", []step{{begin: 5 * time.Second}}, 5},
		{"no limit", []step{{}}, never},
		{"the next wait has its own limit", []step{{begin: 5 * time.Second}, {at: 3, begin: 5 * time.Second}}, 8},
		{"... which may be earlier", []step{{begin: 9 * time.Second}, {at: 1, begin: 2 * time.Second}}, 3},
		{"... or none", []step{{begin: 5 * time.Second}, {at: 3}}, never},
		{"many waits", []step{{begin: 5 * time.Second}, {at: 4, begin: 5 * time.Second}, {at: 8, begin: 5 * time.Second}, {at: 12, begin: 5 * time.Second}}, 17},
		{"a limit that has passed", []step{{at: 1, begin: 1}}, 1},
		{"the handler's deadline comes first", []step{{until: 4}, {at: 1, begin: 5 * time.Second}}, 4},
		{"... or second", []step{{until: 9}, {at: 1, begin: 5 * time.Second}}, 6},
		{"... or alone", []step{{until: 9}, {at: 1}}, 9},
		{"it is set while the stream waits", []step{{begin: 9 * time.Second}, {at: 1, until: 2}}, 2},
		{"... to the past", []step{{begin: 9 * time.Second}, {at: 3, until: 2}}, 3},
		{"it is taken back", []step{{until: 2}, {at: 1, until: -1}, {at: 1}}, never},
		{"a request that has ended", []step{{begin: 5 * time.Second}, {at: 4, stop: true}}, never},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				now := func() int { return int(time.Since(start) / time.Second) }
				passed := never
				d := deadline{clock: new(clock.Coarse), set: func(at time.Time) error {
					switch {
					case at.IsZero():
						passed = never
					case passed == never && !at.After(time.Now()):
						passed = now()
					}
					return nil
				}}
				for _, s := range test.steps {
					time.Sleep(time.Duration(s.at-now()) * time.Second)
					synctest.Wait()
					switch exact := d.clock.Exact(); {
					case s.stop:
						d.stop()
					case s.until != 0:
						at := time.Time{}
						if s.until > 0 {
							at = start.Add(time.Duration(s.until) * time.Second)
						}
						d.setUntil(at)
					default:
						due := clock.Time(0)
						if s.begin != 0 {
							due = exact.Add(s.begin)
						}
						d.begin(due, exact)
					}
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if passed != test.want {
					t.Errorf("the deadline passed after %d s, want %d", passed, test.want)
				}
			})
		})
	}
}

// A deadline that has ended a wait doesn't end the next wait. If the limit moves to a later time, the timer isn't reset at once, but when it fires.
func TestDeadlineBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sets []time.Time
		d := deadline{clock: new(clock.Coarse), set: func(at time.Time) error {
			sets = append(sets, at)
			return nil
		}}
		wait := func(limit, lasts time.Duration) {
			now := d.clock.Exact()
			d.begin(now.Add(limit), now)
			time.Sleep(lasts)
			synctest.Wait()
		}
		for range 1000 {
			wait(time.Minute, time.Second)
		}
		if len(sets) != 0 {
			t.Fatalf("waits that end in time set the stream's deadline: %v", sets)
		}
		wait(time.Second, 2*time.Second)
		wait(time.Minute, time.Second)
		if len(sets) != 2 || !sets[0].Equal(clock.Past) || !sets[1].IsZero() {
			t.Errorf("the stream's deadline was set to %v", sets)
		}
		d.setNow(time.Now().Add(time.Hour))
		wait(time.Minute, time.Second)
		if len(sets) != 4 || !sets[3].IsZero() {
			t.Errorf("a deadline that isn't a wait's stays: %v", sets)
		}
		d.stop()
	})
}
