// Package githubapi has the routes of GitHub's REST API, version 3, which many benchmarks of routers use.
package githubapi

import (
	_ "embed"
	"regexp"
	"strings"
)

// Route is a method and a pattern, such as "/users/{user}/repos".
type Route struct{ Method, Path string }

// Wildcards returns the names of the pattern's wildcards.
func (r Route) Wildcards() (names []string) {
	for _, match := range wildcard.FindAllStringSubmatch(r.Path, -1) {
		names = append(names, match[1])
	}
	return names
}

// Request returns a path that the pattern matches, with the name of each wildcard as its value.
func (r Route) Request() string { return r.Replace("$1") }

// Replace returns the pattern with each wildcard replaced by the text of with, in which "$1" is the wildcard's name.
func (r Route) Replace(with string) string { return wildcard.ReplaceAllString(r.Path, with) }

var wildcard = regexp.MustCompile(`\{([a-z_]+)\}`)

//go:embed routes.txt
var list string

// Routes returns all 203 routes.
func Routes() (routes []Route) {
	for line := range strings.Lines(list) {
		method, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		routes = append(routes, Route{method, path})
	}
	return routes
}
