//go:build !race

package main

import (
	"encoding/json"
	"testing"

	"github.com/pb33f/libopenapi"
	openapi "github.com/pb33f/libopenapi-validator"
)

// The document is valid OpenAPI 3.1, by the judgement of another library.
func TestDocumentIsValid(t *testing.T) {
	text, err := json.Marshal(theDocument())
	if err != nil {
		t.Fatal(err)
	}
	document, err := libopenapi.NewDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	v, errs := openapi.NewValidator(document)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if valid, faults := v.ValidateDocument(); !valid {
		for _, fault := range faults {
			t.Error(fault.Message, fault.Reason)
			for _, each := range fault.SchemaValidationErrors {
				t.Error(each.Reason)
			}
		}
	}
}
