package sse

import (
	"fmt"
	"net"
	"time"
)

// HubOptions are the options of a Hub. The zero value has safe defaults.
type HubOptions struct {
	// Heartbeat is how often a subscriber is sent a comment if there was no event for it since the last time: after that long,
	// or up to twice that, without an event. It keeps proxies from ending the connection, and shows who has left.
	// DefaultHeartbeat if 0; negative: never.
	Heartbeat time.Duration
	// Retry is after how long clients connect again when the connection has ended. If 0 it is up to the client, mostly some
	// seconds.
	Retry time.Duration

	// HistoryEvents and HistoryBytes are how much of a topic is kept for clients that come back. 100 events and 256 KB if 0;
	// negative events: nothing.
	HistoryEvents, HistoryBytes int
	// HistoryTime is how long it is kept after the topic's last event. 5 minutes if 0. It is looked at with each heartbeat.
	HistoryTime time.Duration
	// MaxHistoryBytes bounds the histories of all topics. If there is more, those which had no event for the longest time are
	// forgotten first. 64 MB if 0.
	MaxHistoryBytes int
	// Gap is sent to a client that comes back, in the place of the events that it has missed, if not all of them are known any
	// more; it then gets new ones. The default has the Type "reset" and no data. It has no ID.
	Gap Event

	// MaxQueueBytes is how much may wait for a client that doesn't take it. One for which there is more is disconnected, and
	// may come back and resume. What a client is sent when it comes back doesn't count. 256 KB if 0. Besides, the server
	// disconnects who takes what waits more slowly than its WriteTimeout and MinTransferRate allow.
	MaxQueueBytes int
	// OnDrop, if set, is called on a goroutine of its own for each client for which there was more than MaxQueueBytes, while
	// it is disconnected.
	OnDrop func(client net.Addr, topics []string)

	// MaxEventBytes is how large an event may be as it is sent, its ID aside. 64 KB if 0. It must not be more than MaxQueueBytes.
	MaxEventBytes int
	// MaxSubscribers is how many subscribers there may be, 100,000 if 0. Further ones get 503, after
	// which an EventSource doesn't try again.
	MaxSubscribers int
	// MaxTopics is how many topics there may be, 100,000 if 0. A client that asks for a further one gets 503, and events of
	// one without subscribers aren't kept.
	MaxTopics int
	// MaxTopicsPerSubscriber is how many topics one may have, 64 if 0. One that asks for more gets 400.
	MaxTopicsPerSubscriber int
}

// maxTopicBytes is how long the name of a topic may be that a client asks for.
const maxTopicBytes = 1024

// check puts the defaults in, and panics if something is wrong.
func (o *HubOptions) check() {
	positive := func(name string, n *int, byDefault int) {
		if *n == 0 {
			*n = byDefault
		}
		require(*n > 0, "%s must not be negative", name)
	}
	require(o.Retry >= 0, "Retry must not be negative")
	require(o.HistoryTime >= 0, "HistoryTime must not be negative")
	if o.Heartbeat == 0 {
		o.Heartbeat = DefaultHeartbeat
	}
	if o.HistoryEvents == 0 {
		o.HistoryEvents = 100
	}
	o.HistoryEvents = max(o.HistoryEvents, 0)
	if o.HistoryTime == 0 {
		o.HistoryTime = 5 * time.Minute
	}
	positive("HistoryBytes", &o.HistoryBytes, 256<<10)
	positive("MaxHistoryBytes", &o.MaxHistoryBytes, 64<<20)
	positive("MaxQueueBytes", &o.MaxQueueBytes, 256<<10)
	positive("MaxEventBytes", &o.MaxEventBytes, min(64<<10, o.MaxQueueBytes))
	positive("MaxSubscribers", &o.MaxSubscribers, 100_000)
	positive("MaxTopics", &o.MaxTopics, 100_000)
	positive("MaxTopicsPerSubscriber", &o.MaxTopicsPerSubscriber, 64)
	require(o.MaxEventBytes <= o.MaxQueueBytes, "MaxEventBytes must not be more than MaxQueueBytes")
	if o.Gap == (Event{}) {
		o.Gap.Type = "reset"
	}
	if _, err := o.Gap.appendForHub(nil); err != nil {
		panic(fmt.Sprintf("sse: HubOptions: Gap: %v", err))
	}
}

func require(ok bool, format string, args ...any) {
	if !ok {
		panic("sse: HubOptions: " + fmt.Sprintf(format, args...))
	}
}

// tick is how often there are heartbeats, and old histories are looked for.
func (o *HubOptions) tick() time.Duration {
	if o.Heartbeat < 0 {
		return DefaultHeartbeat
	}
	return o.Heartbeat
}
