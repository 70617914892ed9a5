package main

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
)

const (
	maxTitle     = 200 // characters, as the schema has it
	defaultLimit = 50
	maxLimit     = 100
)

// newHandler returns the whole application, which is asked for by one of hosts.
func newHandler(todos *store, hosts []string) (filo.Handler, error) {
	r := router.New()
	// Pages of other sites mustn't read or change the todos of who visits them: not under a name of theirs that leads here
	// (HostCheck), and not across origins (CSRF).
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
	g.GET("", a.list)
	g.POST("", a.add)
	g.GET("/{id}", a.get)
	g.PATCH("/{id}", a.change)
	g.DELETE("/{id}", a.remove)
}

// What requests have. The tags path, query and json are bind's; those of what is allowed are for the OpenAPI document, and
// Validate holds requests to the same.
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
		Title *string `json:"title,omitempty" minLength:"1" maxLength:"200"`
		Done  *bool   `json:"done,omitempty"`
	}
)

func (a *api) list(c *filo.Ctx) error {
	input := listInput{Filter: "all", Before: math.MaxInt64, Limit: defaultLimit}
	if err := bind.Query(c, &input, strict, valid); err != nil {
		return err
	}
	var done filter
	if input.Filter != "all" {
		isDone := input.Filter == "done"
		done = &isDone
	}
	result, err := a.todos.list(c.Context(), done, input.Before, input.Limit)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, result)
}

func (a *api) add(c *filo.Ctx) error {
	var input newTodo
	if err := bind.JSON(c, &input, strict, valid); err != nil {
		return err
	}
	added, err := a.todos.add(c.Context(), input.Title)
	if err != nil {
		return err
	}
	c.Response.Header.Set("Location", "/api/todos/"+strconv.FormatInt(added.ID, 10))
	return c.JSON(http.StatusCreated, added)
}

func (a *api) get(c *filo.Ctx) error {
	id, err := idOf(c)
	if err != nil {
		return err
	}
	found, err := a.todos.get(c.Context(), id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, found)
}

func (a *api) change(c *filo.Ctx) error {
	id, err := idOf(c)
	if err != nil {
		return err
	}
	var input todoChange
	if err := bind.JSON(c, &input, strict, valid); err != nil {
		return err
	}
	changed, err := a.todos.change(c.Context(), id, input.Title, input.Done)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, changed)
}

func (a *api) remove(c *filo.Ctx) error {
	id, err := idOf(c)
	if err != nil {
		return err
	}
	if err := a.todos.remove(c.Context(), id); err != nil {
		return err
	}
	return c.NoContent()
}

func idOf(c *filo.Ctx) (int64, error) {
	var input idInput
	err := bind.Path(c, &input, valid)
	return input.ID, err
}

var (
	strict = bind.Strict()
	valid  = bind.With(validator{})
)

// validator is bind's: it asks the inputs themselves.
type validator struct{}

func (validator) Validate(v any) error {
	return v.(interface{ Validate() error }).Validate()
}

func (in *listInput) Validate() error {
	switch {
	case in.Filter != "all" && in.Filter != "open" && in.Filter != "done":
		return invalid(http.StatusBadRequest, "Filter", "must be all, open or done")
	case in.Before < 1:
		return invalid(http.StatusBadRequest, "Before", "must be 1 or more")
	case in.Limit < 1 || in.Limit > maxLimit:
		return invalid(http.StatusBadRequest, "Limit", "must be from 1 to "+strconv.Itoa(maxLimit))
	}
	return nil
}

func (in *idInput) Validate() error {
	if in.ID < 1 {
		return invalid(http.StatusBadRequest, "ID", "must be 1 or more")
	}
	return nil
}

func (in *newTodo) Validate() error { return checkTitle(&in.Title) }

func (in *todoChange) Validate() error {
	if in.Title == nil {
		return nil
	}
	return checkTitle(in.Title)
}

// checkTitle trims a title, and says what is wrong with it.
func checkTitle(title *string) error {
	*title = strings.TrimSpace(*title)
	switch n := utf8.RuneCountInString(*title); {
	case n < 1 || n > maxTitle:
		return invalid(http.StatusUnprocessableEntity, "Title", "must have 1 to "+strconv.Itoa(maxTitle)+" characters")
	case strings.ContainsFunc(*title, unicode.IsControl):
		return invalid(http.StatusUnprocessableEntity, "Title", "must be one line without control characters")
	}
	return nil
}

func invalid(status int, field, detail string) error {
	return &bind.Error{Status: status, Fields: []bind.FieldError{{Field: field, Detail: detail}}}
}
