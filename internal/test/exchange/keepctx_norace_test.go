//go:build !race

package exchange

import (
	"fmt"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
)

// If a Ctx is used after its handler has returned and its connection has ended, a method panics with a message that says so, or does nothing.
// No method dereferences a nil pointer. TestKeptCtxPanics is the test for builds with the race detector.
func TestKeptCtxSaysSo(t *testing.T) {
	for name, serve := range map[string]func(testing.TB, *filo.Server) *filotest.Host{"memory": filotest.ServeMemory, "socket": filotest.ServeSocket} {
		t.Run(name, func(t *testing.T) {
			kept := make(chan *filo.Ctx, 1)
			h := serve(t, &filo.Server{Handler: func(c *filo.Ctx) error {
				kept <- c
				return c.Text(200, "answer")
			}})
			client := h.Connect(t)
			client.Send(t, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody")
			client.Receive(t, "POST")
			client.WantEnd(t)
			c := filotest.Recv(t, kept, "the handler")
			for deadline := time.Now().Add(time.Minute); releasedPanic(func() { c.Server() }) == nil; runtime.Gosched() {
				if time.Now().After(deadline) {
					t.Fatal("the Ctx of a connection that has ended is still in use")
				}
			}
			said := 0
			for _, receiver := range []any{c, &c.Request, &c.Response} {
				said += callAll(t, receiver)
			}
			if said < 40 {
				t.Errorf("%d methods say so, want 40 at least", said)
			}
			w := new(filo.StreamWriter)
			if _, err := io.WriteString(w, "late"); err == nil || !strings.Contains(err.Error(), "handler has returned") {
				t.Errorf("a late write: %v", err)
			}
		})
	}
}

// callAll calls all methods of a receiver with zero values, and returns how many have panicked because the receiver is used too late.
func callAll(t *testing.T, receiver any) (said int) {
	v := reflect.ValueOf(receiver)
	for i := range v.NumMethod() {
		method, name := v.Method(i), fmt.Sprintf("%T.%s", receiver, v.Type().Method(i).Name)
		var arguments []reflect.Value
		for in := range method.Type().NumIn() {
			arguments = append(arguments, reflect.Zero(method.Type().In(in)))
		}
		value := releasedPanic(func() {
			if method.Type().IsVariadic() {
				method.CallSlice(arguments)
			} else {
				method.Call(arguments)
			}
		})
		text := fmt.Sprint(value)
		switch {
		case strings.Contains(text, "used after its handler returned"):
			said++
		case value != nil:
			if _, ok := value.(runtime.Error); ok {
				t.Errorf("%s: %v", name, value)
			}
		}
	}
	return said
}

func releasedPanic(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}
