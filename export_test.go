package filo

import (
	"time"

	"github.com/filohttp/filo/internal/class"
)

// SilentBodies returns how many bodies take up room although their clients have been silent for at least that long.
func (s *Server) SilentBodies(least time.Duration) int {
	return s.bodies.Silents(s.clock.Exact(), least)
}

// TrainClass makes the server treat the handlers of this class as brief ones that compute, until measurements say otherwise.
func TrainClass(s *Server, name string) {
	train := func(k *class.Class) {
		if k.Name == name {
			k.Median.Store(int64(class.Brief) / 2)
			for range 100 {
				k.AddSample(true)
			}
		}
	}
	train(&s.classes.handler)
	s.classes.entered.Each(train)
}

// WindowGrace returns how long a client has to open a window while this much of the budget of answers is used.
func WindowGrace(s *Server, used, waiting int64) time.Duration {
	s.configure()
	s.answers.Add(used - s.answers.Used())
	s.answers.Wait(waiting - s.answers.Waiting())
	return s.answers.Limits(s.config.writing).Grace
}

// SetMaxHandshakes changes how many TLS handshakes may compute at once, and how many may wait for their clients. Call it before the server
// serves.
func (s *Server) SetMaxHandshakes(n int) { s.handshakes.Most = n }

// SetLongHandshake changes for how long a TLS handshake counts as computing. Call it before the server serves.
func (s *Server) SetLongHandshake(d time.Duration) { s.handshakes.Long = d }
