package brotli_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	abrotli "github.com/andybalholm/brotli"
	"github.com/filohttp/filo/contrib/brotli"
	"github.com/klauspost/compress/gzip"
)

func decoded(t *testing.T, b []byte) []byte {
	t.Helper()
	text, err := io.ReadAll(abrotli.NewReader(bytes.NewReader(b)))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// An encoder encodes one body after another, however the bodies are split into writes, and wherever they are flushed or abandoned. The bytes
// before a Flush can be decoded at once.
func TestEncoder(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	text := make([]byte, 2<<20)
	for i := range text {
		text[i] = byte('a' + random.IntN(4))
	}
	for level := range 5 {
		e := brotli.Coding(brotli.Options{Level: level}).New()
		for range 12 {
			var out bytes.Buffer
			var body []byte
			e.Reset(&out)
			ended, first := false, 0
			if random.IntN(4) == 0 {
				first = 1<<20 + 1 // more than an encoder holds
			}
			for part := range random.IntN(4) {
				size := []int{0, 1, 100, 70_000}[random.IntN(4)]
				if part == 0 && first > 0 {
					size = first
				}
				at := random.IntN(len(text) - size)
				part := bytes.Clone(text[at : at+size])
				if n, err := e.Write(part); n != size || err != nil {
					t.Fatal(n, err)
				}
				clear(part) // the caller may reuse it
				body = append(body, text[at:at+size]...)
				if random.IntN(3) > 0 {
					continue
				}
				if err := e.Flush(); err != nil {
					t.Fatal(err)
				}
				sofar := make([]byte, len(body))
				if _, err := io.ReadFull(abrotli.NewReader(bytes.NewReader(out.Bytes())), sofar); err != nil || !bytes.Equal(sofar, body) {
					t.Fatalf("level %d: of %d bytes that were flushed: %v", level, len(body), err)
				}
			}
			if random.IntN(4) == 0 {
				e.Reset(nil) // the answer is abandoned
				ended = true
			} else if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			if !ended && !bytes.Equal(decoded(t, out.Bytes()), body) {
				t.Fatalf("level %d: a body of %d bytes came out as another one", level, len(body))
			}
		}
	}
}

type broken struct{}

var errBroken = errors.New("broken")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// An error of the connection is returned to the caller, and the encoder can be used for the next body.
func TestEncoderErrors(t *testing.T) {
	e := brotli.Coding().New()
	for _, use := range []func() error{
		e.Close,
		func() error { return errors.Join(e.Flush(), e.Close()) },
	} {
		e.Reset(broken{})
		e.Write([]byte("text"))
		if err := use(); !errors.Is(err, errBroken) {
			t.Errorf("%v", err)
		}
		var out bytes.Buffer
		e.Reset(&out)
		e.Write([]byte("text"))
		if err := e.Close(); err != nil || string(decoded(t, out.Bytes())) != "text" {
			t.Errorf("the next body: %q, %v", out.Bytes(), err)
		}
	}
}

func TestOptions(t *testing.T) {
	for name, options := range map[string][]brotli.Options{"level 5": {{Level: 5}}, "a negative level": {{Level: -1}}, "two": {{}, {}}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			brotli.Coding(options...)
		}()
	}
}

// document is JSON of 18 KB.
func document() []byte {
	b := []byte("[")
	for i := range 130 {
		b = fmt.Appendf(b, `{"id":%d,"Name":"Item %d","Description":"The description of item %d, of %d letters","Price":%d.%d,"Tags":["a%d","b","c"],"InStock":%t},`,
			i, i, i, i*7919%1000, i*7919%100, i%100, i%7, i%3 == 0)
	}
	return append(b, "{}]"...)
}

// BenchmarkCoding compares the levels with gzip: see the package comment.
func BenchmarkCoding(b *testing.B) {
	body := document()
	zipper, err := gzip.NewWriterLevel(nil, 5)
	if err != nil {
		b.Fatal(err)
	}
	run := func(name string, e interface {
		io.WriteCloser
		Reset(io.Writer)
	}, parts int) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var out bytes.Buffer
			for b.Loop() {
				out.Reset()
				e.Reset(&out)
				for part := range parts {
					e.Write(body[part*len(body)/parts : (part+1)*len(body)/parts])
				}
				e.Close()
			}
			b.ReportMetric(float64(out.Len()), "bytes")
		})
	}
	run("gzip", zipper, 1)
	for level := 1; level <= 4; level++ {
		e := brotli.Coding(brotli.Options{Level: level}).New()
		run(fmt.Sprintf("br-%d", level), e, 1)
		run(fmt.Sprintf("br-%d-stream", level), e, 2)
	}
}
