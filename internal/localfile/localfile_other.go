//go:build !linux || !(amd64 || arm64)

package localfile

func isLocal(int) bool { return false }

// Stat returns no state.
func (f *File) Stat() (s State, ok bool) { return s, false }
