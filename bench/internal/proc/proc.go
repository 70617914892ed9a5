// Package proc reads from Linux's /proc what a process and its children have used.
package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of the times in /proc/PID/stat: USER_HZ is 100 on all that Go runs on.
const tick = 10 * time.Millisecond

// Usage is what a process and its descendants have used since they began.
type Usage struct {
	CPU time.Duration // user and kernel
	// Switches is how often their threads have left a processor: of their own accord, and because another one was due.
	Voluntary, Involuntary int64
}

// Minus returns what was used since an earlier reading.
func (u Usage) Minus(before Usage) Usage {
	return Usage{u.CPU - before.CPU, u.Voluntary - before.Voluntary, u.Involuntary - before.Involuntary}
}

// Memory is what a process and its descendants have resident, in bytes.
type Memory struct {
	Peak      int64 // the sum of the most that each of them has had
	Resident  int64
	Anonymous int64 // of Resident, without what is mapped from files: heaps and stacks
}

// Tree returns the process and its descendants.
func Tree(pid int) []int {
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pids[i]))
		if err != nil {
			continue
		}
		for _, list := range lists {
			data, err := os.ReadFile(list)
			if err != nil {
				continue // the thread ended since Glob
			}
			for child := range strings.FieldsSeq(string(data)) {
				if n, err := strconv.Atoi(child); err == nil {
					pids = append(pids, n)
				}
			}
		}
	}
	return pids
}

// ReadUsage adds up the usage of the processes. One that has ended is an error.
func ReadUsage(pids []int) (Usage, error) {
	var sum Usage
	for _, pid := range pids {
		u, err := readUsage(filepath.Join("/proc", strconv.Itoa(pid)))
		if err != nil {
			return Usage{}, err
		}
		sum.CPU += u.CPU
		sum.Voluntary += u.Voluntary
		sum.Involuntary += u.Involuntary
	}
	return sum, nil
}

// readUsage reads it from a process's folder. The threads' schedstat counts nanoseconds but forgets threads that ended; stat
// remembers them but counts ticks. So the CPU time is the larger of the two.
func readUsage(folder string) (Usage, error) {
	stat, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return Usage{}, err
	}
	coarse, err := parseStat(string(stat))
	if err != nil {
		return Usage{}, err
	}
	threads, err := filepath.Glob(filepath.Join(folder, "task", "*"))
	if err != nil {
		return Usage{}, err
	}
	var sum Usage
	for _, thread := range threads {
		u, err := readThread(thread)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the thread ended since Glob: stat has its time
		}
		if err != nil {
			return Usage{}, fmt.Errorf("%s: %w", thread, err)
		}
		sum.CPU += u.CPU
		sum.Voluntary += u.Voluntary
		sum.Involuntary += u.Involuntary
	}
	sum.CPU = max(sum.CPU, coarse)
	return sum, nil
}

func readThread(folder string) (u Usage, err error) {
	schedstat, err := os.ReadFile(filepath.Join(folder, "schedstat"))
	if err != nil {
		return u, err
	}
	if u.CPU, err = parseSchedstat(string(schedstat)); err != nil {
		return u, err
	}
	status, err := os.ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		return u, err
	}
	if u.Voluntary, err = statusNumber(string(status), "voluntary_ctxt_switches:"); err != nil {
		return u, err
	}
	u.Involuntary, err = statusNumber(string(status), "nonvoluntary_ctxt_switches:")
	return u, err
}

// ReadMemory adds up the memory of the processes.
func ReadMemory(pids []int) (Memory, error) {
	var sum Memory
	for _, pid := range pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return Memory{}, err
		}
		for name, to := range map[string]*int64{"VmHWM:": &sum.Peak, "VmRSS:": &sum.Resident, "RssAnon:": &sum.Anonymous} {
			kilobytes, err := statusNumber(string(status), name)
			if err != nil {
				return Memory{}, err
			}
			*to += kilobytes << 10
		}
	}
	return sum, nil
}

// parseStat adds utime and stime, the fields 14 and 15 of /proc/PID/stat. The second field is the program's name in
// parentheses, and may itself hold spaces and parentheses.
func parseStat(stat string) (time.Duration, error) {
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	if end < 0 || len(fields) < 13 {
		return 0, fmt.Errorf("not a line of /proc/PID/stat: %q", stat)
	}
	utime, err := strconv.ParseInt(fields[14-3], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("utime in /proc/PID/stat: %w", err)
	}
	stime, err := strconv.ParseInt(fields[15-3], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("stime in /proc/PID/stat: %w", err)
	}
	return time.Duration(utime+stime) * tick, nil
}

// parseSchedstat reads the time on the CPU, the first of three numbers.
func parseSchedstat(schedstat string) (time.Duration, error) {
	fields := strings.Fields(schedstat)
	if len(fields) != 3 {
		return 0, fmt.Errorf("not a schedstat: %q", schedstat)
	}
	ns, err := strconv.ParseInt(fields[0], 10, 64)
	return time.Duration(ns), err
}

// statusNumber finds a line of /proc/PID/status by its name, which has the colon, and returns its number.
func statusNumber(status, name string) (int64, error) {
	for line := range strings.Lines(status) {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == name {
			return strconv.ParseInt(fields[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("no line %s in /proc/PID/status", name)
}

// Start starts the command with its threads bound to the given processors, to all if there are none. They are set on the
// thread that starts it, which the process inherits them from, so that it never runs anywhere else.
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

// Bind binds the calling thread to the given processors, if there are any.
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
func CPUs() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil
	}
	var cpus []int
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// Machine describes where the figures come from.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory string `json:"memory"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// ThisMachine describes the one that this runs on.
func ThisMachine() Machine {
	return Machine{
		CPU: fileField("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), Memory: fileField("/proc/meminfo", "MemTotal"),
		Kernel: firstLine("/proc/sys/kernel/osrelease"), Go: runtime.Version(),
	}
}

func firstLine(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return "?"
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}

func fileField(file, name string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return "?"
	}
	for line := range strings.Lines(string(data)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "?"
}

var version = regexp.MustCompile(`\d+(\.\d+)+`)

// Version runs a program with arguments that make it say its version, and returns that.
func Version(program string, args ...string) string {
	// wrk and others say it with an exit code that isn't 0.
	out, _ := exec.Command(program, args...).CombinedOutput()
	if found := version.Find(out); found != nil {
		return string(found)
	}
	return "?"
}
