package grpcfilo_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	grpcfilo "github.com/filohttp/filo/contrib/grpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// TestNothingIsLeft makes calls of all kinds, which end in all possible ways, for half a second or for the duration in the environment variable
// FILO_STRESS. Afterwards no handler, goroutine or buffered byte is left.
func TestNothingIsLeft(t *testing.T) {
	duration := 500 * time.Millisecond
	if text := os.Getenv("FILO_STRESS"); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	var running atomic.Int64
	count := func() func() {
		running.Add(1)
		return func() { running.Add(-1) }
	}
	g := grpcfilo.New()
	testpb.RegisterTestServiceServer(g, service{
		unary: func(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			defer count()()
			if in.FillUsername {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return echo(ctx, in)
		},
		output: func(in *testpb.StreamingOutputCallRequest, s testpb.TestService_StreamingOutputCallServer) error {
			defer count()()
			for range 200 {
				if err := s.Send(&testpb.StreamingOutputCallResponse{Payload: in.Payload}); err != nil {
					return err
				}
			}
			return nil
		},
		input: func(s testpb.TestService_StreamingInputCallServer) error {
			defer count()()
			for size := 0; ; {
				in, err := s.Recv()
				if err == io.EOF {
					return s.SendAndClose(&testpb.StreamingInputCallResponse{AggregatedPayloadSize: int32(size)})
				} else if err != nil {
					return err
				}
				size += len(in.Payload.Body)
			}
		},
		duplex: func(s testpb.TestService_FullDuplexCallServer) error {
			defer count()()
			return echoStream(s)
		},
	})
	before := runtime.NumGoroutine()
	server := &filo.Server{}
	address := start(t, server, g)
	ctx, cancel := context.WithTimeout(context.Background(), duration+testTimeout)
	defer cancel()
	var calls atomic.Int64
	var conns []*grpc.ClientConn
	var all sync.WaitGroup
	end := time.Now().Add(duration)
	for range 3 {
		conn := connect(t, address)
		conns = append(conns, conn)
		c := testpb.NewTestServiceClient(conn)
		for first := range 4 {
			all.Go(func() {
				for n := first; time.Now().Before(end); n++ {
					if err := soakCall(ctx, c, n); err != nil {
						t.Errorf("call of kind %d: %v", n%soakKinds, err)
						return
					}
					calls.Add(1)
				}
			})
		}
	}
	all.Wait()
	for _, conn := range conns {
		conn.Close()
	}
	if err := server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	s := server.Stats()
	if running.Load() != 0 || s.BodiesBuffered != 0 || s.AnswersBuffered != 0 {
		t.Errorf("left are %d handlers, %d bytes of bodies and %d of answers", running.Load(), s.BodiesBuffered, s.AnswersBuffered)
	}
	left := runtime.NumGoroutine()
	for limit := time.Now().Add(testTimeout); left > before && time.Now().Before(limit); left = runtime.NumGoroutine() {
		time.Sleep(10 * time.Millisecond)
	}
	if left > before {
		t.Errorf("%d goroutines, and %d before", left, before)
	}
	t.Logf("%d calls", calls.Load())
}

const soakKinds = 7

// soakCall makes a call of the n-th kind.
func soakCall(ctx context.Context, c testpb.TestServiceClient, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // resets a stream that hasn't ended
	want := payload(strings.Repeat("x", 1+n*37%3000))
	same := func(got *testpb.Payload, err error) error {
		if err == nil && string(got.GetBody()) != string(want.Body) {
			err = fmt.Errorf("%d bytes instead of %d", len(got.GetBody()), len(want.Body))
		}
		return err
	}
	switch n % soakKinds {
	case 0, 1:
		var options []grpc.CallOption
		if n%soakKinds == 1 {
			options = append(options, grpc.UseCompressor(gzip.Name))
		}
		got, err := c.UnaryCall(ctx, &testpb.SimpleRequest{Payload: want}, options...)
		return same(got.GetPayload(), err)
	case 2:
		ctx, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		if _, err := c.UnaryCall(ctx, &testpb.SimpleRequest{FillUsername: true}); status.Code(err) != codes.DeadlineExceeded {
			return fmt.Errorf("beyond its deadline: %w", err)
		}
	case 3, 4:
		s, err := c.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{Payload: want})
		if err != nil {
			return err
		}
		for i := 0; ; i++ {
			got, err := s.Recv()
			if err == io.EOF && i == 200 || n%soakKinds == 4 && i == 10 { // the client leaves
				return nil
			}
			if err := same(got.GetPayload(), err); err != nil {
				return err
			}
		}
	case 5:
		s, err := c.StreamingInputCall(ctx)
		for i := 0; err == nil && i < 20; i++ {
			err = s.Send(&testpb.StreamingInputCallRequest{Payload: want})
		}
		if err != nil {
			return err
		}
		if got, err := s.CloseAndRecv(); err != nil || int(got.AggregatedPayloadSize) != 20*len(want.Body) {
			return fmt.Errorf("%v, %w", got, err)
		}
	case 6:
		s, err := c.FullDuplexCall(ctx)
		for i := 0; err == nil && i < 20; i++ {
			if err = s.Send(&testpb.StreamingOutputCallRequest{Payload: want}); err != nil {
				break
			}
			got, failed := s.Recv()
			err = same(got.GetPayload(), failed)
		}
		return err // the stream is still open, so cancel resets it
	}
	return nil
}
