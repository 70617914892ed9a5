package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// apiChange has the changes that apidiff reports in the API of a published module.
type apiChange struct {
	module
	all, incompatible string
}

// apiChanges compares the published modules with those of an older checkout, and returns the changes of each module whose API has changed.
func (r *repository) apiChanges(old *repository) (changes []apiChange, err error) {
	now, err := r.modules()
	if err != nil {
		return nil, err
	}
	before, err := old.modules()
	if err != nil {
		return nil, err
	}
	for _, m := range before {
		if !m.published() {
			continue
		}
		change := apiChange{module: m}
		if !slices.ContainsFunc(now, func(other module) bool { return other.dir == m.dir && other.path == m.path }) {
			change.all = "- module " + m.path + ": removed"
			change.incompatible = change.all
		} else if change.all, change.incompatible, err = apiDifference(r.join(m.dir), old.join(m.dir), m.path); err != nil {
			return nil, err
		}
		if change.all != "" {
			changes = append(changes, change)
		}
	}
	return changes, nil
}

// apiDifference compares the APIs of a module in two directories.
func apiDifference(now, old, modulePath string) (all, incompatible string, err error) {
	dir, err := os.MkdirTemp("", "filo-api-")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(dir)
	apidiff, err := tool("apidiff")
	if err != nil {
		return "", "", err
	}
	before, after := filepath.Join(dir, "before"), filepath.Join(dir, "after")
	if err := run(old, nil, apidiff, "-m", "-w", before, modulePath); err != nil {
		return "", "", err
	}
	if err := run(now, nil, apidiff, "-m", "-w", after, modulePath); err != nil {
		return "", "", err
	}
	if all, err = output(dir, apidiff, "-m", before, after); err != nil {
		return "", "", err
	}
	incompatible, err = output(dir, apidiff, "-m", "-incompatible", before, after)
	return all, incompatible, err
}

// checkBreaks compares the checkout in dir with the last commit that it has in common with base. It fails if there is a breaking change that the
// changelog doesn't mention, since users read the changelog to learn how to adapt.
func checkBreaks(dir, base string) error {
	r, err := open(dir)
	if err != nil {
		return err
	}
	_, unreleased, _, err := r.changelog()
	if err != nil {
		return err
	}
	from, err := output(r.root, "git", "merge-base", base, "HEAD")
	if err != nil {
		return err
	}
	old, remove, err := r.worktree(from)
	if err != nil {
		return err
	}
	defer remove()
	changes, err := r.apiChanges(old)
	if err != nil {
		return err
	}
	said := breaking(unreleased)
	var missing []string
	for _, change := range changes {
		fmt.Printf("API of %s since %s:\n%s\n", change.path, base, change.all)
		for line := range strings.Lines(change.incompatible) {
			if name := changedName(change.path, line); !names(said, name) {
				missing = append(missing, name)
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("users are broken by changes that CHANGELOG.md doesn't name under Breaking, Changed, Renamed, Removed or Security of what is unreleased: %s",
			strings.Join(missing, ", "))
	}
	return nil
}

var breakingSection = regexp.MustCompile(`(?ms)^### (?:Breaking|Changed|Renamed|Removed|Security)\n(.*?)(?:^### |\z)`)

// breaking returns the sections of a changelog that may describe breaking changes.
func breaking(changelog string) string {
	var said strings.Builder
	for changelog != "" {
		at := breakingSection.FindStringSubmatchIndex(changelog)
		if at == nil {
			break
		}
		said.WriteString(changelog[at[2]:at[3]])
		changelog = changelog[at[3]:]
	}
	return said.String()
}

// changedName returns the name to which a line of apidiff's output refers, in the form of the changelog: Type.Member, package.Function, or just
// Function if it is in the module's root package.
func changedName(modulePath, line string) string {
	symbol, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "- "), ": ")
	if what, path, found := strings.Cut(symbol, " "); found && (what == "package" || what == "module") {
		return strings.TrimPrefix(path, modulePath+"/")
	}
	symbol = strings.NewReplacer("(*", "", "(", "", ")", "").Replace(symbol)
	if inside, found := strings.CutPrefix(symbol, "./"); found {
		symbol = inside[strings.LastIndexByte(inside, '/')+1:]
		// The changelog names a member with its type, without the package.
		if parts := strings.Split(symbol, "."); len(parts) == 3 {
			symbol = parts[1] + "." + parts[2]
		}
	}
	return symbol
}

// names reports whether a text contains a name as a whole word.
func names(text, name string) bool {
	return regexp.MustCompile(`(?:^|[^\w])` + regexp.QuoteMeta(name) + `(?:$|[^\w])`).MatchString(text)
}
