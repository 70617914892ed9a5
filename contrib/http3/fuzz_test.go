package http3filo_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/filohttp/filo"
)

// Whatever bytes a client sends on a request's stream, it gets an answer, a reset, or a connection error for a violation of the protocol. The
// server continues to work.
func FuzzRequest(f *testing.F) {
	for _, each := range requests {
		f.Add(each.bytes)
	}
	s := serve(f, &filo.Server{Handler: answers, HTTP2: filo.HTTP2Options{MaxGlitches: -1}}, nil)
	q, polite := s.raw(f, nil), s.raw(f, nil)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 60<<10 {
			return // more than the stream's initial window, which the server needn't extend
		}
		if q.Context().Err() != nil {
			var err error
			if q, err = s.dial(context.Background(), nil); err != nil {
				t.Fatal(err)
			}
		}
		stream := open(t, q, b)
		stream.Close()
		switch got := outcome(t, stream); {
		case strings.HasPrefix(got, "connection"):
			if !slices.Contains([]string{frameError, unexpected, badBlock}, got) {
				t.Error(got)
			}
			<-q.Context().Done()
		case strings.HasPrefix(got, "stream"):
			if got != badMessage && got != "stream 0x10d" && got != "stream 0x102" {
				t.Error(got)
			}
		case got < "100" || got >= "600":
			t.Error(got)
		}
		stream = open(t, polite, asks("GET", "/text"))
		stream.Close()
		if got := outcome(t, stream); got != hello {
			t.Error(got)
		}
	})
}
