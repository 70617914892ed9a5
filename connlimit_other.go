//go:build !unix

package filo

// descriptorLimit returns 0: the system has no limit that is known.
func descriptorLimit() int { return 0 }
