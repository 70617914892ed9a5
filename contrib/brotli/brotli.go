package brotli

import (
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/andybalholm/brotli/matchfinder"
	"github.com/filohttp/filo/middleware"
)

// Options configures Coding.
type Options struct {
	// Level is from 1, the fastest, to 4; 0 means 1.
	Level int
}

// Coding returns the content coding br for [middleware.CompressOptions].Codings. Pass at most one Options. Coding panics if the level doesn't
// exist.
func Coding(options ...Options) middleware.Coding {
	if len(options) > 1 {
		panic(fmt.Sprintf("brotli: Coding: %d options instead of one", len(options)))
	}
	level := 1
	for _, o := range options {
		if o.Level < 0 || o.Level > 4 {
			panic("brotli: Coding: Level must be 1 to 4")
		}
		level = max(level, o.Level)
	}
	return middleware.Coding{Name: "br", New: func() middleware.Encoder { return newEncoder(level) }}
}

// maxHeld is the maximum size of the first part of a body that an encoder holds back.
const maxHeld = 1 << 20

// streamWindow is the base-2 logarithm of a stream's window, which determines how much memory an open stream takes.
const streamWindow = 18

// encoder combines two encoders. The field whole is the faster one. It can't flush, so it encodes only bodies that are written by a single
// Write. The field stream encodes bodies that are written in parts.
type encoder struct {
	level  int
	dest   io.Writer
	whole  *matchfinder.Writer
	stream *brotli.Writer // nil until the first stream
	// held is the first part of a body. It is held back until the next call shows whether it is the whole body.
	held      []byte
	streaming bool // the field stream encodes the body
}

func newEncoder(level int) *encoder {
	return &encoder{level: level, whole: brotli.NewWriterV2(nil, level)}
}

// Reset implements middleware.Encoder.
func (e *encoder) Reset(w io.Writer) {
	e.dest, e.held = w, e.held[:0]
	e.whole.Reset(w)
	if e.streaming {
		e.stream.Reset(nil)
		e.streaming = false
	}
}

// Write implements middleware.Encoder.
func (e *encoder) Write(p []byte) (int, error) {
	if !e.streaming {
		if len(e.held) == 0 && len(p) <= maxHeld {
			e.held = append(e.held, p...)
			return len(p), nil
		}
		if err := e.beginStream(); err != nil {
			return 0, err
		}
	}
	return e.stream.Write(p)
}

func (e *encoder) beginStream() error {
	if e.stream == nil {
		// Level 1 of this encoder makes larger answers than gzip.
		e.stream = brotli.NewWriterOptions(e.dest, brotli.WriterOptions{Quality: e.level + 1, LGWin: streamWindow})
	} else {
		e.stream.Reset(e.dest)
	}
	e.streaming = true
	_, err := e.stream.Write(e.held)
	e.held = e.held[:0]
	return err
}

// Flush implements middleware.Encoder.
func (e *encoder) Flush() error {
	if !e.streaming {
		if err := e.beginStream(); err != nil {
			return err
		}
	}
	return e.stream.Flush()
}

// Close implements middleware.Encoder.
func (e *encoder) Close() error {
	if e.streaming {
		return e.stream.Close()
	}
	if _, err := e.whole.Write(e.held); err != nil {
		return err
	}
	return e.whole.Close()
}
