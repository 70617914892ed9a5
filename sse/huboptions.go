package sse

import (
	"cmp"
	"fmt"
	"net"
	"time"

	"github.com/filohttp/filo/internal/setup"
)

// HubOptions configures a Hub. The zero value has safe defaults.
type HubOptions struct {
	// Broker connects the hub with those of other processes; see type Broker. Nil for a hub that serves this process alone. The hubs of all
	// processes must have the same Broker, and the same limits for histories.
	Broker Broker

	// Heartbeat is the interval of heartbeats. At the end of each interval, the hub sends a heartbeat, which is a comment, to each subscriber
	// that has received nothing within that interval. A heartbeat thus follows one to two intervals without an event. It keeps proxies from
	// closing the connection, and detects clients that have left. DefaultHeartbeat if 0; negative: never.
	Heartbeat time.Duration
	// Retry is how long clients wait before they reconnect. If 0, the client decides, usually some seconds.
	Retry time.Duration

	// HistoryEvents and HistoryBytes limit the history that each topic keeps for reconnecting clients. 100 events and 256 KB if 0; a negative
	// HistoryEvents means no history.
	HistoryEvents, HistoryBytes int
	// HistoryTime is how long a history is kept after the topic's last event. 5 minutes if 0. The hub checks it with each
	// heartbeat.
	HistoryTime time.Duration
	// MaxHistoryBytes limits the histories of all topics together. Beyond it, the topics without an event for the longest time
	// lose their history first. 64 MB if 0.
	MaxHistoryBytes int
	// Gap is sent to a reconnecting client if the hub no longer knows some of the events that the client has missed. It replaces those
	// events; new events follow. The default has the Type "reset" and no data. Gap has no ID.
	Gap Event

	// MaxQueueBytes limits the bytes that wait for a slow client. A client over the limit is disconnected, and may reconnect and
	// resume; the events that it is sent on reconnecting don't count as long as they wait. 256 KB if 0. In addition, the server disconnects clients
	// that receive more slowly than its WriteTimeout and MinTransferRate allow.
	MaxQueueBytes int
	// OnDrop, if set, is called for each client that exceeds MaxQueueBytes, on a separate goroutine, while the client is being
	// disconnected.
	OnDrop func(client net.Addr, topics []string)

	// MaxEventBytes is the maximum size of an event as sent, without its ID. 64 KB if 0. It must not exceed MaxQueueBytes.
	MaxEventBytes int
	// MaxSubscribers is the maximum number of subscribers, 100,000 if 0. Further clients get 503, after which an EventSource
	// doesn't try again.
	MaxSubscribers int
	// MaxTopics is the maximum number of topics, 100,000 if 0. A client that asks for a further topic gets 503. Events of a
	// further topic, which has no subscribers, aren't kept.
	MaxTopics int
	// MaxTopicsPerSubscriber is the maximum number of topics of one subscriber, 64 if 0. A client that asks for more gets 400.
	MaxTopicsPerSubscriber int
}

// maxTopicBytes is the maximum length of the name of a topic that a client asks for.
const maxTopicBytes = 1024

// check fills in the defaults, and panics if an option is invalid.
func (o *HubOptions) check() {
	positive := func(name string, n *int, byDefault int) {
		*n = cmp.Or(*n, byDefault)
		require(*n > 0, "%s must not be negative", name)
	}
	require(o.Retry >= 0, "Retry must not be negative")
	require(o.HistoryTime >= 0, "HistoryTime must not be negative")
	o.Heartbeat = cmp.Or(o.Heartbeat, DefaultHeartbeat)
	o.HistoryEvents = max(cmp.Or(o.HistoryEvents, 100), 0)
	o.HistoryTime = cmp.Or(o.HistoryTime, 5*time.Minute)
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

var require = setup.Checker("sse: HubOptions")

// tick returns the interval at which heartbeats are sent and old histories are dropped.
func (o *HubOptions) tick() time.Duration {
	if o.Heartbeat < 0 {
		return DefaultHeartbeat
	}
	return o.Heartbeat
}
