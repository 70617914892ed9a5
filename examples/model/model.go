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

// Model is a language model with an HTTP API: the prompt is the body of a POST. The answer is a stream of JSON values: pieces of the text, and
// finally a value with done set. Most models have a similar API.
type Model struct{ URL string }

type piece struct {
	Token string `json:"token,omitempty"`
	Done  bool   `json:"done,omitempty"`
}

// Ask calls token with each piece of the answer as it arrives. When ctx ends, Ask closes the connection to the model, so the model stops working.
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
		if err := pieces.Decode(&p); err != nil { // io.EOF is an error, too, since the value with done is missing
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
