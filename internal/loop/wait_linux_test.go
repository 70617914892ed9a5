package loop

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/sock"
)

// exchanges is a connection on which, in each round, one goroutine receives while another one sends. Both wait whenever they must.
type exchanges struct {
	Socket
	stubServed
	t      *testing.T
	size   int // bytes of each round in each direction
	rounds int // how many rounds are left
	alone  int // how often a goroutine has waited by itself
	handed bool
	done   chan struct{}
}

func (e *exchanges) BeforeWait() error { return nil }

func (e *exchanges) Turn(*Worker) bool {
	e.WokenBy()
	if e.rounds > 0 && !e.handed {
		e.handed = true
		go e.serve()
		return false
	}
	e.CloseSocket()
	close(e.done)
	return false
}

// serve runs rounds until the connection is idle between two rounds.
func (e *exchanges) serve() {
	for {
		var both sync.WaitGroup
		stop := make(chan struct{})
		both.Go(func() { e.move(make([]byte, 1000), e.Read) })
		both.Go(func() { e.move(bytes.Repeat([]byte("b"), 1000), e.Write) })
		var expiring sync.WaitGroup
		expiring.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					e.expire(rand.IntN(2) == 0)
				}
			}
		})
		both.Wait()
		close(stop)
		expiring.Wait()
		for i := range directions {
			if e.waiters.Load().waiter[i].polled.Load() != nil {
				e.alone++
			}
		}
		e.rounds--
		e.handed = false
		e.clear(pollReadExpired | pollWriteExpired)
		// One event reports all bytes that have arrived. So all of them must be read before the connection begins to wait.
		if _, err := e.Peek(make([]byte, 1)); err == ErrNotYet && e.Release(false) {
			return
		}
		e.WokenBy()
		if e.rounds == 0 {
			e.CloseSocket()
			close(e.done)
			return
		}
		e.handed = true
	}
}

// move transfers a round's bytes by calling Read or Write, whose deadlines pass again and again.
func (e *exchanges) move(piece []byte, call func([]byte) (int, error)) {
	for left := e.size; left > 0; {
		n, err := call(piece[:min(left, len(piece))])
		left -= n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			e.clear(pollReadExpired | pollWriteExpired)
		} else if err != nil {
			e.t.Error(err)
			return
		}
	}
}

// socketPair returns two descriptors that are connected. The caller closes them.
func socketPair(t *testing.T) [2]int {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fds
}

// Goroutines that wait again and again wait "by themselves" (see polledSocket), on a limited number of polledSockets. No byte is lost when a
// goroutine begins or ceases to wait on a polledSocket, whatever wakes it. All descriptors are closed at the end.
func TestPolledSockets(t *testing.T) {
	const clients, rounds, size = 6, 8, 300_000
	var all sync.WaitGroup
	g, err := NewGroup([]Workers{&seatWorkers{all: &all}, &seatWorkers{all: &all}}, new(atomic.Bool))
	if err != nil {
		t.Fatal(err)
	}
	g.maxPolled = clients / 2
	g.Start()
	l := g.loops[0]
	var group sync.WaitGroup
	var served []*exchanges
	for i := range clients {
		fds := socketPair(t)
		file := os.NewFile(uintptr(fds[0]), "")
		client, err := net.FileConn(file)
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
		syscall.SetsockoptInt(fds[1], syscall.SOL_SOCKET, syscall.SO_SNDBUF, 20_000)
		e := &exchanges{t: t, size: size, rounds: rounds, done: make(chan struct{})}
		served = append(served, e)
		e.Open(fds[1], sock.Address{}, e)
		if err := l.Add(&e.Socket); err != nil {
			t.Fatal(err)
		}
		if !e.Release(false) {
			e.Post()
		}
		group.Go(func() {
			defer client.Close()
			random := rand.New(rand.NewPCG(uint64(i), 0))
			for range rounds {
				client.SetDeadline(time.Now().Add(time.Minute))
				var both sync.WaitGroup
				both.Go(func() {
					for left := size; left > 0; {
						n, err := client.Write(bytes.Repeat([]byte("a"), min(left, 1+random.IntN(40_000))))
						if left -= n; err != nil {
							t.Error(err)
							return
						}
					}
				})
				if n, err := io.CopyN(io.Discard, client, size); err != nil {
					t.Errorf("%d bytes, %v", n, err)
				}
				both.Wait()
			}
			client.Close()
			<-e.done
		})
	}
	group.Wait()
	alone := 0
	for _, e := range served {
		alone += e.alone
	}
	if alone == 0 || alone == clients*rounds*2 {
		t.Errorf("of %d times, goroutines waited by themselves %d times", clients*rounds*2, alone)
	}
	if n := g.polled.Load(); n != 0 {
		t.Errorf("%d sockets are still watched", n)
	}
	endTestGroup(t, g, &all)
}

// The loop wakes a goroutine that still waits by itself when moveBack is called.
func TestPolledSocketLeftBehind(t *testing.T) {
	l := newTestLoop(t, 1)
	l.group.maxPolled = 1
	s := new(Socket)
	fds := socketPair(t)
	defer syscall.Close(fds[0])
	s.Open(fds[1], sock.Address{}, new(waitingServed))
	if err := l.Add(s); err != nil {
		t.Fatal(err)
	}
	s.MakeWaiters()
	s.waiters.Load().waiter[input].waits = loopWaits
	type result struct {
		n     int
		errno syscall.Errno
		err   error
	}
	done := make(chan result)
	go func() {
		n, errno, err := s.callLater(input, make([]byte, 10))
		done <- result{n, errno, err}
	}()
	for s.poll.Load()&pollReadParked == 0 {
		time.Sleep(time.Millisecond)
	}
	first := s.waiters.Load().waiter[input].polled.Load()
	if first == nil {
		t.Fatal("it waits for the loop")
	}
	s.moveBack()
	if n := l.group.polled.Load(); n != 0 {
		t.Errorf("%d sockets are still watched", n)
	}
	s.event(syscall.EPOLLIN)
	if r := <-done; r != (result{0, syscall.EAGAIN, nil}) {
		t.Errorf("%+v", r)
	}
	if another := s.moveOut(input); another != nil {
		t.Error("the first wait of a request is by itself")
	}
	another := s.moveOut(input)
	if another == nil || another == first {
		t.Errorf("%p is the next one", another)
	}
	s.moveOut(output)
	if same := s.moveOut(output); same != another {
		t.Errorf("%p for output, %p for input", same, another)
	}
	s.CloseSocket()
	if n := l.group.polled.Load(); n != 0 {
		t.Errorf("%d sockets are still watched", n)
	}
}

// waitingServed is a stubServed that may wait.
type waitingServed struct{ stubServed }

func (*waitingServed) BeforeWait() error { return nil }

// connectedSocket returns a socket in the loop, and its client.
func connectedSocket(t *testing.T, l *Loop) (*Socket, *net.TCPConn) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	s := new(Socket)
	s.Open(duplicateOf(t, accepted), sock.Address{}, new(waitingServed))
	if err := l.Add(s); err != nil {
		t.Fatal(err)
	}
	return s, client.(*net.TCPConn)
}

// A Read that wants more bytes than have arrived waits for them, but only until its deadline. Then it returns the bytes that have arrived. A
// single byte claims an idle connection.
func TestWanted(t *testing.T) {
	l := newTestLoop(t, 1)
	s, client := connectedSocket(t, l)
	s.Want(1000)
	type result struct {
		n   int
		err error
	}
	results := make(chan result)
	read := func() {
		n, err := s.Read(make([]byte, 2000))
		results <- result{n, err}
	}
	parked := func() {
		for s.poll.Load()&pollReadParked == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	want := func(n int, err error) {
		t.Helper()
		if r := <-results; r.n != n || !errors.Is(r.err, err) {
			t.Errorf("read %d bytes, %v; want %d, %v", r.n, r.err, n, err)
		}
	}
	events := func() {
		l.beginFilling()
		for range 20 {
			l.poll()
			time.Sleep(time.Millisecond)
		}
		l.endFilling()
		for e, ok := l.take(); ok; e, ok = l.take() {
			if e.socket != nil {
				e.socket.event(e.events)
			}
		}
	}
	go read()
	parked()
	client.Write(make([]byte, 500))
	events()
	if s.poll.Load()&pollReadParked == 0 {
		t.Error("500 bytes have ended the wait")
	}
	client.Write(make([]byte, 500))
	events()
	want(1000, nil)

	go read()
	parked()
	client.Write(make([]byte, 10))
	events()
	s.expire(false)
	want(10, nil)
	go read()
	want(0, os.ErrDeadlineExceeded)
	s.clear(pollReadExpired)

	for !s.Release(false) {
	}
	client.Write(make([]byte, 1))
	events()
	if s.poll.Load()&pollBusy == 0 {
		t.Error("the byte hasn't claimed the connection")
	}
}
