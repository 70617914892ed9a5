//go:build !unix

package sock

// MaxDescriptors returns false: the system has no limit that is known.
func MaxDescriptors() (n uint64, ok bool) { return 0, false }
