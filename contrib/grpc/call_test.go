package grpcfilo_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/filohttp/filo"
	grpcfilo "github.com/filohttp/filo/contrib/grpc"
	"github.com/filohttp/filo/internal/tcptest"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding/gzip"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Both sides can send metadata. Binary metadata may contain any bytes. Fields of the protocol never become metadata.
func TestMetadata(t *testing.T) {
	var got metadata.MD
	c := serve(t, service{unary: func(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		got, _ = metadata.FromIncomingContext(ctx)
		if method, _ := grpc.Method(ctx); method != "/grpc.testing.TestService/UnaryCall" {
			t.Errorf("the method is %q", method)
		}
		for _, err := range []error{
			grpc.SetHeader(ctx, metadata.Pairs("one", "1", "raw-bin", "\x00\xff")),
			grpc.SetHeader(ctx, metadata.Pairs("one", "2", "grpc-status", "7", "content-type", "x")),
			grpc.SetTrailer(ctx, metadata.Pairs("after", "a", "after-bin", "\x01")),
			grpc.SetTrailer(ctx, metadata.Pairs("after", "b")),
			grpc.SendHeader(ctx, metadata.Pairs("two", "3")),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		for name, err := range map[string]error{
			"a second SendHeader":   grpc.SendHeader(ctx, nil),
			"SetHeader behind it":   grpc.SetHeader(ctx, metadata.Pairs("late", "1")),
			"an invalid name":       grpc.SetTrailer(ctx, metadata.MD{"Upper": {"1"}}),
			"an invalid value":      grpc.SetTrailer(ctx, metadata.Pairs("a", "\n")),
			"an invalid empty name": grpc.SetTrailer(ctx, metadata.MD{"": {"1"}}),
		} {
			if status.Code(err) != codes.Internal {
				t.Errorf("%s: %v", name, err)
			}
		}
		return echo(ctx, in)
	}})
	var header, trailer metadata.MD
	ctx := metadata.AppendToOutgoingContext(within(t), "mine", "x", "mine", "y", "mine-bin", "\xfe\x00", "empty", "")
	if _, err := c.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Header(&header), grpc.Trailer(&trailer)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		md   metadata.MD
		name string
		want string
	}{
		{got, "mine", `["x" "y"]`}, {got, "mine-bin", `["\xfe\x00"]`}, {got, "empty", `[""]`}, {got, "te", `[]`}, {got, "grpc-timeout", `[]`},
		{got, "content-type", `["application/grpc"]`}, {got, "host", `[]`},
		{header, "one", `["1" "2"]`}, {header, "raw-bin", `["\x00\xff"]`}, {header, "two", `["3"]`}, {header, "content-type", `["application/grpc"]`},
		{trailer, "after", `["a" "b"]`}, {trailer, "after-bin", `["\x01"]`}, {header, "late", `[]`}, {header, "server", `["filo"]`},
	} {
		if text := fmt.Sprintf("%q", test.md.Get(test.name)); text != test.want {
			t.Errorf("%s is %s, want %s", test.name, text, test.want)
		}
	}
	if len(got.Get(":authority")) != 1 || !strings.Contains(got.Get("user-agent")[0], "grpc-go") {
		t.Errorf("got %v", got)
	}
}

// A handler's error becomes the same status as with grpc-go. An error of filo gets the code for its HTTP status.
func TestStatus(t *testing.T) {
	detailed, _ := status.New(codes.AlreadyExists, "two of them").WithDetails(&errdetails.ErrorInfo{Reason: "why"})
	for _, test := range []struct {
		err     error
		code    codes.Code
		message string
	}{
		{nil, codes.OK, ""},
		{status.Error(codes.NotFound, "none: 100 %\n\xff ü 😊"), codes.NotFound, "none: 100 %\n\ufffd ü 😊"},
		{fmt.Errorf("around: %w", status.Error(codes.DataLoss, "lost")), codes.DataLoss, "around: rpc error: code = DataLoss desc = lost"},
		{detailed.Err(), codes.AlreadyExists, "two of them"},
		{errors.New("plain"), codes.Unknown, "plain"},
		{context.DeadlineExceeded, codes.DeadlineExceeded, "context deadline exceeded"},
		{context.Canceled, codes.Canceled, "context canceled"},
		{filo.Error(403, "not yours"), codes.PermissionDenied, "not yours"},
		{filo.Error(404, "none"), codes.Unimplemented, "none"},
		{filo.Error(429, "slowly"), codes.Unavailable, "slowly"},
		{filo.Error(418, "a teapot"), codes.Unknown, "a teapot"},
	} {
		c := serve(t, service{
			unary: func(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
				grpc.SetTrailer(ctx, metadata.Pairs("extra", "yes"))
				return &testpb.SimpleResponse{}, test.err
			},
			output: func(_ *testpb.StreamingOutputCallRequest, s testpb.TestService_StreamingOutputCallServer) error {
				s.SetTrailer(metadata.Pairs("extra", "yes"))
				if err := s.Send(&testpb.StreamingOutputCallResponse{}); err != nil {
					return err
				}
				return test.err
			},
		})
		var trailer metadata.MD
		_, err := c.UnaryCall(within(t), &testpb.SimpleRequest{}, grpc.Trailer(&trailer))
		checkStatus(t, "unary", err, test.code, test.message)
		if len(trailer.Get("extra")) != 1 {
			t.Errorf("%v: the trailer is %v", test.err, trailer)
		}
		stream, err := c.StreamingOutputCall(within(t), &testpb.StreamingOutputCallRequest{})
		if err == nil {
			if _, err = stream.Recv(); err == nil {
				if _, err = stream.Recv(); err == io.EOF {
					err = nil
				}
			}
		}
		checkStatus(t, "stream", err, test.code, test.message)
		if test.err == detailed.Err() && len(status.Convert(err).Details()) != 1 {
			t.Errorf("details %v", status.Convert(err).Details())
		}
	}
}

func checkStatus(t *testing.T, what string, err error, code codes.Code, message string) {
	t.Helper()
	if s := status.Convert(err); s.Code() != code || s.Message() != message {
		t.Errorf("%s: %v %q, want %v %q", what, s.Code(), s.Message(), code, message)
	}
}

// For a panic the client gets INTERNAL, without the panic's text. The panic is logged with its stack. Other calls on the connection continue.
func TestPanic(t *testing.T) {
	var log bytes.Buffer
	g := grpcfilo.New()
	testpb.RegisterTestServiceServer(g, service{
		unary: func(_ context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			if in.FillUsername {
				panic("a secret")
			}
			return &testpb.SimpleResponse{}, nil
		},
		duplex: func(s testpb.TestService_FullDuplexCallServer) error {
			s.Send(&testpb.StreamingOutputCallResponse{})
			panic("another")
		},
	})
	c := testpb.NewTestServiceClient(connect(t, start(t, &filo.Server{Logger: slog.New(slog.NewTextHandler(&log, nil))}, g)))
	_, err := c.UnaryCall(within(t), &testpb.SimpleRequest{FillUsername: true})
	checkStatus(t, "unary", err, codes.Internal, "the handler panicked")
	s, err := c.FullDuplexCall(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Error(err)
	}
	_, err = s.Recv()
	checkStatus(t, "stream", err, codes.Internal, "the handler panicked")
	if _, err := c.UnaryCall(within(t), &testpb.SimpleRequest{}); err != nil {
		t.Error(err)
	}
	if text := log.String(); !strings.Contains(text, "a secret") || !strings.Contains(text, "another") || !strings.Contains(text, "call_test.go") ||
		!strings.Contains(text, "TestService/UnaryCall") {
		t.Errorf("the log is %s", text)
	}
}

// When a client cancels a call, the handler notices: its context ends, and receiving and sending fail. The call never ends as OK.
func TestCancel(t *testing.T) {
	type end struct{ received, context error }
	ended := make(chan end, 1)
	begun := make(chan bool, 1)
	c := serve(t, service{
		unary: func(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			begun <- true
			<-ctx.Done()
			ended <- end{ctx.Err(), ctx.Err()}
			return nil, ctx.Err()
		},
		input: func(s testpb.TestService_StreamingInputCallServer) error {
			s.Recv()
			begun <- true
			_, err := s.Recv()
			<-s.Context().Done()
			ended <- end{err, s.Context().Err()}
			return err
		},
		output: func(_ *testpb.StreamingOutputCallRequest, s testpb.TestService_StreamingOutputCallServer) error {
			begun <- true
			for {
				if err := s.Send(&testpb.StreamingOutputCallResponse{Payload: payload(strings.Repeat("x", 1000))}); err != nil {
					<-s.Context().Done()
					ended <- end{err, s.Context().Err()}
					return err
				}
			}
		},
	})
	for name, call := range map[string]func(ctx context.Context) error{
		"unary": func(ctx context.Context) error {
			_, err := c.UnaryCall(ctx, &testpb.SimpleRequest{})
			return err
		},
		"a client's stream": func(ctx context.Context) error {
			s, err := c.StreamingInputCall(ctx)
			if err != nil {
				return err
			}
			s.Send(&testpb.StreamingInputCallRequest{})
			<-ctx.Done()
			_, err = s.CloseAndRecv()
			return err
		},
		"a server's stream": func(ctx context.Context) error {
			s, err := c.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{})
			for err == nil {
				_, err = s.Recv()
			}
			return err
		},
	} {
		ctx, cancel := context.WithCancel(within(t))
		go func() {
			<-begun
			cancel()
		}()
		if err := call(ctx); status.Code(err) != codes.Canceled {
			t.Errorf("%s: the client got %v", name, err)
		}
		if got := <-ended; got.context != context.Canceled || got.received != context.Canceled && status.Code(got.received) != codes.Canceled {
			t.Errorf("%s: the handler got %v, its context %v", name, got.received, got.context)
		}
	}
}

// The client's deadline is the context's deadline, and wakes a handler that is receiving. If the deadline has already passed, the call ends
// and its handler isn't called.
func TestDeadline(t *testing.T) {
	received := make(chan error, 10)
	c := serve(t, service{
		unary: func(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			until, ok := ctx.Deadline()
			if left := time.Until(until); !ok || left > time.Hour || left < 50*time.Minute {
				t.Errorf("the deadline is %v, %v", until, ok)
			}
			return &testpb.SimpleResponse{}, nil
		},
		duplex: func(s testpb.TestService_FullDuplexCallServer) error {
			_, err := s.Recv()
			received <- err
			return err
		},
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if _, err := c.UnaryCall(ctx, &testpb.SimpleRequest{}); err != nil {
		t.Error(err)
	}
	// On a busy machine a short deadline may pass before the handler is called.
	for limit := 50 * time.Millisecond; ; limit *= 4 {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		s, err := c.FullDuplexCall(ctx)
		if err == nil {
			_, err = s.Recv()
		}
		cancel()
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("the client got %v", err)
		}
		select {
		case err := <-received:
			// The client resets the stream at about the same time.
			if status.Code(err) != codes.DeadlineExceeded && status.Code(err) != codes.Canceled {
				t.Errorf("the handler got %v", err)
			}
			return
		case <-time.After(limit):
		}
		if limit > testTimeout {
			t.Fatal("the handler doesn't learn that the time is over")
		}
	}
}

// Two goroutines of a handler can send and receive at the same time, and the messages of each direction stay in order. Using a stream after
// its handler has returned fails, and has no other effect.
func TestFullDuplex(t *testing.T) {
	const messages = 2000
	var late []func() error
	c := serve(t, service{duplex: func(s testpb.TestService_FullDuplexCallServer) error {
		var wg sync.WaitGroup
		wg.Go(func() {
			for range messages {
				if err := s.Send(&testpb.StreamingOutputCallResponse{Payload: payload("from the server")}); err != nil {
					t.Error(err)
				}
			}
		})
		for range messages {
			if in, err := s.Recv(); err != nil || string(in.Payload.Body) != "from the client" {
				t.Errorf("%v, %v", in, err)
			}
		}
		wg.Wait()
		if _, err := s.Recv(); err != io.EOF {
			t.Errorf("at the end %v", err)
		}
		late = []func() error{
			func() error { return s.Send(&testpb.StreamingOutputCallResponse{}) },
			func() error { _, err := s.Recv(); return err },
			func() error { return s.SetHeader(metadata.Pairs("a", "b")) },
			func() error { return s.SendHeader(nil) },
			func() error { return grpc.SetTrailer(s.Context(), metadata.Pairs("a", "b")) },
		}
		return nil
	}})
	s, err := c.FullDuplexCall(within(t))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range messages {
			if err := s.Send(&testpb.StreamingOutputCallRequest{Payload: payload("from the client")}); err != nil {
				t.Error(err)
			}
		}
		s.CloseSend()
	})
	for range messages {
		if out, err := s.Recv(); err != nil || string(out.Payload.Body) != "from the server" {
			t.Fatalf("%v, %v", out, err)
		}
	}
	wg.Wait()
	if _, err := s.Recv(); err != io.EOF {
		t.Errorf("at the end %v", err)
	}
	for i, use := range late {
		if err := use(); err == nil {
			t.Errorf("use %d of a stream whose call is over succeeded", i)
		}
	}
}

// Messages may be compressed. The answer uses the same compression as the request.
func TestCompression(t *testing.T) {
	c := serve(t, service{unary: echo, duplex: echoStream})
	long := strings.Repeat("compressible ", 100_000)
	var header metadata.MD
	for range 3 {
		out, err := c.UnaryCall(within(t), &testpb.SimpleRequest{Payload: payload(long)}, grpc.UseCompressor(gzip.Name), grpc.Header(&header))
		if err != nil || string(out.Payload.Body) != long {
			t.Fatalf("%d bytes, %v", len(out.GetPayload().GetBody()), err)
		}
	}
	s, err := c.FullDuplexCall(within(t), grpc.UseCompressor(gzip.Name))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{long, "", "short", long} {
		s.Send(&testpb.StreamingOutputCallRequest{Payload: payload(text)})
		if out, err := s.Recv(); err != nil || string(out.GetPayload().GetBody()) != text {
			t.Errorf("%d bytes, %v", len(out.GetPayload().GetBody()), err)
		}
	}
}

// The size of each received message is limited before and after it is decompressed, and so is the size of each sent message. A small message
// that would decompress to a huge one uses only as much memory as the limit.
func TestLimits(t *testing.T) {
	c := serve(t, service{
		unary: func(_ context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			return &testpb.SimpleResponse{Payload: payload(strings.Repeat("x", int(in.ResponseSize)))}, nil
		},
		input: func(s testpb.TestService_StreamingInputCallServer) error {
			for {
				if _, err := s.Recv(); err != nil {
					return err
				}
			}
		},
	}, grpcfilo.Options{MaxRecvMsgSize: 100_000, MaxSendMsgSize: 50_000})
	for _, test := range []struct {
		name     string
		in       *testpb.SimpleRequest
		options  []grpc.CallOption
		want     codes.Code
		wantText string
	}{
		{"fits", &testpb.SimpleRequest{Payload: payload(strings.Repeat("x", 99_000)), ResponseSize: 49_000}, nil, codes.OK, ""},
		{"too large", &testpb.SimpleRequest{Payload: payload(strings.Repeat("x", 100_001))}, nil, codes.ResourceExhausted, "received message larger than max"},
		{"a bomb", &testpb.SimpleRequest{Payload: payload(strings.Repeat("x", 50<<20))}, []grpc.CallOption{grpc.UseCompressor(gzip.Name)}, codes.ResourceExhausted, "after decompression larger than max"},
		{"too large an answer", &testpb.SimpleRequest{ResponseSize: 50_001}, nil, codes.ResourceExhausted, "trying to send message larger than max"},
	} {
		_, err := c.UnaryCall(within(t), test.in, test.options...)
		if s := status.Convert(err); s.Code() != test.want || !strings.Contains(s.Message(), test.wantText) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	s, err := c.StreamingInputCall(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // together these messages exceed the limit of a single message
		s.Send(&testpb.StreamingInputCallRequest{Payload: payload(strings.Repeat("x", 50_000))})
	}
	s.Send(&testpb.StreamingInputCallRequest{Payload: payload(strings.Repeat("x", 100_001))})
	if _, err = s.CloseAndRecv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a stream: %v", err)
	}
}

// Handlers get the client's address from the context, even if they first look it up after the call has ended.
func TestPeer(t *testing.T) {
	contexts := make(chan context.Context, 2)
	g := grpcfilo.New()
	testpb.RegisterTestServiceServer(g, service{unary: func(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		if in.FillUsername {
			p, _ := peer.FromContext(ctx)
			info, ok := p.AuthInfo.(credentials.TLSInfo)
			if !ok || info.State.Version != tls.VersionTLS13 || p.LocalAddr == nil {
				t.Errorf("the peer is %v", p)
			}
		}
		contexts <- ctx
		return &testpb.SimpleResponse{}, nil
	}})
	server := &filo.Server{TLSConfig: tcptest.TLSConfig()}
	c := testpb.NewTestServiceClient(connect(t, start(t, server, g),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}))))
	for _, early := range []bool{true, false} {
		if _, err := c.UnaryCall(within(t), &testpb.SimpleRequest{FillUsername: early}); err != nil {
			t.Fatal(err)
		}
		p, ok := peer.FromContext(<-contexts)
		if !ok || !strings.HasPrefix(p.Addr.String(), "127.0.0.1:") || p.AuthInfo == nil {
			t.Errorf("after the call the peer is %v", p)
		}
	}
}

// Interceptors run from the first one to the last, around the handler.
func TestInterceptors(t *testing.T) {
	var order []string
	unary := func(name string) grpc.UnaryServerInterceptor {
		return func(ctx context.Context, in any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			order = append(order, name+" "+info.FullMethod)
			return next(ctx, in)
		}
	}
	stream := func(name string) grpc.StreamServerInterceptor {
		return func(implementation any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			order = append(order, fmt.Sprint(name, " ", info.IsClientStream, info.IsServerStream))
			return next(implementation, s)
		}
	}
	for n := range 4 {
		order = nil
		var o grpcfilo.Options
		for i := range n {
			o.UnaryInterceptors = append(o.UnaryInterceptors, unary(fmt.Sprint(i)))
			o.StreamInterceptors = append(o.StreamInterceptors, stream(fmt.Sprint(i)))
		}
		c := serve(t, service{unary: echo, duplex: func(testpb.TestService_FullDuplexCallServer) error { return nil }}, o)
		if _, err := c.UnaryCall(within(t), &testpb.SimpleRequest{}); err != nil {
			t.Error(err)
		}
		s, err := c.FullDuplexCall(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != io.EOF {
			t.Error(err)
		}
		var want []string
		for i := range n {
			want = append(want, fmt.Sprint(i, " /grpc.testing.TestService/UnaryCall"))
		}
		for i := range n {
			want = append(want, fmt.Sprint(i, " true true"))
		}
		if fmt.Sprint(order) != fmt.Sprint(want) {
			t.Errorf("%d interceptors: %q, want %q", n, order, want)
		}
	}
}

// A handler that sends in a separate goroutine can still receive while its client reads no messages.
func TestReceivesWhileTheClientTakesNothing(t *testing.T) {
	const messages, size = 200, 4 << 10
	received := make(chan error, 1)
	c := serve(t, service{duplex: func(s testpb.TestService_FullDuplexCallServer) error {
		sent := make(chan error, 1)
		go func() {
			for range messages {
				if err := s.Send(&testpb.StreamingOutputCallResponse{Payload: payload(strings.Repeat("s", size))}); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		for {
			if _, err := s.Recv(); err != nil {
				received <- err
				return <-sent
			}
		}
	}})
	s, err := c.FullDuplexCall(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for range messages {
		if err := s.Send(&testpb.StreamingOutputCallRequest{Payload: payload(strings.Repeat("c", size))}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := <-received; err != io.EOF {
		t.Fatalf("the handler has received %v instead of the end", err)
	}
	for n := 0; ; n++ {
		if _, err := s.Recv(); err != nil {
			if err != io.EOF || n != messages {
				t.Errorf("after %d messages: %v", n, err)
			}
			return
		}
	}
}

// The greatest MaxRecvMsgSize takes messages of each kind: compressed or not, unary or streamed.
func TestGreatestLimit(t *testing.T) {
	c := serve(t, service{unary: echo, duplex: echoStream}, grpcfilo.Options{MaxRecvMsgSize: math.MaxInt})
	for _, options := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
		if got, err := c.UnaryCall(within(t), &testpb.SimpleRequest{Payload: payload("hello")}, options...); err != nil || string(got.Payload.GetBody()) != "hello" {
			t.Errorf("a unary call: %v, %v", got, err)
		}
		s, err := c.FullDuplexCall(within(t), options...)
		if err != nil {
			t.Fatal(err)
		}
		s.Send(&testpb.StreamingOutputCallRequest{Payload: payload("hello")})
		if got, err := s.Recv(); err != nil || string(got.Payload.GetBody()) != "hello" {
			t.Errorf("a stream: %v, %v", got, err)
		}
	}
}
