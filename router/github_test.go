package router_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// githubRoutes are routes of GitHub's REST API, version 3, which many routers are measured with.
var githubRoutes = strings.Fields(`
GET /authorizations
GET /authorizations/{id}
POST /authorizations
DELETE /authorizations/{id}
GET /applications/{client_id}/tokens/{access_token}
DELETE /applications/{client_id}/tokens
DELETE /applications/{client_id}/tokens/{access_token}
GET /events
GET /repos/{owner}/{repo}/events
GET /networks/{owner}/{repo}/events
GET /orgs/{org}/events
GET /users/{user}/received_events
GET /users/{user}/received_events/public
GET /users/{user}/events
GET /users/{user}/events/public
GET /users/{user}/events/orgs/{org}
GET /feeds
GET /notifications
GET /repos/{owner}/{repo}/notifications
PUT /notifications
PUT /repos/{owner}/{repo}/notifications
GET /notifications/threads/{id}
GET /notifications/threads/{id}/subscription
PUT /notifications/threads/{id}/subscription
DELETE /notifications/threads/{id}/subscription
GET /repos/{owner}/{repo}/stargazers
GET /users/{user}/starred
GET /user/starred
GET /user/starred/{owner}/{repo}
PUT /user/starred/{owner}/{repo}
DELETE /user/starred/{owner}/{repo}
GET /repos/{owner}/{repo}/subscribers
GET /users/{user}/subscriptions
GET /user/subscriptions
GET /repos/{owner}/{repo}/subscription
PUT /repos/{owner}/{repo}/subscription
DELETE /repos/{owner}/{repo}/subscription
GET /user/subscriptions/{owner}/{repo}
PUT /user/subscriptions/{owner}/{repo}
DELETE /user/subscriptions/{owner}/{repo}
GET /users/{user}/gists
GET /gists
GET /gists/{id}
POST /gists
PUT /gists/{id}/star
DELETE /gists/{id}/star
GET /gists/{id}/star
POST /gists/{id}/forks
DELETE /gists/{id}
GET /repos/{owner}/{repo}/git/blobs/{sha}
POST /repos/{owner}/{repo}/git/blobs
GET /repos/{owner}/{repo}/git/commits/{sha}
POST /repos/{owner}/{repo}/git/commits
GET /repos/{owner}/{repo}/git/refs
POST /repos/{owner}/{repo}/git/refs
GET /repos/{owner}/{repo}/git/tags/{sha}
POST /repos/{owner}/{repo}/git/tags
GET /repos/{owner}/{repo}/git/trees/{sha}
POST /repos/{owner}/{repo}/git/trees
GET /issues
GET /user/issues
GET /orgs/{org}/issues
GET /repos/{owner}/{repo}/issues
GET /repos/{owner}/{repo}/issues/{number}
POST /repos/{owner}/{repo}/issues
GET /repos/{owner}/{repo}/assignees
GET /repos/{owner}/{repo}/assignees/{assignee}
GET /repos/{owner}/{repo}/issues/{number}/comments
POST /repos/{owner}/{repo}/issues/{number}/comments
GET /repos/{owner}/{repo}/issues/{number}/events
GET /repos/{owner}/{repo}/labels
GET /repos/{owner}/{repo}/labels/{name}
POST /repos/{owner}/{repo}/labels
DELETE /repos/{owner}/{repo}/labels/{name}
GET /repos/{owner}/{repo}/issues/{number}/labels
POST /repos/{owner}/{repo}/issues/{number}/labels
DELETE /repos/{owner}/{repo}/issues/{number}/labels/{name}
PUT /repos/{owner}/{repo}/issues/{number}/labels
DELETE /repos/{owner}/{repo}/issues/{number}/labels
GET /repos/{owner}/{repo}/milestones/{number}/labels
GET /repos/{owner}/{repo}/milestones
GET /repos/{owner}/{repo}/milestones/{number}
POST /repos/{owner}/{repo}/milestones
DELETE /repos/{owner}/{repo}/milestones/{number}
GET /emojis
GET /gitignore/templates
GET /gitignore/templates/{name}
POST /markdown
POST /markdown/raw
GET /meta
GET /rate_limit
GET /users/{user}/orgs
GET /user/orgs
GET /orgs/{org}
GET /orgs/{org}/members
GET /orgs/{org}/members/{user}
DELETE /orgs/{org}/members/{user}
GET /orgs/{org}/public_members
GET /orgs/{org}/public_members/{user}
PUT /orgs/{org}/public_members/{user}
DELETE /orgs/{org}/public_members/{user}
GET /orgs/{org}/teams
GET /teams/{id}
POST /orgs/{org}/teams
DELETE /teams/{id}
GET /teams/{id}/members
GET /teams/{id}/members/{user}
PUT /teams/{id}/members/{user}
DELETE /teams/{id}/members/{user}
GET /teams/{id}/repos
GET /teams/{id}/repos/{owner}/{repo}
PUT /teams/{id}/repos/{owner}/{repo}
DELETE /teams/{id}/repos/{owner}/{repo}
GET /user/teams
GET /repos/{owner}/{repo}/pulls
GET /repos/{owner}/{repo}/pulls/{number}
POST /repos/{owner}/{repo}/pulls
GET /repos/{owner}/{repo}/pulls/{number}/commits
GET /repos/{owner}/{repo}/pulls/{number}/files
GET /repos/{owner}/{repo}/pulls/{number}/merge
PUT /repos/{owner}/{repo}/pulls/{number}/merge
GET /repos/{owner}/{repo}/pulls/{number}/comments
PUT /repos/{owner}/{repo}/pulls/{number}/comments
GET /user/repos
GET /users/{user}/repos
GET /orgs/{org}/repos
GET /repositories
POST /user/repos
POST /orgs/{org}/repos
GET /repos/{owner}/{repo}
GET /repos/{owner}/{repo}/contributors
GET /repos/{owner}/{repo}/languages
GET /repos/{owner}/{repo}/teams
GET /repos/{owner}/{repo}/tags
GET /repos/{owner}/{repo}/branches
GET /repos/{owner}/{repo}/branches/{branch}
DELETE /repos/{owner}/{repo}
GET /repos/{owner}/{repo}/collaborators
GET /repos/{owner}/{repo}/collaborators/{user}
PUT /repos/{owner}/{repo}/collaborators/{user}
DELETE /repos/{owner}/{repo}/collaborators/{user}
GET /repos/{owner}/{repo}/comments
GET /repos/{owner}/{repo}/commits/{sha}/comments
POST /repos/{owner}/{repo}/commits/{sha}/comments
GET /repos/{owner}/{repo}/comments/{id}
DELETE /repos/{owner}/{repo}/comments/{id}
GET /repos/{owner}/{repo}/commits
GET /repos/{owner}/{repo}/commits/{sha}
GET /repos/{owner}/{repo}/readme
GET /repos/{owner}/{repo}/keys
GET /repos/{owner}/{repo}/keys/{id}
POST /repos/{owner}/{repo}/keys
DELETE /repos/{owner}/{repo}/keys/{id}
GET /repos/{owner}/{repo}/downloads
GET /repos/{owner}/{repo}/downloads/{id}
DELETE /repos/{owner}/{repo}/downloads/{id}
GET /repos/{owner}/{repo}/forks
POST /repos/{owner}/{repo}/forks
GET /repos/{owner}/{repo}/hooks
GET /repos/{owner}/{repo}/hooks/{id}
POST /repos/{owner}/{repo}/hooks
POST /repos/{owner}/{repo}/hooks/{id}/tests
DELETE /repos/{owner}/{repo}/hooks/{id}
POST /repos/{owner}/{repo}/merges
GET /repos/{owner}/{repo}/releases
GET /repos/{owner}/{repo}/releases/{id}
POST /repos/{owner}/{repo}/releases
DELETE /repos/{owner}/{repo}/releases/{id}
GET /repos/{owner}/{repo}/releases/{id}/assets
GET /repos/{owner}/{repo}/stats/contributors
GET /repos/{owner}/{repo}/stats/commit_activity
GET /repos/{owner}/{repo}/stats/code_frequency
GET /repos/{owner}/{repo}/stats/participation
GET /repos/{owner}/{repo}/stats/punch_card
GET /repos/{owner}/{repo}/statuses/{ref}
POST /repos/{owner}/{repo}/statuses/{ref}
GET /search/repositories
GET /search/code
GET /search/issues
GET /search/users
GET /legacy/issues/search/{owner}/{repository}/{state}/{keyword}
GET /legacy/repos/search/{keyword}
GET /legacy/user/search/{keyword}
GET /legacy/user/email/{email}
GET /users/{user}
GET /user
GET /users
GET /user/emails
POST /user/emails
DELETE /user/emails
GET /users/{user}/followers
GET /user/followers
GET /users/{user}/following
GET /user/following
GET /user/following/{user}
GET /users/{user}/following/{target_user}
PUT /user/following/{user}
DELETE /user/following/{user}
GET /users/{user}/keys
GET /user/keys
GET /user/keys/{id}
POST /user/keys
DELETE /user/keys/{id}
`)

// githubCalls are a request for each of them.
func githubCalls() (patterns, requests []string) {
	for i := 0; i < len(githubRoutes); i += 2 {
		method, path := githubRoutes[i], githubRoutes[i+1]
		patterns = append(patterns, method+" "+path)
		requests = append(requests, method+" "+wildcards.ReplaceAllString(path, "$1"))
	}
	return patterns, requests
}

var wildcards = regexp.MustCompile(`\{([a-z_]+)\}`)

// readAll reads each parameter, as a handler would.
func readAll(names []string) filo.Handler {
	return func(c *filo.Ctx) error {
		for _, name := range names {
			if len(c.ParamBytes(name)) == 0 {
				return filo.Error(500, "no value for "+name)
			}
		}
		return nil
	}
}

func githubRouter() *router.Router {
	r := router.New()
	patterns, _ := githubCalls()
	for _, pattern := range patterns {
		var names []string
		for _, match := range wildcards.FindAllStringSubmatch(pattern, -1) {
			names = append(names, match[1])
		}
		r.Handle(pattern, readAll(names))
	}
	return r
}

func TestGitHub(t *testing.T) {
	patterns, requests := githubCalls()
	if len(patterns) != 203 {
		t.Errorf("%d routes, want 203", len(patterns))
	}
	s := servertest.New(t, with(patterns...).Serve)
	for i, request := range requests {
		got := doTo(t, s, request)
		want := patterns[i]
		for _, match := range wildcards.FindAllStringSubmatch(want, -1) {
			want += fmt.Sprintf(" %s=%s", match[1], match[1])
		}
		if got.header.Get("Route") != want {
			t.Errorf("%s: %d %s, want %s", request, got.status, got.body, want)
		}
	}
}

// inHandler sends requests one after the other to a server, in whose handler it calls f.
func inHandler(t testing.TB, requests []string, f func(c *filo.Ctx)) {
	s := servertest.New(t, func(c *filo.Ctx) error {
		f(c)
		c.Response.SetBody(nil)
		return nil
	})
	var raw strings.Builder
	for _, request := range requests {
		raw.WriteString(request + " HTTP/1.1\r\nHost: filo.test\r\n\r\n")
	}
	conn := s.Dial(t)
	defer conn.Close()
	go conn.Write([]byte(raw.String()))
	buffer := make([]byte, 1<<16)
	for answers := 0; answers < len(requests); {
		n, err := conn.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		answers += strings.Count(string(buffer[:n]), "HTTP/1.1 ")
	}
}

// A match through Serve allocates nothing, not even for a path with percent-encoding, a constraint, a host or a mount point.
func TestMatchAllocatesNothing(t *testing.T) {
	_, requests := githubCalls()
	inner := router.New()
	inner.GET("/c/{d:[a-z]+}", readAll([]string{"tenant", "d"}))
	r := githubRouter()
	r.Handle("GET /x/{id:int}/{rest...}", readAll([]string{"id", "rest"}))
	r.Handle("GET filo.test/y/{slug:[a-z]+}", readAll([]string{"slug"}))
	r.Mount("/t/{tenant}", inner.Serve)
	requests = append(requests, "GET /x/12/a/b/c", "GET /x/%31/a/%62/c", "GET /y/%61bc", "GET /t/ab/c/d", "GET /t/%61b/c/%64")
	r.Use(func(next filo.Handler) filo.Handler { return func(c *filo.Ctx) error { return next(c) } })
	inHandler(t, requests, func(c *filo.Ctx) {
		if raceEnabled && strings.Contains(c.Request.Target(), "%") {
			return // the race detector makes a sync.Pool drop some of what it gets
		}
		var err error
		allocations := testing.AllocsPerRun(100, func() { err = r.Serve(c) })
		if err != nil || allocations != 0 || c.Route() == "" {
			t.Errorf("%s %s: error %v, %v allocations", c.Method(), c.Path(), err, allocations)
		}
	})
}

// BenchmarkGitHub finds the route of one request for each of GitHub's, and reads its parameters.
func BenchmarkGitHub(b *testing.B) {
	_, all := githubCalls()
	var static, parametrised []string
	for i, request := range all {
		if strings.Contains(githubRoutes[2*i+1], "{") {
			parametrised = append(parametrised, request)
		} else {
			static = append(static, request)
		}
	}
	for _, set := range []struct {
		name     string
		requests []string
	}{{"all", all}, {"static", static}, {"parametrised", parametrised}} {
		b.Run(set.name, func(b *testing.B) { benchmark(b, githubRouter(), set.requests) })
	}
}

// BenchmarkServe measures what GitHub's routes don't have.
func BenchmarkServe(b *testing.B) {
	inner := router.New()
	inner.GET("/users/{id}", readAll([]string{"id"}))
	r := githubRouter()
	r.GET("/x/{id:int}", readAll([]string{"id"}))
	r.GET("/y/{id:[0-9]+}", readAll([]string{"id"}))
	r.GET("/files/{path...}", readAll([]string{"path"}))
	r.Mount("/t/{tenant}", inner.Serve)
	hosts := router.New()
	hosts.Handle("GET filo.test/users/{id}", readAll([]string{"id"}))
	middleware := router.New()
	middleware.GET("/users/{id}", readAll([]string{"id"}))
	for range 5 {
		middleware.Use(func(next filo.Handler) filo.Handler { return func(c *filo.Ctx) error { return next(c) } })
	}
	for _, c := range []struct {
		name    string
		router  *router.Router
		request string
	}{
		{"type", r, "GET /x/1234"},
		{"expression", r, "GET /y/1234"},
		{"rest", r, "GET /files/static/css/site.css"},
		{"encoded", r, "GET /users/gopher%20x/repos"},
		{"mount", r, "GET /t/red/users/7"},
		{"host", hosts, "GET /users/7"},
		{"five middleware", middleware, "GET /users/7"},
	} {
		b.Run(c.name, func(b *testing.B) { benchmark(b, c.router, []string{c.request}) })
	}
}

// benchmark measures r's Serve for one request of each kind.
func benchmark(b *testing.B, r *router.Router, requests []string) {
	b.ReportAllocs()
	const warm = 3 // rounds until the classes of the routes are known to be quick
	rounds := slices.Repeat(requests, warm+1)
	served := 0
	var took time.Duration
	inHandler(b, rounds, func(c *filo.Ctx) {
		if err := r.Serve(c); err != nil {
			b.Error(err)
		}
		if served++; served <= warm*len(requests) {
			return
		}
		start := time.Now()
		for range b.N {
			c.SetRoute("")
			_ = r.Serve(c)
		}
		took += time.Since(start)
	})
	b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/op")
	b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*len(requests)), "ns/route")
}
