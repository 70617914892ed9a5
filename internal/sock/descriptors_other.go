//go:build !unix

package sock

// MaxDescriptors returns false: no limit of the system is known.
func MaxDescriptors() (n uint64, ok bool) { return 0, false }
