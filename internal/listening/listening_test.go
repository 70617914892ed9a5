package listening

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A socket file on which no process listens is replaced. No other file is.
func TestUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	first, err := Unix(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if second, err := Unix(path, 0o600); err == nil {
		second.Close()
		t.Error("a socket that is in use was replaced")
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	first.Close()
	third, err := Unix(path, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	third.Close()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if fourth, err := Unix(path, 0o600); err == nil {
		fourth.Close()
		t.Error("a file was replaced")
	}
}

type counted struct {
	net.Listener
	closed int
}

func (c *counted) Close() error {
	c.closed++
	return net.ErrClosed
}

func TestOnce(t *testing.T) {
	inner := new(counted)
	once := &Once{Listener: inner}
	if first, second := once.Close(), once.Close(); first != net.ErrClosed || second != net.ErrClosed || inner.closed != 1 {
		t.Errorf("%v, %v, closed %d times", first, second, inner.closed)
	}
	if err := once.SetDeadline(time.Now()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a listener without deadlines: %v", err)
	}
}
