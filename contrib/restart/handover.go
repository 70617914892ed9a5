//go:build unix

package restart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// How a program hands its sockets over: the new program gets one end of a socket pair, the link, as descriptor 3, and the listening sockets
// as descriptors from 4 on. The environment variable has one letter for each of these descriptors. The new program says on the link that it
// is ready, and the old program answers that it will finish. If the old program has given up waiting, it says instead that it continues. So
// both programs know which of them serves, even if the new program becomes ready at the moment at which the old one gives up. If the link
// closes without a message, the program at its other end has ended.
const (
	variable    = "FILO_RESTART_SOCKETS"
	firstFile   = 3
	kindOwn     = 'o' // the program itself, or a predecessor, has opened the socket
	kindSystemd = 's' // systemd has opened the socket
)

// The messages on the link, each sent once.
const (
	nothing  = 0   // the program at the other end has ended
	isReady  = 1   // the new program is ready
	finishes = 'f' // the old program finishes, since the new one is ready
	goesOn   = 'g' // the old program goes on, and the new one must end
)

// listen returns the other program's message on the link.
func listen(link *os.File) (word byte) {
	var b [1]byte
	link.Read(b[:])
	return b[0]
}

// takeOver opens the descriptors that a predecessor has passed on: it stores the link in r.predecessor, and returns the sockets.
func (r *Restarter) takeOver(kinds string) (files []*os.File) {
	for i := range len(kinds) + 1 {
		syscall.CloseOnExec(firstFile + i)
		if i == 0 {
			syscall.SetNonblock(firstFile, true) // so that reading the link holds no thread
		}
		file := os.NewFile(uintptr(firstFile+i), fmt.Sprintf("inherited %d", i))
		if i == 0 {
			r.predecessor = file
		} else {
			files = append(files, file)
		}
	}
	return files
}

// hear waits for the predecessor's message.
func (r *Restarter) hear() {
	defer close(r.heard)
	if r.predecessor != nil {
		r.word = listen(r.predecessor)
		r.predecessor.Close()
	}
}

// isSecond reports whether a predecessor still serves, and continues if this program ends.
func (r *Restarter) isSecond() bool {
	if r.predecessor == nil {
		return false
	}
	select {
	case <-r.heard:
		return r.word == goesOn
	default:
		return true
	}
}

// tellReady tells the predecessor that this program is ready. If there is none, it tells systemd.
func (r *Restarter) tellReady() {
	if r.predecessor == nil {
		r.notifyMain()
		return
	}
	r.predecessor.Write([]byte{isReady}) // an error needs no handling: r.hear finds out if the predecessor has ended
}

// takeLead is called when this program is ready and the predecessor, if there is one, has sent its message. Normally the predecessor tells
// systemd which process is the main one, since systemd accepts messages only from the main process. If the predecessor has vanished, this
// program tells systemd itself.
func (r *Restarter) takeLead() {
	if r.predecessor == nil || r.word != nothing {
		return
	}
	r.logger().Warn("the program that started this one has vanished")
	r.notifyMain()
}

// notifyMain tells systemd that this program is the main one, and ready.
func (r *Restarter) notifyMain() { r.notify(fmt.Sprintf("MAINPID=%d\nREADY=1", os.Getpid())) }

// handOver starts a new program and waits until it is ready. If handOver fails, the new program has ended.
func (r *Restarter) handOver(ctx context.Context) (pid int, err error) {
	if os.Getpid() == 1 {
		return 0, errors.New("restart: process 1 can't be replaced, since its end ends the container: start a new container")
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	next, err := r.start()
	if err != nil {
		return 0, fmt.Errorf("restart: starting %s: %w", r.options.Path, err)
	}
	defer next.link.Close()
	pid = next.program.Process.Pid
	r.logger().Info("started a new program", "path", r.options.Path, "pid", pid)
	word, err := r.awaitNext(ctx, next.told)
	switch {
	case err == nil && word == isReady:
		next.link.Write([]byte{finishes})
		go next.program.Wait() // reaps the new program, in case it ends before this program
		return pid, nil
	case err == nil && word == nothing:
		return 0, fmt.Errorf("restart: the new program ended before it was ready: %w", next.end())
	case err == nil:
		err = fmt.Errorf("restart: the new program has said %q instead of being ready, and was ended", word)
	}
	next.end()
	return 0, err
}

// awaitNext returns the new program's message, or the reason why waiting for it has ended. The message that the new program is ready takes
// precedence, even if the time runs out or this program is stopped at the same moment: the new program may have served requests already.
func (r *Restarter) awaitNext(ctx context.Context, told <-chan byte) (word byte, err error) {
	timeout := time.NewTimer(r.options.ReadyTimeout)
	defer timeout.Stop()
	for err == nil {
		select {
		case word = <-told:
			return word, nil
		case <-timeout.C:
			err = fmt.Errorf("restart: the new program wasn't ready after %v, and was ended", r.options.ReadyTimeout)
		case <-ctx.Done():
			err = fmt.Errorf("restart: this program stops, and has ended the new one: %w", context.Cause(ctx))
		case <-r.signals:
			r.logger().Info("a restart is under way already")
		}
	}
	select {
	case word = <-told:
		return word, nil
	default:
		return nothing, err
	}
}

// successor is a new program that this one has started.
type successor struct {
	program *exec.Cmd
	link    *os.File
	told    chan byte // receives the program's message; cap 1
}

// endTime is how long a new program may take to finish when it is told to end. It is longer than idle connections usually stay open
// (filo.Server.IdleGrace).
const endTime = 10 * time.Second

// end ends the new program, unless it has ended by itself, and returns the error with which it has ended. The message on the link is sent
// first: it makes the program end without a drain. SIGTERM is for a program that hasn't reached Run yet. The program may already serve
// requests on some of its listeners, so it isn't killed at once.
func (s *successor) end() error {
	s.link.Write([]byte{goesOn})
	s.program.Process.Signal(syscall.SIGTERM)
	defer time.AfterFunc(endTime, func() { s.program.Process.Kill() }).Stop()
	if err := s.program.Wait(); err != nil {
		return err
	}
	return errors.New(s.program.ProcessState.String())
}

// start starts the new program.
func (r *Restarter) start() (*successor, error) {
	mine, theirs, err := newLink()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	program := exec.Command(r.options.Path, os.Args[1:]...)
	program.Dir, program.Stdin, program.Stdout, program.Stderr = r.directory, os.Stdin, os.Stdout, os.Stderr
	program.ExtraFiles = []*os.File{theirs}
	kinds := make([]byte, 0, len(r.sockets))
	for _, each := range r.sockets {
		program.ExtraFiles = append(program.ExtraFiles, each.file)
		kind := byte(kindOwn)
		if each.systemd {
			kind = kindSystemd
		}
		kinds = append(kinds, kind)
	}
	program.Env = append(os.Environ(), variable+"="+string(kinds))
	if err := program.Start(); err != nil {
		mine.Close()
		return nil, err
	}
	next := &successor{program, mine, make(chan byte, 1)}
	go func() { next.told <- listen(mine) }()
	return next, nil
}

// newLink returns the two ends of a link.
func newLink() (mine, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	for _, fd := range ends {
		syscall.CloseOnExec(fd)
	}
	syscall.SetNonblock(ends[0], true) // so that closing it ends a read
	return os.NewFile(uintptr(ends[0]), "link"), os.NewFile(uintptr(ends[1]), "link"), nil
}
