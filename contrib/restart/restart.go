//go:build unix

package restart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/filohttp/filo"
	"github.com/filohttp/filo/health"
)

// DefaultReadyTimeout is the default of Options.ReadyTimeout.
const DefaultReadyTimeout = time.Minute

// ErrReplaced is the cause with which Run ends the context of its function when another program serves instead of this one. The other program
// is a new one that has taken over, or the predecessor if this program wasn't ready in time. ErrReplaced is the same error as
// health.ErrReplaced, so health's DrainContext ends at once in that case.
var ErrReplaced = health.ErrReplaced

// Options are the options of New. The zero value is ready for use.
type Options struct {
	// Signal starts a new program. Default SIGUSR2.
	Signal os.Signal
	// ReadyTimeout is how long the new program may take from its start until it is ready (see Restarter.Run). A program that takes longer
	// is ended. Default 1 minute.
	ReadyTimeout time.Duration
	// Path is the new program's file. By default it is the path by which this program was started, so that a symbolic link at this path may
	// point to another version at the time of the restart.
	Path string
	// Alive reports whether the program works. It is called before each message to systemd's watchdog. If Alive returns an error, the message
	// isn't sent. The context of Alive ends after half the time left until the watchdog acts. By default, a running program is assumed to
	// work.
	Alive func(context.Context) error
	// Logger gets a record of each restart, whether it succeeds or not. Default slog.Default.
	Logger *slog.Logger
}

// Restarter owns a program's listening sockets, and hands them over.
type Restarter struct {
	options     Options
	directory   string        // the directory in which this program was started, and in which the next program will be started
	predecessor *os.File      // the link to the program that has started this one; nil if no predecessor waits
	watchdog    time.Duration // the interval at which systemd expects a message; 0: none
	signals     chan os.Signal
	ready       chan struct{} // closed when this program is ready and has told its predecessor
	heard       chan struct{} // closed when the predecessor has sent its message or has vanished, or if there is no predecessor
	word        byte          // the predecessor's message; set before heard is closed

	mu        sync.Mutex
	inherited []inherited // sockets that Listen or ListenUnix hasn't returned yet; guarded by mu
	sockets   []socket    // sockets to be handed over; guarded by mu
	unserved  []string    // addresses of listeners that no server serves yet; guarded by mu
	running   bool        // Run was called; guarded by mu
	told      bool        // ready is closed, or about to be; guarded by mu
}

// inherited is a listener that systemd or the predecessor has passed on.
type inherited struct {
	net.Listener
	systemd bool
}

// socket is a listening socket of this program.
type socket struct {
	file    *os.File // a duplicate of the listener's descriptor
	systemd bool     // systemd has opened it, and may pass it on again
	path    string   // the file of a Unix socket that this program has to remove; "" if none
}

// New returns a Restarter with the sockets that were passed on to this program. A program needs only one Restarter. It must call New before
// it starts other programs, which would otherwise inherit the sockets. After New, Options.Signal no longer ends the program.
func New(options ...Options) (*Restarter, error) {
	if len(options) > 1 {
		panic("restart: New takes one Options at most")
	}
	r := &Restarter{signals: make(chan os.Signal, 1), ready: make(chan struct{}), heard: make(chan struct{})}
	if len(options) == 1 {
		r.options = options[0]
	}
	if r.options.ReadyTimeout < 0 {
		panic("restart: Options.ReadyTimeout must not be negative")
	}
	r.options.Signal = cmp.Or[os.Signal](r.options.Signal, syscall.SIGUSR2)
	r.options.ReadyTimeout = cmp.Or(r.options.ReadyTimeout, DefaultReadyTimeout)
	var err error
	if r.directory, err = os.Getwd(); err != nil {
		return nil, fmt.Errorf("restart: the working directory: %w", err)
	}
	if r.options.Path, err = programPath(r.options.Path); err != nil {
		return nil, fmt.Errorf("restart: the program's path: %w", err)
	}
	if r.watchdog, err = daemon.SdWatchdogEnabled(false); err != nil {
		return nil, fmt.Errorf("restart: systemd's watchdog: %w", err)
	}
	os.Unsetenv("WATCHDOG_PID") // the variable names only this process, but the watchdog applies to the next program, too
	if err := r.inherit(); err != nil {
		for _, each := range r.inherited {
			each.Close()
		}
		return nil, err
	}
	go r.hear()
	signal.Notify(r.signals, r.options.Signal) // the signal would end a program that hasn't reached Run yet
	return r, nil
}

// programPath returns the absolute path of a program, or of this program if path is empty. It doesn't follow symbolic links.
func programPath(path string) (string, error) {
	if path == "" {
		var err error
		if path, err = exec.LookPath(os.Args[0]); err != nil {
			return os.Executable()
		}
	}
	return filepath.Abs(path)
}

// inherit takes the sockets that a predecessor or systemd has passed on.
func (r *Restarter) inherit() error {
	var files []*os.File
	kinds, handedOver := os.LookupEnv(variable)
	if handedOver {
		os.Unsetenv(variable)
		files = r.takeOver(kinds)
	} else {
		files = activation.Files(true)
	}
	for i, file := range files {
		listener, err := net.FileListener(file)
		file.Close()
		if err != nil {
			return fmt.Errorf("restart: the inherited socket %d doesn't listen: %w", i, err)
		}
		r.inherited = append(r.inherited, inherited{listener, !handedOver || kinds[i] == kindSystemd})
	}
	return nil
}

// Listen returns a listener on the TCP address: the one that was passed on to this program, or else a new one. Pass it to a server's
// RunListener or RunListenerTLS, which close it. Its socket will be handed over to the next program.
func (r *Restarter) Listen(address string) (net.Listener, error) {
	want, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("restart: %w", err)
	}
	return r.listen(func(have net.Addr) bool { return sameTCP(want, have) }, func() (net.Listener, error) {
		var config net.ListenConfig
		config.SetMultipathTCP(false) // multipath TCP has a cost for every connection, and few clients use it
		return config.Listen(context.Background(), "tcp", address)
	})
}

// sameTCP reports whether a listener can be the result of Listen. The listener's address is have, and the address in the call to Listen is want.
func sameTCP(want *net.TCPAddr, have net.Addr) bool {
	tcp, ok := have.(*net.TCPAddr)
	switch {
	case !ok || tcp.Port != want.Port:
		return false
	case len(want.IP) == 0 || want.IP.IsUnspecified():
		return tcp.IP.IsUnspecified()
	}
	return tcp.IP.Equal(want.IP)
}

// ListenUnix is Listen for a Unix socket, whose file has the given permissions if it is new: see filo.ListenUnix. Run removes the file when
// it returns, unless another program serves: a new one that has taken over, or the predecessor if this one wasn't ready. The file also stays
// if systemd has opened the socket.
func (r *Restarter) ListenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	return r.listen(func(have net.Addr) bool { return have.Network() == "unix" && have.String() == path }, func() (net.Listener, error) {
		return filo.ListenUnix(path, mode)
	})
}

// listen returns an inherited listener whose address matches, or else opens one.
func (r *Restarter) listen(matches func(net.Addr) bool, open func() (net.Listener, error)) (net.Listener, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		return nil, errors.New("restart: Listen after Run: it would be too late to hand the socket over")
	}
	for i, each := range r.inherited {
		if matches(each.Addr()) {
			if err := r.keepLocked(each.Listener, each.systemd); err != nil {
				return nil, err
			}
			r.inherited = append(r.inherited[:i], r.inherited[i+1:]...)
			return each.Listener, nil
		}
	}
	listener, err := open()
	if err != nil {
		return nil, err
	}
	if err := r.keepLocked(listener, false); err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}

// keepLocked stores a duplicate descriptor of a listener's socket, which will be handed over.
func (r *Restarter) keepLocked(listener net.Listener, systemd bool) error {
	file, err := duplicate(listener.(syscall.Conn))
	if err != nil {
		return fmt.Errorf("restart: duplicating a socket: %w", err)
	}
	kept := socket{file: file, systemd: systemd}
	if unix, ok := listener.(*net.UnixListener); ok {
		unix.SetUnlinkOnClose(false) // the next program may use the socket
		if !systemd {
			kept.path = unix.Addr().String()
		}
	}
	r.sockets = append(r.sockets, kept)
	r.unserved = append(r.unserved, listener.Addr().String())
	return nil
}

// duplicate returns another descriptor of a listener's socket. The listener's method File isn't used: starting a program with such a file
// makes the socket blocking, in this program as well, and its loops would hang in accept.
func duplicate(listener syscall.Conn) (*os.File, error) {
	raw, err := listener.SyscallConn()
	if err != nil {
		return nil, err
	}
	descriptor, failed := -1, error(nil)
	err = raw.Control(func(fd uintptr) {
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		if descriptor, failed = syscall.Dup(int(fd)); failed == nil {
			syscall.CloseOnExec(descriptor)
		}
	})
	if err = errors.Join(err, os.NewSyscallError("dup", failed)); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(descriptor), "listener"), nil
}

// Run calls serve. The context of serve ends when ctx ends, or, with the cause ErrReplaced, when another program serves instead of this one.
// When the context ends, serve must finish and return, as filo.Server.RunListener does. Run returns what serve returns.
//
// This program is ready when servers have begun to serve each listener that Listen and ListenUnix have returned: by filo.Server.RunListener
// or RunListenerTLS, with the context of serve or one derived from it. By then all steps of the start that could fail have succeeded, such as
// reading the certificates. Then Run tells the predecessor and systemd, and the predecessor finishes. A program that serves in another way
// calls Ready.
//
// From then on, while serve runs, Options.Signal starts a new program. While the new program starts, further such signals do nothing. If ctx
// ends before the new program is ready, that program is ended. Several servers may run in serve; Run itself may be called only once.
//
// The predecessor serves until it has told this program that it finishes. So if ctx ends before that, the cause of serve's context is
// ErrReplaced, too. If ctx has ended before Run is called, Run doesn't call serve.
func (r *Restarter) Run(ctx context.Context, serve func(context.Context) error) error {
	r.begin()
	defer signal.Stop(r.signals)
	if ctx.Err() != nil && r.isSecond() {
		r.release()
		return nil
	}
	serving, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	end := func() {
		if r.isSecond() {
			cancel(ErrReplaced)
		}
		cancel(context.Cause(ctx))
	}
	defer context.AfterFunc(ctx, end)()
	if ctx.Err() != nil {
		end() // end the context before serve is called
	}
	var helpers sync.WaitGroup
	helpers.Go(func() { r.supervise(serving, cancel) })
	helpers.Go(func() { r.beat(serving) })
	helpers.Go(func() { r.obey(serving, cancel) })
	defer helpers.Wait()
	defer cancel(nil)
	if r.servesAll() { // true if there are no listeners
		r.Ready()
	}
	return serve(filo.OnServing(serving, func(address net.Addr) { r.served(address.String()) }))
}

// Ready declares that this program is ready. Call it if the program's listeners aren't served by filo.Server.RunListener or RunListenerTLS:
// see Run. Further calls do nothing.
func (r *Restarter) Ready() {
	r.mu.Lock()
	told := r.told
	r.told = true
	r.mu.Unlock()
	if !told {
		defer close(r.ready)
		r.tellReady()
	}
}

// served records that a server has begun to serve an address; this program is ready when all addresses are served.
func (r *Restarter) served(address string) {
	r.mu.Lock()
	r.unserved = slices.DeleteFunc(r.unserved, func(each string) bool { return each == address })
	r.mu.Unlock()
	if r.servesAll() {
		r.Ready()
	}
}

// servesAll reports whether servers have begun to serve all listeners.
func (r *Restarter) servesAll() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.unserved) == 0
}

// obey ends this program if its predecessor has said that it continues to serve.
func (r *Restarter) obey(ctx context.Context, cancel context.CancelCauseFunc) {
	select {
	case <-r.heard:
		if r.word == goesOn {
			r.logger().Warn("this program ends: the one that started it doesn't wait for it any longer")
			cancel(ErrReplaced)
		}
	case <-ctx.Done():
	}
}

// awaitReady waits until this program is ready and has heard from its predecessor, or ctx ends. It logs if that takes long.
func (r *Restarter) awaitReady(ctx context.Context) {
	done := r.ready
	late := time.NewTimer(r.options.ReadyTimeout / 2)
	defer late.Stop()
	for {
		select {
		case <-done:
			if done == r.heard {
				r.takeLead()
				return
			}
			done = r.heard
			late.Stop()
		case <-ctx.Done():
			return
		case <-late.C:
			r.mu.Lock()
			unserved := strings.Join(r.unserved, " ")
			r.mu.Unlock()
			r.logger().Warn("this program isn't ready: no server has begun to serve these listeners by RunListener, with the context of serve",
				"addresses", unserved, "after", (r.options.ReadyTimeout / 2).String())
		}
	}
}

// begin closes the inherited sockets for which neither Listen nor ListenUnix was called.
func (r *Restarter) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		panic("restart: Run was called twice")
	}
	r.running = true
	for _, each := range r.inherited {
		r.logger().Warn("a socket was passed on that this program doesn't use", "address", each.Addr().String())
		each.Close()
	}
	r.inherited = nil
}

// supervise starts a new program on each signal, until the context ends or a new program has taken over. It starts when this program is
// ready: until then a predecessor may serve, and continues if this program fails.
func (r *Restarter) supervise(ctx context.Context, cancel context.CancelCauseFunc) {
	defer r.release()
	r.awaitReady(ctx)
	for {
		select {
		case <-ctx.Done():
			if r.leads() {
				r.notify(daemon.SdNotifyStopping)
				r.removeFiles()
			}
			return
		case <-r.signals:
		}
		r.notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
		pid, err := r.handOver(ctx)
		if err == nil {
			r.notify(fmt.Sprintf("MAINPID=%d\n%s", pid, daemon.SdNotifyReady))
			r.logger().Info("a new program has taken over; this one finishes", "pid", pid)
			cancel(ErrReplaced)
			return
		}
		r.logger().Error("the restart failed; this program continues to serve", "error", err)
		if ctx.Err() == nil {
			r.notify(daemon.SdNotifyReady)
		}
	}
}

// leads reports whether this program is the one that systemd knows, and the one that removes the files of Unix sockets at its end. Until
// this program is ready and has heard from its predecessor, the predecessor leads, if there is one.
func (r *Restarter) leads() bool {
	r.mu.Lock()
	told := r.told
	r.mu.Unlock()
	switch {
	case r.predecessor == nil:
		return true
	case !told:
		return false
	}
	<-r.ready
	select {
	case <-r.heard:
		return r.word != goesOn
	case <-time.After(endTime): // the predecessor is paused, and may continue later
		return false
	}
}

// release closes the kept descriptors. Otherwise they would hold connections that nobody accepts any more.
func (r *Restarter) release() {
	for _, each := range r.sockets {
		each.file.Close()
	}
}

// removeFiles removes the files of Unix sockets.
func (r *Restarter) removeFiles() {
	for _, each := range r.sockets {
		if each.path != "" {
			os.Remove(each.path)
		}
	}
}

func (r *Restarter) logger() *slog.Logger { return cmp.Or(r.options.Logger, slog.Default()) }
