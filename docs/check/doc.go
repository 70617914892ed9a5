// Package check tests that the documents of the repository are true: its tests compile every snippet of Go in README.md, the guide,
// docs/MIGRATING.md, docs/OPERATIONS.md and docs/ERRORS.md, look up the names in inline code, and follow the links.
//
// A test writes docs/ERRORS.md: it makes every mistake in mistakescases_test.go, and records what filo says. When a mistake or a text of
// filo has changed, go test -run ErrorsDocument -update . writes the document anew.
//
// AGENTS.md repeats passages of the guide's pages and of CONTRIBUTING.md, which are marked there by <!-- agents: title --> and <!-- end
// -->. llms.txt names every document. go test -run AgentsDocuments -update . writes them anew.
//
// A snippet is a block that begins with ```go. One with a package clause is compiled as it is. Any other is completed first:
//
//   - Declarations (func, type, var, const at the beginning of a line) are put into a file of their own, and the statements
//     between them into a function with the parameters that snippet_test.go calls given.
//   - Imports follow from the names that the snippet uses, by the table known. Names that documents take for granted, such as a type User,
//     are declared by the table assumed.
//
// Snippets for other frameworks begin with ```go other, and aren't compiled.
//
// Run the tests with -count=1, as make does: the go command doesn't notice changes of files outside of the module, and would show
// an old result.
package check
