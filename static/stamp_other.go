//go:build !linux

package static

import "io/fs"

// addSystem adds nothing: size and time of modification are all that is known of a file.
func (s *stamp) addSystem(fs.FileInfo) {}
