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
