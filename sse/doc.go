// Package sse sends server-sent events (WHATWG HTML, section 9.2), which browsers read with EventSource.
//
// A Stream serves one client, for as long as its handler runs:
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
// A Hub sends events to many clients. Its subscribers occupy neither a worker nor, in the loop driver, a goroutine:
//
//	hub := sse.NewHub()
//	r.GET("/news", func(c *filo.Ctx) error { return hub.Serve(c, "news") })
//	...
//	hub.Publish("news", sse.Event{Data: "it works"})
//
// The handler that calls Serve decides which client may subscribe to which topics.
//
// # Resuming
//
// When a connection ends, EventSource reconnects by itself, and names the last event that it has received in the Last-Event-ID field. A Hub
// keeps a history of each topic, and sends the events after the named one, without gaps and without duplicates. If the history doesn't
// reach back far enough, or the id is from before a restart, the Hub sends HubOptions.Gap instead. The client can then fetch its state
// anew.
//
// # Several processes
//
// With HubOptions.Broker, an event that is published in one process reaches the subscribers of all processes. The IDs are the broker's, so
// a client may resume at a different process, even if processes were restarted in the meantime. While the broker can't be reached, Publish
// fails and subscribers wait; when the broker is back, they get the events that they have missed, or HubOptions.Gap. A hub that hasn't
// reached its broker since the start answers 503, after which an EventSource doesn't try again. Add Hub.Ready to the checks of package
// health, so that the balancer sends no client to such a hub.
//
// # Browsers and proxies
//
// Over HTTP/1.1 a browser opens some six connections to one host, for all tabs together. A page should therefore use one stream
// with several topics rather than several streams. Responses contain X-Accel-Buffering: no, which nginx obeys, and Cache-Control:
// no-store unless the handler has set another value.
package sse
