package class

import (
	"time"

	"github.com/filohttp/filo/internal/sock"
)

// threadTime returns the calling thread's ID, and how long it has run.
func threadTime() (thread int, ran time.Duration) { return sock.ThreadTime() }
