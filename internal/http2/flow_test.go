package http2

import (
	"math/rand/v2"
	"testing"
)

// RFC 9113, section 6.9.2: a new initial window changes all windows, possibly to below 0; section 6.9.1: no window exceeds 2^31-1.
func TestSendWindow(t *testing.T) {
	w := SendWindow(DefaultWindow)
	connection := SendWindow(100_000)
	Sent(&connection, &w, 60_000)
	if w != 5535 || connection != 40_000 {
		t.Fatalf("%d, %d", w, connection)
	}
	if !w.Adjust(16_384-DefaultWindow) || w != 16_384-60_000 {
		t.Fatalf("the window is %d", w)
	}
	if n := Sendable(connection, w, 10); n != 0 {
		t.Errorf("%d bytes may be sent", n)
	}
	if !w.Grow(43_616) || w != 0 || Sendable(connection, w, 10) != 0 || !w.Grow(1) || Sendable(connection, w, 10) != 1 {
		t.Errorf("the window is %d", w)
	}
	for _, test := range []struct {
		window SendWindow
		by     uint32
		ok     bool
	}{{0, maxWindow, true}, {1, maxWindow, false}, {maxWindow, 1, false}, {maxWindow, 0, true}, {-1, maxWindow, true}, {-maxWindow,
		maxWindow, true}} {
		w := test.window
		if ok := w.Grow(test.by); ok != test.ok || !ok && w != test.window {
			t.Errorf("%d grows by %d: %t, to %d", test.window, test.by, ok, w)
		}
		w = test.window
		if ok := w.Adjust(int32(test.by)); ok != test.ok || !ok && w != test.window {
			t.Errorf("%d changes by %d: %t, to %d", test.window, test.by, ok, w)
		}
	}
	// If the initial window changes from the largest size to 0, a window of which nothing was used becomes 0.
	if w = maxWindow; !w.Grow(0) || !w.Adjust(-maxWindow) || w != 0 {
		t.Errorf("%d", w)
	}
	Sent(&connection, &w, maxWindow)
	if !w.Adjust(0) || w != -maxWindow || Sendable(maxWindow, w, 1) != 0 {
		t.Errorf("%d", w)
	}
}

func TestSendable(t *testing.T) {
	for _, test := range []struct {
		connection, stream SendWindow
		n, want            int
	}{{100, 200, 300, 100}, {200, 100, 300, 100}, {200, 100, 50, 50}, {0, 5, 5, 0}, {5, 0, 5, 0}, {-5, 5, 5, 0}, {5, -5, 5, 0}, {5, 5, 0, 0},
		{1 << 30, 1 << 30, 1 << 20, MaxFrameSize}} {
		if got := Sendable(test.connection, test.stream, test.n); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}

// A window is credited in eighths of its size, and grows fourfold whenever a full window has been drained.
func TestReceiveWindowGrows(t *testing.T) {
	var w ReceiveWindow
	w.Open(DefaultWindow)
	credited, total := 0, 0
	var sizes []int32
	updates := 0
	for w.Size() < MaxReceiveWindow {
		if !w.Receive(1000) {
			t.Fatalf("after %d bytes, of which %d were credited", total, credited)
		}
		total += 1000
		n := w.Drain(1000, MaxReceiveWindow)
		if credited += int(n); n > 0 {
			updates++
		}
		if len(sizes) == 0 || sizes[len(sizes)-1] != w.Size() {
			sizes = append(sizes, w.Size())
		}
	}
	if len(sizes) != 5 || sizes[1] != 4*DefaultWindow || sizes[3] != 64*DefaultWindow || sizes[4] != MaxReceiveWindow {
		t.Errorf("the sizes are %v", sizes)
	}
	// Each size of the window is drained once: 64 KB, 256 KB, 1 MB and 4 MB.
	if total < 85*DefaultWindow || total > 85*DefaultWindow+10_000 || updates > 40 || updates < 20 {
		t.Errorf("%d bytes in %d updates", total, updates)
	}
	if left := int(MaxReceiveWindow) - (DefaultWindow + credited - total); left < 0 || left > MaxReceiveWindow/8 {
		t.Errorf("%d bytes aren't credited", left)
	}
}

// A window doesn't grow before a full window was drained. A window that exceeds the limit keeps its size.
func TestReceiveWindowLimit(t *testing.T) {
	var w ReceiveWindow
	w.Open(DefaultWindow)
	w.Receive(DefaultWindow)
	if w.Receive(1) {
		t.Error("a byte more than the window")
	}
	if n := w.Drain(DefaultWindow-1, MaxReceiveWindow); n != DefaultWindow-1 || w.Size() != DefaultWindow {
		t.Errorf("credit of %d, size %d", n, w.Size())
	}
	if n := w.Drain(1, MaxReceiveWindow); n != 3*DefaultWindow+1 || w.Size() != 4*DefaultWindow {
		t.Errorf("credit of %d, size %d", n, w.Size())
	}
	w.Open(1 << 20)
	w.Receive(1 << 20)
	if n := w.Drain(1<<20, DefaultWindow); n != 1<<20 || w.Size() != 1<<20 {
		t.Errorf("credit of %d, size %d", n, w.Size())
	}
}

// The window of a reader that is always behind doesn't grow, however much it reads. Once the reader has caught up, the window grows.
func TestReceiveWindowOfASlowReader(t *testing.T) {
	var w ReceiveWindow
	w.Open(DefaultWindow)
	w.Receive(1000)
	for range 1000 {
		w.Receive(1000)
		w.Drain(1000, MaxReceiveWindow)
	}
	if w.Size() != DefaultWindow || w.Undrained() != 1000 {
		t.Errorf("the size is %d, with %d bytes to be drained", w.Size(), w.Undrained())
	}
	if w.Drain(1000, MaxReceiveWindow); w.Size() != 4*DefaultWindow {
		t.Errorf("then the size is %d", w.Size())
	}
}

// The bytes that the client may send, those that were received but not drained, and those that were drained but not credited always add up
// to the window's size. When everything is drained, the client always has credit.
func TestReceiveWindowConserved(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		var w ReceiveWindow
		size := int32(DefaultWindow + random.IntN(1<<20))
		w.Open(size)
		allowed, undrained := int(size), 0 // as the client sees it
		for range 500 {
			n := random.IntN(1 + random.IntN(1<<17))
			if ok := w.Receive(n); ok != (n <= allowed) {
				t.Fatalf("seed %d: %d bytes of %d: %t", seed, n, allowed, ok)
			} else if ok {
				allowed, undrained = allowed-n, undrained+n
			}
			n = random.IntN(undrained + 1)
			if random.IntN(4) == 0 {
				n = undrained
			}
			undrained -= n
			allowed += int(w.Drain(n, 1<<21))
			if int(w.left) != allowed || w.Undrained() != undrained || allowed+undrained+int(w.owed) != int(w.size) || w.owed < 0 ||
				w.owed >= w.size/8 {
				t.Fatalf("seed %d: %+v, the client may send %d, %d are undrained", seed, w, allowed, undrained)
			}
			if undrained == 0 && allowed <= int(w.size)*7/8-8 {
				t.Fatalf("seed %d: the client may send %d, and nothing is left to be drained: %+v", seed, allowed, w)
			}
		}
	}
}

func BenchmarkReceiveWindow(b *testing.B) {
	var w ReceiveWindow
	w.Open(DefaultWindow)
	for b.Loop() {
		if !w.Receive(1000) {
			b.Fatal("full")
		}
		w.Drain(1000, MaxReceiveWindow)
	}
}
