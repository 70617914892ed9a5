// Mixed serves handlers of different kinds by filo or, with -std, by net/http, to see how they get on beside each other:
//
//	GET /hello    answers at once
//	GET /sleep    answers after 5 ms
//	GET /db       asks a server in another process, over a connection of its own, and answers with what that says
//	GET /quick    works for a microsecond
//	POST /whole   reads its body as a whole
//	POST /stream  reads its body as it comes
//
// With -back it is the other process that /db asks. On SIGINT and SIGTERM it prints the server's statistics, if it has any,
// and how much memory the process has had at most.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/class"
	"github.com/filohttp/filo/internal/inside"
)

// back is the address of the server that /db asks.
var back = flag.String("ask", "127.0.0.1:9001", "the address that /db asks")

// questions are connections to it that nobody uses at the moment.
var questions = sync.Pool{New: func() any {
	c, err := net.Dial("tcp", *back)
	if err != nil {
		log.Fatal(err)
	}
	return c
}}

func ask() {
	c := questions.Get().(net.Conn)
	var question [8]byte
	c.Write(question[:])
	if _, err := io.ReadFull(c, question[:]); err != nil {
		log.Fatal(err)
	}
	questions.Put(c)
}

func work() {
	for begin := time.Now(); time.Since(begin) < time.Microsecond; {
	}
}

func handle(c *filo.Ctx) error {
	switch c.Path() {
	case "/sleep":
		time.Sleep(5 * time.Millisecond)
	case "/db":
		ask()
	case "/quick":
		work()
	case "/whole":
		body, err := c.Body()
		if err != nil {
			return err
		}
		return c.Text(200, fmt.Sprint(len(body)))
	case "/stream":
		n, err := io.Copy(io.Discard, c.BodyReader())
		if err != nil {
			return err
		}
		return c.Text(200, fmt.Sprint(n))
	}
	return c.Text(200, "Hello, World!")
}

// pathClasses are those of the paths, which handle enters as a router does.
var pathClasses = map[string]*class.Class{
	"/hello": {Name: "/hello"}, "/sleep": {Name: "/sleep"}, "/db": {Name: "/db"},
	"/quick": {Name: "/quick"}, "/whole": {Name: "/whole"}, "/stream": {Name: "/stream"},
}

func route(c *filo.Ctx) error {
	class := pathClasses[c.Path()]
	if class == nil {
		return c.Text(404, "Not Found")
	}
	if err := inside.Enter(c, class); err != nil {
		return err
	}
	return handle(c)
}

func handleStd(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/sleep":
		time.Sleep(5 * time.Millisecond)
	case "/db":
		ask()
	case "/quick":
		work()
	case "/whole":
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		fmt.Fprint(w, len(body))
		return
	case "/stream":
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			return
		}
		fmt.Fprint(w, n)
		return
	}
	w.Header()["Content-Type"] = []string{"text/plain"}
	io.WriteString(w, "Hello, World!")
}

func answerQuestions() {
	listener, err := net.Listen("tcp", *back)
	if err != nil {
		log.Fatal(err)
	}
	for {
		c, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go io.Copy(c, c)
	}
}

func main() {
	addr := flag.String("addr", "127.0.0.1:9000", "the address to listen on")
	std := flag.Bool("std", false, "serve by net/http")
	isBack := flag.Bool("back", false, "answer what /db asks")
	loops := flag.Int("loops", 0, "filo's Server.Loops")
	blocking := flag.Bool("blocking", false, "use filo's blocking driver")
	flag.Parse()
	if *isBack {
		answerQuestions()
	}
	s := &filo.Server{Handler: route, Loops: *loops, MaxBodyBytes: 1 << 30}
	if *blocking {
		s.Driver = filo.DriverBlocking
	}
	go func() {
		if *std {
			log.Fatal(http.ListenAndServe(*addr, http.HandlerFunc(handleStd)))
		}
		log.Fatal(s.ListenAndServe(*addr))
	}()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	<-ctx.Done()
	stop()
	if !*std {
		st := s.Stats()
		fmt.Printf("handoffs %d, retakes %d, steals %d, hosted %d, refused %d\n", st.Handoffs, st.Retakes, st.Steals, st.LoopsHosted, st.RequestsRefused)
		for _, class := range st.Classes {
			fmt.Printf("%+v\n", class)
		}
	}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmHWM") {
			fmt.Print(line)
		}
	}
}
