package internal

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The modules of the repository support the same versions of Go, and are built by the same toolchain, whose standard library has the security fixes.
// Pages that mention the oldest supported version mention that of the modules.
func TestModulesNameOneGo(t *testing.T) {
	var names []string
	for _, pattern := range []string{"../go.mod", "../*/go.mod", "../*/*/go.mod"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	line := func(name, directive string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`(?m)^` + directive + ` (.*)$`).FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s has no %s line", name, directive)
		}
		return string(found[1])
	}
	oldest, toolchain := line("../go.mod", "go"), line("../go.mod", "toolchain")
	minor := strings.Join(strings.Split(oldest, ".")[:2], ".")
	for _, name := range names {
		// No module imports deploy, so it may differ: one of its dependencies needs a later patch.
		if version := line(name, "go"); version != oldest && (name != "../deploy/go.mod" || !strings.HasPrefix(version, minor+".")) {
			t.Errorf("%s: go %s, the root's is %s", name, version, oldest)
		}
		if version := line(name, "toolchain"); version != toolchain {
			t.Errorf("%s: toolchain %s, the root's is %s", name, version, toolchain)
		}
	}
	needs := regexp.MustCompile(`needs Go (\d+\.\d+)`)
	for _, page := range []string{"../README.md", "../docs/GUIDE.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		named := needs.FindAllSubmatch(text, -1)
		if len(named) == 0 {
			t.Errorf("%s doesn't name the oldest version of Go", page)
		}
		for _, version := range named {
			if string(version[1]) != minor {
				t.Errorf("%s: Go %s, go.mod has %s", page, version[1], minor)
			}
		}
	}
}
