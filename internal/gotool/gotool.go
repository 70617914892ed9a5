// Package gotool runs the go command for the programs that run other projects' test suites against filo.
package gotool

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Filo is the path of filo's module.
const Filo = "github.com/filohttp/filo"

// Command returns a go command that prints to this process's output.
func Command(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "GOWORK=off")
	return cmd
}

// Output runs a go command and returns what it prints, without the newline at the end.
func Output(dir string, args ...string) (string, error) {
	cmd := Command(dir, args...)
	cmd.Stdout = nil
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// Repository returns the directory of filo's module. The working directory must be in it.
func Repository() (string, error) {
	dir, err := Output(".", "list", "-m", "-f", "{{.Dir}}", Filo)
	if err != nil {
		return "", fmt.Errorf("not run inside the module %s: %w", Filo, err)
	}
	return dir, nil
}

// If a download fails, the error of Download wraps ErrNoDownload, unless FILO_CI is set. The caller must then skip the tests that need the module.
var ErrNoDownload = errors.New("can't be downloaded")

// Download downloads a module, and returns its directory. The command runs in dir.
func Download(dir, path, version string) (string, error) {
	out, err := Output(dir, "mod", "download", "-json", path+"@"+version)
	var module struct{ Dir, Error string }
	if invalid := json.Unmarshal([]byte(out), &module); invalid != nil {
		err = errors.Join(err, invalid)
	} else if module.Error != "" {
		err = errors.New(module.Error)
	}
	switch {
	case err == nil:
		return module.Dir, nil
	case os.Getenv("FILO_CI") != "":
		return "", fmt.Errorf("downloading %s: %w", path, err)
	}
	return "", fmt.Errorf("%s %w: %w", path, ErrNoDownload, err)
}
