// Package recipes has the code of docs/RECIPES.md: code that services need and filo doesn't provide. It is compiled and tested with the rest of the
// repository. Copy it instead of importing it. Every file is independent, except postgres.go, which uses pagination.go.
//
// The tests use SQLite and a Redis in memory. The tests of PostgreSQL need a server, whose address is in DATABASE_URL.
package recipes
