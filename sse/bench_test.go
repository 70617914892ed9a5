package sse_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/sse"
)

func BenchmarkEventAppendTo(b *testing.B) {
	e := sse.Event{ID: "17", Type: "add", Data: strings.Repeat("some text\n", 10)}
	var buffer []byte
	b.ReportAllocs()
	for b.Loop() {
		buffer, _ = e.AppendTo(buffer[:0])
	}
}

// BenchmarkPublish measures an event to all subscribers of a topic, who are in the same process. It ends when they have read all but the
// last few events. ns/delivery is the time for one subscriber.
func BenchmarkPublish(b *testing.B) {
	const window = 8
	for _, subscribers := range []int{1, 100, 2000} {
		b.Run(fmt.Sprint(subscribers), func(b *testing.B) {
			hub := sse.NewHub(sse.HubOptions{MaxQueueBytes: 64 << 20})
			defer hub.Close()
			address := benchServe(b, &filo.Server{Handler: serveTopics(hub), Logger: quiet})
			var received atomic.Int64
			for range subscribers {
				benchSubscribe(b, address, &received)
			}
			poll(b, "the subscribers", func() bool { return hub.Stats().Subscribers == subscribers })
			event := sse.Event{Data: strings.Repeat("x", 100) + benchMark}
			published := 0
			b.ReportAllocs()
			for b.Loop() {
				if _, err := hub.Publish("a", event); err != nil {
					b.Fatal(err)
				}
				for published++; received.Load() < int64((published-window)*subscribers); {
					time.Sleep(10 * time.Microsecond)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(subscribers), "ns/delivery")
		})
	}
}

// BenchmarkPublishAlone measures publishing an event without subscribers, which is only stored in the history.
func BenchmarkPublishAlone(b *testing.B) {
	hub := sse.NewHub()
	defer hub.Close()
	event := sse.Event{Data: strings.Repeat("x", 100)}
	b.ReportAllocs()
	for b.Loop() {
		hub.Publish("a", event)
	}
}

func benchServe(b *testing.B, s *filo.Server) (address string) {
	ln, err := s.Listen("127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go s.Serve(ln)
	b.Cleanup(func() { s.Shutdown(context.Background()) })
	return ln.Addr().String()
}

// benchMark occurs exactly once in each event.
const benchMark = "~"

// benchSubscribe subscribes to the topic, and counts its events.
func benchSubscribe(b *testing.B, address string, received *atomic.Int64) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	io.WriteString(conn, "GET /topics/a HTTP/1.1\r\nHost: filo.test\r\n\r\n")
	go func() {
		buffer := make([]byte, 4<<10)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				return
			}
			received.Add(int64(bytes.Count(buffer[:n], []byte(benchMark))))
		}
	}()
}
