// Package tools holds no code. Its go.mod pins the tools that the Makefile builds (the linters, and for releases apidiff and cyclonedx-gomod), in a
// module of their own so that they are no dependency of filo. The commands lint, typecheck, prose and release are beside it.
package tools
