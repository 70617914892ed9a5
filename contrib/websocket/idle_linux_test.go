package websocket_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/websocket"
)

// idleClient is the environment variable that makes the test binary a client. It contains the server's address and the number of connections to open.
const idleClient = "FILO_WEBSOCKET_IDLE_CLIENT"

func TestMain(m *testing.M) {
	if address, count, ok := strings.Cut(os.Getenv(idleClient), " "); ok {
		n, _ := strconv.Atoi(count)
		if err := beIdle(address, n); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// beIdle opens connections, sends one message on each of them, and keeps them open until the standard input ends.
func beIdle(address string, n int) error {
	answer := string(appendServerFrame(nil, fin|text, long))
	for range n {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		io.WriteString(conn, handshake+"\r\n"+frame(fin|text, long))
		var got []byte
		for buffer := make([]byte, 4096); !strings.HasSuffix(string(got), answer); {
			n, err := conn.Read(buffer)
			if got = append(got, buffer[:n]...); err != nil {
				return fmt.Errorf("got %q, %w", got, err)
			}
		}
		opened = append(opened, conn)
	}
	fmt.Println("idle")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// opened holds the connections, since the garbage collector would close them otherwise.
var opened []net.Conn

// appendServerFrame renders a server's frame of 126 to 65535 bytes.
func appendServerFrame(b []byte, first byte, payload string) []byte {
	return append(binary.BigEndian.AppendUint16(append(b, first, 126), uint16(len(payload))), payload...)
}

// An idle WebSocket opened by Serve has no goroutine and no buffers: it adds at most 2 KB to the memory of an idle server.
func TestIdleMemory(t *testing.T) {
	n := 9000
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); raceEnabled || limit.Cur < uint64(n)+200 {
		n = 500
	}
	address := serveHandler(t, filo.DriverLoop, websocket.New(websocket.Options{OnMessage: echo}).Serve)
	startIdle(t, address, 20) // makes the server allocate the memory that doesn't depend on the number of connections
	goroutines, heap, resident := settled()
	startIdle(t, address, n)
	var goroutinesNow int
	var perHeap, perResident float64
	for end := time.Now().Add(testTimeout); ; { // on a busy machine some idle workers end later
		var heapNow, residentNow int64
		goroutinesNow, heapNow, residentNow = settled()
		perHeap, perResident = float64(heapNow-heap)/float64(n), float64(residentNow-resident)/float64(n)
		small := perHeap <= 2048 && (perResident <= 2048 || n != 9000)
		if goroutinesNow-goroutines <= 20 && small || time.Now().After(end) {
			break
		}
	}
	t.Logf("%d idle WebSockets: %.0f bytes of heap and %.0f bytes resident each, %d goroutines more", n, perHeap, perResident, goroutinesNow-goroutines)
	if more := goroutinesNow - goroutines; more > 20 {
		t.Errorf("%d goroutines for %d connections", more, n)
	}
	if !raceEnabled && (perHeap > 2048 || n == 9000 && perResident > 2048) {
		t.Error("that is more than 2 KB")
	}
}

// startIdle starts a process that opens connections.
func startIdle(t *testing.T, address string, n int) {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), fmt.Sprint(idleClient, "=", address, " ", n))
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		command.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "idle\n" {
		t.Fatalf("the client says %q, %v", line, err)
	}
}

// settled waits until the process is idle, and returns how many goroutines and how much memory it has.
func settled() (goroutines int, heap, resident int64) {
	for range 3 {
		debug.FreeOSMemory()
		time.Sleep(20 * time.Millisecond) // for finalizers, and for pools, which empty in two steps
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	statm, _ := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(statm))
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return runtime.NumGoroutine(), int64(stats.HeapAlloc), pages * int64(os.Getpagesize())
}
