package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"connectrpc.com/connect"
	"github.com/filohttp/filo"
	grpcfilo "github.com/filohttp/filo/contrib/grpc"
	"github.com/filohttp/filo/router"
	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
)

// everything is the suffix of the names of servers that have all of these: interceptors, a stats handler, and handlers that use metadata.
const everything = "+"

var servers = map[string]func() (string, func() error, error){
	"grpc-go":              listening(func(l net.Listener) error { return serveGRPC(l, false) }),
	"grpc-go" + everything: listening(func(l net.Listener) error { return serveGRPC(l, true) }),
	"filo":                 listening(func(l net.Listener) error { return serveFilo(l, false, filo.DriverLoop) }),
	"filo" + everything:    listening(func(l net.Listener) error { return serveFilo(l, true, filo.DriverLoop) }),
	"filo-blocking":        listening(func(l net.Listener) error { return serveFilo(l, false, filo.DriverBlocking) }),
	"connect-go":           listening(serveConnect),
}

// listening returns a function that starts to listen, and returns the address and a function that serves.
func listening(serve func(net.Listener) error) func() (string, func() error, error) {
	return func() (address string, serves func() error, err error) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", nil, err
		}
		return listener.Addr().String(), func() error { return serve(listener) }, nil
	}
}

func serveGRPC(l net.Listener, all bool) error {
	var options []grpc.ServerOption
	if all {
		options = []grpc.ServerOption{grpc.ChainUnaryInterceptor(intercept, intercept), grpc.StatsHandler(new(counter))}
	}
	s := grpc.NewServer(options...)
	testpb.RegisterTestServiceServer(s, service{all: all})
	return s.Serve(l)
}

func serveFilo(l net.Listener, all bool, driver filo.Driver) error {
	var options grpcfilo.Options
	if all {
		options.UnaryInterceptors = []grpc.UnaryServerInterceptor{intercept, intercept}
		options.StatsHandlers = []stats.Handler{new(counter)}
	}
	g := grpcfilo.New(options)
	testpb.RegisterTestServiceServer(g, service{all: all})
	r := router.New()
	g.Mount(r)
	s := &filo.Server{Handler: r.Serve, ErrorHandler: grpcfilo.ErrorHandler(nil), Driver: driver, Logger: slog.New(slog.DiscardHandler)}
	s.HTTP2.Unencrypted = true
	return s.Serve(l)
}

// service does as little as possible for its calls.
type service struct {
	testpb.UnimplementedTestServiceServer
	all bool
}

// UnaryCall answers with the payload of the request.
func (s service) UnaryCall(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	if s.all {
		md, _ := metadata.FromIncomingContext(ctx)
		if _, ok := ctx.Deadline(); !ok || len(md.Get("tenant")) != 1 {
			return nil, errors.New("the deadline or the metadata is missing")
		}
		grpc.SetHeader(ctx, metadata.Pairs("served-by", "bench"))
		grpc.SetTrailer(ctx, metadata.Pairs("cost", "1"))
	}
	return &testpb.SimpleResponse{Payload: in.Payload}, nil
}

// StreamingOutputCall sends streamMessages messages with the size of a unary call's answer.
func (service) StreamingOutputCall(_ *testpb.StreamingOutputCallRequest, stream testpb.TestService_StreamingOutputCallServer) error {
	return sendStream(stream.Send)
}

func sendStream(send func(*testpb.StreamingOutputCallResponse) error) error {
	for range streamMessages {
		if err := send(&testpb.StreamingOutputCallResponse{Payload: payload()}); err != nil {
			return err
		}
	}
	return nil
}

// FullDuplexCall answers each message with one that has the same payload.
func (service) FullDuplexCall(stream testpb.TestService_FullDuplexCallServer) error {
	return echo(stream.Recv, stream.Send)
}

func echo(receive func() (*testpb.StreamingOutputCallRequest, error), send func(*testpb.StreamingOutputCallResponse) error) error {
	for {
		in, err := receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = send(&testpb.StreamingOutputCallResponse{Payload: in.Payload})
		}
		if err != nil {
			return err
		}
	}
}

func intercept(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	return next(ctx, in)
}

// counter is a stats handler.
type counter struct {
	stats.Handler
	events atomic.Int64
}

// TagRPC implements stats.Handler.
func (c *counter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (c *counter) HandleRPC(context.Context, stats.RPCStats) { c.events.Add(1) }

// TagConn implements stats.Handler.
func (c *counter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (c *counter) HandleConn(context.Context, stats.ConnStats) {}

// serveConnect serves the same methods with connect-go and net/http.
func serveConnect(l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle(unaryMethod, connect.NewUnaryHandler(unaryMethod,
		func(_ context.Context, in *connect.Request[testpb.SimpleRequest]) (*connect.Response[testpb.SimpleResponse], error) {
			return connect.NewResponse(&testpb.SimpleResponse{Payload: in.Msg.Payload}), nil
		}))
	mux.Handle(streamMethod, connect.NewServerStreamHandler(streamMethod,
		func(_ context.Context, _ *connect.Request[testpb.StreamingOutputCallRequest], s *connect.ServerStream[testpb.StreamingOutputCallResponse]) error {
			return sendStream(s.Send)
		}))
	mux.Handle(duplexMethod, connect.NewBidiStreamHandler(duplexMethod,
		func(_ context.Context, s *connect.BidiStream[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
			return echo(s.Receive, s.Send)
		}))
	s := &http.Server{Handler: mux, Protocols: new(http.Protocols)}
	s.Protocols.SetUnencryptedHTTP2(true)
	return s.Serve(l)
}
