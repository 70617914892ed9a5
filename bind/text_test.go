package bind_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

type Paging struct {
	Page int  `query:"page"`
	Size *int `query:"size"`
}

type search struct {
	Paging
	Text   string        `query:"q"`
	Bytes  []byte        `query:"bytes"`
	I8     int8          `query:"i8"`
	I64    int64         `query:"i64"`
	U8     uint8         `query:"u8"`
	U64    uint64        `query:"u64"`
	F32    float32       `query:"f32"`
	F64    float64       `query:"f64"`
	Live   bool          `query:"live"`
	Wait   time.Duration `query:"wait"`
	At     time.Time     `query:"at"`
	Day    *time.Time    `query:"day" layout:"2006-01-02"`
	Addr   netip.Addr    `query:"addr"`
	Colour colour        `query:"colour"`
	Tags   []string      `query:"tag"`
	IDs    []uint16      `query:"ids,comma"`
	Deep   **int         `query:"deep"`
	Days   []time.Time   `query:"days" layout:"2006-01-02"`
	Named  string        `query:""`
	Off    string        `query:"-"`
	Admin  bool          // has no tag
}

func ptr[T any](v T) *T { return &v }

// Each type accepts every text that represents one of its values.
func TestQuery(t *testing.T) {
	day := time.Date(2024, 2, 3, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		query string
		want  search
	}{
		{"", search{}},
		{"q=a+b%21&q=c", search{Text: "a b!"}},
		{"bytes=%ff%00", search{Bytes: []byte("\xff\x00")}},
		{"i8=-128&u8=255", search{I8: -128, U8: 255}},
		{"i64=-9223372036854775808&u64=18446744073709551615", search{I64: -1 << 63, U64: 1<<64 - 1}},
		{"f32=1.5&f64=-1e300", search{F32: 1.5, F64: -1e300}},
		{"live=true", search{Live: true}},
		{"live=on", search{Live: true}},
		{"live=1", search{Live: true}},
		{"live=off", search{}},
		{"wait=1m30s", search{Wait: 90 * time.Second}},
		{"at=2024-02-03T00:00:00Z", search{At: day}},
		{"day=2024-02-03&days=2024-02-03", search{Day: &day, Days: []time.Time{day}}},
		{"addr=::1&colour=red", search{Addr: netip.IPv6Loopback(), Colour: "red"}},
		{"tag=a&tag=&tag=b,c", search{Tags: []string{"a", "", "b,c"}}},
		{"ids=1,2&ids=+3+,,", search{IDs: []uint16{1, 2, 3}}},
		{"ids=", search{}},
		{"page=2&size=3", search{Paging: Paging{2, ptr(3)}}},
		{"deep=4", search{Deep: ptr(ptr(4))}},
		{"Named=x&named=y", search{Named: "x"}},
		{"page=&live=&wait=&at=&size=&q=", search{}},
		{"Admin=true&Off=x&-=x&Q=x", search{}},
	} {
		got, err := bound[search](t, get("/?"+c.query), bind.Query)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", c.query, err, got, c.want)
		}
	}
}

// A field that isn't in the request keeps its value. The elements of a slice that is in the request are replaced.
func TestDefaults(t *testing.T) {
	v := search{Paging: Paging{Page: 1, Size: ptr(20)}, Tags: []string{"x", "y", "z"}, IDs: []uint16{1}}
	if err := boundTo(t, get("/?tag=a&page="), &v, bind.Query); err != nil || v.Page != 1 || *v.Size != 20 || len(v.Tags) != 1 || v.IDs[0] != 1 {
		t.Errorf("%v, %+v", err, v)
	}
}

// Each value that doesn't fit yields a separate error, in the order of the fields.
func TestQueryErrors(t *testing.T) {
	for _, c := range []struct {
		query  string
		strict bool
		want   string
	}{
		{"i8=128", false, "400 query i8: must be an integer from -128 to 127"},
		{"i8=1.0", false, "400 query i8: must be an integer from -128 to 127"},
		{"i8=0x1", false, "400 query i8: must be an integer from -128 to 127"},
		{"i8=1_0", false, "400 query i8: must be an integer from -128 to 127"},
		{"i8=+1%20", false, "400 query i8: must be an integer from -128 to 127"},
		{"u8=-1&u64=18446744073709551616", false, "400 query u8: must be an integer from 0 to 255; query u64: must be an integer from 0 to 18446744073709551615"},
		{"i64=" + strings.Repeat("9", 5000), false, "400 query i64: must be an integer from -9223372036854775808 to 9223372036854775807"},
		{"i64=9223372036854775808", false, "400 query i64: must be an integer from -9223372036854775808 to 9223372036854775807"},
		{"i64=abc", false, "400 query i64: must be an integer"},
		{"i64=1.5", false, "400 query i64: must be an integer"},
		{"u64=abc", false, "400 query u64: must be an integer of at least 0"},
		{"u64=-1", false, "400 query u64: must be an integer of at least 0"},
		{"f32=1e39&f64=1e309", false, "400 query f32: is a number that is too large; query f64: is a number that is too large"},
		{"f64=NaN", false, "400 query f64: must be a number"},
		{"f64=-Inf", false, "400 query f64: must be a number"},
		{"f64=0x1p-2", false, "400 query f64: must be a number"},
		{"f64=1e", false, "400 query f64: must be a number"},
		{"live=yes", false, "400 query live: must be true or false"},
		{"wait=5", false, "400 query wait: must be a duration, such as 1m30s"},
		{"at=2024-02-30T00:00:00Z", false, "400 query at: must be a time as in RFC 3339, such as 2006-01-02T15:04:05Z"},
		{"day=tomorrow", false, "400 query day: must be a time written as 2006-01-02"},
		{"colour=green", false, "400 query colour: must be red or blue"},
		{"q=%ff", false, "400 query q: must be UTF-8"},
		{"tag=a&tag=%ff", false, "400 query tag: value 2 must be UTF-8"},
		{"ids=1,x,70000", false, "400 query ids: value 2 must be an integer from 0 to 65535; query ids: value 3 must be an integer from 0 to 65535"},
		{"live=x&page=y", false, "400 query page: must be an integer; query live: must be true or false"},
		{"x=1&q=a", true, "400 query x: isn't known here"},
		{"x=1&x=2&y=%26", true, "400 query x: isn't known here; query y: isn't known here"},
		{"Q=1&Admin=true", true, "400 query Q: isn't known here; query Admin: isn't known here"},
		{"q=1&q=2", true, "400 query q: must be given once"},
		{"page=", true, "400 query page: must not be empty"},
		{"q=&tag=a&tag=b", true, ""},
		{strings.Repeat("&a=1", 1001), false, "400 Bad Request: more than 1000 query or form parameters: filo: too many query or form parameters"},
	} {
		var options []bind.Option
		if c.strict {
			options = append(options, bind.Strict())
		}
		_, err := bound[search](t, get("/?"+c.query), bind.Query, options...)
		if got := inShort(t, err); got != c.want {
			t.Errorf("%.50s:\n got %s\nwant %s", c.query, got, c.want)
		}
	}
}

// A query's errors are bounded, too, including those for unknown names.
func TestQueryErrorsAreBounded(t *testing.T) {
	unknown := ""
	for i := range 900 {
		unknown += fmt.Sprintf("&x%d", i)
	}
	for _, query := range []string{unknown, "ids=" + strings.Repeat("x,", 900)} {
		_, err := bound[search](t, get("/?"+query), bind.Query, bind.Strict())
		var e *bind.Error
		if !errors.As(err, &e) || len(e.Fields) != 50 || !e.More {
			t.Errorf("%.20s: %.100v", query, err)
		}
	}
}

// Header fields are found in any case, and with the option comma lists are split. Fields that the struct lacks are ignored.
func TestHeader(t *testing.T) {
	type fields struct {
		Key     string   `header:"idempotency-key"`
		Version int      `header:"X-Version"`
		Langs   []string `header:"Accept-Language,comma"`
		Via     []string `header:"Via"`
	}
	want := fields{"k", 3, []string{"de", "en;q=0.5", "fr"}, []string{"1.1 a, 1.1 b", "1.1 c"}}
	request := get("/", "Idempotency-Key: k", "x-version: 3", "Accept-Language: de, en;q=0.5", "Accept-Language: ,fr,", "Via: 1.1 a, 1.1 b", "Via: 1.1 c")
	got, err := bound[fields](t, request, bind.Header, bind.Strict())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %+v", err, got)
	}
	_, err = bound[fields](t, get("/", "Idempotency-Key: a", "Idempotency-Key: \xff", "X-Version: v"), bind.Header, bind.Strict())
	if got := inShort(t, err); got != "400 header idempotency-key: must be given once; header X-Version: must be an integer" {
		t.Error(got)
	}
	if _, err = bound[fields](t, get("/", "Idempotency-Key: \xff"), bind.Header); inShort(t, err) != "400 header idempotency-key: must be UTF-8" {
		t.Error(err)
	}
}

// Path parameters come from the router.
func TestPath(t *testing.T) {
	type key struct {
		Shop int    `path:"shop"`
		Item string `path:"item"`
	}
	for path, want := range map[string]string{
		"/shops/7/a%2Fb": "{7 a/b} <nil>",
		"/shops/x/%FF":   `{0 } 400 Bad Request: path "shop": must be an integer (and 1 more error)`,
	} {
		got := ""
		r := router.New()
		r.GET("/shops/{shop}/{item}", func(c *filo.Ctx) error {
			var v key
			err := bind.Path(c, &v, bind.Strict())
			got = fmt.Sprint(v, err)
			return nil
		})
		servertest.New(t, r.Serve).Raw(t, get(path))
		if got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// A tag that names no wildcard of the route is a mistake in the program, and its error says which tag and which route. A field that has
// other sources, or is a pointer, may be used by routes without the wildcard, too.
func TestPathWithoutWildcard(t *testing.T) {
	type item struct {
		Item string `path:"item"`
	}
	type key struct {
		item
		Shop int `path:"shop"`
	}
	type shared struct {
		Shop   *int   `path:"shop"`
		Team   string `path:"team" query:"team"`
		Member int    `path:"member" json:"member"`
		Rest   string `path:"rest"`
	}
	type asked struct {
		Shop *int `path:"shop" required:"true"`
	}
	const advice = ": give both the same name, or make the field a pointer if only some of its routes have the wildcard"
	for _, test := range []struct {
		name, pattern string
		v             any
		bindTo        func(*filo.Ctx, any, ...bind.Option) error
		want          string
	}{
		{"Path", "GET /a/{rest...}", new(key), bind.Path, `bind: bind_test.key.Item has the tag path:"item", and the route "GET /a/{rest...}" has no wildcard {item}` + advice},
		{"All", "GET /a/{item}", new(key), bind.All, `bind: bind_test.key.Shop has the tag path:"shop", and the route "GET /a/{item}" has no wildcard {shop}` + advice},
		{"a type without a name", "GET /a/b", &struct {
			ID int `path:"id"`
		}{}, bind.All, `bind: the field ID has the tag path:"id", and the route "GET /a/b" has no wildcard {id}` + advice},
		{"a pointer that is required", "GET /a/b", new(asked), bind.Path, `bind: bind_test.asked.Shop has the tag path:"shop", and the route "GET /a/b" has no wildcard {shop}` + advice},
		{"without a router", "", new(key), bind.Path, `bind: bind_test.key.Item has the tag path:"item", and the request has no route: only a router's patterns have wildcards`},
		{"pointers, and what others have", "GET /a/{rest...}", new(shared), bind.All, ""},
		{"an empty rest", "GET /a/b/{rest...}", new(shared), bind.Path, ""},
	} {
		got := ""
		h := func(c *filo.Ctx) error {
			if err := test.bindTo(c, test.v); err != nil {
				got = err.Error()
			}
			return nil
		}
		serve := filo.Handler(h)
		if test.pattern != "" {
			r := router.New()
			r.Handle(test.pattern, h)
			serve = r.Serve
		}
		servertest.New(t, serve).Raw(t, get("/a/b"))
		if got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
	}
}

// If the route lacks a wildcard, the error of a handler made by Handler is logged, and the client gets a 500.
func TestHandlerWithoutWildcard(t *testing.T) {
	var log bytes.Buffer
	r := router.New()
	r.POST("/shops/{id}", bind.Handler(renameShop))
	s := servertest.NewServer(t, &filo.Server{Handler: r.Serve, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	answer := s.DoBody(t, "POST /shops/7", `{"name":"a"}`, "Content-Type: application/json")
	if said := log.String(); answer.Status != 500 || !strings.Contains(said, "tag path:") || strings.Count(said, "handler failed") != 1 {
		t.Errorf("got %d %s, logged %s", answer.Status, answer.Body, said)
	}
}

type upload struct {
	Title string                  `form:"title"`
	Tags  []string                `form:"tag"`
	Done  bool                    `form:"done"`
	Image *multipart.FileHeader   `form:"image"`
	Files []*multipart.FileHeader `form:"file"`
}

// A form's values are bound like a query's, but its errors have the status of errors in a body.
func TestForm(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	for _, c := range []struct {
		body, contentType string
		strict            bool
		want, fails       string
	}{
		{"title=a+b&tag=x&tag=y&done=on", form, true, "{a b [x y] true <nil> []}", ""},
		{"", form, true, "{ [] false <nil> []}", ""},
		{"done=perhaps&title=%ff", form, false, "", "422 form title: must be UTF-8; form done: must be true or false"},
		{"title=a&x=1&image=text", form, true, "", "422 form x: isn't known here; form image: isn't known here"},
		{"title=a", "text/plain", false, "", "415 Unsupported Media Type: the body must be application/x-www-form-urlencoded"},
		{strings.Repeat("a&", 1001), form, false, "", "400 Bad Request: more than 1000 query or form parameters: filo: too many query or form parameters"},
	} {
		var options []bind.Option
		if c.strict {
			options = append(options, bind.Strict())
		}
		got, err := bound[upload](t, post(c.contentType, c.body), bind.Form, options...)
		if text := inShort(t, err); text != c.fails || err == nil && fmt.Sprint(got) != c.want {
			t.Errorf("%.40s: %v %s", c.body, got, text)
		}
	}
}

// multipartRequest returns a request with a form of parts such as "name=value" and "name@file=content".
func multipartRequest(parts ...string) string {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for _, part := range parts {
		name, value, _ := strings.Cut(part, "=")
		if name, file, isFile := strings.Cut(name, "@"); isFile {
			part, _ := w.CreateFormFile(name, file)
			io.WriteString(part, value)
		} else {
			w.WriteField(name, value)
		}
	}
	w.Close()
	return post(w.FormDataContentType(), body.String())
}

// Files can be read in the handler.
func TestMultipart(t *testing.T) {
	for _, c := range []struct {
		parts       []string
		strict      bool
		want, fails string
	}{
		{[]string{"title=a", "tag=x", "tag=y", "image@i.png=PNG", "file@1=one", "file@2=two"}, true, "a [x y] i.png:PNG 1:one 2:two", ""},
		{[]string{"image@1=a", "image@2=b", "x=y", "z@f=g"}, false, " [] 1:a", ""},
		{[]string{"title=\xff", "done=?"}, false, "", "422 form title: must be UTF-8; form done: must be true or false"},
		{[]string{"image@1=a", "image@2=b", "x=y", "z@f=g", "title=a", "title=b"}, true, "",
			"422 form title: must be given once; form image: must be one file; form x: isn't known here; form z: isn't known here"},
		{[]string{"title@f=a", "image=text"}, true, "", "422 form image: isn't known here; form title: isn't known here"},
	} {
		got, fails := "", ""
		servertest.New(t, func(ctx *filo.Ctx) error {
			var options []bind.Option
			if c.strict {
				options = append(options, bind.Strict())
			}
			var v upload
			err := bind.Multipart(ctx, &v, options...)
			if fails = inShort(t, err); err != nil {
				return nil
			}
			got = fmt.Sprint(v.Title, " ", v.Tags)
			for _, header := range append([]*multipart.FileHeader{v.Image}, v.Files...) {
				file, err := header.Open()
				if err != nil {
					return err
				}
				content, _ := io.ReadAll(file)
				file.Close()
				got += fmt.Sprintf(" %s:%s", header.Filename, content)
			}
			return nil
		}).Raw(t, multipartRequest(c.parts...))
		if got != c.want || fails != c.fails {
			t.Errorf("%q: %q, %s", c.parts, got, fails)
		}
	}
	if _, err := bound[upload](t, post("application/x-www-form-urlencoded", "title=a"), bind.Multipart); err == nil || !strings.HasPrefix(err.Error(), "415") {
		t.Errorf("another type: %v", err)
	}
	if _, err := bound[upload](t, post("multipart/form-data; boundary=b", "garbage"), bind.Multipart); err == nil || !strings.HasPrefix(err.Error(), "400") {
		t.Errorf("malformed: %v", err)
	}
}

type Deep struct {
	Same string `query:"same"`
	Deep int    `query:"deep"`
}

// Fields of embedded structs count. A nil pointer to an embedded struct is set when there is a value for a field of the struct.
// Outer fields hide inner ones.
func TestEmbedded(t *testing.T) {
	type outer struct {
		*Deep
		Same string `query:"same"`
	}
	got, err := bound[outer](t, get("/?same=x"), bind.Query)
	if err != nil || got.Same != "x" || got.Deep != nil {
		t.Errorf("%v, %+v", err, got)
	}
	got, err = bound[outer](t, get("/?same=x&deep=3"), bind.Query)
	if err != nil || got.Same != "x" || got.Deep == nil || got.Deep.Deep != 3 || got.Deep.Same != "" {
		t.Errorf("%v, %+v", err, got)
	}
}

// A struct that can't be bound is the programmer's mistake: an error without a status, which says what is wrong.
func TestWrongStructs(t *testing.T) {
	for want, v := range map[string]any{
		"text can't become a chan int": &struct {
			C chan int `query:"c"`
		}{},
		"text can't become a map": &struct {
			M map[string]int `query:"m"`
		}{},
		"text can't become a [][]int": &struct {
			S [][]int `query:"s"`
		}{},
		`unknown option "omitempty"`: &struct {
			S string `query:"s,omitempty"`
		}{},
		"files come in forms only": &struct {
			F *multipart.FileHeader `query:"f"`
		}{},
		"must be a pointer to a struct": new(int),
	} {
		err := boundTo(t, get("/?c=1"), v, bind.Query)
		var httpError *filo.HTTPError
		if err == nil || errors.As(err, &httpError) || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "bind: ") {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// A struct without tags would bind nothing, which is an error that says what to write. With All it isn't an error, since a JSON body needs
// no tags.
func TestUntaggedStructs(t *testing.T) {
	type params struct {
		Page int `form:"p"`
		Size int
	}
	type named struct{ UserID int }
	type hidden struct {
		Page int `query:"page"`
		size int `query:"size"`
	}
	for _, c := range []struct {
		name   string
		v      any
		bindTo func(*filo.Ctx, any, ...bind.Option) error
		want   string // "" means no error
	}{
		{"another framework's tag", new(params), bind.Query, "bind_test.params.Page has no tag query, and no other field has one, so nothing would be bound: " +
			"write Page int `query:\"p\"`, and so on"},
		{"no tag", new(named), bind.Path, "write UserID int `path:\"userid\"`"},
		{"a header", new(named), bind.Header, "has no tag header"},
		{"not exported", &hidden{size: 1}, bind.Query, "hidden.size has the tag query, and must be exported"},
		{"nothing to bind", new(struct{}), bind.Query, ""},
		{"nothing that could be bound", &struct{ n int }{1}, bind.Query, ""},
		{"the tag of an embedded struct", new(struct{ Paging }), bind.Query, ""},
		{"of All", new(named), bind.All, ""},
	} {
		err := boundTo(t, get("/?p=1"), c.v, c.bindTo)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "bind: ")) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		var httpError *filo.HTTPError
		if errors.As(err, &httpError) {
			t.Errorf("%s: %v has a status", c.name, err)
		}
	}
}

// Browsers also send inputs that were left empty, for files and for text. This is no mistake of the client.
func TestLeftEmpty(t *testing.T) {
	empty := func(parts ...string) string {
		var body strings.Builder
		for _, part := range parts {
			name, content, _ := strings.Cut(part, "=")
			fmt.Fprintf(&body, "--b\r\nContent-Disposition: form-data; name=%q; filename=%q\r\nContent-Type: application/octet-stream\r\n\r\n%s\r\n", name, content, content)
		}
		return post("multipart/form-data; boundary=b", body.String()+"--b--\r\n")
	}
	for _, options := range [][]bind.Option{nil, {bind.Strict()}} {
		v, err := bound[upload](t, empty("image=", "file=", "file=a.txt", "file="), bind.Multipart, options...)
		if err != nil || v.Image != nil || len(v.Files) != 1 || v.Files[0].Filename != "a.txt" {
			t.Errorf("%v: %+v, %v", options, v, err)
		}
		_, err = bound[struct {
			Image *multipart.FileHeader `form:"image" required:"true"`
		}](t, empty("image="), bind.Multipart, options...)
		if err == nil || !strings.Contains(err.Error(), "is required") {
			t.Errorf("a required one: %v", err)
		}
	}
	if _, err := bound[upload](t, post("multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=image\r\n\r\ntext\r\n--b--\r\n"),
		bind.Multipart, bind.Strict()); err == nil {
		t.Error("text is taken for a file")
	}

	type ids struct {
		IDs   []int    `query:"ids" required:"true"`
		Names []string `query:"names"`
	}
	for target, want := range map[string]string{
		"/?ids=&ids=3": "{[3] []} <nil>", "/?ids=3&ids=&ids=4&names=&names=a": "{[3 4] [ a]} <nil>",
		"/?ids=&ids=": `{[] []} 400 Bad Request: query "ids": is required`, "/?ids=&ids=x": `{[0] []} 400 Bad Request: query "ids": value 1 must be an integer`,
	} {
		v, err := bound[ids](t, get(target), bind.Query)
		if got := fmt.Sprint(v, " ", err); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	if _, err := bound[ids](t, get("/?ids=&ids=3"), bind.Query, bind.Strict()); err == nil {
		t.Error("Strict takes an empty number")
	}
}

type pageA struct {
	Page int `query:"page"`
}

type pageB struct {
	Page int `query:"page"`
}

// Two fields with the same name are a mistake, since neither would be bound.
func TestDuplicateTags(t *testing.T) {
	for want, f := range map[string]func() error{
		"the field From and the field To both have the tag query:\"page\"": func() error {
			_, err := bound[struct {
				From int `query:"page"`
				To   int `query:"page"`
			}](t, get("/?page=1"), bind.Query)
			return err
		},
		"the field pageA.Page and the field pageB.Page both have the tag query:\"page\"": func() error {
			_, err := bound[struct {
				pageA
				pageB
			}](t, get("/?page=1"), bind.All)
			return err
		},
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	v, err := bound[struct {
		pageA
		Page int `query:"page"`
	}](t, get("/?page=1"), bind.Query)
	if err != nil || v.Page != 1 {
		t.Errorf("the outer one of two: %+v, %v", v, err)
	}
	defer func() {
		if message := fmt.Sprint(recover()); !strings.Contains(message, "From and the field To both") {
			t.Errorf("panic: %s", message)
		}
	}()
	bind.Handler(func(*filo.Ctx, struct {
		From int `form:"page"`
		To   int `form:"page"`
	}) (struct{}, error) {
		return struct{}{}, nil
	})
}
