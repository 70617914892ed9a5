package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	modpath "golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// writeFiles writes the files that are published with a version's tags. For each published module these are the zip that the go command downloads
// from a proxy, and the software bill of materials in CycloneDX format. The version must be checked out in dir. writeFiles deletes the folder first.
func writeFiles(dir, version, folder string) error {
	r, err := open(dir)
	if err != nil {
		return err
	}
	modules, err := r.modules()
	if err != nil {
		return err
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)); err != nil {
		return err
	}
	for _, m := range modules {
		if !m.published() {
			continue
		}
		if err := r.isAt(m.tag(version)); err != nil {
			return err
		}
		name := filepath.Join(folder, strings.ReplaceAll(m.path[strings.IndexByte(m.path, '/')+1:], "/", "-")+"-"+version)
		if err := r.writeZip(m, version, name+".zip"); err != nil {
			return err
		}
		if err := r.writeBill(m, version, modules, name+".cdx.json"); err != nil {
			return err
		}
	}
	return nil
}

// isAt returns an error unless the tag's commit is checked out.
func (r *repository) isAt(tag string) error {
	at, err := output(r.root, "git", "rev-parse", tag+"^{commit}", "HEAD")
	if err != nil {
		return err
	}
	if commits := strings.Fields(at); commits[0] != commits[1] {
		return fmt.Errorf("%s isn't what is checked out", tag)
	}
	return nil
}

// writeZip writes the zip of a tagged module: see https://go.dev/ref/mod#zip-files.
func (r *repository) writeZip(m module, version, name string) error {
	subdir := m.dir
	if subdir == "." {
		subdir = ""
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	err = zip.CreateFromVCS(file, modpath.Version{Path: m.path, Version: version}, r.root, m.tag(version), subdir)
	return errors.Join(err, file.Close())
}

// bill holds those fields of a bill of materials that writeBill checks.
type bill struct {
	Metadata   struct{ Component component }
	Components []component
}

type component struct{ Name, Version string }

// writeBill writes the bill of materials of a tagged module: the modules that it requires, except those that only its tests require. The program that
// generates the bill reads the versions of the repository's own modules from the tags. If it doesn't find a version, it leaves the version out. So
// writeBill checks the versions of these modules.
func (r *repository) writeBill(m module, version string, modules []module, name string) error {
	program, err := tool("cyclonedx-gomod")
	if err != nil {
		return err
	}
	if err := run(r.join(m.dir), nil, program, "mod", "-json", "-type", "library", "-output", name, "."); err != nil {
		return err
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var b bill
	if err := json.Unmarshal(text, &b); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if b.Metadata.Component != (component{m.path, version}) {
		return fmt.Errorf("%s is about %s %s", name, b.Metadata.Component.Name, b.Metadata.Component.Version)
	}
	for _, own := range modules {
		for _, c := range b.Components {
			if c.Name == own.path && c.Version != version {
				return fmt.Errorf("%s has version %q of %s", name, c.Version, own.path)
			}
		}
	}
	return nil
}
