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

// maxNotes and maxText limit how many notes there are, and the bytes of each, since anyone may add notes.
const (
	maxNotes = 1000
	maxText  = 500
)

// notes holds the notes in memory. It implements the gRPC service and the REST route.
type notes struct {
	notespb.UnimplementedNotesServer

	mu      sync.Mutex
	all     []*notespb.Note // changed only by appending; guarded by mu
	changed chan struct{}   // closed and replaced when the slice all grows or the server ends; guarded by mu
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

// get returns the notes, a channel that is closed at the next change, and whether the server ends.
func (n *notes) get() (all []*notespb.Note, changed <-chan struct{}, ended bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all, n.changed, n.ended
}

func (n *notes) tellLocked() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// end ends all watches, for which a shutdown would otherwise wait.
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
