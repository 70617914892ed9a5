// Package version finds filo's version in a program's build information.
package version

import (
	"runtime/debug"
	"sync"
)

// modulePath is filo's path in a program's build information.
const modulePath = "github.com/filohttp/filo"

// Of returns the version of filo in this program: see filo.Version.
var Of = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return versionIn(info)
})

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
