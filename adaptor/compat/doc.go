// Package compat holds no code. Its tests show that what others have written for net/http works in filo unchanged, in a module
// of their own so that it is no dependency of filo.
package compat
