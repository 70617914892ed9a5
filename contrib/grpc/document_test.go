package grpcfilo_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	testpb "google.golang.org/grpc/interop/grpc_testing"

	"google.golang.org/grpc"
)

// docs/GRPC.md has a row for each option of grpc-go's server, and names a test in each row about behaviour.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/GRPC.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tables, _ := strings.Cut(string(text), "## Options")
	options, behaviour, _ := strings.Cut(tables, "## Behaviour")
	for name := range functions(t, grpcSources(t), func(f *ast.FuncDecl) bool {
		results := f.Type.Results
		if results == nil || len(results.List) != 1 || !f.Name.IsExported() || f.Recv != nil {
			return false
		}
		result, ok := results.List[0].Type.(*ast.Ident)
		return ok && result.Name == "ServerOption"
	}) {
		if !strings.Contains(options, "`"+name+"`") {
			t.Errorf("no row for the option %s", name)
		}
	}
	files, _ := filepath.Glob("*_test.go")
	tests := functions(t, files, func(f *ast.FuncDecl) bool { return strings.HasPrefix(f.Name.Name, "Test") })
	rows := regexp.MustCompile("(?m)^\\| .*\\| `(\\w+)` \\|$").FindAllStringSubmatch(behaviour, -1)
	if len(rows) < 20 || len(rows) != strings.Count(behaviour, "\n| ")-2 {
		t.Errorf("%d rows name a test", len(rows))
	}
	for _, row := range rows {
		if !tests[row[1]] {
			t.Errorf("there is no %s", row[1])
		}
	}
}

// grpcSources returns the files of grpc-go's package.
func grpcSources(t *testing.T) []string {
	t.Helper()
	folder, err := exec.Command("go", "list", "-f", "{{.Dir}}", "google.golang.org/grpc").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(strings.TrimSpace(string(folder)) + "/*.go")
	return files
}

// functions returns the names of the files' functions for which wanted returns true.
func functions(t *testing.T, files []string, wanted func(*ast.FuncDecl) bool) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && wanted(f) {
				names[f.Name.Name] = true
			}
		}
	}
	if len(names) == 0 {
		t.Fatal("nothing found")
	}
	return names
}

// Functions of grpc-go that need grpc-go's own transport return an error, and don't panic.
func TestSetSendCompressor(t *testing.T) {
	c := serve(t, service{unary: func(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		if err := grpc.SetSendCompressor(ctx, "gzip"); err == nil {
			t.Error("SetSendCompressor succeeded")
		}
		if _, err := grpc.ClientSupportedCompressors(ctx); err == nil {
			t.Error("ClientSupportedCompressors succeeded")
		}
		return echo(ctx, in)
	}})
	if _, err := c.UnaryCall(within(t), &testpb.SimpleRequest{}); err != nil {
		t.Error(err)
	}
}

// The context of a call ends with the call, but its values can still be looked up.
func TestContextEnds(t *testing.T) {
	contexts := make(chan context.Context, 1)
	c := serve(t, service{unary: func(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		contexts <- ctx
		return echo(ctx, in)
	}})
	if _, err := c.UnaryCall(within(t), &testpb.SimpleRequest{}); err != nil {
		t.Fatal(err)
	}
	ctx := <-contexts
	<-ctx.Done()
	if method, ok := grpc.Method(ctx); !ok || method != "/grpc.testing.TestService/UnaryCall" {
		t.Errorf("the method is %q, %v", method, ok)
	}
}
