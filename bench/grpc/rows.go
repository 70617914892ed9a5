package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/filohttp/filo/bench/internal/turns"
)

const (
	unaryMethod  = "/grpc.testing.TestService/UnaryCall"
	streamMethod = "/grpc.testing.TestService/StreamingOutputCall"
	duplexMethod = "/grpc.testing.TestService/FullDuplexCall"

	payloadSize    = 100 // bytes
	streamMessages = 1000
)

func payload() *testpb.Payload { return &testpb.Payload{Body: make([]byte, payloadSize)} }

// rows are all rows. h2load opens 64 connections. In a row whose Load is h2load, the number in the name counts the streams on each connection.
var rows = []turns.Row{
	{Name: "unary-1", Unit: "µs/call", Load: h2load(unaryMethod, 1)},
	{Name: "unary-10", Unit: "µs/call", Load: h2load(unaryMethod, 10)},
	{Name: "unary-100", Unit: "µs/call", Load: h2load(unaryMethod, 100)},
	{Name: "everything-10", Unit: "µs/call", Variant: everything, Load: h2load(unaryMethod, 10, "grpc-timeout: 10S", "tenant: a", "trace-bin: AAEC")},
	{Name: "client-10", Unit: "µs/call", Load: byClient(8, 10, callUnary)},
	{Name: "stream", Unit: "µs/1000 messages", Load: h2load(streamMethod, 1)},
	{Name: "stream-10", Unit: "µs/1000 messages", Load: h2load(streamMethod, 10)},
	{Name: "client-stream", Unit: "µs/1000 messages", Load: byClient(4, 4, callStream)},
	{Name: "ping-pong", Unit: "µs/message", Load: byClient(8, 8, pingPong)},
	{Name: "p99-70", Unit: "µs", Figure: latencyAt(0.7, 0.99)},
	{Name: "idle-streams", Unit: "MB for 10,000", Wait: idle(100, 100)},
	{Name: "idle-conns", Unit: "MB for 1,000", Wait: idle(1000, 0)},
}

// check makes one call of the kind that h2load makes, since h2load doesn't check the gRPC status.
func check(ctx context.Context, address string) error {
	clients, end, err := dial(address, 1)
	if err != nil {
		return err
	}
	defer end()
	answer, err := clients[0].UnaryCall(metadata.AppendToOutgoingContext(ctx, "tenant", "a"), &testpb.SimpleRequest{Payload: payload()})
	if err == nil && !proto.Equal(answer.Payload, payload()) {
		err = fmt.Errorf("the answer is %v", answer)
	}
	return err
}

// h2load returns a function that loads a server with h2load, over 64 connections.
func h2load(method string, streams int, header ...string) func(context.Context, string, time.Duration) (float64, error) {
	return func(ctx context.Context, address string, d time.Duration) (float64, error) {
		var options []string
		for _, field := range header {
			options = append(options, "-H", field)
		}
		return runH2load(ctx, address, method, streams, d, options...)
	}
}

const h2loadConns = 64

// runH2load runs h2load, and returns how many answers it has received.
func runH2load(ctx context.Context, address, method string, streams int, d time.Duration, options ...string) (done float64, err error) {
	body, err := os.CreateTemp("", "call")
	if err != nil {
		return 0, err
	}
	defer os.Remove(body.Name())
	defer body.Close()
	if _, err := body.Write(message(method)); err != nil {
		return 0, err
	}
	args := append([]string{"-t1", "-c", strconv.Itoa(h2loadConns), "-m", strconv.Itoa(streams), "-D", fmt.Sprint(d.Seconds()), "-d", body.Name(),
		"-H", "content-type: application/grpc", "-H", "te: trailers"}, options...)
	out, err := exec.CommandContext(ctx, "h2load", append(args, "http://"+address+method)...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("h2load: %w: %s", err, out)
	}
	return readH2load(out)
}

// latencyAt returns a function that measures a quantile of the latencies of unary calls at a constant rate. The rate is the same for all servers: the
// highest rate of the server that is measured first, multiplied by part.
func latencyAt(part, quantile float64) func(context.Context, string) (float64, error) {
	highest := 0.0 // calls per second
	return func(ctx context.Context, address string) (float64, error) {
		if highest == 0 {
			done, err := runH2load(ctx, address, unaryMethod, 10, turns.Measured)
			if err != nil {
				return 0, err
			}
			highest = done / turns.Measured.Seconds()
		}
		file, err := os.CreateTemp("", "latencies")
		if err != nil {
			return 0, err
		}
		defer os.Remove(file.Name())
		defer file.Close()
		rate := max(1, int(part*highest/h2loadConns))
		if _, err := runH2load(ctx, address, unaryMethod, 100, turns.Measured, "--rps", strconv.Itoa(rate), "--log-file", file.Name()); err != nil {
			return 0, err
		}
		return readLatencies(file, quantile)
	}
}

// readLatencies returns a quantile of the latencies in h2load's log, which has the start, the status and the latency of each call.
func readLatencies(log io.Reader, quantile float64) (float64, error) {
	var all []float64
	for {
		var start, status, latency float64
		if _, err := fmt.Fscanln(log, &start, &status, &latency); err == io.EOF {
			break
		} else if err != nil {
			return 0, fmt.Errorf("h2load's log: %w", err)
		}
		all = append(all, latency)
	}
	if len(all) == 0 {
		return 0, errors.New("h2load has logged no call")
	}
	slices.Sort(all)
	return all[int(float64(len(all)-1)*quantile)], nil
}

// message returns a message for the method in the form in which it is sent.
func message(method string) []byte {
	var m proto.Message = new(testpb.StreamingOutputCallRequest)
	if method == unaryMethod {
		m = &testpb.SimpleRequest{Payload: payload()}
	}
	data, _ := proto.Marshal(m) // it can't fail for these messages
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)
}

// readH2load returns how many answers h2load has counted. It fails if h2load reports failed requests.
func readH2load(out []byte) (done float64, err error) {
	var total, started, finished, succeeded, failed, errored float64
	_, counts, _ := bytes.Cut(out, []byte("\nrequests: "))
	_, err = fmt.Fscanf(bytes.NewReader(counts), "%f total, %f started, %f done, %f succeeded, %f failed, %f errored", &total, &started, &finished, &succeeded, &failed, &errored)
	if err != nil || failed+errored > 0 || succeeded == 0 {
		return 0, fmt.Errorf("h2load: %v: %s", err, out)
	}
	return succeeded, nil
}

// dial returns n clients, each with a separate connection.
func dial(address string, n int) (clients []testpb.TestServiceClient, end func(), err error) {
	var conns []*grpc.ClientConn
	end = func() {
		for _, conn := range conns {
			conn.Close()
		}
	}
	for range n {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			end()
			return nil, nil, err
		}
		conns = append(conns, conn)
		clients = append(clients, testpb.NewTestServiceClient(conn))
	}
	return clients, end, nil
}

// byClient returns a function that loads a server with grpc-go's client: each stream of each connection makes calls, one after the other.
func byClient(conns, streams int, call func(context.Context, testpb.TestServiceClient, time.Time) (float64, error)) func(context.Context, string, time.Duration) (float64, error) {
	return func(ctx context.Context, address string, d time.Duration) (float64, error) {
		clients, end, err := dial(address, conns)
		if err != nil {
			return 0, err
		}
		defer end()
		ctx = context.WithoutCancel(ctx) // calls have no deadline; the server ends with ctx
		return turns.Repeat(conns*streams, d, func(i int, until time.Time) (float64, error) { return call(ctx, clients[i%conns], until) })
	}
}

func callUnary(ctx context.Context, client testpb.TestServiceClient, _ time.Time) (float64, error) {
	_, err := client.UnaryCall(ctx, &testpb.SimpleRequest{Payload: payload()})
	return 1, err
}

func callStream(ctx context.Context, client testpb.TestServiceClient, _ time.Time) (float64, error) {
	stream, err := client.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{})
	if err != nil {
		return 0, err
	}
	for n := 0; ; n++ {
		if _, err := stream.Recv(); err == io.EOF && n == streamMessages {
			return 1, nil
		} else if err != nil {
			return 0, fmt.Errorf("after %d messages: %w", n, err)
		}
	}
}

func pingPong(ctx context.Context, client testpb.TestServiceClient, until time.Time) (done float64, err error) {
	stream, err := client.FullDuplexCall(ctx)
	if err != nil {
		return 0, err
	}
	for ; time.Now().Before(until); done++ {
		if err := exchange(stream); err != nil {
			return done, err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return done, err
	}
	if _, err := stream.Recv(); err != io.EOF {
		return done, fmt.Errorf("the stream didn't end: %w", err)
	}
	return done, nil
}

// exchange sends a message, and waits for the answer.
func exchange(stream testpb.TestService_FullDuplexCallClient) error {
	if err := stream.Send(&testpb.StreamingOutputCallRequest{Payload: payload()}); err != nil {
		return err
	}
	_, err := stream.Recv()
	return err
}

// idle returns a function that opens connections and streams, exchanges one message on each stream, and leaves them idle.
func idle(conns, streams int) func(context.Context, string) (func(), error) {
	return func(ctx context.Context, address string) (func(), error) {
		clients, end, err := dial(address, conns)
		if err != nil {
			return nil, err
		}
		ctx = context.WithoutCancel(ctx) // as in byClient
		for _, client := range clients {
			if _, err := callUnary(ctx, client, time.Time{}); err != nil {
				end()
				return nil, err
			}
			for range streams {
				stream, err := client.FullDuplexCall(ctx)
				if err == nil {
					err = exchange(stream)
				}
				if err != nil {
					end()
					return nil, err
				}
			}
		}
		return end, nil
	}
}
