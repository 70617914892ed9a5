// Command release makes filo's releases: `make release VERSION=v0.1.0` and `make release-test`. Nothing leaves this machine: it
// commits and tags, and whoever calls it pushes.
//
//	release VERSION        check the tree, set the versions, commit and tag
//	release -test VERSION  do that in a clone, serve its tags as a module proxy, and use every module from outside
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

func main() {
	test := flag.Bool("test", false, "prove the release in a clone instead of making it")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: release [-test] VERSION, a version such as v0.1.0")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	run := release
	if *test {
		run = prove
	}
	if err := run(".", flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release checks that the repository of dir can be released as version, and commits and tags that.
func release(dir, version string) error {
	if semver.Canonical(version) != version || version == "" {
		return fmt.Errorf("%q isn't a version such as v0.1.0", version)
	}
	r, err := open(dir)
	if err != nil {
		return err
	}
	if err := r.checkClean(); err != nil {
		return err
	}
	last, err := r.lastRelease()
	if err != nil {
		return err
	}
	if last != "" && semver.Compare(version, last) <= 0 {
		return fmt.Errorf("%s doesn't come after %s, the last release", version, last)
	}
	modules, err := r.modules()
	if err != nil {
		return err
	}
	if err := r.checkAPI(modules, last, version); err != nil {
		return err
	}
	if err := r.writeChangelog(version, time.Now()); err != nil {
		return err
	}
	if err := r.setVersions(modules, version); err != nil {
		return err
	}
	if err := r.git("commit", "--quiet", "--all", "--message", "Release "+version); err != nil {
		return err
	}
	var tags []string
	for _, m := range modules {
		if !m.published() {
			continue
		}
		tag := m.tag(version)
		if err := r.git("tag", "--annotate", "--message", m.path+" "+version, tag); err != nil {
			return err
		}
		tags = append(tags, tag)
	}
	fmt.Printf("committed and tagged: %s\nto publish: git push --atomic origin HEAD %s\n", strings.Join(tags, ", "), strings.Join(tags, " "))
	return nil
}

// checkAPI prints what has changed for users since the last release, and fails if a version of this kind mustn't break as much.
func (r *repository) checkAPI(modules []module, last, version string) error {
	if last == "" {
		fmt.Println("API: no release before this one")
		return nil
	}
	old, remove, err := r.worktree(last)
	if err != nil {
		return err
	}
	defer remove()
	// A major version of 0 promises nothing between minor ones; from 1 on only a new major version, with another path, breaks.
	mayBreak := semver.Major(version) == "v0" && semver.MajorMinor(version) != semver.MajorMinor(last)
	var broken []string
	for _, m := range modules {
		if !m.published() || !old.has(m) {
			continue
		}
		difference, err := apiDifference(r.join(m.dir), old.join(m.dir), m.path)
		if err != nil {
			return err
		}
		if difference.all != "" {
			fmt.Printf("API of %s since %s:\n%s\n", m.path, last, difference.all)
		}
		if difference.incompatible != "" {
			broken = append(broken, m.path)
		}
	}
	if len(broken) > 0 && !mayBreak {
		return fmt.Errorf("%s breaks users of %s: see above; the version must say so", version, strings.Join(broken, ", "))
	}
	return nil
}

// writeChangelog gives what is unreleased in CHANGELOG.md the version and its date.
func (r *repository) writeChangelog(version string, now time.Time) error {
	file := r.join("CHANGELOG.md")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	const heading = "## [Unreleased]\n"
	before, rest, found := strings.Cut(string(text), heading)
	unreleased, _, _ := strings.Cut(rest, "\n## [")
	if !found || strings.TrimSpace(unreleased) == "" {
		return errors.New(`CHANGELOG.md has nothing under "## [Unreleased]"`)
	}
	released := fmt.Sprintf("\n## [%s] - %s\n", version[1:], now.Format(time.DateOnly))
	return os.WriteFile(file, []byte(before+heading+released+rest), 0o644)
}

// setVersions makes every module require the version of the repository's others.
func (r *repository) setVersions(modules []module, version string) error {
	for _, m := range modules {
		arguments := []string{"mod", "edit"}
		for _, required := range m.requires {
			if slices.ContainsFunc(modules, func(other module) bool { return other.path == required }) {
				arguments = append(arguments, "-require="+required+"@"+version)
			}
		}
		if len(arguments) > 2 {
			if err := run(r.join(m.dir), nil, "go", arguments...); err != nil {
				return err
			}
		}
	}
	return nil
}

// tag returns the tag by which the go command finds a version of the module.
func (m module) tag(version string) string { return path.Join(m.dir, version) }
