package bind

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

type fuzzInner struct {
	A int8            `json:"a"`
	B []string        `json:"b"`
	C map[int8]bool   `json:"c"`
	D *fuzzInner      `json:"d"`
	E [2]float32      `json:"e"`
	F any             `json:"f"`
	G time.Time       `json:"g"`
	H netip.Addr      `json:"h"`
	I []byte          `json:"i"`
	J json.Number     `json:"j"`
	K uint16          `json:"k,string"`
	L *string         `json:"l,string"`
	M json.RawMessage `json:"m"`
	N map[netip.Addr]uint8
	O **int
	P []*fuzzInner
	Q struct{ ſ, S int }
}

var fuzzOuterType = reflect.TypeFor[fuzzOuter]()

type fuzzOuter struct {
	fuzzInner
	*Embedded
	A string `json:"a"`
}

type Embedded struct{ X, Y uint8 }

// The walker finds errors if and only if encoding/json fails, and the errors' pointers lead to places in the document. With strict it also
// finds an error whenever DisallowUnknownFields would.
func FuzzWalker(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `[]`, `{"a":"x","b":["y",null],"c":{"1":true},"d":{"a":1},"e":[1,2,3],"f":{"g":[1e400]}}`,
		`{"A":1,"B":"x","c":{"x":1},"d":{"d":{"a":128}},"g":"noon","h":"::1","i":"?","j":"x","k":"1","l":"\"x\"","m":{"a":1,"a":1}}`,
		`{"j":1,"k":1,"l":null,"N":{"::1":1,"x":256},"O":null,"P":[null,{"a":1}],"Q":{"s":1,"ſ":2},"X":1,"x":256}`,
		`{"k":"x","l":"x","i":[1,256],"j":"1","e":[],"e":null,"\u0061":1}`, ` { "f" : [ { "a" : 1 , "a" : 2 } ] } `, `{"d":null,"d":[]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if !json.Valid(body) || !utf8.Valid(body) || deeper(body, maxDepth) {
			return
		}
		var v fuzzOuter
		err := json.Unmarshal(body, &v)
		found := walk(body, walker{explain: true})
		if (err == nil) != (len(found.Fields) == 0) {
			t.Fatalf("%s\nencoding/json: %v\nwalker: %v", body, err, found.Fields)
		}
		strict := walk(body, walker{strict: true})
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&v); err != nil && strings.Contains(err.Error(), "unknown field") && len(strict.Fields) == 0 {
			t.Fatalf("%s\nencoding/json: %v", body, err)
		}
		for _, field := range append(found.Fields, strict.Fields...) {
			if len(field.Pointer) < maxName && !resolves(body, field.Pointer) {
				t.Fatalf("%s\nhas no %q", body, field.Pointer)
			}
		}
	})
}

func walk(body []byte, w walker) *problems {
	w.body = body
	w.value(fuzzOuterType, nil)
	if !w.full && len(bytes.TrimSpace(body[w.pos:])) > 0 {
		panic(fmt.Sprintf("the walker stopped at %d of %q", w.pos, body))
	}
	return &w.problems
}

// resolves reports whether a JSON Pointer leads somewhere. If a name occurs twice in an object, either member may lead there.
func resolves(body []byte, pointer string) bool {
	if pointer == "" {
		return true
	}
	token, rest, _ := strings.Cut(pointer[1:], "/")
	if rest != "" || strings.HasSuffix(pointer, "/") && len(token) < len(pointer)-1 {
		rest = "/" + rest
	}
	token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
	decoder := json.NewDecoder(bytes.NewReader(body))
	start, _ := decoder.Token()
	for i := 0; decoder.More(); i++ {
		name := strconv.Itoa(i)
		if start == json.Delim('{') {
			key, _ := decoder.Token()
			name = key.(string)
		}
		var value json.RawMessage
		if decoder.Decode(&value) != nil {
			return false
		}
		if name == token && resolves(value, rest) {
			return true
		}
	}
	return false
}
