package check

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	agentsDocument = "AGENTS.md"
	llmsDocument   = "llms.txt"
	// most is the maximum number of lines of AGENTS.md, so that it can be read in one go.
	most = 120
	// published is where llms.txt finds the documents: its readers have no checkout.
	published = "https://raw.githubusercontent.com/filohttp/filo/main/"
)

const agentsIntro = `# Instructions for agents

For programs that write Go with filo, or change filo. A test takes this page from [the guide](docs/GUIDE.md) and [CONTRIBUTING.md](CONTRIBUTING.md):
change it there. [docs/ERRORS.md](docs/ERRORS.md) lists mistakes with filo's messages. In snippets ` + "`c` is a `*filo.Ctx`, `r` a `*router.Router` and `s` a `*filo.Server`" + `.
`

// passage is a part of a document that AGENTS.md repeats. The document marks it by the lines <!-- agents: title --> and <!-- end -->.
type passage struct{ title, text string }

var (
	opening = regexp.MustCompile(`(?m)^<!-- agents: (.+) -->\n`)
	closing = "\n<!-- end -->\n"
)

// passages returns the marked passages of a document. Their links are changed so that they have the same targets from the repository's
// root.
func passages(document, text string) (found []passage, err error) {
	for {
		at := opening.FindStringSubmatchIndex(text)
		if at == nil {
			if strings.Contains(text, closing) {
				err = fmt.Errorf("%s has an end without a beginning", document)
			}
			return found, err
		}
		title := text[at[2]:at[3]]
		before, inside := text[:at[0]], text[at[1]:]
		inside, after, closed := strings.Cut(inside, closing)
		if strings.Contains(before, closing) || !closed || opening.MatchString(inside) {
			return nil, fmt.Errorf("%s: the passage %q isn't between its own beginning and end", document, title)
		}
		inside = link.ReplaceAllStringFunc(inside, func(l string) string { return "](" + fromRoot(document, l[2:len(l)-1]) + ")" })
		found, text = append(found, passage{title, strings.TrimRight(inside, "\n")}), after
	}
}

// fromRoot returns the target of a link in a document, relative to the repository's root.
func fromRoot(document, target string) string {
	switch {
	case strings.Contains(target, "://"):
		return target
	case strings.HasPrefix(target, "#"):
		return document + target
	}
	name, fragment, found := strings.Cut(target, "#")
	name = filepath.ToSlash(filepath.Join(filepath.Dir(document), name))
	if found {
		name += "#" + fragment
	}
	return name
}

// llms are the documents in llms.txt, with what each is for.
var llms = []struct {
	section   string
	documents [][2]string
}{
	{"For users", [][2]string{
		{agentsDocument, "what may be kept after a handler has returned, when to block, how to test, how to leave"},
		{"docs/GUIDE.md", "the first program, what a handler may keep, how it is tested, and the list of the guide's pages"},
		{"docs/guide/handlers.md", "the pool, quick handlers and slow ones, overload, clients that leave, work after the answer"},
		{"docs/guide/routes.md", "patterns, groups, handlers of net/http, a reverse proxy"},
		{"docs/guide/requests.md", "parameters, structs, typed handlers, OpenAPI, bodies, forms and uploads"},
		{"docs/guide/answers.md", "JSON, templates, streams, and what becomes of an error"},
		{"docs/guide/middleware.md", "what there is, sessions and logins, tokens, security headers"},
		{"docs/guide/files.md", "directories, embedded files, single-page applications, caching, ranges"},
		{"docs/guide/events.md", "server-sent events, WebSockets, parked connections"},
		{"docs/guide/production.md", "shutdown, probes, all settings, TLS, proxies, logs, traces, metrics, profiles"},
		{"docs/ERRORS.md", "mistakes with what filo says to each, and what to write instead"},
		{"docs/RECIPES.md", "complete pieces: sessions, pagination, PostgreSQL, nginx and others"},
		{"docs/MIGRATING.md", "from net/http, chi, gin, echo, fasthttp and fiber, side by side"},
		{"docs/GRPC.md", "from grpc-go's server: what is the same, and what isn't"},
		{"docs/HTTP3.md", "when it helps, what is different, restarts and balancers"},
		{"docs/internals/NETHTTP.md", "what handlers, middleware and clients may notice"},
		{"docs/internals/HTTP2.md", "what it offers, costs and refuses"},
		{"docs/internals/POOL.md", "functions on a bounded set of goroutines, with the names of ants"},
		{"docs/OPERATIONS.md", "from one binary to many machines: limits, alerts, certificates, restarts"},
		{"CHANGELOG.md", "what each version has"},
		{"docs/UPGRADING.md", "what has changed for users of earlier revisions, and what to write instead"},
	}},
	{"Optional", [][2]string{
		{"docs/ARCHITECTURE.md", "which file of filo does what"},
		{"docs/internals/INTERNALS.md", "the rules that hold between the parts"},
		{"docs/internals/LOOP.md", "the event loop on Linux"},
		{"docs/BENCHMARKS.md", "comparisons with other servers"},
		{"docs/internals/PROFILE.md", "profiles under three loads"},
		{"CONTRIBUTING.md", "what a change of filo needs"},
		{"docs/SECURITY.md", "how to report a vulnerability"},
	}},
}

// AGENTS.md has the marked passages, and llms.txt names every document. With -update the test writes both files.
func TestAgentsDocuments(t *testing.T) {
	var titles []string
	texts := make(map[string]string) // by title, since a title may have several passages
	for _, document := range append(slices.Clone(guide), "CONTRIBUTING.md") {
		found, err := passages(document, read(t, document))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range found {
			if texts[p.title] == "" {
				titles, texts[p.title] = append(titles, p.title), "\n## "+p.title+"\n"
			}
			texts[p.title] += "\n" + p.text + "\n"
		}
	}
	agents := agentsIntro
	for _, title := range titles {
		agents += texts[title]
	}
	if n := strings.Count(agents, "\n"); n > most {
		t.Errorf("%s has %d lines, and %d at most are read", agentsDocument, n, most)
	}
	is(t, agentsDocument, agents)
	is(t, llmsDocument, llmsText(t))

	listed := make(map[string]bool)
	for _, section := range llms {
		for _, document := range section.documents {
			listed[document[0]] = true
			if _, err := os.Stat(filepath.Join(root, document[0])); err != nil {
				t.Error(err)
			}
		}
	}
	index := read(t, "docs/README.md")
	for _, document := range markdown(t) {
		name, found := strings.CutPrefix(document, "docs/")
		if !found || name == "README.md" { // README.md is the index of the others
			continue
		}
		if !listed[document] {
			t.Errorf("%s doesn't name %s", llmsDocument, document)
		}
		if !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md doesn't name %s", document)
		}
	}
}

// llmsText returns llms.txt in the form that https://llmstxt.org describes: a title, a summary, and links with a line each. Title and
// summary are the README's title, claim and first paragraph; each link has its document's title.
func llmsText(t *testing.T) string {
	t.Helper()
	parts := strings.SplitN(read(t, "README.md"), "\n\n", 4)
	if len(parts) < 4 || !strings.HasPrefix(parts[0], "# ") || !strings.HasPrefix(parts[1], "**") {
		t.Fatal("README.md doesn't begin with a title, a claim and a paragraph")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n> %s\n\n%s\n", parts[0], strings.Trim(parts[1], "*"), parts[2])
	for _, section := range llms {
		fmt.Fprintf(&b, "\n## %s\n\n", section.section)
		for _, document := range section.documents {
			title, _, _ := strings.Cut(strings.TrimPrefix(read(t, document[0]), "# "), "\n")
			fmt.Fprintf(&b, "- [%s](%s%s): %s\n", title, published, document[0], document[1])
		}
	}
	return b.String()
}

// is checks that a document is equal to the text that was generated for it. With -update, is first writes that text.
func is(t *testing.T, document, want string) {
	t.Helper()
	if *update && !t.Failed() {
		if err := os.WriteFile(filepath.Join(root, document), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, document); got != want {
		t.Errorf("%s isn't what its sources say (go test -run '^%s$' -update . writes it anew):\n%s", document, t.Name(), firstDifference(want, got))
	}
}

func TestPassages(t *testing.T) {
	for _, test := range []struct{ about, text, want string }{
		{"two", "a\n<!-- agents: A -->\none\n\ntwo\n<!-- end -->\nb\n<!-- agents: B -->\nthree\n<!-- end -->\n", "A: one\n\ntwo|B: three"},
		{"links", "<!-- agents: A -->\n[a](B.md#c) [b](#d) [c](../E.md) [d](https://f.example/)\n<!-- end -->\n",
			"A: [a](docs/B.md#c) [b](docs/a.md#d) [c](E.md) [d](https://f.example/)"},
		{"none", "a\n", ""},
		{"no end", "<!-- agents: A -->\none\n", `docs/a.md: the passage "A" isn't between its own beginning and end`},
		{"no beginning", "a\n<!-- end -->\n", "docs/a.md has an end without a beginning"},
		{"one in another", "<!-- agents: A -->\n<!-- agents: B -->\none\n<!-- end -->\n", `docs/a.md: the passage "A" isn't between its own beginning and end`},
	} {
		found, err := passages("docs/a.md", test.text)
		var got []string
		for _, p := range found {
			got = append(got, p.title+": "+p.text)
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if got := strings.Join(got, "|"); got != test.want {
			t.Errorf("%s: %q, want %q", test.about, got, test.want)
		}
	}
}
