package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/filohttp/filo/internal/conformance"
)

// resets ends its connection with a TCP reset, in a random state.
func resets(v *visit) error {
	v.abandon()
	v.reset()
	return nil
}

// leaves closes its connection in a random state.
func leaves(v *visit) error {
	v.abandon()
	return nil
}

// abandon sends a part of some requests, and reads a part of the answers.
func (v *visit) abandon() {
	var b []byte
	switch v.random.IntN(5) {
	case 0:
		b = encode(v.upload(largeBody))
	case 1:
		b = encode(v.content(largeBody), v.stream(largeBody))
	case 2:
		b = encode(v.call("/context"), v.call("/sleep"))
	default:
		b = encode(v.some(4)...)
	}
	if v.random.IntN(3) > 0 {
		b = b[:v.random.IntN(len(b)+1)]
	}
	v.Write(b)
	if v.random.IntN(2) == 0 {
		v.sleep(8 * time.Millisecond)
	}
	if v.random.IntN(2) == 0 {
		v.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		io.CopyN(io.Discard, v, v.random.Int64N(largeBody/2))
	}
	v.count.done.Add(1)
}

// watchedResets resets a connection whose handler waits for this reset.
func watchedResets(v *visit) error {
	v.Write(encode(v.call("/gone")))
	v.sleep(30 * time.Millisecond)
	v.reset()
	v.count.done.Add(1)
	return nil
}

// refused holds requests that get an error, after which the server ends the connection: those of the conformance table, and one whose body is
// too large.
var refused = func() [][]byte {
	requests := [][]byte{[]byte("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n")}
	for _, c := range conformance.Table() {
		if strings.HasPrefix(c.Raw, "PRI ") {
			continue // the server rightly takes it for the beginning of HTTP/2's preface
		}
		if c.Then == conformance.Closes && !c.HalfClose && !c.May100 && len(c.Want) == 1 && c.Want[0].Status >= 400 {
			requests = append(requests, []byte(c.Raw))
		}
	}
	return requests
}()

// garbage sends bytes that aren't valid HTTP. The server may answer with an error, and must end the connection.
func garbage(v *visit) error {
	var before []*request
	if v.random.IntN(2) == 0 {
		before = v.some(3)
	}
	bad := v.garble()
	behind := v.call("/hello") // the server must not read a request after the invalid bytes
	if err := v.exchangeAs(slices.Concat(encode(before...), bad, encode(behind)), before...); err != nil {
		return err
	}
	if err := v.refusal(); err != nil {
		return fmt.Errorf("after %.100q: %w", bad, err)
	}
	return nil
}

// garble returns a request that the server must refuse, or random bytes that can't begin a request.
func (v *visit) garble() []byte {
	if v.random.IntN(2) == 0 {
		return refused[v.random.IntN(len(refused))]
	}
	b := make([]byte, 2+v.random.IntN(500))
	for i := range b {
		b[i] = byte(v.random.Uint32())
	}
	b[0] |= 0x80
	return append(b, "\r\n\r\n"...)
}

// silence sends an incomplete head, or nothing, and waits until the server closes the connection.
func silence(v *visit) error {
	b := encode(v.call("/hello"))
	v.Write(b[:v.random.IntN(len(b))])
	return v.refusal()
}

// refusal reads until the connection ends, which must happen soon. The server may only send an error before.
func (v *visit) refusal() error {
	b, err := io.ReadAll(v.reader)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return hang(fmt.Errorf("the connection isn't closed after %v; received: %.500q", v.run.patience, b))
	case err != nil && !errors.Is(err, syscall.ECONNRESET):
		return err
	case len(b) > 0 && !bytes.HasPrefix(b, []byte("HTTP/1.1 4")) && !bytes.HasPrefix(b, []byte("HTTP/1.1 5")):
		return fmt.Errorf("the answer isn't an error: %.500q", b)
	case bytes.Count(b, []byte("\r\nDate: ")) > 1:
		return fmt.Errorf("something comes behind the error: %.500q", b)
	}
	v.count.done.Add(1)
	return nil
}
