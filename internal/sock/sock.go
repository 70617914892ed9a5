// Package sock reads, writes and sets up sockets by system calls: on Linux by raw ones, elsewhere by package net alone.
package sock

import "errors"

// ErrCannotTell is the error of AwaitEnd for a connection that isn't a socket, or on a system other than Linux.
var ErrCannotTell = errors.New("filo: the connection isn't a socket that can be watched")
