package version

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	other := &debug.Module{Path: "example.com/other", Version: "v9.9.9"}
	for name, test := range map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"a dependency":            {debug.BuildInfo{Main: *other, Deps: []*debug.Module{other, {Path: modulePath, Version: "v0.1.0"}}}, "v0.1.0"},
		"replaced by a fork":      {debug.BuildInfo{Deps: []*debug.Module{{Path: modulePath, Version: "v0.1.0", Replace: &debug.Module{Path: "fork", Version: "v0.1.1"}}}}, "v0.1.1"},
		"replaced by a directory": {debug.BuildInfo{Deps: []*debug.Module{{Path: modulePath, Version: "v0.1.0", Replace: &debug.Module{Path: "../filo"}}}}, "(devel)"},
		"filo itself":             {debug.BuildInfo{Main: debug.Module{Path: modulePath, Version: "(devel)"}}, "(devel)"},
		"not there":               {debug.BuildInfo{Main: *other}, "unknown"},
	} {
		if got := versionIn(&test.info); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
