package grpcfilo_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"

	"github.com/filohttp/filo"
	grpcfilo "github.com/filohttp/filo/contrib/grpc"
	"github.com/filohttp/filo/middleware"
	"github.com/filohttp/filo/router"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
)

// One port serves REST, gRPC, and gRPC-Web for pages of another origin.
func Example() {
	g := grpcfilo.New()
	healthpb.RegisterHealthServer(g, health.NewServer()) // or any generated Register function
	reflection.Register(g)

	r := router.New()
	r.GET("/hello", func(c *filo.Ctx) error { return c.Text(200, "hello by REST") })
	g.Mount(r.Group("", middleware.CORS(middleware.CORSOptions{
		AllowOrigins: []string{"https://app.example.com"},
		AllowHeaders: []string{"Content-Type", "X-Grpc-Web", "X-User-Agent"},
	})))
	server := &filo.Server{Handler: r.Serve, ErrorHandler: grpcfilo.ErrorHandler(nil)}
	server.HTTP2.Unencrypted = true
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(listener)
	defer server.Close()
	address := listener.Addr().String()

	response, err := http.Get("http://" + address + "/hello")
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	fmt.Println(string(text))

	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	answer, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{})
	fmt.Println(answer.GetStatus(), err)

	// A browser sends this preflight before a page of another origin may call.
	preflight, _ := http.NewRequest("OPTIONS", "http://"+address+"/grpc.health.v1.Health/Check", nil)
	preflight.Header.Set("Origin", "https://app.example.com")
	preflight.Header.Set("Access-Control-Request-Method", "POST")
	preflight.Header.Set("Access-Control-Request-Headers", "content-type,x-grpc-web")
	if response, err = http.DefaultClient.Do(preflight); err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	fmt.Println(response.StatusCode, response.Header.Get("Access-Control-Allow-Origin"))
	// Output:
	// hello by REST
	// SERVING <nil>
	// 204 https://app.example.com
}

func ExampleCode() {
	// Place this middleware inside other middleware, around the methods.
	logCodes := func(next filo.Handler) filo.Handler {
		return func(c *filo.Ctx) error {
			err := next(c)
			if code, ok := grpcfilo.Code(c); ok {
				c.Logger().Info("call", "code", code)
			}
			return err
		}
	}
	r := router.New()
	r.Use(logCodes)
	grpcfilo.New().Mount(r)
}
