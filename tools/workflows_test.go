package tools

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	uses   = regexp.MustCompile(`(?m)^[ -]*uses:(.*)$`)
	pinned = regexp.MustCompile(`^ ([\w.-]+/[\w./-]+)@([0-9a-f]{40}) # (v[0-9]+(?:\.[0-9]+)*)$`)
)

// unpinned returns how many actions a workflow uses, and what is wrong with them. revisions maps each action's repository to its revision, which must
// be the same in all workflows, since dependabot updates them together.
func unpinned(workflow string, revisions map[string]string) (found int, faults []string) {
	for _, match := range uses.FindAllStringSubmatch(workflow, -1) {
		found++
		parts := pinned.FindStringSubmatch(match[1])
		if parts == nil {
			faults = append(faults, fmt.Sprintf("uses:%s: write owner/name@<40 hexadecimal digits> # v1.2.3", match[1]))
			continue
		}
		words := strings.Split(parts[1], "/")
		repository, revision := words[0]+"/"+words[1], parts[2]+" "+parts[3]
		if other := revisions[repository]; other != "" && other != revision {
			faults = append(faults, fmt.Sprintf("%s is used at %s and at %s", repository, other, revision))
		}
		revisions[repository] = revision
	}
	return found, faults
}

// Each workflow names actions by a commit's hash, since a tag can be moved to other code. It gives its jobs only the permission to read. A job that
// needs more permissions declares them itself.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob("../.github/workflows/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	revisions, found := make(map[string]string), 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		n, faults := unpinned(string(text), revisions)
		for _, fault := range faults {
			t.Errorf("%s: %s", name, fault)
		}
		found += n
		if !regexp.MustCompile(`(?m)^permissions:(\n  contents: read$| read-all$)`).Match(text) {
			t.Errorf("%s: the workflow's own permissions must be contents: read, or read-all", name)
		}
	}
	if found < len(files) {
		t.Errorf("only %d actions were found in %d workflows", found, len(files))
	}
}

func TestUnpinned(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef01234567"
	for _, test := range []struct{ about, workflow, says string }{
		{"a tag", "  - uses: actions/checkout@v4\n", "uses: actions/checkout@v4: write"},
		{"a short hash", "  - uses: actions/checkout@0123456 # v4\n", "write owner/name"},
		{"no version", "  - uses: actions/checkout@" + hash + "\n", "write owner/name"},
		{"a step with a name", "  - name: x\n    uses: actions/checkout@main\n", "write owner/name"},
		{"two revisions", "  - uses: a/b/init@" + hash + " # v1\n  - uses: a/b/end@" + hash + " # v1.1\n", "a/b is used at"},
		{"all pinned", "  - uses: a/b/init@" + hash + " # v1.0.2\n  - uses: a/b/end@" + hash + " # v1.0.2\n", ""},
	} {
		_, faults := unpinned(test.workflow, make(map[string]string))
		if said := strings.Join(faults, "\n"); test.says == "" && said != "" || !strings.Contains(said, test.says) {
			t.Errorf("%s: %q, want %q", test.about, said, test.says)
		}
	}
}

// Dependabot checks every module and every image.
func TestDependabot(t *testing.T) {
	text, err := os.ReadFile("../.github/dependabot.yml")
	if err != nil {
		t.Fatal(err)
	}
	for ecosystem, file := range map[string]string{"gomod": "go.mod", "docker": "Dockerfile"} {
		_, section, found := strings.Cut(string(text), "package-ecosystem: "+ecosystem+"\n")
		if !found {
			t.Errorf("there is no ecosystem %s", ecosystem)
		}
		section, _, _ = strings.Cut(section, "package-ecosystem:")
		var directories []string
		for _, match := range regexp.MustCompile(`(?m)^ +- (/\S*)$`).FindAllStringSubmatch(section, -1) {
			directories = append(directories, match[1])
		}
		looked := make(map[string]bool)
		for _, pattern := range []string{"../" + file, "../*/" + file, "../*/*/" + file} {
			names, err := filepath.Glob(pattern)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				directory, covered := path.Join("/", strings.TrimPrefix(path.Dir(name), "..")), false
				for _, glob := range directories {
					if ok, err := path.Match(glob, directory); err != nil {
						t.Fatal(err)
					} else if ok {
						covered, looked[glob] = true, true
					}
				}
				if !covered {
					t.Errorf("%s: %s isn't looked at", ecosystem, name)
				}
			}
		}
		for _, glob := range directories {
			if !looked[glob] {
				t.Errorf("%s: there is no %s in %s", ecosystem, file, glob)
			}
		}
	}
}
