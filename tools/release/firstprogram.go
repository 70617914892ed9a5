package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// firstProgram is the content of the README's section "First program".
type firstProgram struct {
	code     string   // of main.go
	commands []string // the shell commands before the curl; the last command runs the program
	url      string   // the URL that the reader requests while the program runs
}

// readFirstProgram parses the section "First program" of a README.
func readFirstProgram(readme string) (firstProgram, error) {
	_, section, _ := strings.Cut(readme, "\n## First program\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, rest, _ := strings.Cut(section, "```go\n")
	code, rest, found := strings.Cut(rest, "```\n")
	if !found {
		return firstProgram{}, errors.New("README.md: the section First program has no program")
	}
	p := firstProgram{code: code}
	for line := range strings.Lines(rest) {
		command, indented := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		switch {
		case !indented && len(p.commands) == 0:
			continue
		case !indented:
			return firstProgram{}, errors.New("README.md: the first program's commands don't end with one of curl")
		case strings.HasPrefix(command, "curl "):
			p.url = strings.Fields(command)[1]
			return p, nil
		default:
			p.commands = append(p.commands, command)
		}
	}
	return firstProgram{}, errors.New("README.md: the first program has no commands")
}

// follow does what the README says, in an empty directory and with settings added to the environment, until the program answers with 200. It fails if
// that takes more than a minute.
func (p firstProgram) follow(dir string, settings []string) (err error) {
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(p.code), 0o644); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errors.New("no answer within a minute"))
	defer cancel()
	if answered, _ := get(ctx, p.url); answered {
		return fmt.Errorf("another program answers at %s", p.url)
	}
	shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", strings.Join(p.commands, "\n"))
	shell.Dir, shell.Env = dir, append(os.Environ(), settings...)
	printed := new(strings.Builder)
	shell.Stdout, shell.Stderr = printed, printed
	// The program is a grandchild of the shell. With a process group, both are killed together.
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	if err := shell.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		shell.Wait()
	}()
	defer func() {
		cancel()
		<-ended
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, printed)
		}
	}()
	for {
		if answered, err := get(ctx, p.url); answered {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ended:
			return errors.New("the commands ended before the program answered")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// get requests a URL. It reports whether there was an answer, and returns an error if the answer isn't a 200.
func get(ctx context.Context, url string) (answered bool, err error) {
	request, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return true, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, nil
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != 200 {
		err = fmt.Errorf("%s: %s\n%s", url, answer.Status, body)
	}
	return true, err
}
