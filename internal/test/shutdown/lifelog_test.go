package shutdown

import (
	"context"
	"io"
	"log/slog"
	"net"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
)

// lifeRecords returns the log records about the server's start and end, without the parts that differ between runs.
func lifeRecords(log *filotest.Log) string {
	var records []string
	for _, name := range filotest.LifeMessages {
		for _, line := range log.Lines("msg=" + name) {
			line = regexp.MustCompile(`^.*level=`).ReplaceAllString(strings.TrimSpace(line), "")
			records = append(records, regexp.MustCompile(`took=\S+`).ReplaceAllString(line, "took=T"))
		}
	}
	return strings.Join(records, "\n")
}

// However often Shutdown and Close are called, the server logs each of these once: what it serves, that it drains, and how it has ended.
func TestLifeLog(t *testing.T) {
	log := new(filotest.Log)
	config := &filo.Server{Handler: filotest.NewGate().Handle, Logger: log.Logger(), Leaders: 1, MaxConns: 9, Queue: 5, IdleTimeout: -1, ReadTimeout: time.Minute}
	config.HTTP2.Unencrypted = true
	memory := servertest.NewListener()
	s := filotest.Serve(t, config, filotest.Listen(t, "tcp", "127.0.0.1:0"), memory)
	c := s.Dial(t)
	c.Get("/")
	c.Want(200, "quick", false)
	filotest.Await(t, "both listeners to be served", func() bool { return len(log.Lines("msg=serving")) == 2 })
	if err := s.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.Shutdown(context.Background())
	s.Close()
	driver := "driver=loop leaders=1"
	if filotest.Blocking() {
		driver = "driver=blocking"
	}
	limits := ` tls=false protocols="http/1.1 h2c" concurrency=262144 queue=5 max_conns=9 read_timeout=1m0s idle_timeout=0s go=` + runtime.Version() + " filo=" + filo.Version() + "\n"
	first, second := "INFO msg=serving address="+s.Addr+" "+driver+limits, "INFO msg=serving address="+memory.Addr().String()+" driver=blocking"+limits
	end := func(address string) string {
		return "INFO msg=draining address=" + address + " connections=1 tasks=0\nINFO msg=stopped address=" + address +
			" took=T connections_cut=0 tasks_cut=0 requests_while_draining=0 requests=1"
	}
	inOrder, reversed := end(`"`+s.Addr+" "+memory.Addr().String()+`"`), end(`"`+memory.Addr().String()+" "+s.Addr+`"`)
	switch got := lifeRecords(log); got {
	case first + second + inOrder, first + second + reversed, second + first + inOrder, second + first + reversed:
	default:
		t.Errorf("logged\n%s\nwant\n%s", got, first+second+inOrder)
	}
}

// Close doesn't drain, and logs which requests it has cut off. Over TLS, the record "serving" lists the protocols that the server offers.
func TestLifeLogOfClose(t *testing.T) {
	log, gate := new(filotest.Log), filotest.NewGate()
	s := filotest.ListenTLS(t, &filo.Server{Handler: gate.Handle, Logger: log.Logger(), MaxConns: 50})
	gate.Hold(t, s.DialTLS(t))
	s.Close()
	gate.Open()
	got := lifeRecords(log)
	got, cut, _ := strings.Cut(got, " requests_cut=") // lists the request, if the monitor has noticed that its handler takes long
	if cut != "" && !strings.HasPrefix(cut, `"no route 1 (`) {
		t.Errorf("cut: %s", cut)
	}
	if !strings.Contains(got, ` tls=true protocols="h2 http/1.1" concurrency=262144 queue=0 max_conns=50 go=`) ||
		!strings.HasSuffix(got, "\nINFO msg=stopped address="+s.Addr+" took=T connections_cut=1 tasks_cut=0 requests_while_draining=0 requests=0") || strings.Count(got, "\n") != 1 {
		t.Errorf("logged\n%s", got)
	}
}

// endingConn is a connection whose first Close closes cut, and returns only after the server has logged "stopped".
type endingConn struct {
	net.Conn
	closed  atomic.Bool
	cut     chan struct{}
	stopped <-chan struct{}
}

func (c *endingConn) Close() error {
	err := c.Conn.Close()
	if !c.closed.Swap(true) {
		close(c.cut)
		<-c.stopped
	}
	return err
}

// endingListener accepts one endingConn.
type endingListener struct {
	net.Listener
	cut     chan struct{}   // closed by the connection's first Close
	stopped <-chan struct{} // the first Close waits for this
}

func (l endingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &endingConn{Conn: c, cut: l.cut, stopped: l.stopped}, nil
}

// watchedLog is a log that closes seen when a line contains the text.
type watchedLog struct {
	filotest.Log
	text string
	once sync.Once
	seen chan struct{}
}

func (l *watchedLog) Write(p []byte) (int, error) {
	n, err := l.Log.Write(p)
	if strings.Contains(string(p), l.text) {
		l.once.Do(func() { close(l.seen) })
	}
	return n, err
}

// If Close cuts off the connections for which Shutdown waits, Shutdown ends and logs their number.
func TestLifeLogOfShutdownCutOff(t *testing.T) {
	log := &watchedLog{text: "msg=stopped", seen: make(chan struct{})}
	reads, cut := make(chan struct{}), make(chan struct{})
	memory := servertest.NewListener()
	s := &filo.Server{Logger: slog.New(slog.NewTextHandler(log, nil)), Handler: func(c *filo.Ctx) error {
		close(reads)
		_, err := c.Body()
		<-cut // if the handler returned earlier, the server might close the connection itself, and Close would wait for that without cutting anything off
		return err
	}}
	served := make(chan error, 1)
	go func() { served <- s.Serve(endingListener{memory, cut, log.seen}) }()
	client, err := memory.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	io.WriteString(client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nbeginning")
	<-reads
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(context.Background()) }()
	filotest.Await(t, "the drain", func() bool { return len(log.Lines("msg=draining")) == 1 })
	s.Close()
	if err := <-ended; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	<-served
	if got := lifeRecords(&log.Log); !strings.Contains(got, "msg=stopped address="+memory.Addr().String()+" took=T connections_cut=1 tasks_cut=0 ") {
		t.Errorf("logged\n%s", got)
	}
}

// A server that only serves single connections with ServeConn logs nothing about its start and end.
func TestNoLifeLog(t *testing.T) {
	log := new(filotest.Log)
	s := &filo.Server{Handler: filotest.NewGate().Handle, Logger: log.Logger()}
	client, server := servertest.Pipe()
	go io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	go io.Copy(io.Discard, client)
	if err := s.ServeConn(server); err != nil {
		t.Error(err)
	}
	s.Close()
	if got := lifeRecords(log); got != "" {
		t.Errorf("logged %s", got)
	}
}
