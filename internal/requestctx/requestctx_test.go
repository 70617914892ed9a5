package requestctx

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// armings lists uses of a context, and whether each arms the context.
var armings = []struct {
	name string
	use  func(ctx context.Context)
	arms bool
}{
	{"Value", func(ctx context.Context) { ctx.Value("key") }, false},
	{"Deadline", func(ctx context.Context) { ctx.Deadline() }, false},
	{"WithValue", func(ctx context.Context) { context.WithValue(ctx, slog.LevelInfo, 1).Value("key") }, false},
	{"WithoutCancel", func(ctx context.Context) { ctx = context.WithoutCancel(ctx); ctx.Done(); ctx.Err(); context.Cause(ctx) }, false},
	{"Done", func(ctx context.Context) { ctx.Done() }, true},
	{"Err", func(ctx context.Context) { ctx.Err() }, true},
	{"Cause", func(ctx context.Context) { context.Cause(ctx) }, true},
	{"Done of one with a value", func(ctx context.Context) { context.WithValue(ctx, slog.LevelInfo, 1).Done() }, true},
	{"WithCancel", func(ctx context.Context) { _, cancel := context.WithCancel(ctx); cancel() }, true},
	{"WithTimeout", func(ctx context.Context) { _, cancel := context.WithTimeout(ctx, time.Hour); cancel() }, true},
	{"AfterFunc", func(ctx context.Context) { context.AfterFunc(ctx, func() {})() }, true},
}

// The context is armed when code asks for its end, by Done, by Err, or by deriving a context that can end, and not before.
func TestContextIsArmedWhenItsEndIsAskedFor(t *testing.T) {
	for _, use := range armings {
		r, w := New(context.Background(), nil, false), new(testWatcher)
		r.Watch(w)
		use.use(r)
		if armed := r.end.Load() != nil; armed != use.arms || w.watches != use.arms {
			t.Errorf("%s: armed %v, the client watched %v, want %v", use.name, armed, w.watches, use.arms)
		}
		r.Unwatch()
		if w.watches || r.IsWatchable() {
			t.Errorf("%s: the client is still watched", use.name)
		}
		r.Finish()
	}
}

// testWatcher is a Watcher whose StartWatch returns half and gone. watches says whether the watch is on.
type testWatcher struct{ watches, half, gone bool }

func (w *testWatcher) StartWatch(*Context) (half, gone bool) {
	w.watches = true
	return w.half, w.gone
}

func (w *testWatcher) EndWatch() { w.watches = false }

// A client that leaves at the deadline doesn't change the cause with which the context ends, whichever of the two events is handled first.
func TestClientThatLeavesAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			r := New(context.Background(), nil, false)
			deadline := time.Now().Add(time.Second)
			for range 8 { // these timers fire at the same time as the deadline's, some before it
				time.AfterFunc(time.Second, r.ClientGone)
			}
			r.SetDeadline(deadline)
			r.Done()
			time.Sleep(2 * time.Second)
			if cause := context.Cause(r); r.Err() != context.DeadlineExceeded || cause != context.DeadlineExceeded {
				t.Fatalf("Err is %v, the cause %v", r.Err(), cause)
			}
			r.Finish()
		}
	})
}

// If the client is gone, a context ends the same way whether it is armed or watched first.
func TestClientThatIsGone(t *testing.T) {
	for _, armedFirst := range []bool{false, true} {
		r := New(context.Background(), nil, false)
		if armedFirst {
			r.Done()
		}
		r.Watch(&testWatcher{gone: true})
		<-r.Done()
		if cause := context.Cause(r); cause != ErrClientGone || r.EndedBy() != ErrClientGone || r.Finish() != ErrClientGone {
			t.Errorf("armed first %t: the cause is %v", armedFirst, cause)
		}
	}
}

// A context that is armed after its request has ended is done at once. Arming fixes the deadline.
func TestEndedBefore(t *testing.T) {
	r := New(context.Background(), nil, false)
	if !r.SetDeadline(time.Now().Add(time.Hour)) {
		t.Error("the deadline is fixed too early")
	}
	if r.Finish(); r.Err() != context.Canceled {
		t.Errorf("Err is %v", r.Err())
	}
	if r.SetDeadline(time.Time{}) {
		t.Error("the deadline isn't fixed")
	}
}

// A context ends with the outer context, for the same cause, or with ErrClientGone if the outer server has seen the client leave.
func TestOuterContextEnds(t *testing.T) {
	ended := errors.New("ended")
	for carried, want := range map[bool]error{false: ended, true: ErrClientGone} {
		outer, cancel := context.WithCancelCause(context.Background())
		r := New(context.Background(), outer, carried)
		done := r.Done()
		cancel(ended)
		if <-done; context.Cause(r) != want {
			t.Errorf("carried %t: the cause is %v", carried, context.Cause(r))
		}
		r.Finish()
	}
}

// A client may receive the bytes of a write, and leave before that write returns. So if a write began before the client closed its sending side, the
// write's completion doesn't show that the client still reads.
func TestContextOfAClientThatLeavesDuringAWrite(t *testing.T) {
	tests := []struct {
		name   string
		before int           // beginnings and ends of writes before the client closes its sending side
		during []int         // beginnings and ends of writes in each second after that
		ends   time.Duration // when the context ends; 0: it doesn't end
	}{
		{"no write", 0, nil, 5 * time.Second},
		{"a write before", 2, nil, 5 * time.Second},
		{"a write that ends then", 1, []int{1}, 5 * time.Second},
		{"a write that began before and lasts", 1, []int{0, 0, 0, 0, 0, 0, 1}, 10 * time.Second},
		{"a write begins", 2, []int{0, 1}, 0},
		{"a write behind one that ends then", 1, []int{1, 1, 1}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := New(context.Background(), nil, false)
				r.Watch(new(testWatcher))
				done := r.Done()
				for range test.before {
					r.CountWrite()
				}
				r.ClientEnded(true)
				start, ended := time.Now(), make(chan time.Duration, 1)
				go func() {
					<-done
					ended <- time.Since(start)
				}()
				for _, n := range test.during {
					time.Sleep(time.Second / 2)
					for range n {
						r.CountWrite()
					}
					time.Sleep(time.Second / 2)
				}
				time.Sleep(time.Minute - time.Since(start))
				select {
				case after := <-ended:
					if after != test.ends {
						t.Errorf("the context ended after %v, want %v", after, test.ends)
					}
				default:
					if test.ends != 0 {
						t.Errorf("the context hasn't ended, want after %v", test.ends)
					}
				}
				r.Finish()
			})
		})
	}
}
