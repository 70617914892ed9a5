package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// apiChange is how the API of a module for users has changed, as apidiff tells it.
type apiChange struct {
	module
	all, incompatible string
}

// apiChanges compares the modules for users with an older checkout's, and returns those whose API has changed.
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

// apiDifference compares the module in two directories.
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

// checkBreaks compares the checkout in dir with the commit at which it has left base. It fails if the changelog doesn't name a change that
// breaks users, since they read there what to write instead.
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

// breaking returns the sections of a changelog that may say what breaks users.
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

// changedName returns the name that a line of apidiff's is about, in the changelog's form: Type.Member, package.Function, or Function alone
// if it is in the module's own package.
func changedName(modulePath, line string) string {
	symbol, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "- "), ": ")
	if what, path, found := strings.Cut(symbol, " "); found && (what == "package" || what == "module") {
		return strings.TrimPrefix(path, modulePath+"/")
	}
	symbol = strings.NewReplacer("(*", "", "(", "", ")", "").Replace(symbol)
	if inside, found := strings.CutPrefix(symbol, "./"); found {
		symbol = inside[strings.LastIndexByte(inside, '/')+1:]
		// A member is known by its type.
		if parts := strings.Split(symbol, "."); len(parts) == 3 {
			symbol = parts[1] + "." + parts[2]
		}
	}
	return symbol
}

// names reports whether a text has a name as a word.
func names(text, name string) bool {
	return regexp.MustCompile(`(?:^|[^\w])` + regexp.QuoteMeta(name) + `(?:$|[^\w])`).MatchString(text)
}
