package grpcfilo_test

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/filohttp/filo"
	grpcfilo "github.com/filohttp/filo/contrib/grpc"
	"github.com/filohttp/filo/internal/tcptest"
	"github.com/filohttp/filo/router"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
)

// testTimeout limits each wait of a test. It is long, since the machine may be busy.
const testTimeout = time.Minute

var quiet = slog.New(slog.DiscardHandler)

// within returns a context that ends a test's calls if they hang.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// start serves the services, and returns the address.
func start(t *testing.T, server *filo.Server, g *grpcfilo.Services) (address string) {
	t.Helper()
	r := router.New()
	g.Mount(r)
	if server.Handler == nil {
		server.Handler = r.Serve
	}
	if server.ErrorHandler == nil {
		server.ErrorHandler = grpcfilo.ErrorHandler(nil)
	}
	if server.Logger == nil {
		server.Logger = quiet
	}
	server.HTTP2.Unencrypted = true
	return tcptest.Serve(t, server)
}

// connect returns a connection of grpc-go's client.
func connect(t *testing.T, address string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// serve serves a test service, and returns a client for it.
func serve(t *testing.T, service testpb.TestServiceServer, options ...grpcfilo.Options) testpb.TestServiceClient {
	t.Helper()
	g := grpcfilo.New(options...)
	testpb.RegisterTestServiceServer(g, service)
	return testpb.NewTestServiceClient(connect(t, start(t, &filo.Server{}, g)))
}

// service is a test service whose methods are functions. A method whose function is nil is unimplemented.
type service struct {
	testpb.UnimplementedTestServiceServer
	unary  func(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error)
	input  func(s testpb.TestService_StreamingInputCallServer) error
	output func(in *testpb.StreamingOutputCallRequest, s testpb.TestService_StreamingOutputCallServer) error
	duplex func(s testpb.TestService_FullDuplexCallServer) error
}

func (s service) UnaryCall(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return s.unary(ctx, in)
}

func (s service) StreamingInputCall(stream testpb.TestService_StreamingInputCallServer) error {
	return s.input(stream)
}

func (s service) StreamingOutputCall(in *testpb.StreamingOutputCallRequest, stream testpb.TestService_StreamingOutputCallServer) error {
	return s.output(in, stream)
}

func (s service) FullDuplexCall(stream testpb.TestService_FullDuplexCallServer) error {
	return s.duplex(stream)
}

// payload returns a message's content.
func payload(text string) *testpb.Payload { return &testpb.Payload{Body: []byte(text)} }

// echo answers with the payload of the request.
func echo(_ context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return &testpb.SimpleResponse{Payload: in.Payload}, nil
}

// echoStream answers each message with a message that has the same payload.
func echoStream(s testpb.TestService_FullDuplexCallServer) error {
	for {
		in, err := s.Recv()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.Send(&testpb.StreamingOutputCallResponse{Payload: in.Payload}); err != nil {
			return err
		}
	}
}
