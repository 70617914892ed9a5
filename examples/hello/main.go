// Command hello is the first program of the README and the guide: it answers every request with a greeting.
package main

import (
	"log"

	"github.com/filohttp/filo"
)

func main() {
	log.Fatal(filo.ListenAndServe("localhost:8080", func(c *filo.Ctx) error {
		return c.Text(200, "Hello, World!\n")
	}))
}
