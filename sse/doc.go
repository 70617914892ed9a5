// Package sse sends server-sent events (WHATWG HTML, section 9.2), which browsers read with EventSource.
//
// A Stream is for one client, and for as long as its handler runs:
//
//	func count(c *filo.Ctx) error {
//		stream, err := sse.Open(c)
//		if err != nil {
//			return err
//		}
//		defer stream.Close()
//		for i := 0; stream.Context().Err() == nil; i++ {
//			if err := stream.Send(sse.Event{Data: strconv.Itoa(i)}); err != nil {
//				return err
//			}
//		}
//		return nil
//	}
//
// A Hub is for events that many clients get. Its subscribers hold neither a worker nor, in the loop driver, a goroutine:
//
//	hub := sse.NewHub()
//	r.GET("/news", func(c *filo.Ctx) error { return hub.Serve(c, "news") })
//	...
//	hub.Publish("news", sse.Event{Data: "it works"})
//
// Who may have which topics is up to the handler that calls Serve.
//
// # Resuming
//
// EventSource connects again by itself when a connection ends, and says in the Last-Event-ID field what it has got. A Hub sends
// what came since, without a gap and without an event twice, from the history that it keeps of each topic. If that doesn't
// reach back far enough, or the id is from before a restart, it sends HubOptions.Gap instead, so that the client can fetch
// anew what it shows.
//
// # Browsers and proxies
//
// Over HTTP/1.1 a browser opens some six connections to one host, those of all tabs together: a page should have one stream
// with several topics rather than several streams. Responses say X-Accel-Buffering: no, which nginx heeds, and
// Cache-Control: no-store unless the handler has set another one.
package sse
