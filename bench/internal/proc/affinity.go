package proc

import (
	"errors"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

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
