package http2conf

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"testing"
)

func TestTable(t *testing.T) {
	section := regexp.MustCompile(`^(6585|7540|7541|8441|9110|9112|9113|9218) \d+(\.\d+)*$`)
	names := make(map[string]bool)
	sent := make(map[string]string)
	for _, c := range Table() {
		if names[c.Name] {
			t.Errorf("%s: the name is used twice", c.Name)
		}
		names[c.Name] = true
		if !section.MatchString(c.RFC) || c.Sentence == "" {
			t.Errorf("%s: no sentence and its section: %q %q", c.Name, c.RFC, c.Sentence)
		}
		if slices.ContainsFunc(c.Steps, func(s Step) bool { return s.Make != nil }) {
			continue
		}
		b := fmt.Appendf(nil, "%d ", c.Then)
		for _, step := range c.Steps {
			b = append(b, bytesOf(step.Send)...)
		}
		if other, ok := sent[string(b)]; ok {
			t.Errorf("%s: the same frames as %s", c.Name, other)
		}
		sent[string(b)] = c.Name
	}
	t.Logf("%d cases", len(names))
	if n := len(names); n < 270 {
		t.Errorf("%d cases, want at least 270", n)
	}
}

func TestSeeds(t *testing.T) {
	seeds := Seeds()
	if got, want := len(seeds), len(Table()); got != want {
		t.Fatalf("%d seeds, want one for each of %d cases", got, want)
	}
	for _, seed := range seeds {
		if !bytes.HasPrefix(seed, opening()) {
			t.Errorf("%q doesn't begin with the preface and SETTINGS", seed)
		}
	}
}

func TestCuts(t *testing.T) {
	if got := cuts(5); !slices.Equal(got, []int{1, 2, 3, 4}) {
		t.Errorf("5 bytes are cut at %v", got)
	}
	for _, n := range []int{0, 1, 2, cutAll, cutAll + 1, 17_000, 1_000_000} {
		got := cuts(n)
		if n <= cutAll && len(got) != max(0, n-1) || len(got) > cutAll {
			t.Errorf("%d bytes are cut at %d places", n, len(got))
		}
		if len(got) > 0 && (got[0] != 1 || got[len(got)-1] != n-1 || !slices.IsSorted(got)) {
			t.Errorf("%d bytes are cut at %v", n, got)
		}
	}
}
