package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// answer is what of a response must not differ between peers.
type answer struct {
	status int
	body   []byte
	header http.Header
}

// checkAlike asks every peer once and compares the answers, so that no one is measured at less work.
func checkAlike(ctx context.Context, peers []*peer, o *options) error {
	var first *answer
	for _, p := range peers {
		s, err := p.start(ctx)
		if err != nil {
			return err
		}
		a, err := fetch(s.base, o)
		s.stop()
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if first == nil {
			first = a
		} else if err := first.sameAs(a); err != nil {
			return fmt.Errorf("%s and %s don't answer alike: %w", peers[0].name, p.name, err)
		}
	}
	return nil
}

func fetch(base string, o *options) (*answer, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return nil, err
	}
	// As wrk asks.
	head := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n", o.path, conn.RemoteAddr())
	if o.header != "" {
		head += o.header + "\r\n"
	}
	if _, err := io.WriteString(conn, head+"\r\n"); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the status is %d", resp.StatusCode)
	}
	return &answer{resp.StatusCode, body, resp.Header}, nil
}

// sameAs tells what differs. Server names itself and Date passes, so of those only the presence counts.
func (a *answer) sameAs(b *answer) error {
	if a.status != b.status || !bytes.Equal(a.body, b.body) {
		return fmt.Errorf("%d %q and %d %q", a.status, a.body, b.status, b.body)
	}
	names, others := slices.Sorted(maps.Keys(a.header)), slices.Sorted(maps.Keys(b.header))
	if !slices.Equal(names, others) {
		return fmt.Errorf("the fields are %q and %q", names, others)
	}
	for _, name := range names {
		if name != "Server" && name != "Date" && !slices.Equal(a.header[name], b.header[name]) {
			return fmt.Errorf("%s is %q and %q", name, a.header[name], b.header[name])
		}
	}
	return nil
}
