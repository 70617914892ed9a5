// Package tools holds no code. Its go.mod pins the tools that the Makefile builds (the linters, and for releases apidiff and cyclonedx-gomod), in a
// separate module, so that filo doesn't depend on them. The folders below it have the commands lint, typecheck, prose and release.
package tools
