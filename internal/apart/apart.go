// Package apart keeps fields that one processor writes out of the cache lines that others read or write.
package apart

// Lines, put between two fields of a struct, keeps them in different cache lines. It is the size of two lines, since processors fetch lines
// in pairs.
type Lines [128]byte
