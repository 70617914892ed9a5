package cookie

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

func cookieList(header string) []string {
	list := []string{}
	for name, value := range Pairs([]byte(header)) {
		list = append(list, string(name)+"→"+string(value))
	}
	return list
}

func TestPairs(t *testing.T) {
	for _, test := range []struct {
		sentence, header string
		want             []string
	}{
		{"cookie-string = cookie-pair *( \";\" SP cookie-pair )", "a=1; b=2", []string{"a→1", "b→2"}},
		{"white space around pairs is dropped", " a=1;b=2 ;\tc=3\t", []string{"a→1", "b→2", "c→3"}},
		{"empty pairs are skipped", ";; a=1;;", []string{"a→1"}},
		{"the first = separates", "a=b=c", []string{"a→b=c"}},
		{"white space before = is dropped", "a =1", []string{"a→1"}},
		{"a pair without = has an empty value", "a; b=", []string{"a→", "b→"}},
		{"quotes around a value are dropped", `a="b c"; d=""; e="`, []string{"a→b c", "d→"}},
		{"a quote inside a value isn't valid", `a=b"c; d=e`, []string{"d→e"}},
		{"spaces and commas in values pass", "a= b, c", []string{"a→ b, c"}},
		{"a name that isn't a token is skipped", "=1; a b=2; \"c\"=3; d=4", []string{"d→4"}},
		{"names may repeat", "a=1; a=2", []string{"a→1", "a→2"}},
		{"bytes outside ASCII are skipped", "a=ü; b=1", []string{"b→1"}},
		{"control bytes are skipped", "a=\x00; b=\x7f; c=1", []string{"c→1"}},
		{"nothing", "", []string{}},
	} {
		if got := cookieList(test.header); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q: got %q, want %q", test.sentence, test.header, got, test.want)
		}
	}
	for range Pairs([]byte("a=1; b=2")) {
		break
	}
}

func TestValue(t *testing.T) {
	header := []byte(`a=1; b="2"; a=3; c=; d`)
	for _, test := range []struct {
		name, want string
		ok         bool
	}{{"a", "1", true}, {"b", "2", true}, {"c", "", true}, {"d", "", true}, {"A", "", false}, {"", "", false}} {
		if got, ok := Value(header, test.name); string(got) != test.want || ok != test.ok || (got != nil) != ok {
			t.Errorf("%q: %q, %v", test.name, got, ok)
		}
	}
	value, _ := Value(header, "a")
	if _ = append(value, "overwritten"...); string(header) != `a=1; b="2"; a=3; c=; d` {
		t.Errorf("the header is %q", header)
	}
}

func TestAllocations(t *testing.T) {
	header := []byte("theme=dark; lang=en; session=0123456789abcdef")
	n := testing.AllocsPerRun(100, func() {
		if value, ok := Value(header, "session"); !ok || len(value) != 16 {
			t.Fatal("wrong value")
		}
		for range Pairs(header) {
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzPairs checks that a Cookie field has the same pairs as for net/http.
func FuzzPairs(f *testing.F) {
	for _, seed := range []string{`a=1; b="2 , 3"; c; =d`, "", "a=\x00;b=\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		if !strings.ContainsAny(header, "\r\n") { // no field value contains these, and net/http trims them
			comparePairs(t, header)
		}
	})
}

func comparePairs(t *testing.T, header string) {
	request := &http.Request{Header: http.Header{"Cookie": {header}}}
	want := []string{}
	for _, cookie := range request.Cookies() {
		want = append(want, cookie.Name+"→"+cookie.Value)
	}
	if strings.Count(header, ";") >= 3000 { // the number at which net/http gives up
		return
	}
	if got := cookieList(header); !slices.Equal(got, want) {
		t.Fatalf("%q: got %q, want %q", header, got, want)
	}
}

func BenchmarkValue(b *testing.B) {
	header := []byte("theme=dark; lang=en; session=0123456789abcdef0123456789abcdef")
	b.ReportAllocs()
	for b.Loop() {
		Value(header, "session")
	}
}
