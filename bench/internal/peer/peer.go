// Package peer builds, starts and stops the servers that are compared.
package peer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/filohttp/filo/bench/internal/proc"
)

// Kind is how a peer is built and started.
type Kind int

// The kinds.
const (
	Go        Kind = iota // a program in servers/, started with site.Flags
	C                     // limit/epoll.c
	Installed             // an installed program, with a configuration from this package
)

// Peer is a server in the comparison.
type Peer struct {
	Name string
	Kind Kind

	// Peculiarities are header fields that differ from the other peers' whatever the configuration.
	Peculiarities []string

	folder string   // where its program is in servers/
	module string   // the module whose version is the peer's
	args   []string // arguments of the peer, in front of the row's arguments

	// Program is the executable. Build sets Version and Hash. Hash covers the program and everything else that determines its behaviour: figures with
	// another hash belong to another program.
	Program, Version, Hash string
}

// all lists the peers, in the order in which they are shown.
var all = []Peer{
	{Name: "filo", folder: "filo"},
	{Name: "filo-blocking", folder: "filo", args: []string{"-blocking"}},
	{Name: "fasthttp", folder: "fasthttp", module: "github.com/valyala/fasthttp"},
	{Name: "nethttp", folder: "nethttp"},
	{Name: "fiber", folder: "fiber", module: "github.com/gofiber/fiber/v3"},
	{Name: "hertz", folder: "hertz", module: "github.com/cloudwego/hertz"},
	{Name: "gin", folder: "gin", module: "github.com/gin-gonic/gin"},
	{Name: "echo", folder: "echo", module: "github.com/labstack/echo/v5"},
	{Name: "nginx", Kind: Installed, Peculiarities: []string{"Server", "Connection"}},
	{Name: "haproxy", Kind: Installed},
	{Name: "nghttpd", Kind: Installed, Peculiarities: []string{"Server", "Cache-Control", "Content-Type", "Last-Modified"}},
	{Name: "h2o", Kind: Installed, Peculiarities: []string{"Server", "Accept-Ranges", "Content-Type", "Etag", "Last-Modified"}},
	{Name: "limit", Kind: C},
}

// Names returns the names of the peers, in the order in which they are shown.
func Names() []string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names
}

// IsGo reports whether the peer is a Go program. Other peers are included only for reference.
func (p *Peer) IsGo() bool { return p.Kind == Go }

// Builder builds peers.
type Builder struct {
	Module string // the folder of the bench module
	Out    string // where programs are written
}

// ErrMissing means that a program isn't installed.
var ErrMissing = errors.New("neither in PATH nor in /usr/sbin: `apt-get install` has it on Debian")

// Build builds the peer called name. The error is ErrMissing if the peer is a program that isn't installed.
func (b *Builder) Build(ctx context.Context, name string) (*Peer, error) {
	p, err := find(name)
	if err != nil {
		return nil, err
	}
	switch p.Kind {
	case Go:
		p.Program = filepath.Join(b.Out, p.folder)
		err = b.goBuild(ctx, p)
	case C:
		p.Program = filepath.Join(b.Out, p.Name)
		err = run(ctx, b.Module, "cc", "-O2", "-Wall", "-o", p.Program, "limit/epoll.c")
		p.Version = "C"
	case Installed:
		err = p.locate()
	}
	if err != nil {
		return nil, err
	}
	p.Hash, err = p.fingerprint()
	return p, err
}

func find(name string) (*Peer, error) {
	for _, p := range all {
		if p.Name == name {
			return &p, nil
		}
	}
	return nil, fmt.Errorf("there is no peer %q, only %s", name, strings.Join(Names(), ", "))
}

// goBuild builds a Go program without embedding the repository's state, so that the same source in the same folder results in the same program.
func (b *Builder) goBuild(ctx context.Context, p *Peer) error {
	if err := run(ctx, b.Module, "go", "build", "-buildvcs=false", "-o", p.Program, "./servers/"+p.folder); err != nil {
		return err
	}
	version := []string{"go", "list", "-m", "-f", "{{.Version}}", p.module}
	switch p.folder {
	case "filo": // its commit, with "+" if the source has changed since
		version = []string{"git", "describe", "--always", "--dirty=+"}
	case "nethttp":
		version = []string{"go", "env", "GOVERSION"}
	}
	p.Version = b.output(ctx, version...)
	return nil
}

// output returns the output of a program, without white space around it.
func (b *Builder) output(ctx context.Context, command ...string) string {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = b.Module
	out, err := cmd.Output()
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(out))
}

// locate finds an installed program.
func (p *Peer) locate() (err error) {
	if p.Program, err = exec.LookPath(p.Name); err != nil {
		p.Program, err = exec.LookPath("/usr/sbin/" + p.Name)
	}
	if err != nil {
		return fmt.Errorf("%s is %w", p.Name, ErrMissing)
	}
	argument := "-v"
	if p.Name == "nghttpd" {
		argument = "--version" // with -v it would serve
	}
	p.Version = proc.Version(p.Program, argument)
	return nil
}

// fingerprint hashes the program, its arguments and its configuration.
func (p *Peer) fingerprint() (string, error) {
	program, err := os.ReadFile(p.Program)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	h.Write(program)
	fmt.Fprintf(h, "%q %s", p.args, p.configuration())
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

func run(ctx context.Context, folder, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, out)
	}
	return nil
}

// BuildRevision builds filo's server program with a revision of filo. If the current server program compiles with that revision, BuildRevision uses
// it, so that only filo differs. Otherwise it uses the revision's server program.
func (b *Builder) BuildRevision(ctx context.Context, name, revision string) (*Peer, error) {
	p := &Peer{Name: name, folder: "filo", Program: filepath.Join(b.Out, name)}
	if p.Version = b.output(ctx, "git", "rev-parse", "--short", "--verify", revision+"^{commit}"); p.Version == "?" {
		return nil, fmt.Errorf("there is no revision %q", revision)
	}
	tree := filepath.Join(b.Out, "tree-"+p.Version)
	script := `mkdir -p "$2" && git -C "$(git rev-parse --show-toplevel)" archive "$1" | tar -x -C "$2"`
	if err := run(ctx, b.Module, "sh", "-c", script, "sh", p.Version, tree); err != nil {
		return nil, err
	}
	today := b.buildToday(ctx, p, tree)
	if today != nil {
		module := filepath.Join(tree, "bench")
		then := run(ctx, module, "go", "build", "-buildvcs=false", "-o", p.Program, "./servers/filo")
		if then != nil {
			return nil, fmt.Errorf("neither the server of today nor that of then can be built with the filo of %s: %w",
				revision, errors.Join(today, then))
		}
	}
	var err error
	p.Hash, err = p.fingerprint()
	return p, err
}

// localReplace matches a replace directive in go.mod whose target is a folder of the repository above the module.
var localReplace = regexp.MustCompile(`(?m)=>\s*\.\./?(\S*)$`)

// buildToday builds the current server program with the packages of another source tree.
func (b *Builder) buildToday(ctx context.Context, p *Peer, tree string) error {
	mod, noMod := os.ReadFile(filepath.Join(b.Module, "go.mod"))
	sum, noSum := os.ReadFile(filepath.Join(b.Module, "go.sum"))
	mod = localReplace.ReplaceAll(mod, []byte("=> "+tree+"/$1"))
	alternative := filepath.Join(b.Out, p.Name)
	err := errors.Join(noMod, noSum, os.WriteFile(alternative+".mod", mod, 0o644), os.WriteFile(alternative+".sum", sum, 0o644))
	if err != nil {
		return err
	}
	return run(ctx, b.Module, "go", "build", "-modfile", alternative+".mod", "-mod=mod", "-buildvcs=false",
		"-o", p.Program, "./servers/filo")
}
