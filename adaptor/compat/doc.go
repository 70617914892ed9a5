// Package compat holds no code. Its tests show that other projects' handlers and middleware for net/http work in filo unchanged. They are a
// module of their own, so that filo doesn't depend on these projects.
package compat
