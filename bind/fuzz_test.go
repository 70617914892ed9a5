package bind_test

import (
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/servertest"
)

// Whatever a client sends, binding doesn't panic, accepts only UTF-8, and returns only errors with a 4xx status.
func FuzzAll(f *testing.F) {
	f.Add("q=a&ids=1,x&page=&i8=300", "application/json", []byte(`{"Text":1,"x":[{}]}`))
	f.Add("at=2024&day=2024-02-03&tag=%ff", "application/x-www-form-urlencoded", []byte("title=a&done=on&tag=%"))
	f.Add("wait=1h&addr=::1&f32=1e99", "multipart/form-data; boundary=b", []byte("--b\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nx\r\n--b--\r\n"))
	f.Add("", "application/json", []byte(`{"others":[{"name":"","no":null},{"no":0}]}`))
	f.Add("deep=1&deep=2", "text/plain", []byte("x"))
	type all struct {
		search
		upload
		Others []street `json:"others"`
	}
	f.Fuzz(func(t *testing.T, query, contentType string, body []byte) {
		servertest.New(t, func(c *filo.Ctx) error {
			c.Request.Header.Set("Content-Type", contentType)
			if c.Request.Query().Parse([]byte(query)) != nil {
				return nil
			}
			for _, options := range [][]bind.Option{nil, {bind.Strict()}} {
				var v all
				check(t, bind.All(c, &v, options...), v.Text, v.Title)
			}
			return nil
		}).Raw(t, post("x/y", string(body)))
	})
}

func check(t *testing.T, err error, texts ...string) {
	if err == nil {
		for _, text := range texts {
			if !utf8.ValidString(text) {
				t.Fatalf("%q was bound", text)
			}
		}
		return
	}
	var httpError *filo.HTTPError
	if !errors.As(err, &httpError) || httpError.Status < 400 || httpError.Status > 422 {
		t.Fatal(err)
	}
	answer, jsonError := json.Marshal(httpError)
	if jsonError != nil || !utf8.Valid(answer) || len(answer) > 64<<10 {
		t.Fatalf("%v: %s", jsonError, answer)
	}
}
