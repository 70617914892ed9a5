//go:build !unix

package sock

// MaxDescriptors returns false, since no limit is known on this system.
func MaxDescriptors() (n uint64, ok bool) { return 0, false }
