package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// BuildRevision builds filo's server with filo as it was at a revision. It is the server of today if that can be built with the
// filo of then, so that only filo differs, and that of the revision otherwise.
func (b *Builder) BuildRevision(ctx context.Context, name, revision string) (*Peer, error) {
	p := &Peer{Name: name, folder: "filo", Program: filepath.Join(b.Out, name)}
	commit, err := exec.CommandContext(ctx, "git", "-C", b.Module, "rev-parse", "--short", "--verify", revision+"^{commit}").Output()
	if err != nil {
		return nil, fmt.Errorf("there is no revision %q", revision)
	}
	p.Version = string(bytes.TrimSpace(commit))
	tree := filepath.Join(b.Out, "tree-"+p.Version)
	if err := b.export(ctx, p.Version, tree); err != nil {
		return nil, err
	}
	today := b.buildToday(ctx, p, tree)
	if today != nil {
		module := filepath.Join(tree, "bench")
		then := run(ctx, module, "go", "build", "-trimpath", "-buildvcs=false", "-o", p.Program, "./servers/filo")
		if then != nil {
			return nil, fmt.Errorf("neither the server of today nor that of then can be built with the filo of %s: %w",
				revision, errors.Join(today, then))
		}
	}
	p.Hash, err = p.fingerprint()
	return p, err
}

// export writes the files of a commit to a folder.
func (b *Builder) export(ctx context.Context, commit, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	root, err := exec.CommandContext(ctx, "git", "-C", b.Module, "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return err
	}
	archive := filepath.Join(folder, "archive.tar")
	err = run(ctx, string(bytes.TrimSpace(root)), "git", "archive", "-o", archive, commit)
	if err != nil {
		return err
	}
	return run(ctx, folder, "tar", "-xf", archive)
}

// localReplace is a replacement of go.mod by a folder of the repository, which is above the module.
var localReplace = regexp.MustCompile(`(?m)=>\s*\.\./?(\S*)$`)

// buildToday builds today's server with the folders of a tree in place of the repository's.
func (b *Builder) buildToday(ctx context.Context, p *Peer, tree string) error {
	mod, err := os.ReadFile(filepath.Join(b.Module, "go.mod"))
	if err != nil {
		return err
	}
	mod = localReplace.ReplaceAll(mod, []byte("=> "+tree+"/$1"))
	alternative := filepath.Join(b.Out, p.Name+".mod")
	if err := os.WriteFile(alternative, mod, 0o644); err != nil {
		return err
	}
	sum, err := os.ReadFile(filepath.Join(b.Module, "go.sum"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.Out, p.Name+".sum"), sum, 0o644); err != nil {
		return err
	}
	return run(ctx, b.Module, "go", "build", "-modfile", alternative, "-mod=mod", "-trimpath", "-buildvcs=false", "-o", p.Program,
		"./servers/filo")
}
