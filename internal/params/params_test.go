package params

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for query, want := range map[string][]string{
		"": {}, "a": {"a="}, "a=b=c&&d": {"a=b=c", "d="}, "a+b=%41%zz+": {"a b=A%zz "}, "%61=1&a=2;b=3": {"a=1", "a=2;b=3"}, "=&": {"="},
	} {
		var list List
		if !list.Parse([]byte(query)) {
			t.Errorf("%q: too many", query)
		}
		got := []string{}
		for key, value := range list.All() {
			got = append(got, string(key)+"="+string(value))
		}
		if !slices.Equal(got, want) || list.Len() != len(want) {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	}
	var list List
	if list.Parse([]byte(strings.Repeat("a&", Max+1))) || list.Len() != Max {
		t.Errorf("%d parameters are kept", list.Len())
	}
}

func TestResetKeepsLittle(t *testing.T) {
	var list List
	list.Parse([]byte(strings.Repeat("a=%41"+strings.Repeat("x", 100)+"&", Max)))
	for range list.All() {
	}
	list.Reset()
	if cap(list.arena) > maxKeptBytes || cap(list.list) > maxKept || list.source != nil {
		t.Errorf("kept %d bytes, %d parameters", cap(list.arena), cap(list.list))
	}
}
