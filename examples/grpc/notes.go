package main

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/examples/grpc/notespb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxNotes and maxText limit how many notes are kept, and the bytes of each: everybody may add some.
const (
	maxNotes = 1000
	maxText  = 500
)

// notes are kept in memory. It implements the service, and the route of REST.
type notes struct {
	notespb.UnimplementedNotesServer

	mu      sync.Mutex
	all     []*notespb.Note // never changed but by an append; guarded by mu
	changed chan struct{}   // closed when all grows or the server ends, and then replaced; guarded by mu
	ended   bool            // guarded by mu
}

func newNotes() *notes { return &notes{changed: make(chan struct{})} }

// Add implements the service.
func (n *notes) Add(_ context.Context, in *notespb.AddRequest) (*notespb.Note, error) {
	text := strings.TrimSpace(in.Text)
	if text == "" || len(text) > maxText {
		return nil, status.Errorf(codes.InvalidArgument, "a note has 1 to %d bytes of text", maxText)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.all) == maxNotes {
		return nil, status.Errorf(codes.ResourceExhausted, "there are %d notes already", maxNotes)
	}
	note := &notespb.Note{Id: int64(len(n.all) + 1), Text: text}
	n.all = append(n.all, note)
	n.tellLocked()
	return note, nil
}

// Watch implements the service.
func (n *notes) Watch(_ *notespb.WatchRequest, stream grpc.ServerStreamingServer[notespb.Note]) error {
	for sent := 0; ; {
		all, changed, ended := n.get()
		for _, note := range all[sent:] {
			if err := stream.Send(note); err != nil {
				return err
			}
		}
		sent = len(all)
		if ended {
			return status.Error(codes.Unavailable, "the server is shutting down")
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// get returns the notes, and a channel that is closed when that has changed.
func (n *notes) get() (all []*notespb.Note, changed <-chan struct{}, ended bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all, n.changed, n.ended
}

func (n *notes) tellLocked() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// end ends all watches: a shutdown waits for them.
func (n *notes) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
	n.tellLocked()
}

// list answers GET /notes.
func (n *notes) list(c *filo.Ctx) error {
	type note struct {
		ID   int64  `json:"id"`
		Text string `json:"text"`
	}
	all, _, _ := n.get()
	answer := slices.Grow([]note{}, len(all))
	for _, each := range all {
		answer = append(answer, note{each.Id, each.Text})
	}
	return c.JSON(200, answer)
}
