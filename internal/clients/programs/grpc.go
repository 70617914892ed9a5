//go:build ignore

// This program serves gRPC with filo, and uses gRPC's own client to make the calls of the interoperability tests. Its arguments are the
// duration, and filo's driver.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	duration, err := time.ParseDuration(os.Args[1])
	if err != nil {
		return err
	}
	driver, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	service := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(service, interop.NewTestServer())
	server := &filo.Server{Handler: adaptor.FromHTTP(service), Driver: filo.Driver(driver), HTTP2: filo.HTTP2Options{Unencrypted: true}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go server.Serve(l)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	client := testgrpc.NewTestServiceClient(conn)
	calls := []func(context.Context){
		func(ctx context.Context) { interop.DoEmptyUnaryCall(ctx, client) },
		func(ctx context.Context) { interop.DoLargeUnaryCall(ctx, client) },
		func(ctx context.Context) { interop.DoClientStreaming(ctx, client) },
		func(ctx context.Context) { interop.DoServerStreaming(ctx, client) },
		func(ctx context.Context) { interop.DoPingPong(ctx, client) },
		func(ctx context.Context) { interop.DoEmptyStream(ctx, client) },
		func(ctx context.Context) { interop.DoTimeoutOnSleepingServer(ctx, client) },
		func(ctx context.Context) { cancelAfterBegin(ctx, client) },
		func(ctx context.Context) { interop.DoCancelAfterFirstResponse(ctx, client) },
		func(ctx context.Context) { interop.DoStatusCodeAndMessage(ctx, client) },
		func(ctx context.Context) { interop.DoSpecialStatusMessage(ctx, client) },
		func(ctx context.Context) { interop.DoUnimplementedMethod(ctx, conn) },
		func(ctx context.Context) { interop.DoCustomMetadata(ctx, client) },
	}
	// A failed call ends this program, because package interop calls Fatal of gRPC's logger.
	made := make([]int, 6)
	var all sync.WaitGroup
	for i := range made {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), duration+20*time.Second)
			defer cancel()
			for end, n := time.Now().Add(duration), i; time.Now().Before(end); n++ {
				calls[n%len(calls)](ctx)
				made[i]++
			}
		})
	}
	all.Wait()
	sum, failures, first := 0, 0, ""
	for _, n := range made {
		sum += n
	}
	if stats := server.Stats(); stats.Refusals != (filo.Refusals{}) || stats.ConnsAccepted != 1 {
		failures, first = 1, fmt.Sprintf("%d connections, refused: %+v", stats.ConnsAccepted, stats.Refusals)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"requests": sum, "failures": failures, "first": first})
}

// cancelAfterBegin cancels a call whose request is unfinished, so the server can't answer it. It replaces DoCancelAfterBegin of the
// interoperability tests, in which the client finishes the request right after it has cancelled the call. The answer to that call may arrive
// before the client has noticed the cancellation. The client then reports the answer or the cancellation at random. This happens with gRPC's
// own server as well.
func cancelAfterBegin(ctx context.Context, client testgrpc.TestServiceClient) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.StreamingInputCall(ctx)
	if err != nil {
		log.Fatalf("StreamingInputCall: %v", err)
	}
	cancel()
	if err := stream.RecvMsg(new(testgrpc.StreamingInputCallResponse)); status.Code(err) != codes.Canceled {
		log.Fatalf("a call that was cancelled before its request was finished: %v", err)
	}
}
