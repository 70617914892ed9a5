package validate_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/contrib/validate"
	"github.com/filohttp/filo/servertest"
)

func Example() {
	type user struct {
		Name   string   `json:"name" validate:"required,max=100"`
		Emails []string `json:"emails" validate:"min=1,dive,email"`
	}
	validated := bind.With(validate.New())
	create := func(c *filo.Ctx) error {
		var u user
		if err := bind.JSON(c, &u, bind.Strict(), validated); err != nil {
			return err
		}
		return c.Text(201, u.Name)
	}

	listener := servertest.NewListener()
	server := &filo.Server{Handler: create}
	go server.Serve(listener)
	defer server.Close()
	client := http.Client{Transport: &http.Transport{DialContext: listener.DialContext}}
	request, _ := http.NewRequest("POST", "http://filo.test/", strings.NewReader(`{"emails":["ada@example.com","?"]}`))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	problem, _ := io.ReadAll(response.Body)
	fmt.Println(response.StatusCode, string(problem))
	// Output:
	// 422 {"detail":"body \"/name\": is required (and 1 more error)","errors":[{"in":"body","pointer":"/name","detail":"is required","code":"required"},{"in":"body","pointer":"/emails/1","detail":"must be an e-mail address","code":"email"}],"status":422,"title":"Unprocessable Content"}
}
