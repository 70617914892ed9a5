package grpcfilo_test

import (
	"testing"

	grpcfilo "github.com/filohttp/filo/contrib/grpc"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/interop"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/filohttp/filo"
)

// grpc-go's client and service pass the cases of gRPC's interoperability tests that need no credentials.
func TestInterop(t *testing.T) {
	g := grpcfilo.New()
	testpb.RegisterTestServiceServer(g, interop.NewTestServer())
	address := start(t, &filo.Server{}, g)
	for name, run := range map[string]func(t *testing.T, conn *grpc.ClientConn, c testpb.TestServiceClient){
		"empty_unary": func(t *testing.T, _ *grpc.ClientConn, c testpb.TestServiceClient) {
			interop.DoEmptyUnaryCall(within(t), c)
		},
		"large_unary": func(t *testing.T, _ *grpc.ClientConn, c testpb.TestServiceClient) {
			interop.DoLargeUnaryCall(within(t), c)
		},
		"client_streaming": func(t *testing.T, _ *grpc.ClientConn, c testpb.TestServiceClient) {
			interop.DoClientStreaming(within(t), c)
		},
		"server_streaming": func(t *testing.T, _ *grpc.ClientConn, c testpb.TestServiceClient) {
			interop.DoServerStreaming(within(t), c)
		},
		"ping_pong": func(t *testing.T, _ *grpc.ClientConn, c testpb.TestServiceClient) { interop.DoPingPong(within(t), c) },
		"empty_stream": func(t *testing.T, _ *grpc.ClientConn, c testpb.TestServiceClient) {
			interop.DoEmptyStream(within(t), c)
		},
		"timeout_on_sleeping_server": func(t *testing.T, _ *grpc.ClientConn, c testpb.TestServiceClient) {
			interop.DoTimeoutOnSleepingServer(within(t), c)
		},
		"cancel_after_begin": func(t *testing.T, _ *grpc.ClientConn, c testpb.TestServiceClient) {
			interop.DoCancelAfterBegin(within(t), c)
		},
		"cancel_after_first_response": func(t *testing.T, _ *grpc.ClientConn, c testpb.TestServiceClient) {
			interop.DoCancelAfterFirstResponse(within(t), c)
		},
		"custom_metadata": func(t *testing.T, _ *grpc.ClientConn, c testpb.TestServiceClient) {
			interop.DoCustomMetadata(within(t), c)
		},
		"status_code_and_message": func(t *testing.T, _ *grpc.ClientConn, c testpb.TestServiceClient) {
			interop.DoStatusCodeAndMessage(within(t), c)
		},
		"special_status_message": func(t *testing.T, _ *grpc.ClientConn, c testpb.TestServiceClient) {
			interop.DoSpecialStatusMessage(within(t), c)
		},
		"unimplemented_method": func(t *testing.T, conn *grpc.ClientConn, _ testpb.TestServiceClient) {
			interop.DoUnimplementedMethod(within(t), conn)
		},
		"unimplemented_service": func(t *testing.T, conn *grpc.ClientConn, _ testpb.TestServiceClient) {
			interop.DoUnimplementedService(within(t), testpb.NewUnimplementedServiceClient(conn))
		},
	} {
		t.Run(name, func(t *testing.T) {
			conn := connect(t, address)
			run(t, conn, testpb.NewTestServiceClient(conn))
		})
	}
}
