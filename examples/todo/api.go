package main

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
)

const defaultLimit = 50

// newHandler returns the whole application. It refuses requests for a host that isn't in the list hosts.
func newHandler(todos *store, hosts []string) (filo.Handler, error) {
	r := router.New()
	// Pages of other sites must not read or change the todos: neither through a host name of theirs that resolves to this server (HostCheck), nor
	// with cross-origin requests (CSRF).
	r.Use(middleware.Secure(), middleware.HostCheck(middleware.HostCheckOptions{Hosts: hosts}),
		middleware.CSRF())
	addAPI(r, todos)
	return r.Serve, errors.Join(addDocument(r), addPage(r))
}

// api answers requests for todos.
type api struct{ todos *store }

func addAPI(r *router.Router, todos *store) {
	a := &api{todos}
	g := r.Group("/api/todos")
	g.GET("", bind.Handler(a.list, strict, bind.Doc{ID: "list", Summary: "List todos", Errors: []int{503}}))
	g.POST("", bind.Handler(a.add, strict, valid, bind.Status(http.StatusCreated),
		bind.Doc{ID: "add", Summary: "Add a todo", Errors: []int{409, 503, 507}}))
	g.GET("/{id}", bind.Handler(a.get, bind.Doc{ID: "get", Summary: "Get a todo", Errors: []int{404, 503}}))
	g.PATCH("/{id}", bind.Handler(a.change, strict, valid,
		bind.Doc{ID: "change", Summary: "Tick a todo, or give it another title", Errors: []int{404, 503, 507}}))
	g.DELETE("/{id}", bind.Handler(a.remove, bind.Doc{ID: "remove", Summary: "Delete a todo", Errors: []int{404, 503, 507}}))
}

// The inputs of the operations. Tags such as minimum and maxLength are enforced for requests, and appear in the OpenAPI document.
type (
	listInput struct {
		Filter string `query:"filter" enum:"all,open,done" default:"all"`
		Before int64  `query:"before" minimum:"1" doc:"Only todos with a lower id: next of the page before."`
		Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"50"`
	}
	idInput struct {
		ID int64 `path:"id" minimum:"1"`
	}
	newTodo struct {
		Title string `json:"title" minLength:"1" maxLength:"200"`
	}
	todoChange struct {
		idInput
		Title *string `json:"title,omitempty" minLength:"1" maxLength:"200"`
		Done  *bool   `json:"done,omitempty"`
	}
)

// SetDefaults sets the defaults of fields that a request may leave out.
func (in *listInput) SetDefaults() {
	*in = listInput{Filter: "all", Before: math.MaxInt64, Limit: defaultLimit}
}

func (a *api) list(c *filo.Ctx, in listInput) (page, error) {
	var done filter
	if in.Filter != "all" {
		isDone := in.Filter == "done"
		done = &isDone
	}
	return a.todos.list(c.Context(), done, in.Before, in.Limit)
}

func (a *api) add(c *filo.Ctx, in newTodo) (todo, error) {
	added, err := a.todos.add(c.Context(), in.Title)
	if err == nil {
		c.Response.Header.Set("Location", "/api/todos/"+strconv.FormatInt(added.ID, 10))
	}
	return added, err
}

func (a *api) get(c *filo.Ctx, in idInput) (todo, error) {
	return a.todos.get(c.Context(), in.ID)
}

func (a *api) change(c *filo.Ctx, in todoChange) (todo, error) {
	return a.todos.change(c.Context(), in.ID, in.Title, in.Done)
}

func (a *api) remove(c *filo.Ctx, in idInput) (bind.NoContent, error) {
	return bind.NoContent{}, a.todos.remove(c.Context(), in.ID)
}

var (
	strict = bind.Strict()
	valid  = bind.With(validator{})
)

// validator is a bind.Validator for rules that tags can't express: it calls the Validate methods of the inputs.
type validator struct{}

func (validator) Validate(v any) error {
	return v.(interface{ Validate() error }).Validate()
}

func (in *newTodo) Validate() error { return checkTitle(&in.Title) }

func (in *todoChange) Validate() error {
	if in.Title == nil {
		return nil
	}
	return checkTitle(in.Title)
}

// checkTitle trims a title, and returns an error if the title isn't valid.
func checkTitle(title *string) error {
	*title = strings.TrimSpace(*title)
	switch {
	case *title == "":
		return invalid("must not be blank")
	case strings.ContainsFunc(*title, unicode.IsControl):
		return invalid("must be one line without control characters")
	}
	return nil
}

func invalid(detail string) error {
	return &bind.Error{Status: http.StatusUnprocessableEntity, Fields: []bind.FieldError{{Field: "Title", Detail: detail}}}
}
