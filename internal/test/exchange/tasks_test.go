package exchange

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/pool"
)

// taskServer's handler starts a task. The task reports that it runs, and ends when the test releases it, or when its context is done.
type taskServer struct {
	*filotest.Server
	began   chan struct{}
	release chan struct{}
	ended   chan error // the cause with which the task's context has ended
}

func serveTasks(t *testing.T, config *filo.Server) *taskServer {
	s := &taskServer{began: make(chan struct{}, 10), release: make(chan struct{}), ended: make(chan error, 10)}
	config.Handler = func(c *filo.Ctx) error {
		c.SetDeadline(time.Now().Add(time.Millisecond))
		requestContext := c.Context()
		switch c.Path() {
		case "/nil":
			return c.Go(nil)
		case "/panic":
			return errors.Join(c.Go(func(context.Context) { panic("no such record") }), c.Text(200, "left"))
		}
		err := c.Go(func(ctx context.Context) {
			s.began <- struct{}{}
			if _, limited := ctx.Deadline(); limited {
				t.Error("the request's deadline is the task's")
			}
			select {
			case <-s.release:
			case <-ctx.Done():
			}
			s.ended <- context.Cause(ctx)
		})
		if err != nil {
			return err
		}
		<-requestContext.Done()
		return c.Text(200, "left")
	}
	s.Server = filotest.Serve(t, config)
	return s
}

// leave makes a request whose handler leaves a task behind.
func (s *taskServer) leave(t *testing.T) {
	t.Helper()
	c := s.Dial(t)
	c.Get("/")
	c.Want(200, "left", false)
	c.Close()
	filotest.Recv(t, s.began, "the task to run")
}

// A task continues after its request has ended, the request's deadline has passed and the client has disconnected. Shutdown waits for the task.
func TestTaskOutlivesItsRequest(t *testing.T) {
	s := serveTasks(t, &filo.Server{})
	s.leave(t)
	if n := s.Stats().TasksRunning; n != 1 {
		t.Errorf("%d tasks run, want 1", n)
	}
	down := make(chan error, 1)
	s.Go(func() { down <- s.Shutdown(context.Background()) })
	select {
	case err := <-down:
		t.Errorf("Shutdown didn't wait for the task: %v", err)
	case err := <-s.ended:
		t.Errorf("the task's context has ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(s.release)
	if err := filotest.Recv(t, down, "the server to shut down"); err != nil {
		t.Error(err)
	}
	if err := filotest.Recv(t, s.ended, "the task to end"); err != nil {
		t.Errorf("the task's context has ended: %v", err)
	}
	if n := s.Stats().TasksRunning; n != 0 {
		t.Errorf("%d tasks run, want none", n)
	}
}

// The task's context doesn't end "with the request or its client, but only when Close is called or Shutdown gives up waiting".
func TestTaskCancelled(t *testing.T) {
	t.Run("by Shutdown's deadline", func(t *testing.T) {
		s := serveTasks(t, &filo.Server{})
		s.leave(t)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		if err := filotest.Recv(t, s.ended, "the task to end"); err != filo.ErrServerClosed {
			t.Errorf("the cause is %v", err)
		}
		if err := s.Shutdown(context.Background()); err != nil {
			t.Errorf("Shutdown once more: %v", err)
		}
	})
	t.Run("by Close", func(t *testing.T) {
		s := serveTasks(t, &filo.Server{})
		s.leave(t)
		s.Close()
		if err := filotest.Recv(t, s.ended, "the task to end"); err != filo.ErrServerClosed {
			t.Errorf("the cause is %v", err)
		}
	})
}

// If there are too many tasks, the answer is a 503. The server doesn't change or release a user's own pool.
func TestTaskOverload(t *testing.T) {
	tasks, err := pool.NewPool(1)
	if err != nil {
		t.Fatal(err)
	}
	s := serveTasks(t, &filo.Server{Tasks: tasks})
	s.leave(t)
	c := s.Dial(t)
	c.Get("/")
	if response, body := c.Answer(); response.StatusCode != 503 || response.Header.Get("Retry-After") == "" ||
		!strings.Contains(body, "too many tasks") {
		t.Errorf("got %d %q, Retry-After %q", response.StatusCode, body, response.Header.Get("Retry-After"))
	}
	if got := s.Stats().Refusals; got != (filo.Refusals{Tasks: 1}) {
		t.Errorf("%+v", got)
	}
	close(s.release)
	filotest.Recv(t, s.ended, "the task to end")
	filotest.Await(t, "its place in the pool to be free", func() bool { return tasks.Stats().Done == 1 })
	s.leave(t)
	if err := s.ShutdownInTime(); err != nil {
		t.Error(err)
	}
	if tasks.IsClosed() {
		t.Error("the user's pool was released")
	}
	if err := tasks.ReleaseTimeout(filotest.Bound); err != nil {
		t.Error(err)
	}
}

// A released pool refuses tasks like a full pool.
func TestTaskReleasedPool(t *testing.T) {
	tasks, err := pool.NewPool(1)
	if err != nil {
		t.Fatal(err)
	}
	tasks.Release()
	s := serveTasks(t, &filo.Server{Tasks: tasks})
	c := s.Dial(t)
	c.Get("/")
	if response, _ := c.Answer(); response.StatusCode != 503 {
		t.Errorf("got %d", response.StatusCode)
	}
	if n := s.Stats().TasksRunning; n != 0 {
		t.Errorf("%d tasks run, want none", n)
	}
}

// A panic in a task is logged, and affects nothing else. A nil task is refused.
func TestTaskPanics(t *testing.T) {
	var log filotest.Log
	s := serveTasks(t, &filo.Server{Logger: log.Logger()})
	c := s.Dial(t)
	c.Get("/panic")
	c.Want(200, "left", false)
	filotest.Await(t, "the panic to be logged, with its stack", func() bool {
		lines := log.Lines("no such record")
		return len(lines) == 1 && strings.Contains(lines[0], "tasks_test.go")
	})
	filotest.Await(t, "its end to be seen", func() bool { return s.Stats().TasksRunning == 0 })
	c.Get("/nil")
	if response, _ := c.Answer(); response.StatusCode != 500 {
		t.Errorf("got %d for a task that is nil", response.StatusCode)
	}
	close(s.release)
	s.leave(t)
}
