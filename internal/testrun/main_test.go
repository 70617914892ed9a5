package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The output of a run is right for tests that pass, are skipped, fail or panic, and for packages that can't be built.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":             "module example.test/m\n\ngo 1.25.0\n",
		"none/none.go":       "package none\n",
		"fine/a_test.go":     "package fine\n\nimport \"testing\"\n\nfunc TestFine(t *testing.T) { t.Log(\"noise\") }\n",
		"skips/a_test.go":    "package skips\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) { print(\"no newline\"); t.Skip(\"no tool\") }\nfunc TestB(t *testing.T) { t.Log(1); t.Skip(\"no tool\") }\n",
		"fails/a_test.go":    "package fails\n\nimport \"testing\"\n\nfunc TestBad(t *testing.T) { t.Run(\"sub\", func(t *testing.T) { t.Error(\"the fault\\nin full\") }) }\nfunc TestGood(t *testing.T) { t.Log(\"noise\") }\n",
		"panics/a_test.go":   "package panics\n\nimport \"testing\"\n\nfunc TestPanic(t *testing.T) { panic(\"the panic\") }\n",
		"exits/a_test.go":    "package exits\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestMain(m *testing.M) { println(\"the exit\"); os.Exit(3) }\n",
		"unbuilt/a_test.go":  "package unbuilt\n\nvar a int = \"the type\"\n",
		"unvetted/a_test.go": "package unvetted\n\nimport \"testing\"\n\nfunc TestVet(t *testing.T) { t.Errorf(\"%d\") }\n",
	} {
		writeFile(t, filepath.Join(dir, name), text)
	}
	for _, tc := range []struct {
		packages string // the module's packages, separated by spaces
		failed   int
		wants    []string
	}{
		{"./none ./fine ./skips", 0, []string{"pass   example.test/m/fine", "skipped: example.test/m/skips TestA (2 in all): no tool\n", "1 tests passed, 0 failed"}},
		{"./fails", 2, []string{"fail   example.test/m/fails", "the fault\n", "in full\n", "--- FAIL: TestBad/sub", "1 tests passed, 2 failed"}},
		{"./panics", 1, []string{"fail   example.test/m/panics", "panic: the panic", "goroutine "}},
		{"./exits", 1, []string{"the exit"}},
		{"./unbuilt", 1, []string{"the type"}},
		{"./unvetted", 1, []string{"%d"}},
		{"./absent", 1, []string{"absent"}},
	} {
		var out bytes.Buffer
		r := newRun(&out)
		r.testAll([]string{dir}, strings.Fields(tc.packages))
		r.printSummary()
		for _, want := range tc.wants {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: want %q in\n%s", tc.packages, want, out.String())
			}
		}
		if r.failed != tc.failed || strings.Contains(out.String(), "noise") {
			t.Errorf("%s: %d failed, want %d:\n%s", tc.packages, r.failed, tc.failed, out.String())
		}
	}
}

// Modules that run at the same time don't hide each other's failures.
func TestModules(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":         "module example.test/m\n\ngo 1.25.0\n",
		"fine/a_test.go": "package fine\n\nimport \"testing\"\n\nfunc TestFine(t *testing.T) {}\n",
		"bad/a_test.go":  "package bad\n\nimport \"testing\"\n\nfunc TestBad(t *testing.T) { t.Error(\"the fault\") }\n",
	} {
		writeFile(t, filepath.Join(dir, name), text)
	}
	var out bytes.Buffer
	r := newRun(&out)
	r.testAll([]string{filepath.Join(dir, "fine"), filepath.Join(dir, "bad"), filepath.Join(dir, "absent")}, []string{"."})
	r.printSummary()
	for _, want := range []string{"pass   example.test/m/fine", "the fault", "absent: go test: ", "1 tests passed, 2 failed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in\n%s", want, out.String())
		}
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// While no package ends, the output names the running tests.
func TestProgress(t *testing.T) {
	var out bytes.Buffer
	r := newRun(&out)
	r.modules["contrib/x"], r.modules["contrib/y"] = true, true
	r.printProgress()
	for _, line := range []string{
		`{"Action":"start","Package":"github.com/filohttp/filo/sse"}`,
		`{"Action":"run","Package":"github.com/filohttp/filo/sse","Test":"TestLong"}`,
	} {
		r.take([]byte(line))
	}
	r.printProgress()
	for _, want := range []string{"building the tests of module contrib/x, contrib/y\n", "0 tests passed, filo/sse TestLong\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in\n%s", want, out.String())
		}
	}
}
