package debug

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/pprof/profile"
)

func take(t testing.TB, named *pprof.Profile) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := named.WriteTo(&b, 0); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sum adds up the first values of the samples that have a name ending in suffix in their stack, or in their labels.
func sum(p *profile.Profile, suffix string) (sum int64) {
	for _, s := range p.Sample {
		var names []string
		for _, location := range s.Location {
			for _, line := range location.Line {
				names = append(names, line.Function.Name)
			}
		}
		for _, texts := range s.Label {
			names = append(names, texts...)
		}
		if slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, suffix) }) {
			sum += s.Value[0]
		}
	}
	return sum
}

func park(started *sync.WaitGroup, until chan struct{})      { started.Done(); <-until }
func parkOther(started *sync.WaitGroup, until chan struct{}) { started.Done(); <-until }

// In a difference, new samples are positive, removed samples are negative, and unchanged ones are left out.
func TestSubtract(t *testing.T) {
	goroutines := pprof.Lookup("goroutine")
	first, second, third := make(chan struct{}), make(chan struct{}), make(chan struct{})
	defer close(third)
	var started sync.WaitGroup
	start := func(n int, label string, f func(*sync.WaitGroup, chan struct{}), until chan struct{}) {
		started.Add(n)
		for range n {
			go pprof.Do(context.Background(), pprof.Labels("kind", label), func(context.Context) { f(&started, until) })
		}
		started.Wait()
	}
	start(3, "goes", parkOther, first)
	before := take(t, goroutines)
	close(first)
	start(5, "comes", park, second)
	defer close(second)
	start(2, "stays", park, third)
	var middle []byte
	for going := int64(1); going > 0; { // a goroutine that has returned from f is in the profile until it has ended
		middle = take(t, goroutines)
		p, err := profile.ParseData(middle)
		if err != nil {
			t.Fatal(err)
		}
		going = sum(p, "goes")
	}

	difference, err := subtract(before, middle, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.ParseData(difference)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"comes": 5, "stays": 2, "goes": -3, "debug.park": 7, "debug.parkOther": -3, "debug.TestSubtract": 0} {
		if got := sum(p, name); got != want {
			t.Errorf("%s: %d goroutines, want %d", name, got, want)
		}
	}
	for _, s := range p.Sample {
		if !slices.ContainsFunc(s.Value, func(v int64) bool { return v != 0 }) {
			t.Error("a sample of nothing was kept")
		}
	}

	// The difference between a profile and itself is empty.
	difference, err = subtract(middle, middle, 0)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = profile.ParseData(difference); err != nil || len(p.Sample) > 0 {
		t.Errorf("a profile less itself has %d samples, %v", len(p.Sample), err)
	}
}

var kept [][]byte

func allocate(n int) {
	for range n {
		kept = append(kept, make([]byte, 1<<20))
	}
}

// Allocations before the first profile don't count, and a label keeps allocations of different sizes apart.
func TestSubtractAllocations(t *testing.T) {
	collect := func() { // the profile contains an allocation only after two collections
		runtime.GC()
		runtime.GC()
	}
	allocate(7)
	collect()
	before := take(t, pprof.Lookup("allocs"))
	allocate(20)
	collect()
	after := take(t, pprof.Lookup("allocs"))
	kept = nil
	difference, err := subtract(before, after, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.ParseData(difference)
	if err != nil {
		t.Fatal(err)
	}
	// The profile samples one allocation per 512 KB, so it has nearly every one of these of 1 MB, scaled to about the true number.
	if got := sum(p, "debug.allocate"); got < 15 || got > 30 {
		t.Errorf("%d allocations, want about 20", got)
	}
}

// Bytes that aren't a profile, or only a part of one, yield an error and never a panic.
func FuzzSubtract(f *testing.F) {
	valid := take(f, pprof.Lookup("threadcreate"))
	reader, err := gzip.NewReader(bytes.NewReader(valid))
	if err != nil {
		f.Fatal(err)
	}
	message, err := io.ReadAll(reader)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(message)
	f.Add(message[:len(message)/2])
	f.Fuzz(func(t *testing.T, message []byte) {
		var b bytes.Buffer
		writer, _ := gzip.NewWriterLevel(&b, gzip.NoCompression)
		writer.Write(message)
		writer.Close()
		for _, pair := range [][2][]byte{{valid, b.Bytes()}, {b.Bytes(), valid}} {
			difference, err := subtract(pair[0], pair[1], time.Second)
			if err != nil {
				continue
			}
			if _, err := profile.ParseData(difference); err != nil {
				t.Errorf("the difference: %v", err)
			}
		}
	})
}
