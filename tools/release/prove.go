package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	modpath "golang.org/x/mod/module"
)

// prove makes the release in a clone of the committed state, and publishes its tags in a module proxy of files. It then uses each published module
// from a new module outside of the repository, in which it runs the examples of the documentation. Finally it does what the README tells a new user
// to do.
func prove(dir, version string) error {
	source, err := open(dir)
	if err != nil {
		return err
	}
	temporary, err := os.MkdirTemp("", "filo-release-test-")
	if err != nil {
		return err
	}
	defer removeModules(temporary)
	clone := &repository{filepath.Join(temporary, "clone")}
	if err := run(temporary, nil, "git", "clone", "--quiet", source.root, clone.root); err != nil {
		return err
	}
	for _, setting := range []string{"user.name=release test", "user.email=release@test.invalid", "commit.gpgsign=false", "tag.gpgsign=false"} {
		name, value, _ := strings.Cut(setting, "=")
		if err := clone.git("config", name, value); err != nil {
			return err
		}
	}
	if err := release(clone.root, version); err != nil {
		return err
	}
	modules, err := clone.modules()
	if err != nil {
		return err
	}
	files := filepath.Join(temporary, "files")
	if err := writeFiles(clone.root, version, files); err != nil {
		return err
	}
	written, err := os.ReadDir(files)
	if err != nil {
		return err
	}
	for _, file := range written {
		fmt.Println("ok:", file.Name())
	}
	proxy := filepath.Join(temporary, "proxy")
	for _, m := range modules {
		if m.published() {
			if err := clone.publish(m, version, proxy); err != nil {
				return err
			}
		}
	}
	settings, err := outside(temporary, proxy)
	if err != nil {
		return err
	}
	for _, m := range modules {
		if !m.published() {
			continue
		}
		began := time.Now()
		if err := clone.use(m, version, temporary, settings); err != nil {
			return fmt.Errorf("%s %s from outside: %w", m.path, version, err)
		}
		fmt.Printf("ok: go get %s@%s, and its examples run (%.1f s)\n", m.path, version, time.Since(began).Seconds())
	}
	if err := clone.useReadme(version, temporary, settings); err != nil {
		return fmt.Errorf("README.md's first program: %w", err)
	}
	return nil
}

// publish puts a tagged module into the proxy: see https://go.dev/ref/mod#goproxy-protocol.
func (r *repository) publish(m module, version, proxy string) error {
	escaped, err := modpath.EscapePath(m.path)
	if err != nil {
		return err
	}
	dir := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := r.writeZip(m, version, filepath.Join(dir, version+".zip")); err != nil {
		return err
	}
	required, err := os.ReadFile(filepath.Join(r.join(m.dir), "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version, time.Now().UTC()})
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"list": []byte(version + "\n"), version + ".mod": required, version + ".info": info} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// outside returns the environment of a user's go command, which has a separate module cache and finds filo only in the proxy. It gets other modules
// from this machine's module cache or, if they aren't there, from the usual proxy.
func outside(temporary, proxy string) ([]string, error) {
	printed, err := output(temporary, "go", "env", "-json", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return nil, err
	}
	var now struct{ GOMODCACHE, GOPROXY string }
	if err := json.Unmarshal([]byte(printed), &now); err != nil {
		return nil, err
	}
	cached := filepath.ToSlash(filepath.Join(now.GOMODCACHE, "cache", "download"))
	return []string{
		"GOPROXY=file://" + filepath.ToSlash(proxy) + ",file://" + cached + "," + now.GOPROXY,
		"GOMODCACHE=" + filepath.Join(temporary, "modules"),
		"GONOSUMDB=github.com/filohttp/*", "GOWORK=off",
		"GOFLAGS=-trimpath", // so that all modules share compiled packages
	}, nil
}

// useReadme does what the README tells a new user to do, and checks that the user gets the released version. It runs after the examples, which have
// compiled nearly all packages that the first program needs. Otherwise, on a slow machine, compiling could use up the minute that follow allows.
func (r *repository) useReadme(version, temporary string, settings []string) error {
	began := time.Now()
	readme, err := os.ReadFile(r.join("README.md"))
	if err != nil {
		return err
	}
	program, err := readFirstProgram(string(readme))
	if err != nil {
		return err
	}
	dir := filepath.Join(temporary, "first")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := program.follow(dir, settings); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	if wanted := "require github.com/filohttp/filo " + version + "\n"; !strings.Contains(string(text), wanted) || strings.Contains(string(text), "replace") {
		return fmt.Errorf("its go.mod hasn't %q, or replaces a module:\n%s", wanted, text)
	}
	fmt.Printf("ok: README.md's first program answers %s (%.1f s)\n", program.url, time.Since(began).Seconds())
	return nil
}

// use adds the module to a new, empty module with go get, as a user would, and runs the examples of the documentation there.
func (r *repository) use(m module, version, temporary string, settings []string) error {
	dir := filepath.Join(temporary, "user", filepath.FromSlash(m.dir))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	examples, err := os.ReadFile(filepath.Join(r.join(m.dir), "example_test.go"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "example_test.go"), examples, 0o644); err != nil {
		return err
	}
	for _, command := range []string{
		"go mod init example.test/user",
		"go get " + m.path + "@" + version,
		"go get -t .", // adds the other modules that the examples use
		"go test -vet=off -count=1 .",
	} {
		words := strings.Fields(command)
		if err := run(dir, settings, words[0], words[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// removeModules removes a directory that contains a module cache, whose directories are read-only.
func removeModules(dir string) {
	filepath.WalkDir(dir, func(name string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			os.Chmod(name, 0o755)
		}
		return nil
	})
	os.RemoveAll(dir)
}
