package main

import (
	"bufio"
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
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/filohttp/filo/bench/internal/proc"
)

const (
	unaryMethod  = "/grpc.testing.TestService/UnaryCall"
	streamMethod = "/grpc.testing.TestService/StreamingOutputCall"
	duplexMethod = "/grpc.testing.TestService/FullDuplexCall"

	payloadSize    = 100 // bytes
	streamMessages = 1000
	warmup         = time.Second
	measured       = 2 * time.Second
)

func payload() *testpb.Payload { return &testpb.Payload{Body: make([]byte, payloadSize)} }

// row is something that is measured.
type row struct {
	name, unit string
	// variant is appended to the server's name.
	variant string
	// load loads the server for the duration, and returns how many units of work it has done. It is nil if something else is measured.
	load func(ctx context.Context, address string, d time.Duration) (done float64, err error)
	// latency returns a latency in microseconds.
	latency func(ctx context.Context, address string) (float64, error)
	// wait makes clients that wait, and returns what ends them.
	wait func(ctx context.Context, address string) (end func(), err error)
}

// rows are all rows. By h2load there are 64 connections, with as many streams on each as the name says.
var rows = []row{
	{name: "unary-1", unit: "µs/call", load: h2load(unaryMethod, 1)},
	{name: "unary-10", unit: "µs/call", load: h2load(unaryMethod, 10)},
	{name: "unary-100", unit: "µs/call", load: h2load(unaryMethod, 100)},
	{name: "everything-10", unit: "µs/call", variant: everything, load: h2load(unaryMethod, 10, "grpc-timeout: 10S", "tenant: a", "trace-bin: AAEC")},
	{name: "client-10", unit: "µs/call", load: byClient(8, 10, callUnary)},
	{name: "stream", unit: "µs/1000 messages", load: h2load(streamMethod, 1)},
	{name: "stream-10", unit: "µs/1000 messages", load: h2load(streamMethod, 10)},
	{name: "client-stream", unit: "µs/1000 messages", load: byClient(4, 4, callStream)},
	{name: "ping-pong", unit: "µs/message", load: byClient(8, 8, pingPong)},
	{name: "p99-70", unit: "µs", latency: latencyAt(0.7, 0.99)},
	{name: "idle-streams", unit: "MB for 10,000", wait: idle(100, 100)},
	{name: "idle-conns", unit: "MB for 1,000", wait: idle(1000, 0)},
}

// run measures the row with a server: microseconds of CPU time for a unit of work, or megabytes.
func (r *row) run(ctx context.Context, name string) (figure float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if r.variant != "" && servers[name+r.variant] == nil {
		r = &row{load: r.load} // without everything: its figure is lower than it should be
	}
	program, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, program, "-serve", name+r.variant)
	if name == nameCpp {
		cmd = exec.CommandContext(ctx, cppProgram)
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer cmd.Wait()
	defer in.Close()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return 0, errors.Join(errors.New("the server hasn't started"), lines.Err())
	}
	address, pids := lines.Text(), []int{cmd.Process.Pid}
	if err := check(ctx, address); err != nil {
		return 0, err
	}
	if r.latency != nil {
		return r.latency(ctx, address)
	}
	if r.load == nil {
		return measureMemory(ctx, r, address, pids, func() error {
			fmt.Fprintln(in, "free")
			lines.Scan()
			return lines.Err()
		})
	}
	if _, err := r.load(ctx, address, warmup); err != nil {
		return 0, err
	}
	before, err := proc.ReadUsage(pids)
	if err != nil {
		return 0, err
	}
	done, err := r.load(ctx, address, measured)
	if err != nil {
		return 0, err
	}
	after, err := proc.ReadUsage(pids)
	return float64(after.Minus(before).CPU.Nanoseconds()) / 1000 / done, err
}

// measureMemory returns how many megabytes the server takes for the clients that wait.
func measureMemory(ctx context.Context, r *row, address string, pids []int, free func() error) (megabytes float64, err error) {
	_, before, err := proc.ReadMemory(pids)
	if err != nil {
		return 0, err
	}
	end, err := r.wait(ctx, address)
	if err != nil {
		return 0, err
	}
	defer end()
	if err := free(); err != nil {
		return 0, err
	}
	_, after, err := proc.ReadMemory(pids)
	return (float64(after) - float64(before)) / 1e6, err
}

// check makes a call as it is loaded: h2load doesn't look at the status of gRPC.
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

// h2load returns a load by h2load's 64 connections.
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

// runH2load returns how many answers h2load has got.
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

// latencyAt returns a quantile of the latencies of unary calls that come at a constant rate, whatever the server does: at a part of the highest
// rate of the server that is measured first.
func latencyAt(part, quantile float64) func(context.Context, string) (float64, error) {
	highest := 0.0 // calls per second
	return func(ctx context.Context, address string) (float64, error) {
		if highest == 0 {
			done, err := runH2load(ctx, address, unaryMethod, 10, measured)
			if err != nil {
				return 0, err
			}
			highest = done / measured.Seconds()
		}
		file, err := os.CreateTemp("", "latencies")
		if err != nil {
			return 0, err
		}
		defer os.Remove(file.Name())
		defer file.Close()
		rate := max(1, int(part*highest/h2loadConns))
		if _, err := runH2load(ctx, address, unaryMethod, 100, measured, "--rps", strconv.Itoa(rate), "--log-file", file.Name()); err != nil {
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

// message returns a message for the method as it is sent.
func message(method string) []byte {
	var m proto.Message = new(testpb.StreamingOutputCallRequest)
	if method == unaryMethod {
		m = &testpb.SimpleRequest{Payload: payload()}
	}
	data, _ := proto.Marshal(m) // it can't fail for these messages
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)
}

// readH2load returns how many answers h2load has counted. A failure is an error.
func readH2load(out []byte) (done float64, err error) {
	var total, started, finished, succeeded, failed, errored float64
	_, counts, _ := bytes.Cut(out, []byte("\nrequests: "))
	_, err = fmt.Fscanf(bytes.NewReader(counts), "%f total, %f started, %f done, %f succeeded, %f failed, %f errored", &total, &started, &finished, &succeeded, &failed, &errored)
	if err != nil || failed+errored > 0 || succeeded == 0 {
		return 0, fmt.Errorf("h2load: %v: %s", err, out)
	}
	return succeeded, nil
}

// dial returns clients, each of which has a connection of its own.
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

// byClient returns a load by grpc-go's client: each stream of each connection makes calls, one after the other.
func byClient(conns, streams int, call func(context.Context, testpb.TestServiceClient, time.Time) (float64, error)) func(context.Context, string, time.Duration) (float64, error) {
	return func(ctx context.Context, address string, d time.Duration) (float64, error) {
		clients, end, err := dial(address, conns)
		if err != nil {
			return 0, err
		}
		defer end()
		ctx = context.WithoutCancel(ctx) // calls have no deadline; the server ends with ctx
		var all sync.WaitGroup
		var mu sync.Mutex
		var sum float64
		until := time.Now().Add(d)
		for _, client := range clients {
			for range streams {
				all.Go(func() {
					for time.Now().Before(until) {
						done, failed := call(ctx, client, until)
						mu.Lock()
						sum += done
						err = errors.Join(err, failed)
						mu.Unlock()
						if failed != nil {
							return
						}
					}
				})
			}
		}
		all.Wait()
		return sum, err
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

// exchange sends a message, and awaits the answer.
func exchange(stream testpb.TestService_FullDuplexCallClient) error {
	if err := stream.Send(&testpb.StreamingOutputCallRequest{Payload: payload()}); err != nil {
		return err
	}
	_, err := stream.Recv()
	return err
}

// idle returns a wait by connections with streams that have had a message in each direction.
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
