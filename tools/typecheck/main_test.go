package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An error in a package or in its tests that occurs on only one system is reported for that system only, and once.
func TestCheck(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":         "module example.com/m\n\ngo 1.26\n",
		"m.go":           "package m\n\nimport \"net/http\"\n\nvar Large int = 1 << 40\n\nvar _ http.Handler\n",
		"m_windows.go":   "package m\n\nfunc f() { missing() }\n",
		"m_test.go":      "package m\n\nvar _ = onDarwin\n",
		"other_test.go":  "//go:build !darwin\n\npackage m\n\nconst onDarwin = false\n",
		"sub/sub.go":     "package sub\n",
		"sub/x_linux.go": "package sub\n\nimport \"syscall\"\n\nvar _ = syscall.EpollWait\n",
	} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for system, want := range map[string]string{
		"linux/amd64": "", "windows/amd64": "missing", "darwin/arm64": "onDarwin", "linux/386": "1 << 40",
	} {
		problems, err := check(folder, system)
		switch {
		case err != nil:
			t.Errorf("%s: %v", system, err)
		case want == "" && len(problems) > 0:
			t.Errorf("%s: %q", system, problems)
		case want != "" && (len(problems) != 1 || !strings.Contains(problems[0], want)):
			t.Errorf("%s: %q, want one with %q", system, problems, want)
		}
	}
	if _, err := check(folder, "linux"); err == nil {
		t.Error("a system without a processor is none")
	}
	if problems, err := check(t.TempDir(), "linux/386"); err == nil && len(problems) == 0 {
		t.Error("nothing is wrong with a folder without a module")
	}
}
