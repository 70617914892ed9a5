// Command antstest runs the external tests of github.com/panjf2000/ants/v2 (package ants_test) against this repository's package pool. It
// copies them from the module cache into a temporary module, changes only the import path, and exits with the status of `go test -race`. If
// it can't download ants, it reports that and succeeds, unless FILO_CI is set.
//
//	go run ./internal/antstest [-count n] [-run regexp]
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/filohttp/filo/internal/gotool"
)

const (
	antsPath    = "github.com/panjf2000/ants/v2"
	antsVersion = "v2.12.1"
)

// testFiles are the files of package ants_test. They use only the exported names of ants.
var testFiles = []string{"ants_test.go", "ants_benchmark_test.go", "example_test.go"}

func main() {
	count := flag.Int("count", 1, "how often the tests are run")
	run := flag.String("run", ".", "which tests are run")
	flag.Parse()
	if err := antstest(*count, *run); err != nil {
		fmt.Fprintln(os.Stderr, "antstest:", err)
		os.Exit(1)
	}
}

func antstest(count int, run string) error {
	repository, err := gotool.Repository()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "antstest")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("antstest: %s %s against %s\n", antsPath, antsVersion, repository)
	ants, err := gotool.Download(dir, antsPath, antsVersion)
	if errors.Is(err, gotool.ErrNoDownload) {
		fmt.Println("antstest: skipped:", err)
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range testFiles {
		if err := copyTest(filepath.Join(dir, name), filepath.Join(ants, name)); err != nil {
			return err
		}
	}
	if err := copyModule(dir, ants, repository); err != nil {
		return err
	}
	// Each run has its own process: the tests leave the package's default pool closed, so a second run in the same process would wait for it
	// forever.
	for range count {
		if err := gotool.Command(dir, "test", "-race", "-count=1", "-run", run, "-timeout", "10m", ".").Run(); err != nil {
			return err
		}
	}
	return nil
}

// copyTest copies a test file and changes the import path. The new import has the name ants, so the rest of the file stays the same.
func copyTest(to, from string) error {
	source, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	old := []byte(`"` + antsPath + `"`)
	if n := bytes.Count(source, old); n != 1 {
		return fmt.Errorf("%s imports %s %d times, expected 1", from, antsPath, n)
	}
	return os.WriteFile(to, bytes.Replace(source, old, []byte(`ants "`+gotool.Filo+`/pool"`), 1), 0o644)
}

// copyModule writes the temporary module's go.mod. It is a copy of ants' go.mod, which has the versions of the tests' other imports, with
// filo added.
func copyModule(dir, ants, repository string) error {
	theirs, err := os.ReadFile(filepath.Join(ants, "go.mod"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), theirs, 0o644); err != nil {
		return err
	}
	edit := gotool.Command(dir, "mod", "edit", "-module=antstest", "-go=1.25.0",
		"-require="+gotool.Filo+"@v0.0.0", "-replace="+gotool.Filo+"="+repository)
	if err := edit.Run(); err != nil {
		return err
	}
	return gotool.Command(dir, "mod", "tidy").Run()
}
