package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// repository is a git checkout.
type repository struct{ root string }

// module is one of a repository's Go modules.
type module struct {
	path     string
	dir      string // below the repository's root, with slashes; "." is the root itself
	requires []string
}

// published reports whether the module is one for users: the root module, or a module in contrib. Examples, benchmarks and tools aren't published.
func (m module) published() bool { return m.dir == "." || path.Dir(m.dir) == "contrib" }

func open(dir string) (*repository, error) {
	root, err := output(dir, "git", "rev-parse", "--show-toplevel")
	return &repository{root}, err
}

func (r *repository) join(dir string) string { return filepath.Join(r.root, filepath.FromSlash(dir)) }

func (r *repository) git(arguments ...string) error { return run(r.root, nil, "git", arguments...) }

// checkClean returns an error if there are uncommitted changes.
func (r *repository) checkClean() error {
	changes, err := output(r.root, "git", "status", "--porcelain")
	if err == nil && changes != "" {
		err = fmt.Errorf("the tree has changes that aren't committed:\n%s", changes)
	}
	return err
}

// lastRelease returns the latest version for which the root module has a tag, or "" if there is none.
func (r *repository) lastRelease() (string, error) {
	tags, err := output(r.root, "git", "tag", "--list", "v*")
	last := ""
	for _, tag := range strings.Fields(tags) {
		if semver.IsValid(tag) && (last == "" || semver.Compare(tag, last) > 0) {
			last = tag
		}
	}
	return last, err
}

// modules returns the repository's modules.
func (r *repository) modules() ([]module, error) {
	files, err := output(r.root, "git", "ls-files", "go.mod", "*/go.mod")
	if err != nil {
		return nil, err
	}
	var modules []module
	for _, name := range strings.Fields(files) {
		text, err := os.ReadFile(r.join(name))
		if err != nil {
			return nil, err
		}
		file, err := modfile.ParseLax(name, text, nil)
		if err != nil {
			return nil, err
		}
		m := module{path: file.Module.Mod.Path, dir: path.Dir(name)}
		for _, required := range file.Require {
			m.requires = append(m.requires, required.Mod.Path)
		}
		modules = append(modules, m)
	}
	if len(modules) == 0 {
		return nil, errors.New("there is no go.mod")
	}
	return modules, nil
}

// worktree checks out a revision in a temporary directory.
func (r *repository) worktree(revision string) (at *repository, remove func(), err error) {
	dir, err := os.MkdirTemp("", "filo-release-")
	if err != nil {
		return nil, nil, err
	}
	at = &repository{filepath.Join(dir, "tree")}
	remove = func() {
		r.git("worktree", "remove", "--force", at.root)
		os.RemoveAll(dir)
	}
	if err := r.git("worktree", "add", "--quiet", "--detach", at.root, revision); err != nil {
		remove()
		return nil, nil, err
	}
	return at, remove, nil
}

// toolDir is the directory of the programs that this module's go.mod pins. "" means the directory of this program.
var toolDir string

// tool returns the program that this module's go.mod pins under a name. The Makefile builds these programs into the directory of this program.
func tool(name string) (string, error) {
	if toolDir == "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		toolDir = filepath.Dir(self)
	}
	return exec.LookPath(filepath.Join(toolDir, name))
}

// run runs a command in dir, with settings added to the environment. If the command fails, the error contains its output.
func run(dir string, settings []string, name string, arguments ...string) error {
	command := exec.Command(name, arguments...)
	command.Dir, command.Env = dir, append(os.Environ(), settings...)
	if printed, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", command, err, printed)
	}
	return nil
}

// output runs a command in dir and returns its standard output.
func output(dir, name string, arguments ...string) (string, error) {
	command := exec.Command(name, arguments...)
	command.Dir = dir
	var stderr strings.Builder
	command.Stderr = &stderr
	printed, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w\n%s", command, err, &stderr)
	}
	return strings.TrimSpace(string(printed)), nil
}
