package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The analyzers of both programs run, and report findings under their names.
func TestLint(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.25\n",
		"m.go": `// Package m has a fault for some of the analyzers.
package m

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
)

// T is exported.
type T struct {
	A  int ` + "`json:A`" + `
	mu sync.Mutex
}

func (t T) copies() int { return t.A }

// F is exported.
func F(ctx context.Context) error {
	_, _ = context.WithCancel(ctx)
	told("%d", "text")
	var e error
	if errors.As(e, nil) || (T{}).copies() == 1 {
		return fmt.Errorf("Upper case")
	}
	fmt.Errorf("unused")
	return nil
}

func told(format string, values ...any) { fmt.Printf(format, values...) }

func unused() {}

func handle() { syscall.StringByteSlice("x") }
`,
		"m_test.go": "package m\n\nimport \"testing\"\n\nfunc Testing(t *testing.T) {\n\thandle()\n\tgo func() { t.Fatal() }()\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	built := filepath.Join(folder, "lint")
	if out, err := exec.Command("go", "build", "-o", built, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	command := exec.Command(built, "./...")
	command.Dir = folder
	out, err := command.Output()
	if code := command.ProcessState.ExitCode(); code != 1 {
		t.Errorf("lint: %v, with code %d", err, code)
	}
	found := map[string]bool{}
	for _, match := range regexp.MustCompile(`\((\w+)\)\n`).FindAllSubmatch(out, -1) {
		found[string(match[1])] = true
	}
	for _, want := range []string{
		"copylocks", "errorsas", "lostcancel", "printf", "structtag", "testinggoroutine", "unusedresult", // of go vet
		"SA1019", "ST1005", "U1000", // of staticcheck
	} {
		if !found[want] {
			t.Errorf("%s finds nothing", want)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}

// vet has all analyzers of go vet. The test fails if a new version of Go has another one.
func TestVetIsWhole(t *testing.T) {
	out, err := exec.Command("go", "tool", "vet", "help").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(out), "Registered analyzers:\n\n")
	list, _, _ = strings.Cut(list, "\n\n")
	var want, got []string
	for line := range strings.Lines(list) {
		want = append(want, strings.Fields(line)[0])
	}
	for _, each := range vet {
		got = append(got, each.Name)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) || len(want) < 30 {
		t.Errorf("these are here: %q\ngo vet has %q", got, want)
	}
}
