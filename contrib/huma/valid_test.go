package humafilo_test

import (
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"

	humafilo "github.com/filohttp/filo/contrib/huma"
)

// The document is valid OpenAPI 3.1, by a library of others.
func TestOpenAPIIsValid(t *testing.T) {
	r := shop()
	r.GET("/openapi.json", humafilo.OpenAPI(r, info()))
	document, err := libopenapi.NewDocument([]byte(ask(t, serve(t, r.Serve), "GET /openapi.json", "").body))
	if err != nil {
		t.Fatal(err)
	}
	v, errs := validator.NewValidator(document)
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
