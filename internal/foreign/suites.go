package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/filohttp/filo/internal/gotool"
)

// suite is a test suite of another project.
type suite struct {
	name string
	// module and version name the module to download. They are empty for Go's own suites.
	module, version string
	// source is the directory of one of Go's suites, below GOROOT/src. It is copied into the first of packages. If only isn't empty, only the
	// Go files of this package are copied.
	source, only string
	// packages are the directories of the module whose tests are run.
	packages []testPackage
	patches  []patch
	// files maps names in the suite to files in the directory inserted, which replace the suite's files or are added to them.
	files map[string]string
	// tests selects test functions of the first package: those that match the value, in files whose names match the key. If it is nil, all run.
	tests map[string]*regexp.Regexp
	// ownInit says that a file of the field files makes the tests use package standin, so that addStandIn needn't.
	ownInit bool
	// contrib is the module below filo's contrib that one of the files needs; "" for none.
	contrib string
	// waits says that the tests mostly wait, so eight times as many run at once.
	waits bool
	// run runs a suite that doesn't consist of Go tests.
	run func(*report, *options, string) error
}

// testPackage is a directory with tests, and the name of their package.
type testPackage struct{ dir, name string }

// patch is a change to a copied file. The old text must occur exactly once.
type patch struct{ file, old, new string }

var suites = []suite{
	{
		name: "net/http", source: "net/http", only: "http_test",
		packages: []testPackage{{"nethttp", "http_test"}},
	},
	{
		name: "httputil", source: "net/http/httputil",
		packages: []testPackage{{"httputil", "httputil"}},
	},
	{
		name: "gorilla/websocket", module: "github.com/gorilla/websocket", version: "v1.5.3",
		packages: []testPackage{{".", "websocket"}},
	},
	{
		name: "coder/websocket", module: "github.com/coder/websocket", version: "v1.8.15",
		packages: []testPackage{{".", "websocket_test"}, {"wsjson", "wsjson_test"}},
		// Most of its tests use a pipe, and obtain one end of it by hijacking a response recorder.
		files: map[string]string{"internal/test/wstest/pipe.go": "pipe.go.txt"},
		// The suite expects that all goroutines have ended after the last test. filo checks only every 100 ms whether its listener has been closed.
		patches: []patch{
			{"main_test.go", "\"testing\"\n", "\"testing\"\n\t\"time\"\n"},
			{"main_test.go", "m.Run()\n", "m.Run()\n\tfor i := 0; i < 500 && runtime.NumGoroutine() != 1; i++ {\n\t\ttime.Sleep(10 * time.Millisecond)\n\t}\n"},
		},
	},
	{
		name: "connect-go", module: "connectrpc.com/connect", version: "v1.21.1",
		packages: []testPackage{{".", "connect_test"}},
		// Its server speaks HTTP/1.1 and HTTP/2, and its client speaks HTTP/2 by default. The patches make both speak HTTP/1.1.
		files: map[string]string{"internal/memhttp/loopback.go": "loopback.go.txt"},
		patches: slices.Concat(loopbackPatches, []patch{
			{"internal/memhttp/memhttp.go", "	protocols.SetUnencryptedHTTP2(true)\n	listener :=", "	listener :="},
			{"internal/memhttp/memhttp.go", "	protocols.SetUnencryptedHTTP2(true)\n\n	transport :=", "	protocols.SetHTTP1(true)\n\n	transport :="},
		}),
	},
	{
		name: "chi", module: "github.com/go-chi/chi/v5", version: "v5.5.0",
		packages: []testPackage{{".", "chi"}, {"middleware", "middleware"}},
	},
	{
		name: "h2spec", module: "github.com/summerwind/h2spec", version: "v2.2.1+incompatible",
		run: (*report).runH2spec,
	},
	{
		name: "x/net", module: xNet, version: xNetVersion, ownInit: true,
		packages: []testPackage{{"http2", "http2_test"}}, tests: xNetTests, patches: slices.Concat(xNetPatches, bubblePatches),
		files: map[string]string{
			"http2/replaced_conn.go":        "xnet_server.go.txt",
			"http2/replaced_conn_test.go":   "xnet_bubble.go.txt",
			"http2/replaced_tester_test.go": "xnet_tester.go.txt",
		},
	},
	{
		name: "x/net-sockets", module: xNet, version: xNetVersion, waits: true,
		packages: []testPackage{{"http2", "http2_test"}}, tests: xNetTests, patches: slices.Concat(xNetPatches, socketPatches),
		files: map[string]string{
			"http2/replaced_conn.go":        "xnet_server.go.txt",
			"http2/replaced_conn_test.go":   "xnet_sockets.go.txt",
			"http2/replaced_tester_test.go": "xnet_tester.go.txt",
			"http2/synctest_test.go":        "xnet_nobubble.go.txt",
			"filosynctest/synctest.go":      "xnet_synctest.go.txt",
		},
	},
	{
		name: "connect-go-h2c", module: "connectrpc.com/connect", version: "v1.21.1",
		packages: []testPackage{{".", "connect_test"}}, patches: loopbackPatches,
		files: map[string]string{"internal/memhttp/loopback.go": "loopback.go.txt"},
	},
	{
		name: "connect-go-h2", module: "connectrpc.com/connect", version: "v1.21.1",
		packages: []testPackage{{".", "connect_test"}},
		files: map[string]string{
			"internal/memhttp/loopback.go":     "loopback.go.txt",
			"internal/memhttp/loopback_tls.go": "loopback_tls.go.txt",
		},
		patches: slices.Concat(loopbackPatches, []patch{
			{"internal/memhttp/memhttp.go", "Serve(server.listener.TCPListener)", "ServeTLS(server.listener.TCPListener, \"\", \"\")"},
			{"internal/memhttp/memhttp.go", "\"http://\" +", "\"https://\" +"},
			{"internal/memhttp/memhttp.go", "	protocols.SetUnencryptedHTTP2(true)\n	listener :=", "	protocols.SetHTTP2(true)\n	listener :="},
			{"internal/memhttp/memhttp.go", "			Protocols:         protocols,\n", "			Protocols: protocols,\n			TLSConfig: serverTLS,\n"},
			{"internal/memhttp/memhttp.go", "	protocols.SetUnencryptedHTTP2(true)\n\n	transport :=", "	protocols.SetHTTP2(true)\n\n	transport :="},
			{"internal/memhttp/memhttp.go", "		DialContext: s.listener.DialContext,\n", "		DialContext: s.listener.DialContext,\n		TLSClientConfig: clientTLS.Clone(),\n"},
		}),
	},
	{
		name: "connectrpc/conformance", module: conformance, version: conformanceVersion, ownInit: true,
		patches: conformancePatches, files: map[string]string{"internal/app/referenceserver/filo.go": "conformance_server.go.txt"},
		run: (*report).runConformance,
	},
	{
		name: "connectrpc/conformance-grpc", module: conformance, version: conformanceVersion, ownInit: true,
		patches: grpcPatches, files: map[string]string{"internal/app/grpcserver/filo.go": "conformance_grpc.go.txt"},
		contrib: "contrib/grpc", run: (*report).runConformanceGRPC,
	},
	{name: "cache-tests", run: (*report).runCacheTests},
	{name: "cowboy", run: (*report).runCowboy},
}

// loopbackPatches make connect-go's test server listen on a socket instead of in-memory pipes.
var loopbackPatches = []patch{
	{"internal/memhttp/memhttp.go", "*memoryListener\n", "*loopback\n"},
	{"internal/memhttp/memhttp.go", "newMemoryListener(\"1.2.3.4\")", "listen()"},
	{"internal/memhttp/memhttp.go", "Serve(server.listener)", "Serve(server.listener.TCPListener)"},
}

// prepare writes the module of a suite to dir, with the replacement of net/http's server.
func (s *suite) prepare(dir string, o *options) error {
	if err := s.copy(dir, o); err != nil {
		return err
	}
	for to, from := range s.files {
		content, err := os.ReadFile(o.inserted(from))
		if err != nil {
			return err
		}
		to = filepath.Join(dir, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, content, 0o644); err != nil {
			return err
		}
	}
	for _, p := range s.patches {
		name := filepath.Join(dir, p.file)
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if content, err = replaceOne(content, p.old, p.new); err != nil {
			return fmt.Errorf("%s: %w", p.file, err)
		}
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return err
		}
	}
	return s.addStandIn(dir, o)
}

// copy copies the module of a suite, because the module cache is read-only, or creates a module from Go's files.
func (s *suite) copy(dir string, o *options) error {
	if s.module != "" {
		downloaded, err := gotool.Download(filepath.Dir(dir), s.module, s.version)
		if err != nil {
			return err
		}
		return os.CopyFS(dir, os.DirFS(downloaded))
	}
	to := filepath.Join(dir, s.packages[0].dir)
	if err := os.CopyFS(to, os.DirFS(filepath.Join(o.goroot, "src", s.source))); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(to, "*.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if s.only == "" || bytes.Contains(content, []byte("\npackage "+s.only+"\n")) {
			err = os.WriteFile(file, reimport(content), 0o644)
		} else {
			err = os.Remove(file)
		}
		if err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module "+goSuite+"\n"), 0o644)
}

// goSuite is the path of the module of one of Go's suites.
const goSuite = "foreign.test/suite"

// addStandIn copies package standin, makes the tests use it, and adds filo to the module's requirements.
func (s *suite) addStandIn(dir string, o *options) error {
	const name = "filostandin"
	if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(o.repository, "internal/foreign/standin"))); err != nil {
		return err
	}
	for _, p := range s.packages {
		if o.native || s.ownInit {
			break
		}
		text := "package " + p.name + "\n\nimport (\n\t\"net/http\"\n\n\t\"" + cmp.Or(s.module, goSuite) + "/" + name + "\"\n)\n\n" +
			"var _ = filoReplaces() // before the tests' init functions, which may start a server\n\n" +
			"func filoReplaces() bool {\n\thttp.Replaced = new(standin.Servers)\n\treturn true\n}\n"
		if err := os.WriteFile(filepath.Join(dir, p.dir, "replaced_server_test.go"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	ours, err := os.ReadFile(filepath.Join(o.repository, "go.sum"))
	if err != nil {
		return err
	}
	sums := filepath.Join(dir, "go.sum")
	theirs, _ := os.ReadFile(sums) // Go's own suites have no go.sum
	if err := os.WriteFile(sums, slices.Concat(theirs, ours), 0o644); err != nil {
		return err
	}
	edit := []string{"mod", "edit", "-go=1.26.0", "-require=" + gotool.Filo + "@v0.0.0", "-replace=" + gotool.Filo + "=" + o.repository}
	if s.contrib != "" {
		edit = append(edit, "-require="+gotool.Filo+"/"+s.contrib+"@v0.0.0", "-replace="+gotool.Filo+"/"+s.contrib+"="+filepath.Join(o.repository, s.contrib))
	}
	return gotool.Command(dir, edit...).Run()
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// selected returns the test functions that the field tests selects.
func (s *suite) selected(dir string) (names []string, err error) {
	for pattern, function := range s.tests {
		files, err := filepath.Glob(filepath.Join(dir, s.packages[0].dir, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			for _, match := range function.FindAllSubmatch(content, -1) {
				names = append(names, string(match[1]))
			}
		}
	}
	return names, nil
}

// replaceOne replaces a text that must occur exactly once.
func replaceOne(content []byte, old, new string) ([]byte, error) {
	if n := bytes.Count(content, []byte(old)); n != 1 {
		return nil, fmt.Errorf("%q is there %d times, expected 1", old, n)
	}
	return bytes.Replace(content, []byte(old), []byte(new), 1), nil
}
