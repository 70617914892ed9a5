package filo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/filohttp/filo/internal/formdata"
	"github.com/filohttp/filo/internal/params"
)

func ExampleArgs() {
	var args Args
	if err := args.Parse([]byte("tag=go&tag=http%2F1.1&page=2")); err != nil {
		fmt.Println(err) // more than 1000 parameters
		return
	}

	page, err := args.Int("page")
	fmt.Println(page, err)
	fmt.Println(args.Get("tag"))
	for tag := range args.Values("tag") {
		fmt.Printf("%s\n", tag)
	}

	args.Set("page", "3")
	args.Add("q", "a & b")
	fmt.Println(args.String())
	// Output:
	// 2 <nil>
	// go
	// go
	// http/1.1
	// tag=go&tag=http%2F1.1&page=3&q=a+%26+b
}

func ExampleArgs_Int() {
	var args Args
	args.Parse([]byte("page=two"))
	_, err := args.Int("page")
	var httpError *HTTPError
	if errors.As(err, &httpError) {
		fmt.Println(httpError.Status, httpError.Detail)
	}
	// Output: 400 parameter "page" must be an integer
}

func argPairs(a *Args) []string {
	pairs := []string{}
	for key, value := range a.All() {
		pairs = append(pairs, string(key)+"→"+string(value))
	}
	return pairs
}

func TestArgsParse(t *testing.T) {
	// The sentences are from the WHATWG URL standard, "application/x-www-form-urlencoded parsing" and "percent-decode".
	for _, test := range []struct {
		sentence, query string
		want            []string
	}{
		{"an empty input has no parameters", "", []string{}},
		{"split on 0x26 (&)", "a=1&b=2", []string{"a→1", "b→2"}},
		{"if bytes is the empty byte sequence, then continue", "&&a=1&&&b=2&", []string{"a→1", "b→2"}},
		{"name is the bytes up to but excluding the first 0x3D (=)", "a=b=c&d==", []string{"a→b=c", "d→="}},
		{"otherwise name has the value of bytes and value is the empty byte sequence", "a&b=", []string{"a→", "b→"}},
		{"a name may be empty", "=1&=", []string{"→1", "→"}},
		{"replace any 0x2B (+) in name and value with 0x20 (SP)", "a+b=c++d&%2B=%2b", []string{"a b→c  d", "+→+"}},
		{"percent-decode", "%61%2f=%41%E2%82%ac", []string{"a/→A€"}},
		{"an encoded separator doesn't separate", "a%26b=c%3Dd%26e", []string{"a&b→c=d&e"}},
		{"% without two hex digits is output as it is", "a=%&b=%z1&c=%1z&d=%4&%=%%41", []string{"a→%", "b→%z1", "c→%1z", "d→%4", "%→%A"}},
		{"0x3B (;) doesn't separate", "a=1;b=2", []string{"a→1;b=2"}},
		{"any byte can be encoded", "a=%00%ff%0d%0a", []string{"a→\x00\xff\r\n"}},
		{"the order is kept", "b=1&a=2&b=3", []string{"b→1", "a→2", "b→3"}},
	} {
		var args Args
		if err := args.Parse([]byte(test.query)); err != nil {
			t.Errorf("%s: %q: %v", test.sentence, test.query, err)
		}
		if got := argPairs(&args); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q: got %q, want %q", test.sentence, test.query, got, test.want)
		}
		if args.Len() != len(test.want) {
			t.Errorf("%q: Len %d, want %d", test.query, args.Len(), len(test.want))
		}
	}
}

func TestArgsLimit(t *testing.T) {
	var args Args
	if err := args.Parse([]byte(strings.Repeat("a&", params.Max))); err != nil || args.Err() != nil || args.Len() != params.Max {
		t.Fatalf("%d parameters: %v, %v, Len %d", params.Max, err, args.Err(), args.Len())
	}
	err := args.Parse([]byte(strings.Repeat("a=1&", params.Max) + "b=2"))
	var httpError *HTTPError
	if !errors.Is(err, ErrTooManyArgs) || !errors.As(err, &httpError) || httpError.Status != 400 {
		t.Fatalf("%d parameters: error %v", params.Max+1, err)
	}
	if args.Err() != err || args.Len() != params.Max || args.Has("b") {
		t.Fatalf("after the error: Err %v, Len %d, has the last: %v", args.Err(), args.Len(), args.Has("b"))
	}
	if err := args.Parse([]byte("a")); err != nil || args.Err() != nil {
		t.Fatalf("the error stayed: %v, %v", err, args.Err())
	}
}

func TestArgsLookup(t *testing.T) {
	var args Args
	args.Parse([]byte("a=1&b=&c&a=%32&A=3&d+e=4"))
	for _, test := range []struct {
		key, want string
		has       bool
	}{{"a", "1", true}, {"b", "", true}, {"c", "", true}, {"A", "3", true}, {"d e", "4", true}, {"d+e", "", false}, {"", "", false}} {
		value := args.GetBytes(test.key)
		if args.Get(test.key) != test.want || string(value) != test.want || args.Has(test.key) != test.has || value != nil != test.has {
			t.Errorf("%q: Get %q, GetBytes %#v, Has %v", test.key, args.Get(test.key), value, args.Has(test.key))
		}
	}
	var values []string
	for value := range args.Values("a") {
		values = append(values, string(value))
	}
	if !slices.Equal(values, []string{"1", "2"}) {
		t.Errorf("Values: %q", values)
	}
	for range args.Values("a") {
		break
	}
	for range args.All() {
		break
	}
}

func TestArgsInt(t *testing.T) {
	var args Args
	args.Parse([]byte("a=12&b=-3&c=%2B4&d=&e=x&f=99999999999999999999&g=1+"))
	for key, want := range map[string]int{"a": 12, "b": -3, "c": 4} {
		if n, err := args.Int(key); n != want || err != nil {
			t.Errorf("%s: %d, %v", key, n, err)
		}
	}
	for key, want := range map[string]error{"d": strconv.ErrSyntax, "e": strconv.ErrSyntax, "f": strconv.ErrRange, "g": strconv.ErrSyntax, "missing": nil} {
		_, err := args.Int(key)
		var httpError *HTTPError
		if !errors.As(err, &httpError) || httpError.Status != 400 || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestArgsChange(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(a *Args)
		want   string
	}{
		{"Set replaces the first and removes the others", func(a *Args) { a.Set("a", "x y") }, "a=x+y&b=2"},
		{"Set adds", func(a *Args) { a.Set("c", "") }, "a=1&b=2&a=3&c="},
		{"Add adds", func(a *Args) { a.Add("a", "&") }, "a=1&b=2&a=3&a=%26"},
		{"Del removes all", func(a *Args) { a.Del("a") }, "b=2"},
		{"Del of a missing key", func(a *Args) { a.Del("c") }, "a=1&b=2&a=3"},
		{"Set of what Set has set", func(a *Args) { a.Set("b", "4"); a.Set("b", "5") }, "a=1&b=5&a=3"},
		{"Reset", (*Args).Reset, ""},
		{"Del while iterating", func(a *Args) {
			for key := range a.All() {
				a.Del(string(key))
			}
		}, "b=2"},
	} {
		args := &Args{}
		args.Parse([]byte("a=1&b=2&a=3"))
		test.change(args)
		if got := args.String(); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// Borrowed slices keep their bytes while the Args changes, and an append to one of them changes nothing else.
func TestArgsBorrowed(t *testing.T) {
	query := []byte("a=1&b=%32&c=3")
	var args Args
	args.Parse(query)
	a, b := args.GetBytes("a"), args.GetBytes("b")
	_ = append(a, "overwritten"...)
	_ = append(b, "overwritten"...)
	args.Set("a", "4")
	args.Set("b", "5")
	for range 100 {
		args.Add("d", "more")
	}
	if string(a) != "1" || string(b) != "2" || string(query) != "a=1&b=%32&c=3" || args.Get("c") != "3" {
		t.Errorf("a %q, b %q, query %q, c %q", a, b, query, args.Get("c"))
	}
	if empty := (&Args{}); empty.GetBytes("a") != nil {
		t.Error("a missing value isn't nil")
	}
	var set Args
	if set.Set("a", ""); set.GetBytes("a") == nil {
		t.Error("an empty value is nil")
	}
}

const benchmarkQuery = "q=hello+world&page=2&sort=name%2Cdate&filter=active&limit=50&lang=en-GB"

func TestArgsAllocations(t *testing.T) {
	query := []byte(benchmarkQuery)
	var args Args
	dst := make([]byte, 0, 256)
	n := testing.AllocsPerRun(100, func() {
		if args.Parse(query) != nil || !args.Has("page") || string(args.GetBytes("q")) != "hello world" {
			t.Fatal("wrong parameters")
		}
		if page, err := args.Int("page"); page != 2 || err != nil {
			t.Fatal("wrong page")
		}
		for range args.All() {
		}
		for range args.Values("sort") {
		}
		args.Set("page", "3")
		dst = args.AppendTo(dst[:0])
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzArgs(f *testing.F) {
	for _, query := range []string{benchmarkQuery, "", "a=%zz&%=%4", "a;b=c", "&=&", "a=%00&a=%2B+", "%e2%82%ac=€"} {
		f.Add([]byte(query))
	}
	f.Fuzz(func(t *testing.T, query []byte) {
		original := bytes.Clone(query)
		var args, again Args
		err := args.Parse(query)
		if err != nil && args.Len() != params.Max {
			t.Fatalf("%v with %d parameters", err, args.Len())
		}
		text := args.AppendTo(nil)
		if again.Parse(text) != nil || !slices.Equal(argPairs(&args), argPairs(&again)) {
			t.Fatalf("%q became %q, which became %q", query, text, again.String())
		}
		if !bytes.Equal(again.AppendTo(nil), text) {
			t.Fatalf("%q isn't stable", text)
		}
		if !bytes.Equal(query, original) {
			t.Fatal("the query was changed")
		}
		compareWithParseQuery(t, string(query), &args, err)
	})
}

// compareWithParseQuery compares args with what net/url parses from the query. net/url refuses, and drops, parameters with a malformed "%"
// or with ";", and queries with very many "&".
func compareWithParseQuery(t *testing.T, query string, args *Args, err error) {
	want, wantErr := url.ParseQuery(query)
	if err != nil || wantErr != nil {
		return
	}
	got := url.Values{}
	for key, value := range args.All() {
		got.Add(string(key), string(value))
	}
	if len(got) != len(want) {
		t.Fatalf("%q: got %q, want %q", query, got, want)
	}
	for key, values := range want {
		if !slices.Equal(got[key], values) || args.Get(key) != want.Get(key) {
			t.Fatalf("%q: key %q: got %q, want %q", query, key, got[key], values)
		}
	}
}

func BenchmarkArgsParse(b *testing.B) {
	query := []byte(benchmarkQuery)
	var args Args
	b.ReportAllocs()
	for b.Loop() {
		args.Parse(query)
	}
}

func BenchmarkArgsParseAndGet(b *testing.B) {
	query := []byte(benchmarkQuery)
	var args Args
	b.ReportAllocs()
	for b.Loop() {
		args.Parse(query)
		args.GetBytes("limit")
		args.GetBytes("sort")
	}
}

func BenchmarkArgsAppendTo(b *testing.B) {
	var args Args
	args.Parse([]byte(benchmarkQuery))
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = args.AppendTo(dst[:0])
	}
}

// The errors of a form are *HTTPErrors, which wrap the exported errors.
func TestFormErrors(t *testing.T) {
	const contentType, part = "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=a\r\n\r\n12\r\n"
	for _, test := range []struct {
		contentType string
		limits      MultipartLimits
		status      int
		wrapped     error
	}{
		{contentType, MultipartLimits{}, 0, nil},
		{contentType, MultipartLimits{MaxParts: 1}, 413, ErrTooManyParts},
		{contentType, MultipartLimits{MaxPartBytes: 1}, 413, ErrPartTooLarge},
		{"text/plain", MultipartLimits{}, 415, nil},
	} {
		form, err := formdata.Read(strings.NewReader(part+part+"--b--"), test.contentType, formdata.Limits(test.limits))
		var httpError *HTTPError
		switch err = formError(err); {
		case test.status == 0:
			if err != nil || len(form.Value["a"]) != 2 {
				t.Errorf("%v: %v", form, err)
			}
		case !errors.As(err, &httpError) || httpError.Status != test.status || test.wrapped != nil && !errors.Is(err, test.wrapped):
			t.Errorf("%q, %+v: %v", test.contentType, test.limits, err)
		}
	}
}

// A file is saved whole or not at all, only inside the directory, and never over another file.
func TestSaveFile(t *testing.T) {
	large := strings.Repeat("x", 5000)
	var body bytes.Buffer
	writer := multipart.NewWriter(&body)
	for name, content := range map[string]string{"small": "in memory", "large": large, "empty": ""} {
		file, err := writer.CreateFormFile(name, name+".txt")
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(file, content)
	}
	writer.Close()
	form, err := multipart.NewReader(&body, writer.Boundary()).ReadForm(1000)
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir()
	directory, err := os.OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	for name, want := range map[string]string{"small": "in memory", "large": large, "empty": ""} {
		if err := SaveFile(form.File[name][0], directory, name); err != nil {
			t.Error(err)
		}
		got, err := os.ReadFile(filepath.Join(path, name))
		if info, _ := os.Stat(filepath.Join(path, name)); string(got) != want || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %q, %v, %v", name, got, err, info.Mode())
		}
	}
	if err := SaveFile(form.File["large"][0], directory, "small"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over another file: %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(path, "small")); string(got) != "in memory" {
		t.Errorf("the other file: %q, %v", got, err)
	}
	if err := os.Symlink(os.TempDir(), filepath.Join(path, "out")); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{"../a", "/a", "out/a", "none/a", ""} {
		if err := SaveFile(form.File["small"][0], directory, name); err == nil {
			t.Errorf("saved as %q", name)
		}
	}
	if err := form.RemoveAll(); err != nil {
		t.Fatal(err)
	}
	if err := SaveFile(form.File["large"][0], directory, "late"); err == nil {
		t.Error("saved what is no longer there")
	}
	if entries, err := os.ReadDir(path); len(entries) != 4 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
