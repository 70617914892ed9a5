package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/filohttp/filo/internal/gotool"
)

// buildServer builds a package of one of the repository's modules.
func buildServer(o *options, module, pkg, program string) error {
	args := []string{"build", "-o", program}
	if o.race {
		args = append(args, "-race")
	}
	return gotool.Command(filepath.Join(o.repository, module), append(args, pkg)...).Run()
}

// startServer builds the program in a directory below this one, and starts it with the arguments. The program prints its ports, which
// startServer reads into ports. stop closes the program's standard input, which ends the program.
func startServer(o *options, name, program string, arguments []string, ports ...any) (stop func() error, err error) {
	if err := buildServer(o, ".", "./internal/foreign/"+name, program); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, arguments...)
	cmd.Env, cmd.Stderr = append(os.Environ(), o.environment()...), os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() error {
		input.Close()
		return cmd.Wait()
	}
	if _, err := fmt.Fscan(output, ports...); err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}
