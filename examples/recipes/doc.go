// Package recipes has the code of docs/RECIPES.md: pieces that services need and filo leaves to them. It is compiled and tested with the
// rest of the repository, and is meant to be copied, not imported. Every file stands alone, except postgres.go, which uses pagination.go.
//
// The tests use SQLite and a Redis in memory. The tests of PostgreSQL need a server, whose address is in DATABASE_URL.
package recipes
