package static_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/filohttp/filo/servertest"
	"github.com/filohttp/filo/static"
)

// longAgo is when the files of a tree were modified: far enough in the past for all of them to be settled.
var longAgo = time.Date(2024, 2, 29, 12, 34, 56, 789, time.UTC)

const longAgoText = "Thu, 29 Feb 2024 12:34:56 GMT"

// write makes a file, and the directories above it.
func write(t testing.TB, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, longAgo, longAgo); err != nil {
		t.Fatal(err)
	}
}

// tree makes a directory with the files.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		write(t, dir, name, content)
	}
	return dir
}

// noise returns pseudorandom bytes, the same in each run.
func noise(size int) []byte {
	r := rand.NewChaCha8([32]byte{1})
	b := make([]byte, size)
	r.Read(b)
	return b
}

// open returns Files for a directory, closed at the end of the test.
func open(t testing.TB, dir string, options ...static.Options) *static.Files {
	t.Helper()
	files, err := static.Dir(dir, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := files.Close(); err != nil {
			t.Error(err)
		}
	})
	return files
}

// serve returns a server for the files of a directory.
func serve(t testing.TB, dir string, options ...static.Options) *servertest.Server {
	t.Helper()
	return servertest.New(t, open(t, dir, options...).Serve)
}

// tool returns a command. If the tool is missing, the test is skipped, but under FILO_CI, where the tools must be installed, it
// fails.
func tool(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("FILO_CI") != "" {
			t.Fatalf("%s isn't installed; `make deps` installs it", name)
		}
		t.Skipf("%s isn't installed; `make deps` installs it", name)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.WaitDelay = time.Second
	return cmd
}
