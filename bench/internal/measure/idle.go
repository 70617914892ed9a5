package measure

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/filohttp/filo/bench/internal/proc"
	"github.com/filohttp/filo/bench/internal/row"
)

// settle is how long the server has after the last answer until its memory is read.
const settle = 300 * time.Millisecond

// idle opens many connections, one after the other, each of which asks once and then waits; reads the memory on the way; and
// in the end asks on all at once.
func (r *run) idle(ctx context.Context) error {
	_, address, _ := strings.Cut(r.server.Base, "://")
	request := []byte("GET / HTTP/1.1\r\nHost: " + address + "\r\n\r\n")
	var conns []*idleConn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for _, step := range row.IdleSteps {
		for len(conns) < step {
			c, err := openIdle(ctx, address, request)
			if err != nil {
				return fmt.Errorf("idle connection %d: %w", len(conns)+1, err)
			}
			conns = append(conns, c)
		}
		time.Sleep(settle)
		memory, err := proc.ReadMemory(r.server.Processes())
		if err != nil {
			return err
		}
		r.record.Curve = append(r.record.Curve, [2]float64{float64(step), float64(memory.Anonymous)})
	}
	first, last := r.record.Curve[0], r.record.Curve[len(r.record.Curve)-1]
	r.record.Figures[IdleMemory] = (last[1] - first[1]) / (last[0] - first[0]) / row.KB
	return r.burst(conns, request)
}

// burst asks on all connections at once.
func (r *run) burst(conns []*idleConn, request []byte) error {
	m := &meter{server: r.server}
	if err := m.window(true); err != nil {
		return err
	}
	begin := time.Now()
	for _, c := range conns {
		if _, err := c.Write(request); err != nil {
			return err
		}
	}
	for _, c := range conns {
		if err := c.readAnswer(); err != nil {
			return err
		}
	}
	took := time.Since(begin)
	if err := m.window(false); err != nil {
		return err
	}
	r.record.Figures[BurstTime] = milliseconds(took)
	r.record.Figures[Throughput] = float64(len(conns)) / took.Seconds()
	return r.perRequest(m, float64(len(conns)))
}

// idleConn is a connection of which every answer must be as long as the first.
type idleConn struct {
	net.Conn
	size   int
	buffer []byte
}

// openIdle opens a connection and asks once.
func openIdle(ctx context.Context, address string, request []byte) (*idleConn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &idleConn{Conn: conn, buffer: make([]byte, 512)}
	if err := c.first(request); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// first asks, and looks at the whole answer.
func (c *idleConn) first(request []byte) error {
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := c.Write(request); err != nil {
		return err
	}
	var answer strings.Builder
	resp, err := http.ReadResponse(bufio.NewReaderSize(io.TeeReader(c.Conn, &answer), 512), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || resp.ContentLength <= 0 {
		return fmt.Errorf("the answer is %q", answer.String())
	}
	c.size = answer.Len()
	if c.size > len(c.buffer) {
		return fmt.Errorf("the answer has %d bytes", c.size)
	}
	return nil
}

func (c *idleConn) readAnswer() error {
	if _, err := io.ReadFull(c, c.buffer[:c.size]); err != nil {
		return err
	}
	if !strings.HasPrefix(string(c.buffer[:c.size]), "HTTP/1.1 200") {
		return fmt.Errorf("the answer is %q", c.buffer[:c.size])
	}
	return nil
}
