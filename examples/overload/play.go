package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/examples/internal/program"
)

// result holds the counts of the clients and of the server.
type result struct {
	calm, storm tally // the regular clients, before and while the crowd is there
	crowd       tally
	after       tally // one client more, when the crowd has gone
	stats       filo.Stats
}

// play starts the server, lets the clients come in three acts, and shuts it down.
func play(ctx context.Context, cfg config) (*result, error) {
	server := &filo.Server{
		Concurrency: cfg.concurrency,
		// Here a place is a connection's for as long as that lives. In a loop it is a request's, whoever sends it: then
		// the regular clients' next requests are refused like the crowd's.
		Driver:      filo.DriverBlocking,
		GracePeriod: 5 * time.Second,
		Handler: func(c *filo.Ctx) error {
			time.Sleep(cfg.work)
			return c.Text(http.StatusOK, answer)
		},
	}
	addr, stop, err := program.Background(server.RunListener)
	if err != nil {
		return nil, err
	}

	r := &result{}
	r.acts(ctx, addr, cfg)
	r.stats = server.Stats()

	if err := stop(); err != nil {
		return nil, err
	}
	return r, ctx.Err()
}

// acts are the calm with the regular clients alone, the storm with the crowd, and the time after it.
func (r *result) acts(ctx context.Context, addr string, cfg config) {
	regulars := make([]*client, cfg.regulars)
	for i := range regulars {
		regulars[i] = &client{addr: addr}
		defer regulars[i].close()
	}
	act := func(d time.Duration, t *tally, clients []*client, keep bool) func() {
		ctx, cancel := context.WithTimeout(ctx, d)
		var wg sync.WaitGroup
		for _, c := range clients {
			wg.Go(func() { c.ask(ctx, t, keep) })
		}
		return func() { wg.Wait(); cancel() }
	}

	act(cfg.storm/2, &r.calm, regulars, true)()

	crowd := make([]*client, cfg.crowd)
	for i := range crowd {
		crowd[i] = &client{addr: addr}
	}
	waitRegulars := act(cfg.storm, &r.storm, regulars, true)
	waitCrowd := act(cfg.storm, &r.crowd, crowd, false)
	waitRegulars()
	waitCrowd()

	r.afterwards(addr)
}

// afterwards asks once more, as a new client. The crowd's last connections may need a moment to be seen as
// closed, so after a refusal it asks again, for as long as its patience lasts.
func (r *result) afterwards(addr string) {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		c := &client{addr: addr}
		got := c.get()
		c.close()
		if got.status != http.StatusServiceUnavailable || time.Now().After(deadline) {
			r.after.add(got)
			return
		}
	}
}

// verdict is nil when the server kept its promises: whoever was being served still is, a refusal is a whole
// answer that comes at once, and afterwards all is as before.
func (r *result) verdict() error {
	switch {
	case r.storm.count(http.StatusOK) == 0 || !r.storm.only(http.StatusOK):
		return fmt.Errorf("the regular clients were disturbed: %s", r.storm.statuses())
	case !r.crowd.only(http.StatusOK, http.StatusServiceUnavailable):
		return fmt.Errorf("the crowd got something else than 200 and 503: %s", r.crowd.statuses())
	case r.crowd.count(http.StatusServiceUnavailable) == 0:
		return errors.New("nobody was refused: make -crowd larger or -work longer")
	case !r.after.only(http.StatusOK):
		return fmt.Errorf("a new client after the crowd got %s", r.after.statuses())
	}
	return nil
}
