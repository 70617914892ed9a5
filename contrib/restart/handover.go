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

// How a program hands its sockets over: the next one gets the writing end of a pipe as descriptor 3, and the sockets as those from 4 on.
// The environment variable has a letter for each of them. The new program writes a byte into the pipe when it is ready. If the pipe ends
// without one, the new program has failed.
const (
	variable    = "FILO_RESTART_SOCKETS"
	firstFile   = 3
	kindOwn     = 'o' // a program of this kind has opened the socket
	kindSystemd = 's' // systemd has
)

// takeOver takes the descriptors that a predecessor has passed on, and returns those of sockets.
func (r *Restarter) takeOver(kinds string) (files []*os.File) {
	for i := range len(kinds) + 1 {
		syscall.CloseOnExec(firstFile + i)
		file := os.NewFile(uintptr(firstFile+i), fmt.Sprintf("inherited %d", i))
		if i == 0 {
			r.predecessor = file
		} else {
			files = append(files, file)
		}
	}
	return files
}

// tellReady tells the predecessor that this program is ready. The predecessor tells systemd, which listens to the main process alone. If
// there is none, or it has vanished, this program tells systemd itself.
func (r *Restarter) tellReady() {
	if r.predecessor != nil {
		_, err := r.predecessor.Write([]byte{1})
		r.predecessor.Close()
		if err == nil {
			return
		}
		r.logger().Warn("the program that started this one has vanished", "error", err)
	}
	r.notify(fmt.Sprintf("MAINPID=%d\nREADY=1", os.Getpid()))
}

// handOver starts a new program and waits until it is ready. If it fails, the new program doesn't run any more.
func (r *Restarter) handOver(ctx context.Context) (pid int, err error) {
	if os.Getpid() == 1 {
		return 0, errors.New("restart: process 1 can't be replaced, since its end ends the container: start a new container")
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	program, told, err := r.start()
	if err != nil {
		return 0, fmt.Errorf("restart: starting %s: %w", r.options.Path, err)
	}
	r.logger().Info("started a new program", "path", r.options.Path, "pid", program.Process.Pid)
	ready, err := r.awaitNext(ctx, told)
	switch {
	case err != nil:
		end(program)
		return 0, err
	case !ready:
		return 0, fmt.Errorf("restart: the new program ended before it was ready: %w", end(program))
	}
	go program.Wait() // should it end before this program does
	return program.Process.Pid, nil
}

// awaitNext returns what the new program has told, or why nobody waits for that any longer. A program that is ready counts, although the
// time is over, or this program stops, at the same moment: it may have served already.
func (r *Restarter) awaitNext(ctx context.Context, told <-chan bool) (ready bool, err error) {
	timeout := time.NewTimer(r.options.ReadyTimeout)
	defer timeout.Stop()
	for err == nil {
		select {
		case ready = <-told:
			return ready, nil
		case <-timeout.C:
			err = fmt.Errorf("restart: the new program wasn't ready after %v, and was ended", r.options.ReadyTimeout)
		case <-ctx.Done():
			err = fmt.Errorf("restart: this program stops, and has ended the new one: %w", context.Cause(ctx))
		case <-r.signals:
			r.logger().Info("a restart is under way already")
		}
	}
	select {
	case ready = <-told:
		return ready, nil
	default:
		return false, err
	}
}

// endTime is how long a new program that isn't ready has to finish.
const endTime = 5 * time.Second

// end ends a program, unless it has ended by itself, and returns how it has ended. SIGTERM comes first, since the program may serve some of its
// listeners already, and have requests.
func end(program *exec.Cmd) error {
	program.Process.Signal(syscall.SIGTERM)
	defer time.AfterFunc(endTime, func() { program.Process.Kill() }).Stop()
	if err := program.Wait(); err != nil {
		return err
	}
	return errors.New(program.ProcessState.String())
}

// start starts the new program. told gets one value: whether the program is ready.
func (r *Restarter) start() (program *exec.Cmd, told <-chan bool, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	program = exec.Command(r.options.Path, os.Args[1:]...)
	program.Dir, program.Stdin, program.Stdout, program.Stderr = r.directory, os.Stdin, os.Stdout, os.Stderr
	program.ExtraFiles = []*os.File{write}
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
	err = program.Start()
	write.Close()
	if err != nil {
		read.Close()
		return nil, nil, err
	}
	result := make(chan bool, 1)
	go func() {
		defer read.Close()
		n, _ := read.Read(make([]byte, 1))
		result <- n == 1
	}()
	return program, result, nil
}
