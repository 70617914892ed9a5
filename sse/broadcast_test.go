package sse_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/sse"
)

// Names of environment variables that make the test binary the clients of TestBroadcast: a process has too few descriptors
// for both ends of their connections.
const (
	broadcastAddress = "FILO_SSE_BROADCAST"
	broadcastClients = "FILO_SSE_BROADCAST_CLIENTS"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(broadcastAddress); address != "" {
		var clients int
		fmt.Sscan(os.Getenv(broadcastClients), &clients)
		if err := runBroadcastClients(address, clients); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	broadcastEvents = 20
	broadcastBytes  = 500
	broadcastQueue  = 32 << 10
)

// broadcastReport is a line of the clients' output: it says that all clients have their streams, that all except the slow one have
// received an event, or that something has gone wrong.
type broadcastReport struct {
	Ready bool
	Event int // counted from 1
	Error string
}

// Very many subscribers get every event in order. At the same time, a subscriber that doesn't read is dropped, other requests are served,
// and only a few workers are needed.
func TestBroadcast(t *testing.T) {
	clients := 9000
	if raceEnabled || testing.Short() {
		clients = 1500
	}
	hub := sse.NewHub(sse.HubOptions{MaxQueueBytes: broadcastQueue, MaxSubscribers: clients})
	server := &filo.Server{Handler: serveTopics(hub), Logger: quiet, Concurrency: 100}
	h := serve(t, server, false)
	before := memoryInUse()
	child, reports := startBroadcastClients(t, h.address, clients)
	if report := <-reports; !report.Ready {
		t.Fatalf("the clients: %+v", report)
	}
	// The slow client doesn't report that it has its stream.
	poll(t, "all to be subscribed", func() bool { return hub.Stats().Subscribers == clients })
	poll(t, "the workers to be free", func() bool { return server.Stats().WorkersRunning == 0 })
	each := (memoryInUse() - before) / int64(clients)
	t.Logf("%d subscribers: %d bytes each, %d goroutines", clients, each, runtime.NumGoroutine())
	if most := int64(4 << 10); each > most && !raceEnabled {
		t.Errorf("a subscriber takes %d bytes, over %d", each, most)
	}
	// Idle workers remain for a while: on a busy machine there may be many, but no more than Concurrency.
	if n, most := runtime.NumGoroutine(), server.Concurrency+50; h.Driver != filo.DriverBlocking && runtime.GOOS == "linux" && n > most {
		t.Errorf("%d goroutines, over %d", n, most)
	}
	stop := make(chan bool)
	served := make(chan string)
	go func() { served <- othersServed(t, h, stop) }()
	begin, most := time.Now(), int64(0)
	window := make(chan bool, 3)
	go func() {
		for i := range broadcastEvents {
			window <- true
			publish(t, hub, "all", fmt.Sprint(i, " ", strings.Repeat("x", broadcastBytes)))
			// These events are only for the slow client, whose system buffers some 100 KB before events have to wait in the
			// server.
			for range 13 {
				publish(t, hub, "bulk", strings.Repeat("x", 2000))
			}
		}
	}()
	for i := range broadcastEvents {
		if report := <-reports; report.Event != i+1 || report.Error != "" {
			t.Fatalf("waiting for event %d: %+v", i+1, report)
		}
		if i%10 == 9 {
			most = max(most, memoryInUse()-before)
		}
		<-window
	}
	took := time.Since(begin)
	close(stop)
	t.Logf("%d events to %d subscribers in %v, %.1f µs each; at most %d KB in use meanwhile; %s", broadcastEvents, clients, took,
		float64(took.Microseconds())/broadcastEvents/float64(clients), most>>10, <-served)
	if limit := int64(clients)*(4<<10) + 4<<20; most > limit && !raceEnabled {
		t.Errorf("%d bytes in use, over %d", most, limit)
	}
	poll(t, "the slow one to be dropped", func() bool { return hub.Stats().Dropped == 1 && hub.Stats().Subscribers == clients-1 })
	if overloads := server.Stats().RequestsRefused; overloads > 0 {
		t.Errorf("%d requests were refused", overloads)
	}
	child.Close()
	if report, more := <-reports; more {
		t.Errorf("the clients: %+v", report)
	}
	poll(t, "the subscribers to go", func() bool { return hub.Stats().Subscribers == 0 && server.Stats().ConnsOpen == 0 })
	hub.Close()
}

// startBroadcastClients starts the clients' process. It ends when its input is closed.
func startBroadcastClients(t *testing.T, address string, clients int) (io.Closer, <-chan broadcastReport) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self)
	command.Env = append(os.Environ(), broadcastAddress+"="+address, fmt.Sprint(broadcastClients, "=", clients))
	command.Stderr = os.Stderr
	in, err1 := command.StdinPipe()
	out, err2 := command.StdoutPipe()
	if err1 != nil || err2 != nil || command.Start() != nil {
		t.Fatal("the clients can't be started", err1, err2)
	}
	reports := make(chan broadcastReport, broadcastEvents+1)
	go func() {
		defer close(reports)
		for decoder := json.NewDecoder(out); ; {
			var report broadcastReport
			if decoder.Decode(&report) != nil {
				return
			}
			reports <- report
		}
	}()
	t.Cleanup(func() {
		in.Close()
		kill := time.AfterFunc(patience, func() { command.Process.Kill() })
		defer kill.Stop()
		if err := command.Wait(); err != nil {
			t.Errorf("the clients: %v", err)
		}
	})
	return in, reports
}

// othersServed sends other requests until stop is closed, and returns a summary of the results.
func othersServed(t *testing.T, h *host, stop <-chan bool) string {
	conn, _, err := h.dial(t)
	if err != nil {
		t.Error(err)
		<-stop
		return ""
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	count, longest := 0, time.Duration(0)
	for {
		select {
		case <-stop:
			return fmt.Sprintf("%d other requests, the longest took %v", count, longest.Round(time.Microsecond))
		default:
		}
		begin := time.Now()
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: filo.test\r\n\r\n")
		for line := ""; line != "\r\n"; {
			var err error
			if line, err = in.ReadString('\n'); err != nil {
				t.Errorf("another request: %v", err)
				<-stop
				return ""
			}
		}
		in.Discard(len("fine"))
		longest = max(longest, time.Since(begin))
		count++
		time.Sleep(time.Millisecond)
	}
}

// memoryInUse returns the size of the heap and the stacks in bytes.
func memoryInUse() int64 {
	runtime.GC()
	runtime.GC() // frees objects that pools have dropped
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// broadcastSubscribers are the clients in their process.
type broadcastSubscribers struct {
	address string
	got     [broadcastEvents]atomic.Int64 // how many clients have received the event
	fast    int64

	mu  sync.Mutex
	out *json.Encoder // guarded by mu
}

func (b *broadcastSubscribers) report(r broadcastReport) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out.Encode(r)
}

// runBroadcastClients connects the clients, the first of which never reads, and lets them read until the input is closed.
func runBroadcastClients(address string, clients int) error {
	b := &broadcastSubscribers{address: address, fast: int64(clients - 1), out: json.NewEncoder(os.Stdout)}
	slow, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer slow.Close()
	if _, err := io.WriteString(slow, strings.Replace(broadcastRequest, "all", "all,bulk", 1)); err != nil {
		return err
	}
	var ready sync.WaitGroup
	places := make(chan bool, 50) // limits how many clients connect at once, to half the number of the server's workers
	for range clients - 1 {
		places <- true
		ready.Add(1)
		go func() {
			done := sync.OnceFunc(func() { <-places; ready.Done() })
			defer done()
			if err := b.read(done); err != nil {
				b.report(broadcastReport{Error: err.Error()})
			}
		}()
	}
	ready.Wait()
	b.report(broadcastReport{Ready: true})
	io.Copy(io.Discard, os.Stdin)
	return nil
}

const broadcastRequest = "GET /topics/all HTTP/1.1\r\nHost: filo.test\r\n\r\n"

// read reads all events. It calls ready when it has received the head of its stream.
func (b *broadcastSubscribers) read(ready func()) error {
	conn, err := net.Dial("tcp", b.address)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(conn, broadcastRequest); err != nil {
		return err
	}
	// net/http would need buffers for each client, so the stream is parsed here. No line of the head or of the chunks' framing
	// begins with "data: " or "id: ".
	lines := bufio.NewScanner(conn)
	lines.Buffer(make([]byte, 0, 1<<10), 1<<10)
	next := 0
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "id: ") {
			ready()
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		number, rest, _ := strings.Cut(data, " ")
		if next == broadcastEvents || number != fmt.Sprint(next) || len(rest) != broadcastBytes {
			return fmt.Errorf("got event %q with %d bytes, want %d with %d", number, len(rest), next, broadcastBytes)
		}
		if b.got[next].Add(1) == b.fast {
			b.report(broadcastReport{Event: next + 1})
		}
		next++
	}
	return fmt.Errorf("the stream has ended behind %d events: %v", next, lines.Err())
}
