package grpcfilo_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	grpcfilo "github.com/filohttp/filo/contrib/grpc"
	"github.com/filohttp/filo/router"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// A call beyond Server.Concurrency ends as UNAVAILABLE, and its client learns when to try again.
func TestOverload(t *testing.T) {
	begun, release := make(chan bool), make(chan bool)
	g := grpcfilo.New()
	testpb.RegisterTestServiceServer(g, service{duplex: func(s testpb.TestService_FullDuplexCallServer) error {
		begun <- true
		<-release
		return nil
	}})
	c := testpb.NewTestServiceClient(connect(t, start(t, &filo.Server{Concurrency: 1, Driver: filo.DriverLoop}, g)))
	first, err := c.FullDuplexCall(within(t))
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	second, err := c.FullDuplexCall(within(t))
	if err == nil {
		_, err = second.Recv()
	}
	checkStatus(t, "the second call", err, codes.Unavailable, "too many requests at once")
	if got := second.Trailer().Get("grpc-retry-pushback-ms"); fmt.Sprint(got) != "[1000]" {
		t.Errorf("pushback %q, %v", got, second.Trailer())
	}
	close(release)
	if _, err := first.Recv(); err != io.EOF {
		t.Errorf("the first call: %v", err)
	}
}

// Shutdown lets calls finish, as GracefulStop does. When the time for the shutdown has passed, calls whose handlers respect their context end
// as UNAVAILABLE.
func TestShutdown(t *testing.T) {
	begun := make(chan bool)
	g := grpcfilo.New()
	testpb.RegisterTestServiceServer(g, service{duplex: func(s testpb.TestService_FullDuplexCallServer) error {
		begun <- true
		for {
			if _, err := s.Recv(); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			s.Send(&testpb.StreamingOutputCallResponse{})
		}
	}})
	server, drains := &filo.Server{}, make(chan bool)
	server.RegisterOnShutdown(func() { close(drains) })
	c := testpb.NewTestServiceClient(connect(t, start(t, server, g)))
	s, err := c.FullDuplexCall(within(t))
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	ended := make(chan error)
	go func() { ended <- server.Shutdown(within(t)) }()
	select {
	case <-drains:
	case <-within(t).Done():
		t.Fatal("the shutdown hasn't begun")
	}
	s.Send(&testpb.StreamingOutputCallRequest{})
	if _, err := s.Recv(); err != nil {
		t.Error(err)
	}
	s.CloseSend()
	if _, err := s.Recv(); err != io.EOF {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestShutdownGivesUp(t *testing.T) {
	begun := make(chan bool)
	g := grpcfilo.New()
	testpb.RegisterTestServiceServer(g, service{unary: func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		begun <- true
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	server := &filo.Server{}
	c := testpb.NewTestServiceClient(connect(t, start(t, server, g)))
	answered := make(chan error)
	go func() {
		_, err := c.UnaryCall(within(t), &testpb.SimpleRequest{})
		answered <- err
	}()
	<-begun
	over, cancel := context.WithCancel(context.Background())
	cancel()
	server.Shutdown(over)
	if err := <-answered; status.Code(err) != codes.Unavailable {
		t.Errorf("the client got %v", err)
	}
}

// If a client reads nothing of an answer for WriteTimeout, only that call is aborted.
func TestSlowClient(t *testing.T) {
	ended := make(chan error, 1)
	g := grpcfilo.New()
	testpb.RegisterTestServiceServer(g, service{unary: echo, output: func(_ *testpb.StreamingOutputCallRequest, s testpb.TestService_StreamingOutputCallServer) error {
		for {
			if err := s.Send(&testpb.StreamingOutputCallResponse{Payload: payload(strings.Repeat("x", 10_000))}); err != nil {
				ended <- err
				return err
			}
		}
	}})
	address := start(t, &filo.Server{WriteTimeout: 200 * time.Millisecond}, g)
	c := testpb.NewTestServiceClient(connect(t, address))
	if _, err := c.StreamingOutputCall(within(t), &testpb.StreamingOutputCallRequest{}); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := c.UnaryCall(within(t), &testpb.SimpleRequest{Payload: payload("x")}); err != nil {
			t.Fatalf("the polite call: %v", err)
		}
		select {
		case err := <-ended:
			if status.Code(err) != codes.Canceled {
				t.Errorf("Send returned %v", err)
			}
			return
		default:
		}
	}
}

// recorder is a stats handler that records the events that it receives.
type recorder struct {
	mu   sync.Mutex
	told []string
	over chan bool
}

type tagKey struct{}

func (r *recorder) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, tagKey{}, info.FullMethodName)
}
func (r *recorder) HandleRPC(ctx context.Context, s stats.RPCStats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := peer.FromContext(ctx); !ok || ctx.Value(tagKey{}) == nil {
		r.told = append(r.told, "without a peer or a tag")
	}
	switch s := s.(type) {
	case *stats.InHeader:
		r.told = append(r.told, fmt.Sprint("InHeader ", s.FullMethod, s.Header.Get("a"), s.RemoteAddr != nil))
	case *stats.Begin:
		r.told = append(r.told, fmt.Sprint("Begin ", s.IsClientStream, s.IsServerStream))
	case *stats.InPayload:
		r.told = append(r.told, fmt.Sprint("InPayload ", s.Length, " ", s.WireLength))
	case *stats.OutHeader:
		r.told = append(r.told, fmt.Sprint("OutHeader ", s.Header.Get("b")))
	case *stats.OutPayload:
		r.told = append(r.told, fmt.Sprint("OutPayload ", s.Length, " ", s.WireLength))
	case *stats.OutTrailer:
		r.told = append(r.told, fmt.Sprint("OutTrailer ", s.Trailer.Get("c")))
	case *stats.End:
		r.told = append(r.told, fmt.Sprint("End ", status.Code(s.Error)))
		r.over <- true
	}
}
func (r *recorder) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (r *recorder) HandleConn(context.Context, stats.ConnStats)                       {}

// Stats handlers receive an event for each step of a call, in the same order as with grpc-go.
func TestStats(t *testing.T) {
	r := &recorder{over: make(chan bool, 1)}
	c := serve(t, service{unary: func(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		if ctx.Value(tagKey{}) == nil {
			t.Error("the handler doesn't have the tagged context")
		}
		grpc.SetHeader(ctx, metadata.Pairs("b", "2"))
		grpc.SetTrailer(ctx, metadata.Pairs("c", "3"))
		if in.FillUsername {
			return nil, status.Error(codes.NotFound, "")
		}
		return echo(ctx, in)
	}}, grpcfilo.Options{StatsHandlers: []stats.Handler{r}})
	ctx := metadata.AppendToOutgoingContext(within(t), "a", "1")
	for _, fails := range []bool{false, true} {
		r.told = nil
		want := []string{"InHeader /grpc.testing.TestService/UnaryCall[1] true", "Begin false false", "InPayload 9 14", "OutHeader [2]",
			"OutPayload 9 14", "OutTrailer [3]", "End OK"}
		in := &testpb.SimpleRequest{Payload: payload("12345")}
		if fails {
			in = &testpb.SimpleRequest{FillUsername: true}
			want = []string{want[0], want[1], "InPayload 2 7", want[3], want[5], "End NotFound"}
		}
		c.UnaryCall(ctx, in)
		<-r.over
		if !slices.Equal(r.told, want) {
			t.Errorf("told %q, want %q", r.told, want)
		}
	}
}

// grpc-go's health and reflection services work unchanged.
func TestHealthAndReflection(t *testing.T) {
	g := grpcfilo.New()
	healthpb.RegisterHealthServer(g, health.NewServer())
	reflection.Register(g)
	conn := connect(t, start(t, &filo.Server{}, g))
	answer, err := healthpb.NewHealthClient(conn).Check(within(t), &healthpb.HealthCheckRequest{})
	if err != nil || answer.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", answer, err)
	}
	s, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(within(t))
	if err != nil {
		t.Fatal(err)
	}
	s.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	list, err := s.Recv()
	if err != nil || len(list.GetListServicesResponse().GetService()) != 3 { // health, and two versions of reflection
		t.Errorf("%v, %v", list, err)
	}
	if methods := g.GetServiceInfo()["grpc.health.v1.Health"].Methods; len(methods) != 3 {
		t.Errorf("health has %v", methods)
	}
}

// jsonCodec is an encoding.Codec, the older interface.
type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }
func (jsonCodec) Name() string                       { return "old-json" }

// keepingCodec is an encoding.CodecV2 that keeps the buffers that it decodes.
type keepingCodec struct{ kept *mem.BufferSlice }

func (keepingCodec) Marshal(v any) (mem.BufferSlice, error) {
	data, err := json.Marshal(v)
	return mem.BufferSlice{mem.Copy(data, mem.DefaultBufferPool())}, err
}
func (k keepingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	data.Ref()
	*k.kept = data
	return json.Unmarshal(data.Materialize(), v)
}
func (keepingCodec) Name() string { return "keeping" }

// The content type selects a codec from grpc-go's registry, whether it is a Codec or a CodecV2. A codec may keep the buffers of a message.
func TestCodecs(t *testing.T) {
	var kept mem.BufferSlice
	encoding.RegisterCodec(jsonCodec{})
	encoding.RegisterCodecV2(keepingCodec{&kept})
	c := serve(t, service{unary: echo})
	text := strings.Repeat("hello ", 2000)
	for _, subtype := range []string{"old-json", "keeping"} {
		out, err := c.UnaryCall(within(t), &testpb.SimpleRequest{Payload: payload(text)}, grpc.CallContentSubtype(subtype))
		if err != nil || string(out.Payload.Body) != text {
			t.Errorf("%s: %d bytes, %v", subtype, len(out.GetPayload().GetBody()), err)
		}
	}
	if !strings.Contains(string(kept.Materialize()), "aGVsbG8g") {
		t.Error("the kept buffer has changed")
	}
}

// A method is a route like all others: the router's middleware surrounds it, and learns the gRPC code with which the call ends.
func TestRoutes(t *testing.T) {
	g := grpcfilo.New()
	testpb.RegisterTestServiceServer(g, service{unary: func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		return nil, status.Error(codes.Aborted, "")
	}})
	var seen string
	r := router.New()
	r.Use(func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			err := next(c)
			code, ok := grpcfilo.Code(c)
			seen = fmt.Sprint(c.Route(), " ", code, ok)
			return err
		}
	})
	g.Mount(r)
	r.GET("/", func(c *filo.Ctx) error { return c.Text(200, "REST") })
	c := testpb.NewTestServiceClient(connect(t, start(t, &filo.Server{Handler: r.Serve}, grpcfilo.New())))
	if _, err := c.UnaryCall(within(t), &testpb.SimpleRequest{}); status.Code(err) != codes.Aborted {
		t.Error(err)
	}
	if seen != "POST /grpc.testing.TestService/UnaryCall Aborted true" {
		t.Errorf("middleware has seen %q", seen)
	}
}

// Mistakes in the set-up panic when the program starts.
func TestMistakes(t *testing.T) {
	for name, f := range map[string]func(){
		"two Options":    func() { grpcfilo.New(grpcfilo.Options{}, grpcfilo.Options{}) },
		"negative limit": func() { grpcfilo.New(grpcfilo.Options{MaxRecvMsgSize: -1}) },
		"twice": func() {
			g := grpcfilo.New()
			testpb.RegisterTestServiceServer(g, service{})
			testpb.RegisterTestServiceServer(g, service{})
		},
		"another type": func() { grpcfilo.New().RegisterService(&testpb.TestService_ServiceDesc, 5) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// A client whose stream has no deadline may be silent for longer than Server.ReadTimeout, although that limits the bodies of other requests.
func TestSilentStream(t *testing.T) {
	g := grpcfilo.New()
	testpb.RegisterTestServiceServer(g, service{duplex: func(s testpb.TestService_FullDuplexCallServer) error {
		for {
			if _, err := s.Recv(); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			s.Send(&testpb.StreamingOutputCallResponse{})
		}
	}})
	r := router.New()
	r.POST("/plain", func(c *filo.Ctx) error {
		_, err := io.Copy(io.Discard, c.BodyReader())
		return err
	})
	g.Mount(r)
	address := start(t, &filo.Server{Handler: r.Serve, ReadTimeout: 50 * time.Millisecond, MinTransferRate: -1}, grpcfilo.New())
	s, err := testpb.NewTestServiceClient(connect(t, address)).FullDuplexCall(within(t))
	if err != nil {
		t.Fatal(err)
	}
	pong := func() {
		t.Helper()
		s.Send(&testpb.StreamingOutputCallRequest{})
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	pong()
	for range 2 { // the stream is silent while two bodies time out, one after the other
		body := dialHTTP2(t, address).Open(false, ":method", "POST", ":scheme", "http", ":path", "/plain", ":authority", "filo.test", "content-length", "100000")
		if got, err := body.Status(); got != 408 {
			t.Fatalf("the body that is late: %d, %v", got, err)
		}
	}
	pong()
	s.CloseSend()
	if _, err := s.Recv(); err != io.EOF {
		t.Error(err)
	}
}

// fragile is a layer around answers that panics at a Write during which the handler doesn't send.
type fragile struct {
	io.Writer
	sends, panicked *atomic.Bool
}

func (f fragile) Write(p []byte) (int, error) {
	if !f.sends.Load() && f.panicked.CompareAndSwap(false, true) {
		panic("broken")
	}
	return f.Writer.Write(p)
}

func (fragile) Close() error { return nil }

// If a layer of middleware panics while gathered messages are sent, only the call fails.
func TestGatheredPanic(t *testing.T) {
	var sends, panicked atomic.Bool
	sends.Store(true)
	g := grpcfilo.New()
	testpb.RegisterTestServiceServer(g, service{output: func(_ *testpb.StreamingOutputCallRequest, s testpb.TestService_StreamingOutputCallServer) error {
		for !panicked.Load() && s.Context().Err() == nil {
			s.Send(&testpb.StreamingOutputCallResponse{})
			s.Send(&testpb.StreamingOutputCallResponse{}) // soon after the first message, so it is gathered
			sends.Store(false)
			time.Sleep(time.Millisecond)
			sends.Store(true)
		}
		if err := s.Send(&testpb.StreamingOutputCallResponse{}); status.Code(err) != codes.Internal {
			t.Errorf("after the panic Send returns %v", err)
		}
		return nil
	}})
	r := router.New()
	g.Mount(r)
	address := start(t, &filo.Server{Handler: func(c *filo.Ctx) error {
		c.Response.WrapBody(func(_ *filo.Ctx, body io.Writer, _ int64) io.WriteCloser { return fragile{body, &sends, &panicked} })
		return r.Serve(c)
	}}, grpcfilo.New())
	s, err := testpb.NewTestServiceClient(connect(t, address)).StreamingOutputCall(within(t), &testpb.StreamingOutputCallRequest{})
	for err == nil {
		_, err = s.Recv()
	}
	if status.Code(err) != codes.Internal {
		t.Error(err)
	}
}
