// Command antstest runs the tests that github.com/panjf2000/ants/v2 has for its users (those of package ants_test)
// against this repository's package pool. It copies them from the module cache into a temporary module, changes the
// import path and nothing else, and ends as `go test -race` does. Where ants can't be downloaded it says so and ends well,
// unless FILO_CI is set.
//
//	go run ./internal/antstest [-count n] [-run regexp] [-bench regexp]
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const (
	antsPath    = "github.com/panjf2000/ants/v2"
	antsVersion = "v2.12.1"
	ownPath     = "github.com/filohttp/filo"
)

// testFiles are the files of package ants_test. All use the package by its exported names only.
var testFiles = []string{"ants_test.go", "ants_benchmark_test.go", "example_test.go"}

// requirements are what the tests import besides, at the versions that ants asks for.
var requirements = []string{"github.com/stretchr/testify", "golang.org/x/sync"}

func main() {
	count := flag.Int("count", 1, "how often the tests are run")
	run := flag.String("run", ".", "which tests are run")
	bench := flag.String("bench", "", "which benchmarks are run, without the race detector; then no tests are")
	keep := flag.Bool("keep", false, "keep the temporary module and print where it is")
	flag.Parse()
	err := antstest(*count, *run, *bench, *keep)
	var failed *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &failed):
		os.Exit(failed.ExitCode())
	default:
		fmt.Fprintln(os.Stderr, "antstest:", err)
		os.Exit(2)
	}
}

func antstest(count int, run, bench string, keep bool) error {
	repository, err := moduleDir(".", ownPath)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "antstest")
	if err != nil {
		return err
	}
	if keep {
		fmt.Println("antstest: the module is in", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	fmt.Printf("antstest: %s %s against %s\n", antsPath, antsVersion, repository)
	ants, err := download(dir)
	if err != nil {
		if os.Getenv("FILO_CI") == "" {
			fmt.Println("antstest: skipped:", err)
			return nil
		}
		return err
	}
	for _, name := range testFiles {
		if err := copyTest(filepath.Join(dir, name), filepath.Join(ants.Dir, name)); err != nil {
			return err
		}
	}
	if err := writeModule(dir, ants.GoMod, repository); err != nil {
		return err
	}
	args := []string{"test", "-race", "-count=1", "-run", run, "-timeout", "10m", "."}
	if bench != "" {
		args = []string{"test", "-count=1", "-run", "^$", "-bench", bench, "-benchmem", "-timeout", "1h", "."}
	}
	// A process each: the tests leave the package's own pool closed, and a second time wait for it forever.
	for range count {
		if err := command(dir, args...).Run(); err != nil {
			return err
		}
	}
	return nil
}

// moduleDir returns the directory of the module of that path that dir is in.
func moduleDir(dir, path string) (string, error) {
	list := command(dir, "list", "-m", "-f", "{{.Dir}}", path)
	list.Stdout = nil
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("not run inside the module %s: %w", path, err)
	}
	return string(bytes.TrimSpace(out)), nil
}

// module is what go mod download tells of a module.
type module struct {
	Dir, GoMod, Error string
}

func download(dir string) (m module, err error) {
	get := command(dir, "mod", "download", "-json", antsPath+"@"+antsVersion)
	get.Stdout = nil
	out, runErr := get.Output()
	if err := json.Unmarshal(out, &m); err != nil {
		return m, fmt.Errorf("can't download %s: %w", antsPath, errors.Join(runErr, err))
	}
	if m.Error != "" {
		return m, fmt.Errorf("can't download %s: %s", antsPath, m.Error)
	}
	return m, runErr
}

// copyTest copies a test file and changes the import path. The package's name in the file stays: the import is named.
func copyTest(to, from string) error {
	source, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	old := []byte(`"` + antsPath + `"`)
	if n := bytes.Count(source, old); n != 1 {
		return fmt.Errorf("%s imports %s %d times, expected 1", from, antsPath, n)
	}
	return os.WriteFile(to, bytes.Replace(source, old, []byte(`ants "`+ownPath+`/pool"`), 1), 0o644)
}

// writeModule writes the temporary module's go.mod, with the versions of ants' for what the tests import besides.
func writeModule(dir, antsGoMod, repository string) error {
	edit := command(dir, "mod", "edit", "-json", antsGoMod)
	edit.Stdout = nil
	out, err := edit.Output()
	if err != nil {
		return err
	}
	var theirs struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &theirs); err != nil {
		return err
	}
	versions := map[string]string{}
	for _, r := range theirs.Require {
		versions[r.Path] = r.Version
	}
	var mod bytes.Buffer
	mod.WriteString("module antstest\n\ngo 1.25.0\n")
	fmt.Fprintf(&mod, "\nrequire %s v0.0.0\n\nreplace %s => %s\n", ownPath, ownPath, repository)
	for _, path := range requirements {
		if versions[path] == "" {
			return fmt.Errorf("%s names no version of %s", antsGoMod, path)
		}
		fmt.Fprintf(&mod, "\nrequire %s %s\n", path, versions[path])
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), mod.Bytes(), 0o644); err != nil {
		return err
	}
	return command(dir, "mod", "tidy").Run()
}

// command is a go command whose output is this one's.
func command(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "GOWORK=off")
	return cmd
}
