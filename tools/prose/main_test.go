package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each pattern matches wrong phrases, and doesn't match correct ones that look similar. A phrase may continue in the next line.
func TestCheck(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"release gives back what the request has of the scratch.", "what the request has of"},
		{"Err says why what the files have now was refused.", "what the files have now"},
		{"what the server has answered", ""},
		{"what the caller has to do", ""},
		{"note takes note of a probe.", "takes note"},
		{"It took\nnote of it.", "took note"},
		{"a note of the caller", ""},
		{"lose notes that the client has left.", "notes that"},
		{"the release notes say so", ""},
		{"It is sent to who watches.", "to who"},
		{"They wait. Who asks gets it.", ". Who asks"},
		{"Who may write is in the table.", ""},
		{"It says who writes.", ""},
		{"Whoever\ntakes it owns it.", "Whoever"},
		{"The rates are those of a cell.", "are those of"},
		{"Length is that of the payload.", "is that of"},
		{"The reason is that the client waits.", ""},
		{"The head isn't to be flushed.", "isn't to be"},
		{"The handler is to run here.", "is to run"},
		{"The nearest one is to the left.", ""},
		{"It answers in its stead.", "in its stead"},
		{"It answers in the place of a handler.", "in the place of"},
		{"It may run in a place of this kind.", ""},
		{"A report that tells of an error is one.", "tells of"},
		{"It tells the client.", ""},
		{"Nothing is kept but for the key.", "but for"},
		{"not for the client, but also for the server", ""},
		{"how long a request may wait so", "wait so"},
		{"It waits so that others can run.", ""},
		{"It takes so many bytes.", "so many bytes"},
		{"There are so many that one more costs nothing.", ""},
		{"a stream of\nwhich nothing was sent", "stream of which"},
		{"streams, all of which have ended", ""},
		{"It ends. Of several ranges the first one counts.", ". Of several"},
		{"Of returns the File of a file.", ""},
		{"a connection of\nAccept", "connection of Accept"},
		{"the functions of [Response.WrapBody]", "functions of [Response.WrapBody"},
		{"one call of Read; the tasks of Ctx.Go", "call of Read; tasks of Ctx.Go"},
		{"a connection of HTTP/2, the streams of a client, and calls of Go", ""},
		{"the error of Close, and the options of New", ""},
		{"It waits until the next\nlook.", "next look"},
		{"between two looks at a peer", "two looks at"},
		{"It first looks at the head. The first looks like the second.", ""},
		{"This looks right, and the look is over.", "the look is"},
		{"and what is waited\nfor is sent", "and what is waited for is"},
		{"What has come in parts must be kept.", "What has come in parts must"},
		{"What follows is guarded by mu.", ""},
		{"It returns what is wrong with a struct that is bound.", ""},
		{"its size: that of\nthe body", ": that of the"},
		{"the size of the request, or that of the answer", ""},
		{"(What is counted here isn't shared.)", "(What is counted here isn't"},
		{"It ends because of a fault of the\nclient's.", "fault of the client's."},
		{"one of the server's, instead of the handler's; a function of the client's code", ""},
		{"It replaces the body by\none of its own.", "replaces the body by one"},
		{"The body is replaced by a 503. It replaces it by calling f.", ""},
		{"A lost body is answered by 408.", "answered by 408"},
		{"It is answered by the server.", ""},
		{"for another host than this one", "another host than"},
		{"another host, rather than this one", ""},
		{"Age is for how long it runs.", "is for how long"},
		{"every other frame is of\na stream", "is of a stream"},
		{"whether the place is of a reserved kind, or of another type", ""},
		{"nothing can be sent any more; the owner's", "; the owner's "},
		{"It is the owner's. The handler's fields stay.", ""},
		{"log.Fatal would make an INFO of\nit", "make an INFO of it"},
		{"makes JSON of the body", "makes JSON of the"},
		{"It makes a copy of the rest, and the most of the time.", ""},
		{"It makes the calls of the class run.", ""},
		{"what it knows of a file", "knows of a"},
		{"It says so, and what has become of those that were here.", ""},
	} {
		lines := []line{}
		for i, s := range strings.Split(c.text, "\n") {
			lines = append(lines, line{i + 1, s})
		}
		var phrases []string
		for _, f := range check("f", lines) {
			if phrases = append(phrases, f.phrase); f.line != 1 {
				t.Errorf("%q: found in line %d", c.text, f.line)
			}
		}
		if got := strings.Join(phrases, "; "); got != c.want {
			t.Errorf("%q: found %q, want %q", c.text, got, c.want)
		}
	}
}

// The program checks the comments of Go files that aren't tests, and every document, but no code.
func TestCheckTree(t *testing.T) {
	root := t.TempDir()
	const wrong = "all but for one"
	for name, text := range map[string]string{
		"a/a.go":          "// Package a has " + wrong + ".\npackage a\n\nvar s = \"" + wrong + "\" // trailing, " + wrong + "\n\n//go:generate all but for one\n",
		"a/b.go":          "package a\n\n// f is used as\n//\n//\tall but for one\n//\n// and returns all\n// but for one.\nfunc f() {}\n\n/* " + wrong + " */\n",
		"a/a_test.go":     "package a // " + wrong + "\n",
		"testdata/d.go":   "package d // " + wrong + "\n",
		".git/e.go":       "package e // " + wrong + "\n",
		"docs/F.md":       "# F\n\nThis is all\nbut for one.\n\n    " + wrong + "\n\n```\n" + wrong + "\n```\n\n| a | " + wrong + " |\n\n- a list: all but\n  for one\n",
		"docs/inner/G.md": wrong + "\n",
		"README.md":       wrong + "\n",
		"site/x.md":       wrong + "\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	found, err := checkTree(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range found {
		place, _, _ := strings.Cut(strings.TrimPrefix(f.String(), root+"/"), ": ")
		got = append(got, place)
	}
	if want := []string{"README.md:1", "a/a.go:1", "a/a.go:4", "a/b.go:8", "a/b.go:11", "docs/F.md:4", "docs/F.md:12", "docs/F.md:14", "docs/inner/G.md:1"}; !slices.Equal(got, want) {
		t.Errorf("found in %q, want %q", got, want)
	}
}
