package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// HasStrace reports whether system calls can be counted.
func HasStrace() bool {
	_, err := exec.LookPath("strace")
	return err == nil
}

// traced counts the server's system calls in a run of its own, since being traced makes it slow. Those that open and close the
// row's connections are among them.
func (r *run) traced(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "filo-strace")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	summary := filepath.Join(folder, "summary")
	args := []string{"-f", "-c", "-U", "calls,name", "-o", summary}
	for _, pid := range r.server.Processes() {
		args = append(args, "-p", strconv.Itoa(pid))
	}
	cmd := exec.CommandContext(ctx, "strace", args...)
	var messages strings.Builder
	cmd.Stderr = &messages
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := waitTraced(r.server.Processes()); err != nil {
		cmd.Process.Kill()
		return fmt.Errorf("strace: %w: %s", errors.Join(err, cmd.Wait()), messages.String())
	}
	runner := *r.Runner
	r.Runner, runner.Warmup = &runner, 0
	result, err := r.load(ctx)
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait() // it ends by the signal
	if err != nil {
		return err
	}
	text, err := os.ReadFile(summary)
	if err != nil {
		return err
	}
	calls, err := parseStrace(string(text))
	if err != nil {
		return err
	}
	r.record.Figures[Calls] = float64(calls) / result.Answers
	return nil
}

// waitTraced waits until all threads of the processes are traced, for five seconds at most.
func waitTraced(pids []int) error {
	for try := 0; ; try++ {
		all := true
		for _, pid := range pids {
			files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
			if err != nil {
				return err
			}
			for _, file := range files {
				if status, err := os.ReadFile(file); err == nil && strings.Contains(string(status), "TracerPid:\t0\n") {
					all = false
				}
			}
		}
		if all {
			return nil
		}
		if try == 500 {
			return errors.New("it doesn't attach to the server")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// parseStrace adds up the calls of strace's summary, whose columns are calls and name.
func parseStrace(summary string) (calls int64, err error) {
	for line := range strings.Lines(summary) {
		fields := strings.Fields(line)
		if len(fields) != 2 || fields[1] == "total" {
			continue
		}
		if n, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
			calls += n
		}
	}
	if calls == 0 {
		return 0, fmt.Errorf("strace counted nothing: %q", summary)
	}
	return calls, nil
}
