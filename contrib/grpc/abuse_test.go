package grpcfilo_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/filohttp/filo"
	grpcfilo "github.com/filohttp/filo/contrib/grpc"
	"golang.org/x/net/http2"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
)

const unaryPath = "/grpc.testing.TestService/UnaryCall"

// bomb returns a message that is a gigabyte when it is decompressed.
func bomb(t *testing.T) string {
	const member = 16 << 20
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(make([]byte, member)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return frame(1, strings.Repeat(b.String(), 1<<30/member)) // a gzip stream may consist of several members
}

// politely calls the unary method repeatedly until ended is closed, and then once more.
func politely(t *testing.T, client testpb.TestServiceClient, ended <-chan struct{}) {
	t.Helper()
	for last := false; !last; {
		select {
		case <-ended:
			last = true
		default:
		}
		got, err := client.UnaryCall(within(t), &testpb.SimpleRequest{Payload: payload("polite")})
		if err != nil || string(got.Payload.Body) != "polite" {
			t.Fatalf("the polite client got %v, %v", got, err)
		}
	}
}

// A message that would decompress to a gigabyte uses only as much memory as the limit of a message, and doesn't delay a polite client.
func TestBombs(t *testing.T) {
	g := grpcfilo.New()
	testpb.RegisterTestServiceServer(g, service{unary: echo})
	address, message := start(t, &filo.Server{}, g), bomb(t)
	polite := testpb.NewTestServiceClient(connect(t, address))
	politely(t, polite, closed())
	const bombs = 8
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var all sync.WaitGroup
		for range bombs {
			c := dialHTTP2(t, address)
			all.Go(func() {
				s := c.Open(false, ":method", "POST", ":scheme", "http", ":path", unaryPath, ":authority", "filo.test",
					"content-type", "application/grpc", "grpc-encoding", "gzip")
				if _, err := s.Write([]byte(message)); err != nil {
					t.Error(err)
				}
				s.CloseWrite()
				if status, err := s.Status(); status != 200 || err != nil || s.Field("grpc-status") != "8" {
					t.Errorf("a bomb: %d, %v, status %q", status, err, s.Field("grpc-status"))
				}
			})
		}
		all.Wait()
	}()
	politely(t, polite, ended)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > bombs*64<<20 {
		t.Errorf("%d bombs took %d MB", bombs, used>>20)
	}
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// A client that resets its calls as fast as it can is disconnected. The handlers of its calls end. At no time do more handlers run than a
// connection may have streams, and a polite client isn't delayed.
func TestResets(t *testing.T) {
	const streams = 20
	var running, most atomic.Int64
	g := grpcfilo.New()
	testpb.RegisterTestServiceServer(g, service{unary: func(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("rude")) == 0 {
			return echo(ctx, in)
		}
		defer running.Add(-1)
		for now := running.Add(1); ; {
			if old := most.Load(); now <= old || most.CompareAndSwap(old, now) {
				break
			}
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	server := &filo.Server{HTTP2: filo.HTTP2Options{MaxConcurrentStreams: streams, MaxGlitches: 500}}
	address := start(t, server, g)
	polite := testpb.NewTestServiceClient(connect(t, address))
	rude, message, ended := dialHTTP2(t, address), []byte(request(t, "x")), make(chan struct{})
	goneAway := make(chan struct{})
	go func() {
		defer close(goneAway)
		if !rude.AwaitGoAway() {
			t.Error("the connection ended without GOAWAY")
		}
	}()
	go func() {
		defer close(ended)
		for range 100_000 {
			select {
			case <-goneAway:
				return
			default:
			}
			s := rude.Open(false, ":method", "POST", ":scheme", "http", ":path", unaryPath, ":authority", "filo.test",
				"content-type", "application/grpc", "rude", "1")
			if s.Send(message, true) != nil || s.Reset(http2.ErrCodeCancel) != nil {
				return
			}
		}
		t.Error("the server takes resets without end")
	}()
	politely(t, polite, ended)
	if most.Load() > streams {
		t.Errorf("%d handlers ran at once", most.Load())
	}
	if err := server.Shutdown(within(t)); err != nil || running.Load() != 0 {
		t.Errorf("%v, %d handlers are left", err, running.Load())
	}
}

// Streams of one connection whose handlers send at the same time neither block each other nor mix up their messages.
func TestManyStreams(t *testing.T) {
	c := serve(t, service{duplex: echoStream})
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			s, err := c.FullDuplexCall(within(t))
			for n := 0; err == nil && n < 100; n++ {
				want := fmt.Sprint(i, " ", n)
				if err = s.Send(&testpb.StreamingOutputCallRequest{Payload: payload(want)}); err != nil {
					break
				}
				var got *testpb.StreamingOutputCallResponse
				if got, err = s.Recv(); err == nil && string(got.Payload.Body) != want {
					err = fmt.Errorf("%q instead of %q", got.Payload.Body, want)
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
