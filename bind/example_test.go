package bind_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

// send starts a server for h, sends it a request and prints the answer.
func send(h filo.Handler, method, target, contentType, body string) {
	listener := servertest.NewListener()
	server := &filo.Server{Handler: h}
	go server.Serve(listener)
	defer server.Close()
	client := http.Client{Transport: &http.Transport{DialContext: listener.DialContext, DisableKeepAlives: true}}
	request, _ := http.NewRequest(method, "http://filo.test"+target, strings.NewReader(body))
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(bufio.NewReader(response.Body))
	fmt.Println(response.StatusCode, strings.TrimSpace(string(text)))
}

func ExampleJSON() {
	type user struct {
		Name string `json:"name"`
		Age  uint8  `json:"age"`
	}
	create := func(c *filo.Ctx) error {
		var u user
		if err := bind.JSON(c, &u, bind.Strict()); err != nil {
			return err
		}
		return c.Text(201, u.Name)
	}
	send(create, "POST", "/", "application/json", `{"name":"Ada","age":36}`)
	send(create, "POST", "/", "application/json", `{"name":"Ada","age":300,"admin":true}`)
	// Output:
	// 201 Ada
	// 422 {"detail":"body \"/age\": must be an integer from 0 to 255 (and 1 more error)","errors":[{"in":"body","pointer":"/age","detail":"must be an integer from 0 to 255","code":"integer","params":{"maximum":255,"minimum":0}},{"in":"body","pointer":"/admin","detail":"isn't known here","code":"unknown"}],"status":422,"title":"Unprocessable Content"}
}

func ExampleQuery() {
	type page struct {
		Size  int           `query:"size"`
		Sort  []string      `query:"sort,comma"`
		Since time.Duration `query:"since"`
	}
	list := func(c *filo.Ctx) error {
		p := page{Size: 20} // the default
		if err := bind.Query(c, &p); err != nil {
			return err
		}
		return c.Text(200, fmt.Sprint(p.Size, p.Sort, p.Since))
	}
	send(list, "GET", "/?sort=name,age&since=1h30m", "", "")
	send(list, "GET", "/?size=many", "", "")
	// Output:
	// 200 20 [name age] 1h30m0s
	// 400 {"detail":"query \"size\": must be an integer","errors":[{"in":"query","name":"size","detail":"must be an integer","code":"integer"}],"status":400,"title":"Bad Request"}
}

func ExampleAll() {
	type edit struct {
		ID    int    `path:"id"`
		Dry   bool   `query:"dry"`
		Title string `json:"title" form:"title"`
	}
	r := router.New()
	r.PUT("/posts/{id}", func(c *filo.Ctx) error {
		var e edit
		if err := bind.All(c, &e); err != nil {
			return err
		}
		return c.Text(200, fmt.Sprintf("%+v", e))
	})
	send(r.Serve, "PUT", "/posts/7?dry=1", "application/json", `{"title":"by JSON"}`)
	send(r.Serve, "PUT", "/posts/7", "application/x-www-form-urlencoded", "title=by+form")
	// Output:
	// 200 {ID:7 Dry:true Title:by JSON}
	// 200 {ID:7 Dry:false Title:by form}
}

func ExampleJSON_required() {
	type rating struct {
		Stars   int     `json:"stars" required:"true"`
		Comment *string `json:"comment"`
	}
	rate := func(c *filo.Ctx) error {
		var r rating
		if err := bind.JSON(c, &r); err != nil {
			return err
		}
		return c.Text(200, fmt.Sprint(r.Stars))
	}
	send(rate, "POST", "/", "application/json", `{"stars":0}`)
	send(rate, "POST", "/", "application/json", `{"stars":null}`)
	// Output:
	// 200 0
	// 422 {"detail":"body \"/stars\": is required","errors":[{"in":"body","pointer":"/stars","detail":"is required","code":"required"}],"status":422,"title":"Unprocessable Content"}
}

func ExampleHandler() {
	type newUser struct {
		Team string `path:"team"`
		Name string `json:"name" required:"true"`
		Age  uint8  `json:"age"`
	}
	type user struct {
		ID   int    `json:"id"`
		Name string `json:"name"`
	}
	r := router.New()
	r.POST("/teams/{team}/users", bind.Handler(func(c *filo.Ctx, in newUser) (user, error) {
		if in.Team != "red" {
			return user{}, filo.Error(404, "no such team")
		}
		c.Response.Header.Set("Location", "/users/1")
		return user{1, in.Name}, nil
	}, bind.Strict(), bind.Status(201), bind.Doc{Summary: "Add a user to a team", Errors: []int{404}}))

	send(r.Serve, "POST", "/teams/red/users", "application/json", `{"name":"Ada"}`)
	send(r.Serve, "POST", "/teams/red/users", "application/json", `{"age":300}`)
	send(r.Serve, "POST", "/teams/blue/users", "application/json", `{"name":"Ada"}`)
	op, _ := bind.Describe(r.Routes()[0].Handler)
	fmt.Println(op.Doc.Summary, op.Statuses, op.Errors, op.Fields[0].Name, op.Fields[0].Required)
	// Output:
	// 201 {"id":1,"name":"Ada"}
	// 422 {"detail":"body \"/age\": must be an integer from 0 to 255 (and 1 more error)","errors":[{"in":"body","pointer":"/age","detail":"must be an integer from 0 to 255","code":"integer","params":{"maximum":255,"minimum":0}},{"in":"body","pointer":"/name","detail":"is required","code":"required"}],"status":422,"title":"Unprocessable Content"}
	// 404 {"detail":"no such team","status":404,"title":"Not Found"}
	// Add a user to a team [201] [400 404 413 415 422] name true
}

// period is a struct that checks itself.
type period struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

func (p *period) Valid() error {
	if p.To.Before(p.From) {
		return &bind.Error{Fields: []bind.FieldError{{Field: "To", Detail: "must not be before from"}}}
	}
	return nil
}

// selfCheck is a Validator that calls the value's own method, if there is one.
type selfCheck struct{}

func (selfCheck) Validate(v any) error {
	if v, ok := v.(interface{ Valid() error }); ok {
		return v.Valid()
	}
	return nil
}

func ExampleWith() {
	validated := bind.With(selfCheck{})
	send(func(c *filo.Ctx) error {
		var p period
		err := bind.JSON(c, &p, validated)
		var invalid *bind.Error
		if errors.As(err, &invalid) {
			return c.Text(invalid.Status, invalid.Fields[0].Pointer+" "+invalid.Fields[0].Detail)
		}
		return err
	}, "POST", "/", "application/json", `{"from":"2024-05-02T00:00:00Z","to":"2024-05-01T00:00:00Z"}`)
	// Output:
	// 422 /to must not be before from
}
