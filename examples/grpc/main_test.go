package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/filohttp/filo/examples/grpc/notespb"
	"github.com/filohttp/filo/examples/internal/browser"
	"github.com/filohttp/filo/examples/internal/program"
)

// start serves new notes. It returns the address, and a function that shuts the server down.
func start(t *testing.T) (address string, stop func() error) {
	t.Helper()
	address, stop, err := program.Background(func(ctx context.Context, l net.Listener) error {
		server := newServer(newNotes())
		server.Logger = slog.New(slog.DiscardHandler)
		return server.RunListener(ctx, l)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop() })
	return address, stop
}

// dial returns a connection of grpc-go's client, and a context for its calls.
func dial(t *testing.T, address string) (context.Context, *grpc.ClientConn) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx, conn
}

// A note that was added over gRPC can be read over gRPC and REST, and a shutdown ends the watch.
func TestNotes(t *testing.T) {
	address, stop := start(t)
	ctx, conn := dial(t, address)
	client := notespb.NewNotesClient(conn)
	watch, err := client.Watch(ctx, &notespb.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Add(ctx, &notespb.AddRequest{Text: " "}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an empty note: %v", err)
	}
	for i := range 3 {
		want := fmt.Sprint("note ", i)
		if _, err := client.Add(ctx, &notespb.AddRequest{Text: want}); err != nil {
			t.Fatal(err)
		}
		if got, err := watch.Recv(); err != nil || got.Text != want || got.Id != int64(i+1) {
			t.Errorf("watched %v, %v", got, err)
		}
	}
	answer, err := http.Get("http://" + address + "/notes")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	if want := `[{"id":1,"text":"note 0"},{"id":2,"text":"note 1"},{"id":3,"text":"note 2"}]`; strings.TrimSpace(string(body)) != want {
		t.Errorf("REST: %d %s", answer.StatusCode, body)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	if _, err := watch.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the watch ended with %v", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// Clients find the service with gRPC reflection.
func TestReflection(t *testing.T) {
	address, _ := start(t)
	ctx, conn := dial(t, address)
	s, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "notes.v1.Notes"}})
	got, err := s.Recv()
	if err != nil || len(got.GetFileDescriptorResponse().GetFileDescriptorProto()) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// The page adds notes, and shows those of other clients, over gRPC-Web.
func TestPage(t *testing.T) {
	address, _ := start(t)
	tab := browser.Tab(t)
	ctx, conn := dial(t, address)
	long := strings.Repeat("größer ", 50) // a length that takes two bytes in the encoding
	if _, err := notespb.NewNotesClient(conn).Add(ctx, &notespb.AddRequest{Text: long}); err != nil {
		t.Fatal(err)
	}
	do := func(action chromedp.Action[chromedp.Void]) {
		t.Helper()
		if err := chromedp.Do(tab, action); err != nil {
			t.Fatal(err)
		}
	}
	wait := func(expression string) {
		t.Helper()
		if _, err := chromedp.Run(tab, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(time.Minute))); err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
	}
	shows := func(want ...string) {
		t.Helper()
		wait(fmt.Sprintf(`[...document.querySelectorAll("li")].map((li) => li.textContent).join("|") === %q`, strings.Join(want, "|")))
	}
	do(chromedp.Navigate("http://" + address))
	shows(strings.TrimSpace(long))
	do(chromedp.SendKeys(chromedp.CSS("#text"), "Water the plants\r"))
	shows(strings.TrimSpace(long), "Water the plants")
	if _, err := notespb.NewNotesClient(conn).Add(ctx, &notespb.AddRequest{Text: "from a program"}); err != nil {
		t.Fatal(err)
	}
	shows(strings.TrimSpace(long), "Water the plants", "from a program")
	do(chromedp.SendKeys(chromedp.CSS("#text"), "\r"))
	wait(`document.querySelector("#error").textContent === "a note has 1 to 500 bytes of text"`)
}
