//go:build unix

package restart

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notify sends systemd a message, if systemd has started this program and wants messages.
func (r *Restarter) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		r.logger().Warn("sending a message to systemd failed", "message", state, "error", err)
	}
}

// beat tells systemd's watchdog that this program works, until the program has finished or a new program has taken over.
func (r *Restarter) beat(ctx context.Context) {
	if r.watchdog == 0 {
		return
	}
	ticker := time.NewTicker(r.watchdog / 2)
	defer ticker.Stop()
	for {
		if err := r.alive(ctx); err != nil {
			r.logger().Error("this program doesn't work according to Options.Alive: systemd's watchdog gets no message", "error", err)
		} else {
			r.notify(daemon.SdNotifyWatchdog)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// alive calls Options.Alive, if it is set.
func (r *Restarter) alive(ctx context.Context) error {
	if r.options.Alive == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.watchdog/4)
	defer cancel()
	return r.options.Alive(ctx)
}
