// Package proc reads the resource usage of processes from Linux's /proc, and starts processes on chosen processors.
package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Usage is the resource usage of a process and its descendants since they started.
type Usage struct {
	CPU time.Duration // user and kernel
	// Voluntary is how often a thread gave up its processor, and Involuntary how often the scheduler ran another thread instead.
	Voluntary, Involuntary int64
}

// Minus returns the usage since an earlier reading.
func (u Usage) Minus(before Usage) Usage {
	return Usage{u.CPU - before.CPU, u.Voluntary - before.Voluntary, u.Involuntary - before.Involuntary}
}

// Tree returns the process and its descendants.
func Tree(pid int) []int {
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pids[i]))
		for _, list := range lists {
			data, _ := os.ReadFile(list) // empty if the thread has ended since Glob
			for child := range strings.FieldsSeq(string(data)) {
				if n, err := strconv.Atoi(child); err == nil {
					pids = append(pids, n)
				}
			}
		}
	}
	return pids
}

// ReadUsage adds up the usage of the processes. It fails if one of them has ended. The schedstat of the threads counts nanoseconds, but doesn't
// include threads that have ended. The process's stat includes them, but counts ticks of 10 ms. So ReadUsage takes the larger of the two as the
// process's CPU time.
func ReadUsage(pids []int) (sum Usage, err error) {
	for _, pid := range pids {
		process, err := procfs.NewProc(pid)
		if err != nil {
			return Usage{}, err
		}
		stat, err := process.Stat()
		if err != nil {
			return Usage{}, err
		}
		threads, err := procfs.AllThreads(pid)
		if err != nil {
			return Usage{}, err
		}
		var fine time.Duration
		for _, thread := range threads {
			scheduled, err := thread.Schedstat()
			if err != nil {
				continue // the thread has ended
			}
			status, err := thread.NewStatus()
			if err != nil {
				continue
			}
			fine += time.Duration(scheduled.RunningNanoseconds)
			sum.Voluntary += int64(status.VoluntaryCtxtSwitches)
			sum.Involuntary += int64(status.NonVoluntaryCtxtSwitches)
		}
		sum.CPU += max(fine, time.Duration(stat.CPUTime()*float64(time.Second)))
	}
	return sum, nil
}

// ReadMemory returns the sum of the processes' peak resident memory, and the sum of their current memory without mapped files, that is, heaps and
// stacks. Both are in bytes.
func ReadMemory(pids []int) (peak, anonymous uint64, err error) {
	for _, pid := range pids {
		process, err := procfs.NewProc(pid)
		if err != nil {
			return 0, 0, err
		}
		status, err := process.NewStatus()
		if err != nil {
			return 0, 0, err
		}
		peak += status.VmHWM
		anonymous += status.RssAnon
	}
	return peak, anonymous, nil
}

// Stolen returns the steal time since the machine started, as an average of its processors: how long a processor had work but didn't run, because the
// host ran something else.
func Stolen() (time.Duration, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	stat, err := fs.Stat()
	if err != nil {
		return 0, err
	}
	return time.Duration(stat.CPUTotal.Steal*float64(time.Second)) / time.Duration(max(len(stat.CPU), 1)), nil
}

// Start starts the command with its threads bound to the given processors, or to all processors if none are given. The binding is set on the thread
// that starts the process, which inherits it, so the process never runs on another processor.
func Start(cmd *exec.Cmd, cpus []int) error {
	if len(cpus) == 0 {
		return cmd.Start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := errors.Join(unix.SchedGetaffinity(0, &before), Bind(cpus)); err != nil {
		return err
	}
	err := cmd.Start()
	return errors.Join(err, unix.SchedSetaffinity(0, &before))
}

// Bind binds the calling thread to the given processors. It does nothing if there are none.
func Bind(cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	var bound unix.CPUSet
	for _, cpu := range cpus {
		bound.Set(cpu)
	}
	return unix.SchedSetaffinity(0, &bound)
}

// CPUs returns the processors that this process may run on.
func CPUs() (cpus []int) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil
	}
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// Machine describes the machine on which figures were measured.
type Machine struct {
	CPU, Memory, Kernel, Go string
	Congestion              string // TCP's congestion control algorithm
	Cores                   int
}

// ThisMachine describes the machine on which this program runs.
func ThisMachine() Machine {
	m := Machine{CPU: "?", Memory: "?", Congestion: "?", Kernel: Version("uname", "-r"), Go: runtime.Version(), Cores: runtime.NumCPU()}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return m
	}
	if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
		m.CPU = cpus[0].ModelName
	}
	if memory, err := fs.Meminfo(); err == nil && memory.MemTotal != nil {
		m.Memory = fmt.Sprint(*memory.MemTotal, " kB")
	}
	if control, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control"); err == nil {
		m.Congestion = strings.TrimSpace(string(control))
	}
	return m
}

var version = regexp.MustCompile(`\d+(\.\d+)+[-\w]*`)

// Version runs a program with arguments that make it print its version, and returns the version.
func Version(program string, args ...string) string {
	// wrk and other programs exit with a status other than 0.
	out, _ := exec.Command(program, args...).CombinedOutput()
	if found := version.Find(out); found != nil {
		return string(found)
	}
	return "?"
}
