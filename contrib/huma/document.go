package humafilo

import "github.com/danielgtaylor/huma/v2"

// Document adds an operation that huma doesn't serve to the API's OpenAPI document: usually a route of the router whose handler reads its
// request with package bind. I and O describe input and output as in huma.Register. Nothing checks that the route behaves as documented, so
// the route's tests should.
func Document[I, O any](api huma.API, op huma.Operation) {
	huma.Register[I, O](unserved{api}, op, nil)
}

// unserved is an API that registers no route for its operations.
type unserved struct{ huma.API }

func (u unserved) Adapter() huma.Adapter { return noAdapter{u.API.Adapter()} }

// DocumentOperation does what huma does for the API itself.
func (u unserved) DocumentOperation(op *huma.Operation) {
	if group, ok := u.API.(huma.OperationDocumenter); ok {
		group.DocumentOperation(op)
	} else if !op.Hidden {
		u.OpenAPI().AddOperation(op)
	}
}

type noAdapter struct{ huma.Adapter }

func (noAdapter) Handle(*huma.Operation, func(huma.Context)) {}
