package templates_test

import (
	"io/fs"
	"maps"
	"sync"
	"testing/fstest"
	"time"
)

// lockedFS is a file system that may change while it is read.
type lockedFS struct {
	mu    sync.Mutex
	files fstest.MapFS // guarded by mu
	turns int64        // guarded by mu
}

func (l *lockedFS) put(name, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turns++
	l.files = maps.Clone(l.files)
	if l.files == nil {
		l.files = fstest.MapFS{}
	}
	l.files[name] = &fstest.MapFile{Data: []byte(text), ModTime: time.Unix(l.turns, 0)}
}

func (l *lockedFS) Open(name string) (fs.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.files.Open(name)
}
