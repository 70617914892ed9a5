package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/bind"
	"github.com/filohttp/filo/sse"
)

const (
	// maxAnswers limits the answers in memory, and so the calls to the model for these answers. Calls from MCP clients don't count: filo's
	// Concurrency limits them while their requests are open.
	maxAnswers = 1000
	// firstRead is how long the model works on an answer that no client has begun to read.
	firstRead = 10 * time.Second
)

var (
	errNobodyReads = errors.New("nobody reads the answer any more")
	errTooMany     = filo.Error(503, "too many answers at once")
)

// answers holds the answers that are being written, and those that ended a short while ago. A program with user accounts would also record to which
// user each answer belongs.
type answers struct {
	model          *Model
	patience, keep time.Duration

	mu   sync.Mutex
	byID map[string]*answer // guarded by mu
}

func newAnswers(model *Model, patience, keep time.Duration) *answers {
	return &answers{model: model, patience: patience, keep: keep, byID: make(map[string]*answer)}
}

// ask starts the model's answer to a prompt. The work doesn't depend on a connection: a client that loses its connection reconnects, and continues to
// read the answer.
func (a *answers) ask(c *filo.Ctx) error {
	var question struct {
		Prompt string `json:"prompt" required:"true" maxLength:"10000"`
	}
	if err := bind.JSON(c, &question); err != nil {
		return err
	}
	id, w := rand.Text(), newAnswer(a.patience, c.Logger())
	if !a.add(id, w) {
		return errTooMany
	}
	// A shutdown waits for the task. When the shutdown gives up waiting, the task's context ends.
	err := c.Go(func(ctx context.Context) {
		stop := context.AfterFunc(ctx, func() { w.cancel(context.Cause(ctx)) })
		defer stop()
		w.end(a.model.Ask(w.ctx, question.Prompt, w.add))
		time.AfterFunc(a.keep, func() { a.remove(id) })
	})
	if err != nil {
		a.remove(id)
		return err
	}
	c.Response.Header.Set("Location", "/answers/"+id)
	return c.JSON(201, map[string]string{"id": id})
}

// read sends an answer as events, beginning after Last-Event-ID, and waits for further tokens.
func (a *answers) read(c *filo.Ctx) error {
	w := a.find(c.Param("id"))
	if w == nil {
		return filo.Error(404, "there is no such answer any more")
	}
	w.enter()
	defer w.leave()
	stream, err := sse.Open(c)
	if err != nil {
		return err
	}
	defer stream.Close()
	next, _ := strconv.Atoi(stream.LastEventID()) // 0 when the client connects for the first time
	for {
		at, tokens, more, ended, err := w.from(next)
		next = at
		for _, token := range tokens {
			next++
			if err := stream.Send(sse.Event{ID: strconv.Itoa(next), Type: "token", Data: token}); err != nil {
				return err // the client has left
			}
		}
		switch {
		case err != nil:
			stream.Send(sse.Event{Type: "failed"})
			return err // the server aborts the connection, so that no client takes the answer for complete
		case ended:
			return stream.Send(sse.Event{Type: "end"})
		}
		select {
		case <-more:
		case <-c.Context().Done(): // not stream.Context(), which ends when a shutdown begins
			return context.Cause(c.Context())
		}
	}
}

func (a *answers) add(id string, w *answer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.byID) >= maxAnswers {
		return false
	}
	a.byID[id] = w
	return true
}

func (a *answers) find(id string) *answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byID[id]
}

func (a *answers) remove(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byID, id)
}

// answer is the part of the model's answer that has arrived. It is cancelled when no client has read it for the duration patience.
type answer struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	patience time.Duration
	begun    time.Time
	log      *slog.Logger

	mu        sync.Mutex
	readers   int
	abandoned *time.Timer
	tokens    []string
	ended     bool
	err       error
	more      chan struct{} // closed and replaced when there is more to read
}

func newAnswer(patience time.Duration, log *slog.Logger) *answer {
	w := &answer{patience: patience, log: log, begun: time.Now(), more: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	w.abandoned = time.AfterFunc(firstRead, func() { w.cancel(errNobodyReads) })
	return w
}

func (w *answer) enter() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readers++
	w.abandoned.Stop()
}

func (w *answer) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.readers--; w.readers == 0 && !w.ended {
		w.abandoned.Reset(w.patience)
	}
}

func (w *answer) add(token string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.tokens) == 0 {
		w.log.Info("the model's first token", "after_ms", time.Since(w.begun).Milliseconds())
	}
	w.tokens = append(w.tokens, token)
	w.changed()
}

func (w *answer) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended, w.err = true, err
	if err != nil && w.ctx.Err() != nil {
		w.err = context.Cause(w.ctx)
	}
	w.abandoned.Stop()
	w.cancel(nil)
	w.changed()
}

// changed wakes the readers. The caller holds mu.
func (w *answer) changed() {
	close(w.more)
	w.more = make(chan struct{})
}

// from returns the tokens after the first n, and n itself, limited to the number of tokens. It also returns a channel that is closed
// when there are more.
func (w *answer) from(n int) (at int, tokens []string, more <-chan struct{}, ended bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n = min(max(n, 0), len(w.tokens)) // a client may send any number
	return n, w.tokens[n:], w.more, w.ended, w.err
}

// page is a page that reads an answer with EventSource, which reconnects automatically.
func page(c *filo.Ctx) error {
	return c.HTML(200, `<!doctype html><meta charset="utf-8"><title>A model's answer</title>
<form><input name="prompt" size="60" value="the quick brown fox jumps over the lazy dog"> <button>Ask</button></form><p></p>
<script>
const form = document.querySelector("form"), text = document.querySelector("p");
form.onsubmit = async e => {
	e.preventDefault();
	const asked = await fetch("/answers", {method: "POST", headers: {"Content-Type": "application/json"},
		body: JSON.stringify({prompt: form.prompt.value})});
	if (!asked.ok) {
		text.textContent = await asked.text();
		return;
	}
	const events = new EventSource(asked.headers.get("Location"));
	text.textContent = "";
	events.addEventListener("token", e => { text.textContent += e.data; });
	events.addEventListener("end", () => events.close()); // or it connects again
	const brokeOff = () => { events.close(); text.textContent += " … the answer broke off"; };
	events.addEventListener("failed", brokeOff);
	events.onerror = () => { if (events.readyState === EventSource.CLOSED) brokeOff(); }; // otherwise it connects again
};
</script>`)
}
