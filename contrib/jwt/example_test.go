package jwt_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	gojwt "github.com/golang-jwt/jwt/v5"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/contrib/jwt"
	"github.com/filohttp/filo/router"
	"github.com/filohttp/filo/servertest"
)

func ExampleNew() {
	type User struct {
		jwt.RegisteredClaims
		Role string `json:"role"`
	}
	secret := []byte("32 random bytes, from a safe place")

	r := router.New()
	api := r.Group("/api", jwt.New(jwt.Options[User]{
		Algorithms: []string{"HS256"},
		Key:        secret,
		Issuer:     "https://login.example.com",
	}))
	api.GET("/me", func(c *filo.Ctx) error {
		user, _ := jwt.Claims[User](c)
		return c.Text(200, user.Subject+", "+user.Role)
	})

	ln := servertest.NewListener()
	server := &filo.Server{Handler: r.Serve}
	go server.Serve(ln)
	defer server.Shutdown(context.Background())
	client := &http.Client{Transport: &http.Transport{DialContext: ln.DialContext, DisableKeepAlives: true}}

	token, _ := gojwt.NewWithClaims(gojwt.SigningMethodHS256, User{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer:    "https://login.example.com",
			Subject:   "gopher",
			ExpiresAt: gojwt.NewNumericDate(time.Now().Add(time.Hour)),
		},
		Role: "admin",
	}).SignedString(secret)
	for _, authorization := range []string{"", "Bearer " + token, "Bearer " + token[1:]} {
		request, _ := http.NewRequest("GET", "http://filo.test/api/me", nil)
		if authorization != "" {
			request.Header.Set("Authorization", authorization)
		}
		response, err := client.Do(request)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode == 200 {
			fmt.Println(string(body))
		} else {
			fmt.Println(response.StatusCode, response.Header.Get("WWW-Authenticate"))
		}
	}
	// Output:
	// 401 Bearer realm="api"
	// gopher, admin
	// 401 Bearer realm="api", error="invalid_token"
}
