// Package apart keeps a field that one processor writes out of the cache lines of fields that other processors read or write.
package apart

// Lines, put between two fields of a struct, keeps them in different cache lines. It has the size of two cache lines, since processors fetch cache
// lines in pairs.
type Lines [128]byte
