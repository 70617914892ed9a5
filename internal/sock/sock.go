// Package sock configures, reads and writes sockets. On Linux it makes raw system calls, and elsewhere it uses package net alone.
package sock

import "errors"

// ErrCannotTell is the error of AwaitEnd if the connection isn't a socket, or the system isn't Linux.
var ErrCannotTell = errors.New("filo: the connection isn't a socket that can be watched")
