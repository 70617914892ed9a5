// Package humafilo serves APIs that are described to github.com/danielgtaylor/huma/v2, with their validation and their OpenAPI
// document, from a router of filo.
//
//	go get github.com/filohttp/filo/contrib/huma@latest
//
// It is a module of its own, so that filo doesn't depend on what it needs.
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
// Operations are routes beside others: the router's middleware covers them, and they have their own handler classes.
//
// # What operations get
//
// The context of an operation is the request's (filo.Ctx.Context). FromContext finds the filo.Ctx in it, and so the values that
// middleware has stored; huma's own middleware and resolvers have Unwrap for that. A filo.Ctx is lent until the operation
// returns, as ever.
//
// Wildcards may have names that are no Go identifiers, as in OpenAPI: {user-id} is user_id to filo.Ctx.Param. A path that ends
// with a slash is that path alone.
//
// # Bodies
//
// An operation's MaxBodyBytes goes before the server's limit where it is larger, or negative for none, and holds for
// multipart forms too; those have the server's MultipartLimits besides. What huma has no status for, such as a body that is
// over the server's limit or that ends early, is an error of filo's (413, 408, 400) that goes through the router's middleware
// to the server's ErrorHandler.
//
// A response of up to 64 KB is sent as a whole, with its length, and what middleware can do with a whole body works. A longer
// one is streamed, and so is one whose writer is flushed: in a huma.StreamResponse, that is an http.Flusher and has
// SetWriteDeadline, as huma's package sse expects.
//
// # Routes of filo's own
//
// Routes whose handlers bind.Handler has made need no operations: OpenAPI serves a document of them.
//
//	r.POST("/users", bind.Handler(addUser, bind.Status(201), bind.Doc{Summary: "Add a user"}))
//	r.GET("/openapi.json", humafilo.OpenAPI(r, &huma.OpenAPI{Info: &huma.Info{Title: "Users", Version: "1.0.0"}}))
//
// DocumentRoutes adds them to a document that is yours.
//
// # Documents
//
// huma makes the OpenAPI document when it is first asked for, without a lock: two first requests at once are a data race.
// Its documentation page loads scripts from another host. To have neither, leave OpenAPIPath and DocsPath empty, and serve
// api.OpenAPI() from a route of your own when all operations are registered. Document adds routes to it that huma doesn't serve.
package humafilo
