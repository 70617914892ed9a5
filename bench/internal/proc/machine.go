package proc

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
)

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
