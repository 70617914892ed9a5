// Package lint holds no code. Its go.mod pins the linters that `make lint` builds, in a module of their
// own so that they are no dependency of filo.
package lint
