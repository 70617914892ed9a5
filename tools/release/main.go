// Command release makes filo's releases: `make release VERSION=v0.1.0` and `make release-test`. It only commits and tags on this machine. Pushing is left
// to the user.
//
//	release VERSION        check the tree, set the versions, commit and tag
//	release -test VERSION  do that in a clone, serve its tags as a module proxy, and use every module from outside
//	release -files VERSION write the files that are published with that version's tags to .bin/release
//	release -api BASE      compare the API with that of BASE, and fail if the changelog doesn't name what breaks users
package main

import (
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

func main() {
	test := flag.Bool("test", false, "prove the release in a clone instead of making it")
	api := flag.Bool("api", false, "compare the API with that of a revision, instead of a version, and look for what breaks in the changelog")
	files := flag.Bool("files", false, "write each module's zip and its bill of materials into .bin/release, instead of making the release")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: release [-test | -files] VERSION, a version such as v0.1.0\n       release -api BASE, a revision such as main")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 || flag.NFlag() > 1 {
		flag.Usage()
		os.Exit(2)
	}
	run := release
	switch {
	case *test:
		run = prove
	case *api:
		run = checkBreaks
	case *files:
		run = func(dir, version string) error { return writeFiles(dir, version, filepath.Join(".bin", "release")) }
	}
	if err := run(".", flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release checks that the repository of dir can be released as version, and commits and tags the release.
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
	if err := r.checkAPI(last, version); err != nil {
		return err
	}
	if err := r.writeChangelog(version, time.Now()); err != nil {
		return err
	}
	if err := r.setVersions(modules, version); err != nil {
		return err
	}
	if err := r.dropUntilTagged(); err != nil {
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

// checkAPI prints what has changed for users since the last release. It fails if there are breaking changes although a version of this kind must not
// have any.
func (r *repository) checkAPI(last, version string) error {
	if last == "" {
		fmt.Println("API: no release before this one")
		return nil
	}
	old, remove, err := r.worktree(last)
	if err != nil {
		return err
	}
	defer remove()
	changes, err := r.apiChanges(old)
	if err != nil {
		return err
	}
	// With major version 0, a new minor version may break users. From version 1 on, only a new major version may, which has another module path.
	mayBreak := semver.Major(version) == "v0" && semver.MajorMinor(version) != semver.MajorMinor(last)
	var broken []string
	for _, change := range changes {
		fmt.Printf("API of %s since %s:\n%s\n", change.path, last, change.all)
		if change.incompatible != "" {
			broken = append(broken, change.path)
		}
	}
	if len(broken) > 0 && !mayBreak {
		return fmt.Errorf("%s breaks users of %s: see above; the version must say so", version, strings.Join(broken, ", "))
	}
	return nil
}

const unreleasedHeading = "## [Unreleased]\n"

// changelog splits CHANGELOG.md into the text before the heading of the unreleased changes, these changes without the heading, and the releases.
func (r *repository) changelog() (before, unreleased, after string, err error) {
	text, err := os.ReadFile(r.join("CHANGELOG.md"))
	if err != nil {
		return "", "", "", err
	}
	before, rest, found := strings.Cut(string(text), unreleasedHeading)
	if !found {
		return "", "", "", fmt.Errorf("CHANGELOG.md has no heading %q", strings.TrimSpace(unreleasedHeading))
	}
	unreleased = rest
	if end := strings.Index(rest, "\n## ["); end >= 0 {
		unreleased, after = rest[:end], rest[end:]
	}
	return before, unreleased, after, nil
}

// writeChangelog inserts a heading with the version and the date into CHANGELOG.md, between the heading of the unreleased changes and these changes.
func (r *repository) writeChangelog(version string, now time.Time) error {
	before, unreleased, after, err := r.changelog()
	if err != nil {
		return err
	}
	if strings.TrimSpace(unreleased) == "" {
		return fmt.Errorf("CHANGELOG.md has nothing under %q", strings.TrimSpace(unreleasedHeading))
	}
	released := fmt.Sprintf("\n## [%s] - %s\n", version[1:], now.Format(time.DateOnly))
	return os.WriteFile(r.join("CHANGELOG.md"), []byte(before+unreleasedHeading+released+unreleased+after), 0o644)
}

// untilTagged is a part of each line that is only for readers before the first release, in README.md and in the README of each published module.
const untilTagged = "ntil v0.1.0 is tagged"

// dropUntilTagged removes the lines that contain untilTagged, and one of the empty lines around them.
func (r *repository) dropUntilTagged() error {
	names, err := output(r.root, "git", "ls-files", "README.md", "contrib/*/README.md")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(names) {
		text, err := os.ReadFile(r.join(name))
		if err != nil {
			return err
		}
		var kept strings.Builder
		dropped, empty := false, false // whether the previous line was dropped; whether the last kept line is empty
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, untilTagged) {
				dropped = true
				continue
			}
			if !dropped || !empty || line != "\n" {
				kept.WriteString(line)
			}
			dropped, empty = false, line == "\n"
		}
		if err := os.WriteFile(r.join(name), []byte(kept.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// setVersions makes every module require the given version of the repository's other modules.
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

// tag returns the git tag with which the go command finds a version of the module.
func (m module) tag(version string) string { return path.Join(m.dir, version) }
