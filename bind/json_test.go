package bind_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/servertest"
)

// colour is a type with its own decoder for text.
type colour string

func (c *colour) UnmarshalText(text []byte) error {
	if s := string(text); s != "red" && s != "blue" {
		return errors.New("must be red or blue")
	}
	*c = colour(text)
	return nil
}

// even is a type with its own decoder for JSON.
type even int

func (e *even) UnmarshalJSON(data []byte) error {
	n := 0
	if err := json.Unmarshal(data, &n); err != nil || n%2 != 0 {
		return errors.New("must be even")
	}
	*e = even(n)
	return nil
}

type base struct {
	ID   uint16 `json:"id"`
	Note string
}

type document struct {
	base
	Name    string              `json:"name"`
	Age     int8                `json:"age"`
	Ratio   float32             `json:"ratio"`
	Live    *bool               `json:"live"`
	At      time.Time           `json:"at"`
	Colour  colour              `json:"colour"`
	Even    *even               `json:"even"`
	Data    []byte              `json:"data"`
	Tags    []string            `json:"tags"`
	Pair    [2]int              `json:"pair"`
	Lines   []line              `json:"lines"`
	ByID    map[int]line        `json:"by_id"`
	Free    any                 `json:"free"`
	Raw     json.RawMessage     `json:"raw"`
	Count   int64               `json:"count,string"`
	Slashed map[string]int8     `json:"a/b~c"`
	Colours map[colour]struct{} `json:"colours"`
	Next    *document           `json:"next"`
	Hidden  string              `json:"-"`
}

type line struct {
	SKU string `json:"sku"`
	N   uint8  `json:"n"`
}

// A well-formed body that fits is bound, under any of JSON's media types.
func TestJSON(t *testing.T) {
	body := `{"id":7,"Note":"n","name":"Zoë","age":-128,"live":true,"at":"2024-02-03T04:05:06Z","colour":"red","even":4,
		"data":"aGk=","tags":["a","b"],"pair":[1,2,3],"lines":[{"sku":"x","n":255}],"by_id":{"5":{"sku":"y"}},"free":{"x":[1]},
		"raw":{"r":1},"count":"9","a/b~c":{"k":1},"next":{"name":"inner"},"other":1}`
	want := document{}
	if err := json.Unmarshal([]byte(body), &want); err != nil {
		t.Fatal(err)
	}
	for _, contentType := range []string{"application/json", "application/json; charset=utf-8", "Application/JSON ;x=y",
		"application/vnd.api+json", "application/merge-patch+JSON;v=1"} {
		got, err := bound[document](t, post(contentType, body), bind.JSON)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %+v", contentType, err, got)
		}
	}
}

// Each value that doesn't fit yields a separate error with a pointer to the value, in the order of the document.
func TestJSONErrors(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"a type", `{"name":1}`, `422 body /name: must be a string`},
		{"several", `{"name":true,"age":"x","tags":{},"next":[]}`, `422 body /name: must be a string; ` +
			`body /age: must be an integer from -128 to 127; body /tags: must be an array; body /next: must be an object`},
		{"ranges", `{"age":128,"id":65536,"ratio":1e39,"free":[1e999]}`, `422 body /age: must be an integer from -128 to 127; ` +
			`body /id: must be an integer from 0 to 65535; body /ratio: is a number that is too large; body /free: has a number that is too large`},
		{"fractions", `{"age":1.5,"id":-1}`, `422 body /age: must be an integer from -128 to 127; body /id: must be an integer from 0 to 65535`},
		{"many digits", `{"age":` + strings.Repeat("9", 10000) + `}`, `422 body /age: must be an integer from -128 to 127`},
		{"deep inside", `{"lines":[{"n":1},{"n":256,"sku":[]}],"next":{"next":{"live":0}}}`, `422 body /lines/1/n: must be an integer ` +
			`from 0 to 255; body /lines/1/sku: must be a string; body /next/next/live: must be true or false`},
		{"a pointer is escaped", `{"a/b~c":{"~/":"x"}}`, `422 body /a~1b~0c/~0~1: must be an integer from -128 to 127`},
		{"an escaped name", `{"\u0061ge":"x"}`, `422 body /age: must be an integer from -128 to 127`},
		{"types that read themselves", `{"colour":"green","even":3,"at":"noon"}`, `422 body /colour: must be red or blue; ` +
			`body /even: must be even; body /at: must be a time as in RFC 3339, such as 2006-01-02T15:04:05Z`},
		{"no text for a text type", `{"colour":{"x":1},"name":0}`, `422 body /colour: must be a string; body /name: must be a string`},
		{"base64", `{"data":"?","raw":0}`, `422 body /data: must be a string in base64`},
		{"keys", `{"by_id":{"x":{"n":-1}},"colours":{"green":{}}}`, `422 body /by_id/x: has a name that isn't allowed here; ` +
			`body /by_id/x/n: must be an integer from 0 to 255; body /colours/green: has a name that isn't allowed here`},
		{"quoted", `{"count":9,"name":2}`, `422 body /count: must be a string, which must be an integer; body /name: must be a string`},
		{"arrays drop what they have no room for", `{"pair":[1,"b","c"]}`, `422 body /pair/1: must be an integer`},
		{"in another case", `{"NAME":1}`, `422 body /NAME: must be a string`},
		{"the whole", `[]`, `422 body: must be an object`},
		{"null is no value", `{"name":null,"age":null,"lines":null,"at":null}`, ``},
	} {
		_, err := bound[document](t, postJSON(c.body), bind.JSON)
		if got := inShort(t, err); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// A body is refused as a whole if it isn't JSON in UTF-8, has a wrong type, is empty, or is too deep or too large.
func TestJSONRefused(t *testing.T) {
	deep := func(n int) string { return `{"free":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}` }
	for _, c := range []struct{ name, request, want string }{
		{"no body", get("/"), "400 body: must be JSON, and is empty"},
		{"an empty body", postJSON(""), "400 body: must be JSON, and is empty"},
		{"an empty chunked body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			"400 body: must be JSON, and is empty"},
		{"no type", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", "415 header Content-Type: must be application/json, or end in +json"},
		{"another type", post("text/plain", "{}"), "415 header Content-Type: must be application/json, or end in +json"},
		{"a type that only begins so", post("application/jsonx", "{}"), "415 header Content-Type: must be application/json, or end in +json"},
		{"a suffix alone", post("+json", "{}"), "415 header Content-Type: must be application/json, or end in +json"},
		{"white space", postJSON(" \n"), "400 body: line 1, column 2: unexpected end of JSON input"},
		{"cut off", postJSON(`{"name":"a`), "400 body: line 1, column 10: unexpected end of JSON input"},
		{"a syntax error", postJSON("{\n  \"name\": x}"), "400 body: line 2, column 11: invalid character 'x' looking for beginning of value"},
		{"a trailing comma", postJSON(`{"name":"a",}`), "400 body: line 1, column 13: invalid character '}' looking for beginning of object key string"},
		{"trailing garbage", postJSON(`{} x`), "400 body: line 1, column 4: invalid character 'x' after top-level value"},
		{"a second value", postJSON(`{}{}`), "400 body: line 1, column 3: invalid character '{' after top-level value"},
		{"a byte order mark", postJSON("\ufeff{}"), "400 body: line 1, column 1: invalid character 'ï' looking for beginning of value"},
		{"NUL", postJSON("{}\x00"), `400 body: line 1, column 3: invalid character '\x00' after top-level value`},
		{"not UTF-8", postJSON("{\"name\":\"\xff\"}"), "400 body: must be UTF-8"},
		{"1000 levels", postJSON(deep(1000)), ""},
		{"1001 levels", postJSON(deep(1001)), "400 body: must have at most 1000 levels of arrays and objects"},
		{"levels without an end", postJSON(strings.Repeat(`{"next":`, 100_000)), "400 body: must have at most 1000 levels of arrays and objects"},
		{"many brackets that aren't deep", postJSON(`{"name":"` + strings.Repeat(`[{\"`, 2000) + `","free":[` + strings.Repeat("[],", 2000) + `0]}`), ""},
	} {
		for _, options := range [][]bind.Option{nil, {bind.Strict()}} {
			_, err := bound[document](t, c.request, bind.JSON, options...)
			if got := inShort(t, err); got != c.want {
				t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
			}
		}
	}
}

// A body over its limit gets the server's own 413.
func TestJSONBodyLimit(t *testing.T) {
	bindTo := func(c *filo.Ctx, v any, options ...bind.Option) error {
		c.SetMaxBodyBytes(10)
		return bind.JSON(c, v, options...)
	}
	for _, request := range []string{postJSON(`{"name":"too long"}`),
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{\"name\":\"123456\"}\r\n0\r\n\r\n"} {
		_, err := bound[document](t, request, bindTo)
		var httpError *filo.HTTPError
		if !errors.Is(err, filo.ErrBodyTooLarge) || !errors.As(err, &httpError) || httpError.Status != 413 {
			t.Errorf("%q: %v", request, err)
		}
	}
}

// At any depth Strict refuses unknown names, names in another case, and names that occur twice.
func TestJSONStrict(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"what fits", `{"id":1,"Note":"","lines":[{"sku":"a"},{"sku":"b"}],"by_id":{"1":{},"2":{}},"next":{"id":1}}`, ""},
		{"unknown", `{"x":{"y":1},"lines":[{"z":1}]}`, `422 body /x: isn't known here; body /lines/0/z: isn't known here`},
		{"hidden", `{"Hidden":"","base":{}}`, `422 body /Hidden: isn't known here; body /base: isn't known here`},
		{"case", `{"Name":"a","note":"b"}`, `422 body /Name: must be written "name"; body /note: must be written "Note"`},
		{"twice", `{"name":"a","name":"b"}`, `422 body /name: is there more than once`},
		{"twice, by another spelling", `{"name":"a","n\u0061me":"b"}`, `422 body /name: is there more than once`},
		{"twice, by another case", `{"name":"a","NAME":"b"}`, `422 body /NAME: is there more than once`},
		{"twice in a map", `{"a/b~c":{"k":1,"k":2}}`, `422 body /a~1b~0c/k: is there more than once`},
		{"twice where anything goes", `{"free":[{"k":{"l":1,"l":2}}],"raw":{"m":1,"\u006d":1}}`,
			`422 body /free/0/k/l: is there more than once; body /raw/m: is there more than once`},
		{"in different objects", `{"free":{"k":{"k":1},"l":{"k":1}},"next":{"next":{}}}`, ``},
		{"together with types", `{"x":1,"age":"a"}`, `422 body /x: isn't known here; body /age: must be an integer from -128 to 127`},
	} {
		_, err := bound[document](t, postJSON(c.body), bind.JSON, bind.Strict())
		if got := inShort(t, err); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
		if _, err := bound[document](t, postJSON(c.body), bind.JSON); err != nil && c.name != "together with types" {
			t.Errorf("%s, not strict: %v", c.name, err)
		}
	}
}

// The answer stays small even if the request has very many errors.
func TestErrorsAreBounded(t *testing.T) {
	var members []string
	for i := range 200 {
		members = append(members, fmt.Sprintf(`"%s%d":0`, strings.Repeat("é", 400), i))
	}
	body := "{" + strings.Join(members, ",") + "}"
	request := strings.Replace(postJSON(body), "Host:", "Accept: application/json\r\nHost:", 1)
	v := struct{}{}
	bindTo := func(c *filo.Ctx, v any, options ...bind.Option) error {
		c.SetMaxBodyBytes(-1)
		return bind.JSON(c, v, options...)
	}
	err := boundTo(t, request, &v, bindTo, bind.Strict())
	var e *bind.Error
	if !errors.As(err, &e) || len(e.Fields) != 50 || !e.More {
		t.Fatalf("%.200v", err)
	}
	for _, f := range e.Fields {
		if len(f.Pointer) > 300 {
			t.Fatalf("a pointer of %d bytes", len(f.Pointer))
		}
	}
	if text, _ := json.Marshal(e.HTTPError()); len(text) > 30_000 {
		t.Errorf("%d bytes", len(text))
	}
	if status, problem := answerTo(t, request, &v, bindTo, bind.Strict()); status != 422 || len(problem["errors"].([]any)) != 50 {
		t.Errorf("%d %v", status, problem)
	}
}

// For a body of more than 256 KB only the first error is reported, since searching for all errors takes several times as long as
// decoding. Strict still checks names.
func TestLargeBodiesAreExplainedBriefly(t *testing.T) {
	lines := func(size int) string {
		return `{"name":1,` + "\n" + `"lines":[{"sku":2},{"sku":"` + strings.Repeat("x", size) + `"}],"x":0}`
	}
	for _, c := range []struct {
		name, body string
		options    []bind.Option
		want       string
	}{
		{"small", lines(200 << 10), nil, "422 body /name: must be a string; body /lines/0/sku: must be a string"},
		{"large", lines(256 << 10), nil, "422 body: line 1, column 9: must be a string"},
		{"large and strict", lines(256 << 10), []bind.Option{bind.Strict()}, "422 body /x: isn't known here; body: line 1, column 9: must be a string"},
		{"large, and malformed", lines(256<<10) + "}", nil, "400 body: line 2, column 262182: invalid character '}' after top-level value"},
	} {
		_, err := bound[product](t, postJSON(c.body), bind.JSON, c.options...)
		if got := inShort(t, err); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// The answer is problem details with the errors in them.
func TestProblemDetails(t *testing.T) {
	request := strings.Replace(postJSON(`{"age":300,"tags":[0]}`), "Host:", "Accept: application/json\r\nHost:", 1)
	status, problem := answerTo(t, request, &document{}, bind.JSON)
	want := map[string]any{
		"status": 422.0, "title": "Unprocessable Content", "detail": `body "/age": must be an integer from -128 to 127 (and 1 more error)`,
		"errors": []any{
			map[string]any{"in": "body", "pointer": "/age", "detail": "must be an integer from -128 to 127",
				"code": "integer", "params": map[string]any{"minimum": -128.0, "maximum": 127.0}},
			map[string]any{"in": "body", "pointer": "/tags/0", "detail": "must be a string", "code": "string"},
		},
	}
	if status != 422 || !reflect.DeepEqual(problem, want) {
		t.Errorf("%d %v", status, problem)
	}
}

// Each error has a code and the values in its detail, so that clients can translate it.
func TestCodes(t *testing.T) {
	type input struct {
		Small uint8          `json:"small" query:"small"`
		Day   time.Time      `query:"day" layout:"2006-01-02"`
		Ids   []int16        `query:"ids"`
		Name  string         `json:"name" required:"true"`
		Big   float32        `json:"big"`
		Quick bool           `query:"quick"`
		Wait  time.Duration  `query:"wait"`
		Map   map[int]string `json:"map"`
		Text  string         `json:"text,string"`
		Addr  netip.Addr     `json:"addr"`
	}
	strict := []bind.Option{bind.Strict()}
	for _, c := range []struct {
		target, body string
		options      []bind.Option
		want         string
	}{
		{"/?q=1", `{"small":256,"big":1e99,"map":{"x":""},"text":1,"addr":"x"}`, nil,
			"integer map[maximum:255 minimum:0]; range map[]; name map[]; string map[]; invalid map[]; required map[]"},
		{"/?small=x&day=x&ids=1&ids=x&quick=x&wait=x", `{"name":""}`, nil,
			"integer map[maximum:255 minimum:0]; time map[layout:2006-01-02]; integer map[maximum:32767 minimum:-32768 value:2]; boolean map[]; duration map[]"},
		{"/?small=&quick=1&quick=1&x=1", `{"Name":"","y":1,"big":1,"big":2}`, strict,
			"misspelt map[name:name]; unknown map[]; repeated map[]; empty map[]; repeated map[]; unknown map[]"},
		{"/", "{\n!", nil, "malformed map[column:1 line:2]"},
		{"/", "[]", nil, "object map[]"},
		{"/", `{"name":[]}`, nil, "string map[]"},
		{"/", strings.Repeat("[", 1001), nil, "depth map[maximum:1000]"},
	} {
		_, err := bound[input](t, strings.Replace(postJSON(c.body), "/?q=1", c.target, 1), bind.All, c.options...)
		var got []string
		var invalid *bind.Error
		if !errors.As(err, &invalid) {
			t.Fatal(err)
		}
		for _, f := range invalid.Fields {
			got = append(got, fmt.Sprint(f.Code, " ", f.Params))
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s %s:\n got %s\nwant %s", c.target, c.body, text, c.want)
		}
	}
}

// If the program passes a target that can't be bound to, the error doesn't blame the client.
func TestWrongTarget(t *testing.T) {
	var none *document
	for name, v := range map[string]any{"nil": nil, "a value": document{}, "a nil pointer": none} {
		var httpError *filo.HTTPError
		if err := boundTo(t, postJSON("{}"), v, bind.JSON); err == nil || errors.As(err, &httpError) {
			t.Errorf("JSON, %s: %v", name, err)
		}
		if err := boundTo(t, get("/"), v, bind.Query); err == nil || errors.As(err, &httpError) {
			t.Errorf("Query, %s: %v", name, err)
		}
	}
	if got, err := bound[[]int](t, postJSON(`[1,2]`), bind.JSON); err != nil || !slices.Equal(got, []int{1, 2}) {
		t.Errorf("a slice: %v, %v", got, err)
	}
	if got, err := bound[map[string]float64](t, postJSON(`{"a":1}`), bind.JSON); err != nil || !maps.Equal(got, map[string]float64{"a": 1}) {
		t.Errorf("a map: %v, %v", got, err)
	}
}

// counting is a codec that counts its calls.
type counting struct {
	calls int
	fail  error
}

func (c *counting) Marshal(v any) ([]byte, error) { return json.Marshal(v) }

func (c *counting) Unmarshal(data []byte, v any) error {
	c.calls++
	return cmpOr(c.fail, json.Unmarshal(data, v))
}

func cmpOr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// Server.JSON decodes bodies, except with Strict. Its errors are explained if encoding/json finds an error, too.
func TestJSONCodec(t *testing.T) {
	for _, c := range []struct {
		name, body string
		fail       error
		options    []bind.Option
		calls      int
		want       string
	}{
		{"used", `{"name":"a"}`, nil, nil, 1, ""},
		{"not used for strict", `{"name":"a"}`, nil, []bind.Option{bind.Strict()}, 0, ""},
		{"its errors are found again", `{"name":1,"age":1000}`, errors.New("secret"), nil, 1,
			"422 body /name: must be a string; body /age: must be an integer from -128 to 127"},
		{"and syntax errors", `{"name":}`, errors.New("secret"), nil, 1,
			"400 body: line 1, column 9: invalid character '}' looking for beginning of value"},
		{"others aren't shown", `{"name":"a"}`, errors.New("secret"), nil, 1, "422 body: doesn't have the expected form"},
		{"not asked for what is too deep", strings.Repeat("[", 2000), nil, nil, 0, "400 body: must have at most 1000 levels of arrays and objects"},
	} {
		codec := &counting{fail: c.fail}
		var err error
		servertest.NewServer(t, &filo.Server{JSON: codec, Handler: func(ctx *filo.Ctx) error {
			var v document
			err = bind.JSON(ctx, &v, c.options...)
			return nil
		}}).Raw(t, postJSON(c.body))
		if got := inShort(t, err); got != c.want || codec.calls != c.calls {
			t.Errorf("%s: %s, %d calls", c.name, got, codec.calls)
		}
		if c.want == "422 body: doesn't have the expected form" && !errors.Is(err, c.fail) {
			t.Errorf("%s: the cause is lost", c.name)
		}
	}
}

// Numbers up to the limits of their types are bound exactly.
func TestJSONLimitsOfNumbers(t *testing.T) {
	type numbers struct {
		I64 int64
		U64 uint64
		F64 float64
	}
	got, err := bound[numbers](t, postJSON(`{"I64":-9223372036854775808,"U64":18446744073709551615,"F64":1.7976931348623157e308}`), bind.JSON)
	if want := (numbers{math.MinInt64, math.MaxUint64, math.MaxFloat64}); err != nil || got != want {
		t.Errorf("%v, %v", got, err)
	}
	_, err = bound[numbers](t, postJSON(`{"I64":9223372036854775808,"U64":18446744073709551616,"F64":1e309}`), bind.JSON)
	want := "422 body /I64: must be an integer from -9223372036854775808 to 9223372036854775807; " +
		"body /U64: must be an integer from 0 to 18446744073709551615; body /F64: is a number that is too large"
	if inShort(t, err) != want {
		t.Error(inShort(t, err))
	}
}

// A compressed body that no middleware has decompressed is refused for its coding, and not as malformed.
func TestCompressedBody(t *testing.T) {
	for name, body := range map[string]string{
		"application/json": "{\"name\":\"a\"}", "application/x-www-form-urlencoded": "name=a",
		"multipart/form-data; boundary=x": "--x\r\nContent-Disposition: form-data; name=name\r\n\r\na\r\n--x--\r\n",
	} {
		var compressed bytes.Buffer
		w := gzip.NewWriter(&compressed)
		io.WriteString(w, body)
		w.Close()
		for coding, want := range map[string]string{"gzip": "415 header Content-Encoding: isn't supported", "identity": ""} {
			sent := body
			if coding == "gzip" {
				sent = compressed.String()
			}
			_, err := bound[struct {
				Name string `form:"name" json:"name"`
			}](t, strings.Replace(post(name, sent), "\r\n\r\n", "\r\nContent-Encoding: "+coding+"\r\n\r\n", 1), bind.All)
			if got := inShort(t, err); got != want {
				t.Errorf("%s, %s: %s, want %q", name, coding, got, want)
			}
		}
	}
}
