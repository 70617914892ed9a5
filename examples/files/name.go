package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/filohttp/filo"
)

const (
	// maxName is the maximum length of a name in bytes. It is within the limit of common file systems (255 bytes).
	maxName = 200
	// maxExtension is the maximum length of an extension in bytes, with the dot, that is kept when a name is shortened.
	maxExtension = 20
)

// checkName returns an error if the name of a file isn't allowed. Names are never changed, so that files are listed under the names that were sent. A
// name must not begin with a dot, since the folder of unfinished uploads does. It must not contain invisible characters, which could make "gpj.exe"
// look like "exe.jpg".
func checkName(name string) error {
	var wrong string
	switch {
	case name == "" || len(name) > maxName:
		wrong = fmt.Sprintf("a file's name has 1 to %d bytes", maxName)
	case !utf8.ValidString(name):
		wrong = "a file's name is text in UTF-8"
	case name[0] == '.':
		wrong = "a file's name doesn't begin with a dot"
	case strings.ContainsAny(name, `/\`):
		wrong = "a file's name has no slashes and backslashes"
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		wrong = "a file's name has only visible characters and spaces"
	default:
		return nil
	}
	return filo.Error(400, wrong)
}

// freeName returns name or, if there is such a file, the first free one of "name (2)", "name (3)", with the number in front of the
// extension.
func freeName(root *os.Root, name string) (string, error) {
	ext := path.Ext(name)
	if len(ext) > maxExtension {
		ext = ""
	}
	base := strings.TrimSuffix(name, ext)
	candidate := name
	for n := 2; ; n++ {
		switch _, err := root.Lstat(candidate); {
		case errors.Is(err, fs.ErrNotExist):
			return candidate, nil
		case err != nil:
			return "", err
		}
		suffix := fmt.Sprintf(" (%d)%s", n, ext)
		for len(base)+len(suffix) > maxName {
			_, size := utf8.DecodeLastRuneInString(base)
			base = base[:len(base)-size]
		}
		candidate = base + suffix
	}
}
