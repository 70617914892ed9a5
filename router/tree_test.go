package router

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/filohttp/filo/internal/hooks"
)

// matches reports, without a tree, whether the pattern matches a path that was split into its segments.
func (p *pattern) matches(segments []string) bool {
	for i, s := range p.segments {
		if s.kind == rest {
			return i < len(segments)
		}
		if i >= len(segments) {
			return false
		}
		value := segments[i]
		switch {
		case s.kind == literal && s.text != value,
			s.kind == end && (value != "" || i != len(segments)-1),
			s.kind == single && value == "",
			s.kind == single && s.constraint != nil && !s.constraint.match([]byte(value)):
			return false
		}
	}
	return len(p.segments) == len(segments)
}

// Of all patterns that match a path, constraints included, the tree finds the most specific one.
func TestTreeFindsTheMostSpecific(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	matched := 0
	for range 5000 {
		tree := &node{}
		var patterns []*pattern
		var known index
		for range 1 + random.IntN(12) {
			text := ""
			for range random.IntN(4) {
				text += "/" + pick("a", "ab", "abc", "7", "77", "{?}", "{?}", "{?:int}", "{?:alpha}", "{?:a.*}", "{?:int}")
			}
			text += pick("/", "", "/{$}", "/{rest...}", "")
			for name := byte('p'); strings.Contains(text, "?"); name++ {
				text = strings.Replace(text, "?", string(name), 1)
			}
			p, err := parsePattern(text)
			if err != nil {
				continue // the text is empty
			}
			first := known.conflict(p)
			for _, other := range patterns {
				if first == nil && p.conflicts(other) {
					t.Fatalf("the index misses that %s conflicts with %s", p.text, other.text)
				}
			}
			if first != nil {
				continue
			}
			known.add(p)
			patterns = append(patterns, p)
			tree.add(p.segments, &Route{pattern: p, restNamed: p.last().text != "" && p.last().kind == rest})
		}
		tree.order()
		for range 20 {
			path := ""
			for range random.IntN(4) {
				path += "/" + pick("a", "ab", "abc", "7", "77", "b", "1")
			}
			if path == "" || random.IntN(3) == 0 {
				path += "/"
			}
			s := search{match: &hooks.Match{}}
			route := tree.match(&s, []byte(path))
			if route != nil {
				matched++
			}
			checkMostSpecific(t, patterns, path, route, s.match)
		}
	}
	if matched < 10_000 {
		t.Errorf("only %d paths had a route", matched)
	}
}

func checkMostSpecific(t *testing.T, patterns []*pattern, path string, route *Route, match *hooks.Match) {
	t.Helper()
	segments := strings.Split(path, "/")[1:]
	if route != nil && !route.pattern.matches(segments) {
		t.Fatalf("%s found %s", path, route.pattern.text)
	}
	for _, p := range patterns {
		switch {
		case !p.matches(segments):
		case route == nil:
			t.Fatalf("%s didn't find %s", path, p.text)
		case p != route.pattern && comparePaths(route.pattern, p) != moreSpecific:
			t.Fatalf("%s found %s, not %s", path, route.pattern.text, p.text)
		}
	}
	if route == nil {
		return
	}
	var values []string
	for i, s := range route.pattern.segments {
		if s.kind == single {
			values = append(values, segments[i])
		}
		if s.kind == rest && s.text != "" {
			values = append(values, strings.Join(segments[i:], "/"))
		}
	}
	for i, want := range values {
		if _, got := match.At(i); i >= match.Len() || string(got) != want {
			t.Fatalf("%s, %s: value %d is %q, want %q", path, route.pattern.text, i, got, want)
		}
	}
	if match.Len() != len(values) {
		t.Fatalf("%s, %s: %d values, want %d", path, route.pattern.text, match.Len(), len(values))
	}
}

// The canonical form of a path has the same segments as the path, and each of them decodes to the segment that was sent.
func TestCanonical(t *testing.T) {
	for sent, want := range map[string]string{
		"/a%2fb":         "/a%2Fb",
		"/%2525":         "/%2525",
		"/%41/%2e/%2E./": "/A/%2E/%2E%2E/",
		"/a%2e.":         "/a..",
		"/./../":         "/./../",
		"/%2e":           "/%2E",
		"/%2e%2e%2e":     "/...",
		"/":              "/",
	} {
		if got := string(appendCanonical([]byte("x"), []byte(sent))); got != "x"+want {
			t.Errorf("%s: %s, want %s", sent, got[1:], want)
		}
	}
	for _, decoded := range []string{"a/b", ".", "..", "...", "%", "%2F", "ü", ""} {
		form := canonical(decoded)
		if got := decodeCanonical([]byte(form)); string(got) != decoded || bytes.IndexByte([]byte(form), '/') >= 0 {
			t.Errorf("%q: %q, and back %q", decoded, form, got)
		}
	}
}
