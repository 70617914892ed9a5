package filo

import (
	"runtime/debug"
	"sync"
)

// modulePath is filo's path in a program's build information.
const modulePath = "github.com/filohttp/filo"

var version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return versionIn(info)
})

// Version returns the version of filo in this program, such as "v0.1.0": "(devel)" for a directory that replaces the module, and "unknown"
// if the build doesn't say, as in tests.
func Version() string { return version() }

func versionIn(info *debug.BuildInfo) string {
	for _, module := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if module.Path != modulePath {
			continue
		}
		if module.Replace != nil {
			module = module.Replace
		}
		if module.Version == "" {
			return "(devel)"
		}
		return module.Version
	}
	return "unknown"
}
