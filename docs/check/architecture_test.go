package check

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const architectureDocument = "docs/ARCHITECTURE.md"

var identifier = regexp.MustCompile(`^(?:[A-Za-z]\w*\.)?([A-Za-z]\w*)$`)

// aside is a file or a directory in inline code, and the text in parentheses right after it.
var aside = regexp.MustCompile("`([^`]+)` \\(([^()]*)\\)")

// The files that the map of the code names exist, and each name in a row of "Where to go" is in one of the row's files. A name in parentheses
// is in the file in front of the parentheses.
func TestArchitecture(t *testing.T) {
	whole := read(t, architectureDocument)
	_, rows, found := strings.Cut(whole, "## Where to go")
	if !found {
		t.Fatal("no table")
	}
	for _, line := range strings.Split(strings.TrimSuffix(whole, rows), "\n") {
		_, missing := namedFiles(line)
		report(t, "no file", missing)
	}
	count := 0
	for _, row := range strings.Split(rows, "\n") {
		files, missing := namedFiles(row)
		count += len(files)
		report(t, "no file", missing)
		report(t, "no file of the row has", unknownNames(row, files))
		report(t, "another file has", misplacedNames(row))
	}
	if count < 50 {
		t.Errorf("the table names %d files", count)
	}
}

// The map contains each file of the root and each package below internal.
func TestArchitectureIsComplete(t *testing.T) {
	layers, _, _ := strings.Cut(read(t, architectureDocument), "## Where to go")
	report(t, "the layers lack", unmapped(layers))
	if got := strings.Join(unmapped(strings.NewReplacer("`server.go`", "", "`outbox`", "").Replace(layers)), " "); got != "internal/outbox server.go" {
		t.Errorf("without server.go and outbox the layers lack %q", got)
	}
}

// unmapped returns the files of the root, tests excepted, and the packages below internal that a text doesn't name in inline code. The name
// of a package stands for the packages below it, too.
func unmapped(text string) (missing []string) {
	named := map[string]bool{}
	for _, match := range span.FindAllStringSubmatch(text, -1) {
		named[filepath.Base(match[1])] = true
	}
	packages, _ := filepath.Glob(filepath.Join(root, "internal/*/"))
	files, _ := filepath.Glob(filepath.Join(root, "*.go"))
	for _, path := range append(packages, files...) {
		name, _ := filepath.Rel(root, path)
		if !named[filepath.Base(name)] && !strings.HasSuffix(name, "_test.go") {
			missing = append(missing, name)
		}
	}
	return missing
}

func report(t *testing.T, what string, names []string) {
	t.Helper()
	for _, name := range names {
		t.Errorf("%s: %s %s", architectureDocument, what, name)
	}
}

// The test of the map finds mistakes in a row.
func TestArchitectureMistakes(t *testing.T) {
	for _, test := range []struct{ row, missing, unknown, misplaced string }{
		{"`stats.go` (`Limits`), `internal/loop`: `worker.go`", "", "", ""},
		{"`bind`: `json.go` and `bind/json.go`", "", "", ""},
		{"`json.go`, `gone.go`, `internal/http1/gone.go`", "json.go gone.go internal/http1/gone.go", "", ""},
		{"`stats.go`: `Server.Stats`, `limits`, `lmit`, `Ctx.Gone`", "", "lmit Gone", ""},
		{"`stats.go` (`Limits`, by `lookAfter`), `internal/loop/monitor.go` (`lookAfter`)", "", "", "lookAfter"},
	} {
		files, missing := namedFiles(test.row)
		if got := strings.Join(missing, " "); got != test.missing {
			t.Errorf("%s: the files %q are missing, want %q", test.row, got, test.missing)
		}
		if got := strings.Join(unknownNames(test.row, files), " "); got != test.unknown {
			t.Errorf("%s: the names %q are unknown, want %q", test.row, got, test.unknown)
		}
		if got := strings.Join(misplacedNames(test.row), " "); got != test.misplaced {
			t.Errorf("%s: the names %q are misplaced, want %q", test.row, got, test.misplaced)
		}
	}
}

// namedFiles returns the Go files, and the directories, that a line names in inline code, and the files that are missing. A directory that
// the line names may be left out of a file's name.
func namedFiles(line string) (files, missing []string) {
	directories := []string{""}
	for _, match := range span.FindAllStringSubmatch(line, -1) {
		if info, err := os.Stat(filepath.Join(root, match[1])); err == nil && info.IsDir() {
			directories = append(directories, match[1])
			files = append(files, match[1])
		}
	}
	for _, match := range span.FindAllStringSubmatch(line, -1) {
		if name := match[1]; strings.HasSuffix(name, ".go") {
			if file := inOneOf(directories, name); file != "" {
				files = append(files, file)
			} else {
				missing = append(missing, name)
			}
		}
	}
	return files, missing
}

// misplacedNames returns the names in parentheses that don't occur in the file or the directory before the parentheses.
func misplacedNames(row string) (misplaced []string) {
	for _, match := range aside.FindAllStringSubmatch(row, -1) {
		if files, _ := namedFiles("`" + match[1] + "`"); len(files) > 0 {
			misplaced = append(misplaced, unknownNames(match[2], files)...)
		}
	}
	return misplaced
}

func inOneOf(directories []string, name string) string {
	for _, directory := range directories {
		file := filepath.Join(directory, name)
		if _, err := os.Stat(filepath.Join(root, file)); err == nil {
			return file
		}
	}
	return ""
}

// unknownNames returns the names in a line's inline code that occur neither in these files nor in the files of these directories.
func unknownNames(line string, files []string) (unknown []string) {
	var text []byte
	for _, file := range files {
		all := []string{filepath.Join(root, file)}
		if !strings.HasSuffix(file, ".go") {
			all, _ = filepath.Glob(filepath.Join(root, file, "*.go"))
		}
		for _, file := range all {
			content, _ := os.ReadFile(file)
			text = append(text, content...)
		}
	}
	for _, match := range span.FindAllStringSubmatch(line, -1) {
		name := identifier.FindStringSubmatch(match[1])
		if name == nil || strings.HasSuffix(name[0], ".go") || slices.Contains(files, name[0]) {
			continue
		}
		if !regexp.MustCompile(`\b` + name[1] + `\b`).Match(text) {
			unknown = append(unknown, name[1])
		}
	}
	return unknown
}
