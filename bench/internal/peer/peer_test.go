package peer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBuildRefuses(t *testing.T) {
	b := &Builder{Module: "../..", Out: t.TempDir()}
	if _, err := b.Build(context.Background(), "apache"); err == nil || !strings.Contains(err.Error(), "fasthttp") {
		t.Errorf("a peer that there isn't: %v", err)
	}
	p := &Peer{Name: "no-such-program", Kind: Installed}
	if err := p.locate(); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), p.Name) {
		t.Errorf("a program that isn't installed: %v", err)
	}
}

// The configurations contain the values of the options.
func TestInstalledArgs(t *testing.T) {
	for name, wants := range map[string][]string{
		"nginx": {"127.0.0.1:8080", " 3", "Hello, World!"}, "haproxy": {"127.0.0.1:8080", " 3", "Hello, World!"},
		"h2o": {"host: 127.0.0.1", "port: 8080", " 3", "key.pem"},
	} {
		p, err := find(name)
		if err != nil {
			t.Fatal(err)
		}
		folder := t.TempDir()
		args, err := p.installedArgs(folder, "127.0.0.1:8080", &Options{Procs: 3, Files: "/some/files", TLS: name == "h2o"})
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(folder, name+".conf"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: %q isn't in %s", name, want, text)
			}
		}
		if args[len(args)-1] != filepath.Join(folder, name+".conf") {
			t.Errorf("%s: the arguments are %q", name, args)
		}
	}
}
