package proc

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A shell's child is part of the shell's tree, and the tree's memory and usage include the child's.
func TestTree(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 60 & wait")
	if err := Start(cmd, nil); err != nil {
		t.Fatal(err)
	}
	pids := []int{}
	defer func() {
		for _, pid := range pids {
			if p, err := os.FindProcess(pid); err == nil {
				p.Kill()
			}
		}
		cmd.Wait()
	}()
	for deadline := time.Now().Add(time.Minute); len(pids) < 2 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		pids = Tree(cmd.Process.Pid)
	}
	if len(pids) != 2 || pids[0] != cmd.Process.Pid {
		t.Fatalf("the tree is %v", pids)
	}
	one, _, err := ReadMemory(pids[:1])
	if err != nil {
		t.Fatal(err)
	}
	if both, anonymous, err := ReadMemory(pids); err != nil || both <= one || anonymous == 0 || anonymous > both {
		t.Errorf("one has %d, both %d and %d, %v", one, both, anonymous, err)
	}
	// On a busy machine the shell may not have begun to wait yet.
	u, err := ReadUsage(pids)
	for ; err == nil && u.Voluntary == 0 && t.Context().Err() == nil; u, err = ReadUsage(pids) {
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		t.Errorf("the usage is %+v, %v", u, err)
	}
	if _, err := ReadUsage([]int{1 << 30}); err == nil {
		t.Error("a process that doesn't exist has a usage")
	}
}

// The CPU time of this process grows while it computes, by about the elapsed time.
func TestUsageCounts(t *testing.T) {
	pids := []int{os.Getpid()}
	before, err := ReadUsage(pids)
	if err != nil {
		t.Fatal(err)
	}
	// On a busy machine it may take a second until this process has used a tenth of a second.
	var used Usage
	for begin := time.Now(); used.CPU < 100*time.Millisecond && time.Since(begin) < time.Minute; {
		after, err := ReadUsage(pids)
		if err != nil {
			t.Fatal(err)
		}
		used = after.Minus(before)
	}
	if used.CPU < 100*time.Millisecond || used.CPU > 10*time.Second {
		t.Errorf("used %+v", used)
	}
}

// Start binds a command to a processor, as the command itself reports, and leaves this process's binding unchanged.
func TestStartBinds(t *testing.T) {
	before := CPUs()
	if len(before) == 0 {
		t.Fatal("there are no processors")
	}
	last := before[len(before)-1]
	cmd := exec.Command("grep", "Cpus_allowed_list", "/proc/self/status")
	var out strings.Builder
	cmd.Stdout = &out
	if err := Start(cmd, []int{last}); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if fields := strings.Fields(out.String()); len(fields) != 2 || fields[1] != strconv.Itoa(last) {
		t.Errorf("bound to %d it says %q", last, out.String())
	}
	if after := CPUs(); !slices.Equal(after, before) {
		t.Errorf("this process had %v, and has %v", before, after)
	}
}

func TestMachine(t *testing.T) {
	if m := ThisMachine(); m.Cores < 1 || m.Kernel == "?" || m.Congestion == "?" || !strings.HasPrefix(m.Go, "go") {
		t.Errorf("the machine is %+v", m)
	}
	if v := Version("go", "version"); v == "?" {
		t.Error("go has no version")
	}
	if v := Version("/does/not/exist"); v != "?" {
		t.Errorf("a program that doesn't exist has version %s", v)
	}
}

// The steal time only grows, and is less than the time since the machine started.
func TestStolen(t *testing.T) {
	before, err := Stolen()
	if err != nil {
		t.Fatal(err)
	}
	after, err := Stolen()
	uptime, readErr := os.ReadFile("/proc/uptime")
	seconds, _, _ := strings.Cut(string(uptime), " ")
	up, parseErr := time.ParseDuration(seconds + "s")
	if err != nil || readErr != nil || parseErr != nil || before < 0 || after < before || after > up {
		t.Errorf("%v, then %v of %v; %v, %v, %v", before, after, up, err, readErr, parseErr)
	}
}
