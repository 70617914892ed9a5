package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the times in /proc/PID/stat: USER_HZ is 100 on all that Go runs on.
const tick = 10 * time.Millisecond

// cpuTime is the CPU time that a process has used, in user and kernel mode. proc is its folder in /proc.
//
// The threads' schedstat counts nanoseconds but forgets threads that ended; stat remembers them but counts
// ticks. So it is the larger of the two.
func cpuTime(proc string) (time.Duration, error) {
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return 0, err
	}
	coarse, err := parseStat(string(stat))
	if err != nil {
		return 0, err
	}
	threads, err := filepath.Glob(filepath.Join(proc, "task", "*", "schedstat"))
	if err != nil {
		return 0, err
	}
	var fine time.Duration
	for _, thread := range threads {
		data, err := os.ReadFile(thread)
		if err != nil {
			continue // the thread ended since Glob: stat has its time
		}
		d, err := parseSchedstat(string(data))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", thread, err)
		}
		fine += d
	}
	return max(coarse, fine), nil
}

// parseStat adds utime and stime, the fields 14 and 15 of /proc/PID/stat. The second field is the program's
// name in parentheses, and may itself hold spaces and parentheses.
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

// peakMemory is the most memory that the process has had resident, in bytes.
func peakMemory(proc string) (int64, error) {
	status, err := os.ReadFile(filepath.Join(proc, "status"))
	if err != nil {
		return 0, err
	}
	return parsePeak(string(status))
}

func parsePeak(status string) (int64, error) {
	for line := range strings.Lines(status) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "VmHWM:" && fields[2] == "kB" {
			kb, err := strconv.ParseInt(fields[1], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("no VmHWM in /proc/PID/status")
}
