package filo

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// armings are the uses of a context, by whether they need its end.
var armings = []struct {
	name string
	use  func(ctx context.Context)
	arms bool
}{
	{"Value", func(ctx context.Context) { ctx.Value("key") }, false},
	{"Deadline", func(ctx context.Context) { ctx.Deadline() }, false},
	{"WithValue", func(ctx context.Context) { context.WithValue(ctx, slog.LevelInfo, 1).Value("key") }, false},
	{"WithoutCancel", func(ctx context.Context) { ctx = context.WithoutCancel(ctx); ctx.Done(); ctx.Err(); context.Cause(ctx) }, false},
	{"Done", func(ctx context.Context) { ctx.Done() }, true},
	{"Err", func(ctx context.Context) { ctx.Err() }, true},
	{"Cause", func(ctx context.Context) { context.Cause(ctx) }, true},
	{"Done of one with a value", func(ctx context.Context) { context.WithValue(ctx, slog.LevelInfo, 1).Done() }, true},
	{"WithCancel", func(ctx context.Context) { _, cancel := context.WithCancel(ctx); cancel() }, true},
	{"WithTimeout", func(ctx context.Context) { _, cancel := context.WithTimeout(ctx, time.Hour); cancel() }, true},
	{"AfterFunc", func(ctx context.Context) { context.AfterFunc(ctx, func() {})() }, true},
}

// "It costs one small allocation until its end is asked for, by Done, Err, or a context made of it that ends".
func TestContextIsArmedWhenItsEndIsAskedFor(t *testing.T) {
	for _, driver := range []Driver{DriverBlocking, DriverAuto} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{Driver: driver, Handler: func(c *Ctx) error {
			use := armings[c.Request.URI().Path()[1]-'a']
			ctx := c.Context()
			use.use(ctx)
			r := ctx.(*requestContext)
			r.mu.Lock()
			armed, watched := r.end.Load() != nil, r.watched
			r.mu.Unlock()
			if armed != use.arms || watched != use.arms {
				t.Errorf("driver %v, %s: armed %v, the client watched %v, want %v", driver, use.name, armed, watched, use.arms)
			}
			return c.NoContent()
		}}
		served := make(chan error, 1)
		go func() { served <- s.Serve(listener) }()
		client, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		for i := range armings {
			io.WriteString(client, "GET /"+string(rune('a'+i))+" HTTP/1.1\r\nHost: a\r\n\r\n")
			if _, err := io.ReadAtLeast(client, make([]byte, 1000), 20); err != nil {
				t.Fatal(err)
			}
		}
		client.Close()
		s.Close()
		<-served
	}
}

// A client may leave because of what a write has brought it, and before the write returns. So a write that began before the
// client's end proves nothing by its end.
func TestContextOfAClientThatLeavesDuringAWrite(t *testing.T) {
	tests := []struct {
		name   string
		before int           // beginnings and ends of writes before the client's end
		during []int         // and after it, in each second
		ends   time.Duration // when the context ends; 0: not
	}{
		{"no write", 0, nil, 5 * time.Second},
		{"a write before", 2, nil, 5 * time.Second},
		{"a write that ends then", 1, []int{1}, 5 * time.Second},
		{"a write that began before and lasts", 1, []int{0, 0, 0, 0, 0, 0, 1}, 10 * time.Second},
		{"a write begins", 2, []int{0, 1}, 0},
		{"a write behind one that ends then", 1, []int{1, 1, 1}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &requestContext{server: &Server{life: lifecycle{base: context.Background()}}, watched: true}
				c := &Ctx{context: r}
				done := r.Done()
				for range test.before {
					c.countWrite()
				}
				r.clientEnded(true)
				start, ended := time.Now(), make(chan time.Duration, 1)
				go func() {
					<-done
					ended <- time.Since(start)
				}()
				for _, n := range test.during {
					time.Sleep(time.Second / 2)
					for range n {
						c.countWrite()
					}
					time.Sleep(time.Second / 2)
				}
				time.Sleep(time.Minute - time.Since(start))
				select {
				case after := <-ended:
					if after != test.ends {
						t.Errorf("the context ended after %v, want %v", after, test.ends)
					}
				default:
					if test.ends != 0 {
						t.Errorf("the context hasn't ended, want after %v", test.ends)
					}
				}
				r.finish()
			})
		})
	}
}
