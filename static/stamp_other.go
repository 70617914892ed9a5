//go:build !linux

package static

import "io/fs"

// addSystem adds nothing: on this system only a file's size and modification time are known.
func (s *stamp) addSystem(fs.FileInfo) {}
