package internal

import (
	"go/ast"
	"go/parser"
	"go/token"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// decisions lists decisions of the root package that are each made in one place: the names that such a decision uses, and the functions that may use
// them. Any other use most likely makes the same decision in a second place. It should move to the first place.
var decisions = []struct {
	what  string
	names []string // of functions, methods and constants
	users []string // functions and methods, as "name" or "type.name"
}{
	{"where a handler runs", []string{"mayStay", "queueUp"}, []string{
		"scratch.admit",
		"carried.enterServer", // another server has read the request, not a loop
		"carried.queueUp",     // the outer request queues up for its part
	}},
	{"how a connection ends", []string{"StateClosed"}, []string{"conn.endConnBy"}},
	{"how a parked connection is served", []string{"serveBy"}, []string{"loopConn.parkedTurn", "ParkedConn.run",
		"http2Exchange.endHandler", "parkedOwner.Serve", // for a stream: endHandler when its handler returns, later Serve when the stream is woken
	}},
	{"what the driver means to the protocol", []string{"keepsWorker"}, []string{
		"conn.queueUp", "conn.takeHTTP2Away", "conn.lacksBody", "conn.receive", "conn.idleSince", "conn.settle",
	}},
	{"how an answer of HTTP/1 begins", []string{"appendHead"}, []string{"conn.render", "conn.head", "Ctx.ParkStream"}},
	{"how a refusal is written", []string{"appendRefusal"}, []string{
		"conn.refuse",            // a request that can't be parsed
		"conn.answerApart",       // a timeout's
		"loopConn.holdBody",      // there is no room for the answer
		"Server.refuseConn",      // no place for the connection
		"Server.answerPlainHTTP", // HTTP where TLS is spoken
	}},
	{"how a body of HTTP/2 is read by its handler", []string{"Fills"}, []string{"http2Exchange.receive"}},
	{"who waits for a place", []string{"JoinQueue", "AwaitPlace"}, []string{"Server.joinQueue", "exchange.awaitPlace"}},
}

func TestDecisions(t *testing.T) {
	found := make(map[string][]string) // the users of each name
	for _, decl := range rootDecls(t) {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		for id := range identsIn(f.Body) {
			found[id] = append(found[id], funcName(f))
		}
	}
	for _, d := range decisions {
		used := make(map[string]bool)
		for _, name := range d.names {
			if len(found[name]) == 0 {
				t.Errorf("%s: nothing uses %s", d.what, name)
			}
			for i, user := range found[name] {
				if slices.Contains(found[name][:i], user) {
					t.Errorf("%s: %s uses %s twice", d.what, user, name)
				}
				if used[user] = true; !slices.Contains(d.users, user) {
					t.Errorf("%s is decided in %v: %s uses %s, too", d.what, d.users, user, name)
				}
			}
		}
		for _, user := range d.users {
			if !used[user] {
				t.Errorf("%s: %s uses none of %v", d.what, user, d.names)
			}
		}
	}
}

// rootDecls returns the declarations of the root package, without those of tests.
func rootDecls(t *testing.T) (decls []ast.Decl) {
	files, err := filepath.Glob("../*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		decls = append(decls, file.Decls...)
	}
	return decls
}

// identsIn yields the identifiers in the node, each as often as it occurs.
func identsIn(node ast.Node) iter.Seq[string] {
	return func(yield func(string) bool) {
		goesOn := true
		ast.Inspect(node, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && goesOn {
				goesOn = yield(id.Name)
			}
			return goesOn
		})
	}
}

// funcName returns "name", or "type.name" for a method.
func funcName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + f.Name.Name
	}
	return f.Name.Name
}
