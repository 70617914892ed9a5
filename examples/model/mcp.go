package main

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/adaptor"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// newMCP returns a handler that offers the model as the tool "ask" over MCP's streamable HTTP.
func newMCP(model *Model, hold time.Duration) filo.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "model", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "ask", Description: "Asks the model."}, func(ctx context.Context, call *mcp.CallToolRequest, in question) (*mcp.CallToolResult, any, error) {
		// After the duration hold, the server closes the connection. The client reconnects after RetryAfter, with the ID of its last event.
		giveBack := time.AfterFunc(hold, func() { call.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: time.Second}) })
		defer giveBack.Stop()
		var answer strings.Builder
		count := 0.0
		// ctx ends when the client cancels the call, not when it loses its connection.
		err := model.Ask(ctx, in.Prompt, func(token string) {
			answer.WriteString(token)
			count++
			if id := call.Params.GetProgressToken(); id != nil {
				call.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: id, Progress: count, Message: token})
			}
		})
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: answer.String()}}}, nil, nil
	})
	serve := adaptor.FromHTTP(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{
		EventStore:     mcp.NewMemoryEventStore(nil), // without an event store, clients can't resume a stream
		SessionTimeout: 10 * time.Minute,
	}))
	return func(c *filo.Ctx) error {
		c.Response.Header.Set("X-Accel-Buffering", "no") // otherwise nginx would buffer events
		// The SDK's event IDs are the stream's ID, "_" and a number. The stream that a client opens to listen has an empty ID.
		if last := c.Request.Header.Get("Last-Event-ID"); c.Method() == "GET" && (last == "" || strings.HasPrefix(last, "_")) {
			defer endWithServer(c)()
		}
		return serve(c)
	}
}

type question struct {
	Prompt string `json:"prompt"`
}

// endWithServer ends the request's context when a shutdown begins. It is for the stream that a client opens to listen, which would otherwise never
// end.
func endWithServer(c *filo.Ctx) (stop func()) {
	ctx, cancel := context.WithCancelCause(c.Context())
	c.SetContext(ctx)
	shuttingDown := c.ShuttingDown()
	go func() {
		select {
		case <-shuttingDown:
			cancel(filo.ErrServerClosed)
		case <-ctx.Done():
		}
	}()
	return func() { cancel(nil) }
}
