package main

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi/datamodel"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The document conforms to the official schema of OpenAPI 3.1. Each schema in the document is valid JSON Schema, and its references exist.
func TestDocumentIsValid(t *testing.T) {
	text, err := json.Marshal(theDocument())
	if err != nil {
		t.Fatal(err)
	}
	schemas := jsonschema.NewCompiler()
	schemas.AssertFormat()
	add := func(name string, text []byte) (document any) {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err == nil {
			err = schemas.AddResource(name, document)
		}
		if err != nil {
			t.Fatal(err)
		}
		return document
	}
	add("openapi", []byte(datamodel.OpenAPI31SchemaData))
	document := add("document", text)
	if err := schemas.MustCompile("openapi").Validate(document); err != nil {
		t.Error(err)
	}
	found := 0
	var look func(at string, value any)
	look = func(at string, value any) {
		switch value := value.(type) {
		case []any:
			for i, each := range value {
				look(at+"/"+strconv.Itoa(i), each)
			}
		case map[string]any:
			for name, each := range value {
				escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
				if name == "schema" || strings.HasSuffix(at, "/components/schemas") {
					found++
					if _, err := schemas.Compile("document#" + at + "/" + escaped); err != nil {
						t.Error(err)
					}
				}
				look(at+"/"+escaped, each)
			}
		}
	}
	look("", document)
	if found < 10 {
		t.Errorf("%d schemas were found", found)
	}
}
