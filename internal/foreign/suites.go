package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/filohttp/filo/internal/gotool"
)

// suite is the tests of somebody else.
type suite struct {
	name string
	// module and version say what to download; a suite of Go's has none.
	module, version string
	// sources are directories below GOROOT/src of a suite of Go's.
	sources []source
	// packages are the directories of the module whose tests are run.
	packages []testPackage
	patches  []patch
	// files are put in place of those of a suite, or beside them.
	files map[string]string
}

// source is a directory of Go's that is copied: its test files, or all.
type source struct {
	from, to string
	keep     func(name string, content []byte) bool
}

// testPackage is a directory and the name of its package of tests.
type testPackage struct{ dir, name string }

// patch is a change to a file that is copied. The old text must be there once.
type patch struct{ file, old, new string }

var suites = []suite{
	{
		name: "net/http",
		sources: []source{{"net/http", "nethttp", func(name string, content []byte) bool {
			return !strings.HasSuffix(name, ".go") || bytes.Contains(content, []byte("\npackage http_test\n"))
		}}},
		packages: []testPackage{{"nethttp", "http_test"}},
		// Servers for HTTP/2 are net/http's own, so only tests that compare one with another protocol need them.
		patches: []patch{{"nethttp/clientserver_test.go", "	for _, mode := range modes {\n		t.Run(string(mode)",
			"	for _, mode := range modes {\n		if mode == http2Mode || mode == http2UnencryptedMode {\n			continue\n		}\n		t.Run(string(mode)"}},
	},
	{
		name:     "httputil",
		sources:  []source{{"net/http/httputil", "httputil", func(string, []byte) bool { return true }}},
		packages: []testPackage{{"httputil", "httputil"}},
	},
	{
		name: "gorilla/websocket", module: "github.com/gorilla/websocket", version: "v1.5.3",
		packages: []testPackage{{".", "websocket"}},
	},
	{
		name: "coder/websocket", module: "github.com/coder/websocket", version: "v1.8.15",
		packages: []testPackage{{".", "websocket_test"}, {"wsjson", "wsjson_test"}},
		// Most of its tests have two ends of a pipe, of which one is got by hijacking a recorder.
		files: map[string]string{"internal/test/wstest/pipe.go": coderPipe},
		// It wants all goroutines to have ended with the last test. filo looks every 100 ms whether its listener was closed.
		patches: []patch{
			{"main_test.go", "\"testing\"\n", "\"testing\"\n\t\"time\"\n"},
			{"main_test.go", "m.Run()\n", "m.Run()\n\tfor i := 0; i < 500 && runtime.NumGoroutine() != 1; i++ {\n\t\ttime.Sleep(10 * time.Millisecond)\n\t}\n"},
		},
	},
	{
		name: "connect-go", module: "connectrpc.com/connect", version: "v1.21.1",
		packages: []testPackage{{".", "connect_test"}},
		// Its server speaks both protocols on pipes in memory, and its client HTTP/2 unless it is told otherwise.
		files: map[string]string{"internal/memhttp/loopback.go": connectLoopback},
		patches: []patch{
			{"internal/memhttp/memhttp.go", "*memoryListener\n", "*loopback\n"},
			{"internal/memhttp/memhttp.go", "newMemoryListener(\"1.2.3.4\")", "listen()"},
			{"internal/memhttp/memhttp.go", "Serve(server.listener)", "Serve(server.listener.TCPListener)"},
			{"internal/memhttp/memhttp.go", "	protocols.SetUnencryptedHTTP2(true)\n	listener :=", "	listener :="},
			{"internal/memhttp/memhttp.go", "	protocols.SetUnencryptedHTTP2(true)\n\n	transport :=", "	protocols.SetHTTP1(true)\n\n	transport :="},
		},
	},
	{
		name: "chi", module: "github.com/go-chi/chi/v5", version: "v5.5.0",
		packages: []testPackage{{".", "chi"}, {"middleware", "middleware"}},
	},
}

// Files that take the place of a suite's own, or stand beside them.
var (
	// coderPipe makes two ends of a WebSocket by a server.
	//go:embed inserted/pipe.go.txt
	coderPipe string

	// connectLoopback listens on the loopback interface.
	//go:embed inserted/loopback.go.txt
	connectLoopback string
)

// prepare makes the module of a suite in dir, with what stands in for net/http's server.
func (s *suite) prepare(dir, goroot, repository string, native bool) error {
	path := "foreign.test/suite"
	if s.module == "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module "+path+"\n"), 0o644); err != nil {
			return err
		}
		for _, from := range s.sources {
			if err := copyTree(filepath.Join(dir, from.to), filepath.Join(goroot, "src", from.from), false, from.keep); err != nil {
				return err
			}
		}
	} else {
		downloaded, err := gotool.Download(filepath.Dir(dir), s.module, s.version)
		if err != nil {
			return err
		}
		if err := copyTree(dir, downloaded, true, func(string, []byte) bool { return true }); err != nil {
			return err
		}
		path = s.module
	}
	for name, content := range s.files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	for _, p := range s.patches {
		if err := p.apply(dir); err != nil {
			return err
		}
	}
	return s.addStandIn(dir, path, repository, native)
}

// addStandIn copies the package standin, makes the tests use it, and the module require filo.
func (s *suite) addStandIn(dir, path, repository string, native bool) error {
	const name = "filostandin"
	if err := copyTree(filepath.Join(dir, name), filepath.Join(repository, "internal/foreign/standin"), false,
		func(string, []byte) bool { return true }); err != nil {
		return err
	}
	for _, p := range s.packages {
		if native {
			break
		}
		text := "package " + p.name + "\n\nimport (\n\t\"net/http\"\n\n\t\"" + path + "/" + name + "\"\n)\n\n" +
			"func init() { http.Replaced = new(standin.Servers) }\n"
		if err := os.WriteFile(filepath.Join(dir, p.dir, "replaced_server_test.go"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	sums, err := os.ReadFile(filepath.Join(repository, "go.sum"))
	if err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(dir, "go.sum"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(sums); err != nil {
		return err
	}
	return gotool.Command(dir, "mod", "edit", "-go=1.26.0", "-require="+gotool.Filo+"@v0.0.0", "-replace="+gotool.Filo+"="+repository).Run()
}

// apply changes the file in a copied module.
func (p patch) apply(dir string) error {
	name := filepath.Join(dir, p.file)
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if n := bytes.Count(content, []byte(p.old)); n != 1 {
		return fmt.Errorf("%s has %q %d times, expected 1", p.file, p.old, n)
	}
	return os.WriteFile(name, bytes.Replace(content, []byte(p.old), []byte(p.new), 1), 0o644)
}

// copyTree copies the files of a directory that keep wants, its testdata, and other directories below if deep is set. What is
// in the module cache can't be written to, the copy can.
func copyTree(to, from string, deep bool, keep func(name string, content []byte) bool) error {
	return filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if below != "." && !deep && !strings.HasPrefix(below, "testdata") {
				return fs.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, below), 0o755)
		}
		content, err := os.ReadFile(name)
		if err != nil || !keep(below, content) {
			return err
		}
		return os.WriteFile(filepath.Join(to, below), reimport(content), 0o644)
	})
}
