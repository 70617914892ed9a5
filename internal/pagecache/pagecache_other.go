//go:build !linux || !(amd64 || arm64)

package pagecache

func isLocal(int) bool { return false }

func (f *File) known() bool { return false }

// Stat returns no state.
func (f *File) Stat() (s State, ok bool) { return s, false }

// Has reports false.
func (f *File) Has(offset, size int64) bool { return false }
