//go:build unix

package restart_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/filohttp/filo/internal/filotest"
)

// The messages of the programs on their link: see handover.go.
const ready, finishes, goesOn = 1, 'f', 'g'

// second is a program of which the test plays the predecessor.
type second struct {
	*program
	link   *net.UnixConn
	socket string // the file of the Unix socket that was handed over to it
}

// startSecond starts a program in the given mode, and with the given time for a drain.
func startSecond(t *testing.T, mode, drain string) *second {
	t.Helper()
	s := &second{program: newProgram(t), socket: filepath.Join(t.TempDir(), "socket")}
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	mine, theirs := os.NewFile(uintptr(ends[0]), "mine"), os.NewFile(uintptr(ends[1]), "theirs")
	defer theirs.Close()
	syscall.CloseOnExec(ends[0])
	conn, err := net.FileConn(mine)
	mine.Close()
	if err != nil {
		t.Fatal(err)
	}
	s.link = conn.(*net.UnixConn)
	t.Cleanup(func() { s.link.Close() })
	s.link.SetDeadline(time.Now().Add(bound))
	listener, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	socket, err := listener.(*net.UnixListener).File()
	listener.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	s.setMode(mode)
	s.first = exec.Command(os.Args[0])
	s.first.ExtraFiles = []*os.File{theirs, socket}
	s.launch("unix "+s.socket, "FILO_RESTART_SOCKETS=o", drainVariable+"="+drain)
	return s
}

// wantWord checks the program's next message; 0 means that the link has ended.
func (s *second) wantWord(want byte) {
	s.t.Helper()
	var word [1]byte
	if s.link.Read(word[:]); word[0] != want {
		s.t.Errorf("the program has said %d, want %d", word[0], want)
	}
}

func (s *second) say(word byte) {
	s.t.Helper()
	if _, err := s.link.Write([]byte{word}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *second) terminate() { s.first.Process.Signal(syscall.SIGTERM) }

// wantEnd checks that the program ends without an error, and that it leaves or removes the socket's file as expected.
func (s *second) wantEnd(leaves bool) {
	s.t.Helper()
	s.awaitLine("done")
	if err := s.first.Wait(); err != nil {
		s.t.Error(err)
	}
	if _, err := os.Stat(s.socket); (err == nil) != leaves {
		s.t.Errorf("the socket's file: %v", err)
	}
}

// A program that becomes ready just after its predecessor has given up leaves the sockets to the predecessor and ends without a drain. It
// doesn't matter whether the predecessor's message or its signal arrives first.
func TestReadyTooLate(t *testing.T) {
	for name, end := range map[string]func(s *second){
		"by a word":    func(s *second) { s.say(goesOn) },
		"by a signal":  func(s *second) { s.say(goesOn); s.terminate() },
		"signal first": func(s *second) { s.terminate(); s.say(goesOn) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSecond(t, "", "1h")
			s.wantWord(ready)
			end(s)
			s.wantEnd(true)
		})
	}
}

// "The predecessor serves until it has told this program that it finishes. So if ctx ends before that, the cause of serve's context is
// ErrReplaced, too": a program that isn't ready ends without a drain.
func TestEndedBeforeReady(t *testing.T) {
	for name, end := range map[string]func(s *second){"by a word": func(s *second) { s.say(goesOn) }, "by a signal": (*second).terminate} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSecond(t, "half", "1h")
			s.await("ready") // printed when Run calls its function, before the program is ready
			end(s)
			s.wantEnd(true)
			s.wantWord(0)
		})
	}
}

// "If ctx has ended before Run is called, Run doesn't call serve."
func TestEndedBeforeRun(t *testing.T) {
	s := startSecond(t, "ended", "1h")
	s.wantEnd(true)
	s.wantWord(0)
	if s.count("ready") > 0 {
		t.Error("it has served")
	}
}

// A program takes over the sockets when its predecessor has said that it finishes, or has vanished.
func TestTakesOver(t *testing.T) {
	for name, then := range map[string]func(s *second){
		"the predecessor finishes": func(s *second) { s.say(finishes) },
		"the predecessor vanishes": func(s *second) { s.link.Close(); s.awaitLine("the program that started this one has vanished") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSecond(t, "", "10ms")
			s.wantWord(ready)
			then(s)
			s.terminate()
			s.wantEnd(false)
		})
	}
}

// A program that sends anything but this package's messages on the link doesn't become the successor.
func TestGarbageOnTheLink(t *testing.T) {
	address := filotest.FreeAddress(t)
	p, pid := start(t, "tcp "+address)
	p.setMode("garbage")
	p.signal(pid, syscall.SIGUSR2)
	failed := p.await("starting")
	p.awaitLine("the new program has said 'H' instead of being ready")
	wantGone(t, failed)
	c := client{network: "tcp", address: address}
	if got, err := c.ask(); err != nil || got != pid {
		t.Errorf("process %d has answered, want %d: %v", got, pid, err)
	}
}
