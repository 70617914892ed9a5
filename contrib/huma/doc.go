// Package humafilo serves APIs of github.com/danielgtaylor/huma/v2 from a filo router, with huma's validation and OpenAPI
// document.
//
//	go get github.com/filohttp/filo/contrib/huma@latest
//
// The package is a separate module, so that filo doesn't depend on huma.
//
// There are three ways to get an OpenAPI document. OpenAPI is for handlers made by bind.Handler: filo reads and checks the requests and
// answers them, and huma only writes the document. New is for operations that are written for huma: huma reads and validates requests, and
// serves the document. Document is for an API made by New that also has plain filo handlers: it adds their descriptions to the API's
// document.
//
//	r := router.New()
//	api := humafilo.New(r, huma.DefaultConfig("My API", "1.0.0"))
//	huma.Get(api, "/greeting/{name}", func(ctx context.Context, input *struct {
//		Name string `path:"name" maxLength:"30"`
//	}) (*Greeting, error) {
//		…
//	})
//	filo.ListenAndServe(":8080", r.Serve)
//
// Operations are ordinary routes: the router's middleware covers them, and each has its own handler class.
//
// # What operations get
//
// The context of an operation is the request's context (filo.Ctx.Context). FromContext returns the filo.Ctx of that context, with the values
// that middleware has stored. In huma's own middleware and resolvers, use Unwrap. A filo.Ctx is lent only until the operation returns.
//
// Wildcards may have names that are not Go identifiers, as in OpenAPI: pass "user_id" to filo.Ctx.Param for the wildcard {user-id}. An
// operation's path that ends with a slash matches only itself.
//
// A document that huma generates can't contain the method QUERY, so an operation with QUERY must be Hidden. The documents that OpenAPI and
// DocumentRoutes generate can contain QUERY.
//
// # Bodies
//
// An operation's MaxBodyBytes overrides the server's limit if it is larger, or negative for no limit. It also applies to multipart forms,
// which the server's MultipartLimits limit as well. huma has no status for some errors, for example if a body exceeds the server's limit or
// ends early. Such errors are returned as filo errors (413, 408, 400), through the router's middleware to the server's ErrorHandler.
//
// A response of up to 64 KB is sent whole, with its length, and middleware can change the whole body. A longer response is streamed, and so
// is a response whose writer is flushed: the writer of a huma.StreamResponse is an http.Flusher and has SetWriteDeadline, as huma's package
// sse expects.
//
// # filo's own routes
//
// Routes with handlers of bind.Handler aren't huma operations: OpenAPI serves a document of such routes.
//
//	r.POST("/users", bind.Handler(addUser, bind.Status(201), bind.Doc{Summary: "Add a user"}))
//	r.GET("/openapi.json", humafilo.OpenAPI(r, &huma.OpenAPI{Info: &huma.Info{Title: "Users", Version: "1.0.0"}}))
//
// DocumentRoutes adds these routes to your own document.
//
// # Documents
//
// huma generates the OpenAPI document at the first request for it, without a lock. So if two clients request it first at the same time, there
// is a data race. huma's documentation page loads scripts from another host. To avoid both, leave OpenAPIPath and DocsPath empty, and serve
// api.OpenAPI() from your own route after all operations are registered. Document adds routes that huma doesn't serve.
package humafilo
