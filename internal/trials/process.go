//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ordersVariable is the environment variable with the orders that make this program run as a process of a trial.
const ordersVariable = "FILO_TRIAL"

// part does the work of a trial's process if this program was started as one. Otherwise it returns false at once.
func part() (is bool, err error) {
	text := os.Getenv(ordersVariable)
	if text == "" {
		return false, nil
	}
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return true, err
	}
	if o.Address != loopback {
		if err := o.Path.device(o.Address, 3); err != nil {
			return true, err
		}
	}
	in, out := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	if !o.Clients {
		return true, serveTrial(o, in, out)
	}
	for commands := json.NewDecoder(in); ; {
		var l load
		if err := commands.Decode(&l); err != nil {
			return true, nil // the trial has ended
		}
		if err := out.Encode(l.run(nil)); err != nil {
			return true, err
		}
	}
}

const (
	loopback      = "127.0.0.1"
	serverAddress = "192.0.2.1"
	clientAddress = "192.0.2.2"
)

// process is a process of a trial.
type process struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
	said    bytes.Buffer // the process's standard error
	ended   chan struct{}
	device  *os.File   // the file of its TUN device; nil if the process uses the loopback
	files   []*os.File // closed by stop
	tracer  *tracer    // nil: none
}

// start starts this program as a process with these orders. Unless its address is on the loopback, the process gets a new network namespace,
// which ends with the process.
func start(ctx context.Context, o orders, environment ...string) (p *process, err error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	p = &process{command: exec.CommandContext(ctx, "/proc/self/exe"), ended: make(chan struct{})}
	p.command.Env = append(append(os.Environ(), environment...), ordersVariable+"="+string(text))
	p.command.Stderr = &p.said
	if p.in, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe() // not StdoutPipe, because Wait closes that pipe, perhaps before its last bytes have been read
	if err != nil {
		return nil, err
	}
	defer theirOut.Close()
	p.command.Stdout, p.files, p.out = theirOut, append(p.files, out), json.NewDecoder(out)
	pair := [2]int{-1, -1}
	if o.Address != loopback {
		if pair, err = syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0); err != nil {
			return nil, err
		}
		theirs := os.NewFile(uintptr(pair[1]), "socket")
		defer theirs.Close()
		defer syscall.Close(pair[0])
		p.command.ExtraFiles = []*os.File{theirs}
		p.command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if err := p.begin(); err != nil {
			return nil, err
		}
		theirs.Close() // so that the socket ends when the process ends
		if p.device, err = o.Path.receiveDevice(pair[0]); err != nil {
			p.stop()
			return nil, fmt.Errorf("%w: %s", err, &p.said)
		}
		p.files = append(p.files, p.device)
		return p, nil
	}
	return p, p.begin()
}

func (p *process) begin() error {
	if err := p.command.Start(); err != nil {
		for _, each := range p.files {
			each.Close()
		}
		return err
	}
	go func() {
		p.command.Wait()
		close(p.ended)
	}()
	return nil
}

func (p *process) pid() int { return p.command.Process.Pid }

// answerTime is how long a process may take to answer.
const answerTime = 2 * time.Minute

// ask sends a command and waits for its answer.
func (p *process) ask(command string, answer any) error {
	timer := time.AfterFunc(answerTime, func() { p.command.Process.Kill() })
	defer timer.Stop()
	if _, err := io.WriteString(p.in, command+"\n"); err != nil {
		return p.lost(err)
	}
	if err := p.out.Decode(answer); err != nil {
		return p.lost(err)
	}
	return nil
}

// lost returns an error that says how the process has ended.
func (p *process) lost(err error) error {
	p.stop()
	const most = 2000
	said := p.said.String()
	return fmt.Errorf("the process has ended: %w: %s", err, said[:min(len(said), most)])
}

// stop ends the process, and releases everything that was created for it.
func (p *process) stop() {
	p.untrace() // the process might not end while strace is attached
	p.in.Close()
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
		p.command.Process.Kill()
		<-p.ended
	}
	for _, each := range p.files {
		each.Close()
	}
}

// tracer is strace, which makes a process's system calls fail.
type tracer struct {
	command *exec.Cmd
	log     string
}

// trace attaches strace to the process. strace makes calls fail as injection says, in the form of its option inject. sockets are names as in
// /proc/PID/fd: only calls that use one of them fail. Without sockets, the calls fail whatever descriptor they use.
func (p *process) trace(sockets []string, call, injection string) error {
	log, err := os.CreateTemp("", "trial-strace")
	if err != nil {
		return err
	}
	log.Close()
	arguments := []string{"-f", "-o", log.Name(), "-p", fmt.Sprint(p.pid()), "-e", "signal=none", "-e", "trace=" + call, "-e", "inject=" + call + ":" + injection}
	for _, socket := range sockets {
		arguments = append(arguments, "-P", socket)
	}
	t := &tracer{exec.Command("strace", arguments...), log.Name()}
	said, err := t.command.StderrPipe()
	if err == nil {
		err = t.command.Start()
	}
	if err != nil {
		os.Remove(log.Name())
		return err
	}
	last := ""
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if last = lines.Text(); strings.Contains(last, " attached") {
			go io.Copy(io.Discard, said)
			p.tracer = t
			return nil
		}
	}
	t.command.Wait()
	os.Remove(log.Name())
	return fmt.Errorf("strace hasn't attached: %s", last)
}

// untrace detaches strace, and returns how many calls strace has made fail.
func (p *process) untrace() (injected int, err error) {
	t := p.tracer
	if t == nil {
		return 0, nil
	}
	p.tracer = nil
	defer os.Remove(t.log)
	t.command.Process.Signal(os.Interrupt)
	timer := time.AfterFunc(10*time.Second, func() { t.command.Process.Kill() })
	defer timer.Stop()
	t.command.Wait() // its error says that the signal has ended strace
	log, err := os.ReadFile(t.log)
	return bytes.Count(log, []byte("(INJECTED)")), err
}

// sockets returns the sockets of a process, by their names in /proc/PID/fd.
func sockets(pid int) (all []string, err error) {
	directory := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(directory)
	for _, each := range entries {
		if target, err := os.Readlink(filepath.Join(directory, each.Name())); err == nil && strings.HasPrefix(target, "socket:") {
			all = append(all, target)
		}
	}
	return all, err
}

// lacks returns an error that says why this machine can't run the trials, nil if it can. The error wraps [exec.ErrNotFound] if a program is
// missing.
func lacks(ctx context.Context) error {
	var all []error
	if os.Geteuid() != 0 {
		all = append(all, errors.New("it needs root's rights, for network namespaces and strace"))
	}
	const writable = 2 // W_OK
	if err := syscall.Access("/proc/sys/net/ipv4/tcp_rmem", writable); err != nil {
		all = append(all, fmt.Errorf("the sizes of buffers can't be changed: %w", err))
	}
	for _, name := range []string{"ip", "strace"} {
		if _, err := exec.LookPath(name); err != nil {
			all = append(all, err)
		}
	}
	if len(all) > 0 {
		return errors.Join(all...)
	}
	p, err := start(ctx, orders{Clients: true, Address: clientAddress})
	if err != nil {
		return err
	}
	defer p.stop()
	return p.trace(nil, "accept4", "error=EINTR") // in a container, even root might not be allowed to trace
}
