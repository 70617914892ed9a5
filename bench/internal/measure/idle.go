package measure

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/filohttp/filo/bench/internal/proc"
	"github.com/filohttp/filo/bench/internal/row"
)

// settle is how long the server has after the last answer until its memory is read.
const settle = 300 * time.Millisecond

// idle opens many connections, one after the other, each of which asks once and then waits; reads the memory before and after; and
// in the end asks on all at once. wrk and h2load have no idle connections.
func (r *run) idle() error {
	_, address, _ := strings.Cut(r.server.Base, "://")
	request := r.row.Requests[0].Raw(address, false)
	before, err := r.settled()
	if err != nil {
		return err
	}
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	var first []byte // answer
	for range row.IdleConnections {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return fmt.Errorf("idle connection %d: %w", len(conns)+1, err)
		}
		conns = append(conns, c)
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			return err
		}
		if _, err := c.Write(request); err != nil {
			return err
		}
		if first == nil {
			if first, err = readFirst(c, r.row.Requests[0].Want.Body); err != nil {
				return err
			}
		} else if err := readNext(c, first); err != nil {
			return err
		}
	}
	after, err := r.settled()
	if err != nil {
		return err
	}
	r.record.Figures[IdleMemory] = float64(after-before) / row.IdleConnections / row.KB
	return r.burst(conns, request, first)
}

// settled is the server's memory without what is mapped from files.
func (r *run) settled() (int64, error) {
	time.Sleep(settle)
	memory, err := proc.ReadMemory(r.server.Processes())
	return memory.Anonymous, err
}

// burst asks on all connections at once.
func (r *run) burst(conns []net.Conn, request, first []byte) error {
	if err := r.window(true); err != nil {
		return err
	}
	begin := time.Now()
	for _, c := range conns {
		if _, err := c.Write(request); err != nil {
			return err
		}
	}
	for _, c := range conns {
		if err := readNext(c, first); err != nil {
			return err
		}
	}
	took := time.Since(begin)
	if err := r.window(false); err != nil {
		return err
	}
	r.record.Figures[BurstTime] = float64(took) / float64(time.Millisecond)
	r.record.Figures[Throughput] = float64(len(conns)) / took.Seconds()
	return r.perRequest(float64(len(conns)))
}

// readFirst reads an answer that ends with a body.
func readFirst(c net.Conn, body []byte) (answer []byte, err error) {
	for piece := make([]byte, 1); !bytes.HasSuffix(answer, append([]byte("\r\n\r\n"), body...)); answer = append(answer, piece[0]) {
		if _, err := io.ReadFull(c, piece); err != nil {
			return nil, fmt.Errorf("the answer is %q: %w", answer, err)
		}
	}
	return answer, nil
}

// readNext reads one that is as long as the first, and begins and ends like it.
func readNext(c net.Conn, first []byte) error {
	answer := make([]byte, len(first))
	if _, err := io.ReadFull(c, answer); err != nil {
		return err
	}
	if !bytes.HasPrefix(answer, []byte("HTTP/1.1 200 ")) || !bytes.HasSuffix(answer, first[len(first)-16:]) {
		return fmt.Errorf("the answer is %q, and was %q", answer, first)
	}
	return nil
}
