// Package requestctx has the context of a request, which costs little as long as no code asks for its end. The package doesn't access requests: the
// server tells the context when the client may be watched, and provides the Watcher that watches it.
package requestctx

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/filohttp/filo/internal/clock"
	"github.com/filohttp/filo/internal/race"
	"github.com/filohttp/filo/internal/requestlog"
)

// ErrClientGone is the cause with which a context ends because the client left.
var ErrClientGone = errors.New("filo: client closed the connection")

// Watcher watches a client while a handler runs.
type Watcher interface {
	// StartWatch begins to watch the client, until EndWatch, and cancels the context when the client leaves. It reports half if the client has
	// already closed its sending side, and gone if the client has already left. Any goroutine that holds the context's mu may call StartWatch.
	StartWatch(r *Context) (half, gone bool)
	// EndWatch undoes StartWatch, if that was called, and the preparation for the watch. No goroutine calls StartWatch during EndWatch or afterwards.
	EndWatch()
}

// Context is a request's context. Most handlers only pass it to calls that read its values or never wait. So the server sets up
// nothing that could end the context until code asks for its end: by Done, by Err, or by deriving a context that can end. That arms
// the context.
//
// Any goroutine may arm the context at any time, although the connection belongs to its owner, the goroutine that runs the handler. These rules make
// that safe:
//
//   - While watcher is set, only a watch for the client may read the connection. The owner sets watcher when the whole body has arrived
//     (Watch), and clears it before it reads the connection itself, gives it away or ends the request (Unwatch).
//   - The goroutine that arms the context holds mu, and starts the watch if watcher is set. If watcher isn't set, the owner
//     starts the watch when it sets watcher. A watch does only what is safe while the handler writes.
//   - The owner clears watcher under mu, and then stops the watch if one was started. So while a goroutine holds mu and watcher is set,
//     the connection and its descriptor stay open.
//   - When the request ends, cause is set. A context that is armed later has already ended, with that cause.
type Context struct {
	base context.Context // the server's context, which ends when the server aborts its requests; immutable
	// outer provides the values of this context. When outer ends, this context ends. outer comes from Server.ConnContext or, if
	// carried is set, from a Transport; nil if there is none. Immutable.
	outer         context.Context
	outerDeadline time.Time // the deadline of outer; the zero time is none; immutable
	// end is nil until the context is armed. It is set under mu.
	end atomic.Pointer[armed]
	// log holds the attributes that a handler of package requestlog adds to log records; nil if there are none.
	log atomic.Pointer[requestlog.Attributes]
	// writes counts the beginnings and the ends of writes to the client, so it is odd during a write: see ClientEnded.
	writes  atomic.Uint32
	carried bool // another server received the request; immutable
	watched bool // the client is watched; guarded by mu

	mu race.Mutex[race.OfContext]
	// watcher is set while the client may be watched. Only the owner changes it, so the owner may read it without mu.
	watcher  Watcher
	deadline time.Time   // the zero time is none; guarded by mu, and fixed when the context is armed
	cause    error       // why the context ended before it was armed; context.Canceled once the request has ended; guarded by mu
	leaving  *time.Timer // the timer of the grace period after an early half-close, nil if there is none; guarded by mu
	// leaveOuter stops following outer; nil if outer can't end; guarded by mu.
	leaveOuter func() bool
	// WatchedSince is when the connection's loop began to watch the client.
	WatchedSince clock.Atomic[clock.Nanos]
}

// armed is the state of an armed context: a context of the standard library, and the functions that end it. It is immutable.
type armed struct {
	context.Context
	cancel    context.CancelCauseFunc
	stopTimer context.CancelFunc // releases the deadline's timer, if there is one
}

// New returns a context without a deadline of its own. The fields of Context explain the parameters.
func New(base, outer context.Context, carried bool) *Context {
	r := &Context{base: base, outer: outer, carried: carried}
	if outer != nil {
		r.outerDeadline, _ = outer.Deadline()
	}
	return r
}

// SetDeadline sets the deadline, or the outer context's if that is earlier. The zero time means no deadline. SetDeadline reports false if the context
// is armed, since the deadline is then fixed.
func (r *Context) SetDeadline(deadline time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end.Load() != nil {
		return false
	}
	r.deadline = Earlier(deadline, r.outerDeadline)
	return true
}

// Earlier returns the earlier of two deadlines. The zero time means no deadline.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Log returns the attributes that the context adds to log records, nil for none.
func (r *Context) Log() *requestlog.Attributes { return r.log.Load() }

// SetLog sets the attributes that the context adds to log records.
func (r *Context) SetLog(log *requestlog.Attributes) { r.log.Store(log) }

// Deadline implements context.Context.
func (r *Context) Deadline() (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deadline, !r.deadline.IsZero()
}

// Done implements context.Context.
func (r *Context) Done() <-chan struct{} { return r.arm().Done() }

// Err implements context.Context.
func (r *Context) Err() error { return r.arm().Err() }

// Value implements context.Context. Package context looks up causeKey to find the context that ends this one. That is the armed context, not outer.
func (r *Context) Value(key any) any {
	if key == causeKey {
		return r.arm().Value(key)
	}
	if _, ok := key.(requestlog.Key); ok {
		if log := r.log.Load(); log != nil {
			return log
		}
	}
	if r.outer != nil {
		return r.outer.Value(key)
	}
	return nil
}

// causeKey is the key with which package context finds the cancellable context inside another one, and its cause. Package context doesn't export the
// key, so keyRecorder records it.
var causeKey = func() any {
	var asked keyRecorder
	context.Cause(&asked)
	return asked.key
}()

// keyRecorder is a context that has ended, and records the key with which Value is called.
type keyRecorder struct {
	context.Context
	key any
}

func (r *keyRecorder) Err() error { return context.Canceled }

func (r *keyRecorder) Value(key any) any {
	r.key = key
	return nil
}

// arm arms the context, unless it is armed already.
func (r *Context) arm() *armed {
	if e := r.end.Load(); e != nil {
		return e
	}
	r.mu.Lock()
	e, first := r.end.Load(), false
	var half, gone bool
	if e == nil {
		e, first = r.newEndLocked(), r.cause == nil
		r.end.Store(e)
		if first && r.watcher != nil {
			r.watched = true
			half, gone = r.watcher.StartWatch(r)
		}
	}
	r.mu.Unlock()
	if first {
		r.clientFound(half, gone)
		r.followOuter(e)
	}
	return e
}

// newEndLocked creates the armed context, which has already ended if cause is set.
func (r *Context) newEndLocked() *armed {
	r.mu.AssertHeld()
	e, parent := new(armed), context.Background()
	if r.cause != context.Canceled { // the request hasn't ended
		parent = r.base
		if !r.deadline.IsZero() {
			parent, e.stopTimer = context.WithDeadline(parent, r.deadline)
		}
	}
	if e.Context, e.cancel = context.WithCancelCause(parent); r.cause != nil {
		e.cancel(r.cause)
	}
	return e
}

// followOuter makes the context end when outer ends. outer may be the program's code, so the caller must not hold mu.
func (r *Context) followOuter(e *armed) {
	outer := r.outer
	if outer == nil || outer.Done() == nil {
		return
	}
	end := func() {
		switch {
		case errors.Is(outer.Err(), context.DeadlineExceeded): // nothing to do: the context has the same deadline
		case r.carried:
			e.cancel(ErrClientGone)
		default:
			e.cancel(context.Cause(outer))
		}
	}
	leave := context.AfterFunc(outer, end)
	if outer.Err() != nil {
		end() // end the context now, since the goroutine of AfterFunc may run later
	}
	r.mu.Lock()
	over := r.cause != nil
	if !over {
		r.leaveOuter = leave
	}
	r.mu.Unlock()
	if over {
		leave()
	}
}

// Watch allows the context to watch the client, until Unwatch. Only the owner may call it, and only if IsWatchable is false.
func (r *Context) Watch(watcher Watcher) {
	var half, gone bool
	r.mu.Lock()
	r.watcher = watcher
	if r.end.Load() != nil {
		r.watched = true
		half, gone = watcher.StartWatch(r)
	}
	r.mu.Unlock()
	r.clientFound(half, gone)
}

// IsWatchable reports whether the client may be watched now. Only the owner may call it.
func (r *Context) IsWatchable() bool { return r.watcher != nil }

// Unwatch ends the watch, so that the owner can read the connection again. It doesn't end the context.
func (r *Context) Unwatch() {
	if r.watcher == nil {
		return
	}
	r.mu.Lock()
	watching := r.watcher
	r.watcher, r.watched = nil, false
	if r.leaving != nil {
		r.leaving.Stop()
		r.leaving = nil
	}
	r.mu.Unlock()
	watching.EndWatch()
}

// clientFound ends the context if StartWatch has found that the client is gone, or begins the grace period of a half-close.
func (r *Context) clientFound(half, gone bool) {
	switch {
	case gone:
		r.Cancel(ErrClientGone)
	case half:
		r.ClientEnded(true)
	}
}

// Cancel ends the context, unless it is armed and its deadline has passed. Then the deadline's timer ends it. A client that leaves after the answer
// of a time-out must not change the reason for which the context has ended.
func (r *Context) Cancel(cause error) {
	r.mu.Lock()
	e := r.end.Load()
	if e == nil && r.cause == nil {
		r.cause = cause
	}
	due := e != nil && e.stopTimer != nil && !time.Now().Before(r.deadline)
	r.mu.Unlock()
	if e != nil && !due {
		e.cancel(cause)
	}
}

// ClientGone ends the context because the client has left. It implements http2conn.Watcher.
func (r *Context) ClientGone() { r.Cancel(ErrClientGone) }

// EndedBy returns the cause with which the context has ended, or nil if it hasn't ended. A context that isn't armed doesn't notice that its
// deadline has passed or that the outer context has ended.
func (r *Context) EndedBy() error {
	r.mu.Lock()
	e, cause := r.end.Load(), r.cause
	r.mu.Unlock()
	if e != nil {
		return context.Cause(e)
	}
	return cause
}

// Finish ends the context at the end of its request. It returns the cause: context.Canceled, or an earlier cause if the context had ended before.
func (r *Context) Finish() (cause error) {
	r.mu.Lock()
	e, leave := r.end.Load(), r.leaveOuter
	if r.cause == nil {
		r.cause = context.Canceled
	}
	cause = r.cause
	r.leaveOuter = nil
	r.mu.Unlock()
	if e == nil {
		return cause
	}
	e.cancel(context.Canceled)
	if e.stopTimer != nil {
		e.stopTimer()
	}
	if leave != nil {
		leave()
	}
	return context.Cause(e)
}

const (
	// HalfCloseTime is how long after the watch's beginning a half-close still counts as early: the client sent it together with the request, but it
	// arrived in a separate packet.
	HalfCloseTime = 20 * time.Millisecond
	// halfCloseGrace is how long the context lasts after an early half-close. A client that waits for its answer and one that has left
	// look the same until the server sends something.
	halfCloseGrace = 5 * time.Second
)

// ClientEnded handles a client that has closed its sending side. Normally such a client has left, and the context ends. But after an early half-close
// the client may be waiting for its answer. Then the context ends after the grace period, unless a write begins during that time: if the client has
// left, it answers the write with a reset, which ends the context. A write that began before the half-close proves nothing when it completes, since
// the client may have received its bytes and then left.
func (r *Context) ClientEnded(early bool) {
	r.mu.Lock()
	if !r.watched || r.leaving != nil {
		r.mu.Unlock()
		return
	}
	if early {
		begun := r.writesBegun()
		var timer *time.Timer
		timer = time.AfterFunc(halfCloseGrace, func() {
			r.mu.Lock()
			left := r.leaving == timer && r.writesBegun() == begun
			if left && r.writes.Load()%2 != 0 {
				left = false
				timer.Reset(halfCloseGrace) // a write that began before the half-close is still in progress
			}
			r.mu.Unlock()
			if left {
				r.Cancel(ErrClientGone)
			}
		})
		r.leaving = timer
	}
	r.mu.Unlock()
	if !early {
		r.Cancel(ErrClientGone)
	}
}

// CountWrite counts the beginning or the end of a write to the client.
func (r *Context) CountWrite() { r.writes.Add(1) }

// writesBegun returns how many writes have begun.
func (r *Context) writesBegun() uint32 { return (r.writes.Load() + 1) / 2 }
