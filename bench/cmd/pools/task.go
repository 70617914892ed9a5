package main

import "time"

// kind is a kind of task.
type kind struct {
	name string

	// lasts is about how long one takes.
	lasts time.Duration

	// sleeps says that it needs no processor meanwhile.
	sleeps bool

	// task makes the function, on a machine that makes so many loops of spin in a microsecond.
	task func(loops int) func()
}

var kinds = []*kind{
	{name: "empty", task: func(int) func() { return func() {} }},
	{name: "1us", lasts: time.Microsecond, task: spinning(1)},
	{name: "10us", lasts: 10 * time.Microsecond, task: spinning(10)},
	{name: "sleep", lasts: time.Millisecond, sleeps: true, task: sleeping(time.Millisecond)},
	{name: "sleep10", lasts: 10 * time.Millisecond, sleeps: true, task: sleeping(10 * time.Millisecond)},
	{name: "deep", lasts: time.Microsecond, task: func(int) func() { return func() { deep(frames - 1) } }},
}

func findKind(name string) *kind {
	for _, k := range kinds {
		if k.name == name {
			return k
		}
	}
	return nil
}

func kindNames() []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	return names
}

func spinning(microseconds int) func(loops int) func() {
	return func(loops int) func() {
		return func() { _ = spin(microseconds * loops) }
	}
}

func sleeping(d time.Duration) func(loops int) func() {
	return func(int) func() {
		return func() { time.Sleep(d) }
	}
}

// spin computes, so that a task takes the same work however often it is interrupted. A loop that reads the clock would
// take less when another thread has the processor. It isn't inlined, so that its loops stay though nobody asks for x.
//
//go:noinline
func spin(loops int) uint32 {
	x := uint32(1)
	for range loops {
		x = x*1664525 + 1013904223
	}
	return x
}

// frames is how many frames of a kilobyte the deep task has: 16 KB, eight times a new goroutine's stack.
const frames = 16

//go:noinline
func deep(n int) byte {
	var frame [1000]byte
	frame[n] = byte(n)
	if n == 0 {
		return frame[0]
	}
	return deep(n-1) + frame[n]
}

// calibrate returns how many loops of spin take a microsecond, by the fastest of several tries.
func calibrate() (loops int) {
	const tries, length = 20, 1_000_000
	fastest := time.Duration(1<<63 - 1)
	for range tries {
		begin := time.Now()
		_ = spin(length)
		fastest = min(fastest, time.Since(begin))
	}
	return max(1, int(length*time.Microsecond/max(1, fastest)))
}
