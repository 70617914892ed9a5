package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/filohttp/filo"
)

// Model is a language model that gets its prompt by POST. It answers with a stream of JSON values: pieces of the text, and at the end one
// that says that it is done. Most models work in a similar way.
type Model struct{ URL string }

type piece struct {
	Token string `json:"token,omitempty"`
	Done  bool   `json:"done,omitempty"`
}

// Ask calls token with each piece of the answer as it comes. When ctx ends, the connection to the model is closed, and its work ends.
func (m *Model) Ask(ctx context.Context, prompt string, token func(string)) error {
	request, err := http.NewRequestWithContext(ctx, "POST", m.URL, strings.NewReader(prompt))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != 200 {
		return fmt.Errorf("the model answers %s", response.Status)
	}
	for pieces := json.NewDecoder(response.Body); ; {
		var p piece
		if err := pieces.Decode(&p); err != nil { // io.EOF is an error, too: the piece that says that it is done is missing
			return fmt.Errorf("the model's answer broke off: %w", err)
		}
		if p.Done {
			return nil
		}
		token(p.Token)
	}
}

// parrot is a model that repeats its prompt, a word at a time.
func parrot(pause time.Duration) filo.Handler {
	return func(c *filo.Ctx) error {
		prompt, err := io.ReadAll(c.BodyReader())
		if err != nil {
			return err
		}
		w := c.Stream()
		out := json.NewEncoder(w)
		for word := range strings.SplitAfterSeq(string(prompt), " ") {
			if err := out.Encode(piece{Token: word}); err != nil {
				return err
			}
			if err := w.Flush(); err != nil {
				return err
			}
			select {
			case <-time.After(pause):
			case <-c.Context().Done():
				return context.Cause(c.Context())
			}
		}
		return out.Encode(piece{Done: true})
	}
}
