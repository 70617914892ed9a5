package dashboard

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/sse"
)

// interval is the time between two samples. It isn't shorter because Server.Stats visits every connection.
const interval = time.Second

// watched records that a page is open, and starts the sampler unless it runs already. The channel over is closed when sampling must end.
func (d *Dashboard) watched(over <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastSeen = time.Now()
	if !d.sampling {
		d.sampling = true
		go d.sample(over)
	}
}

// sample takes samples until no page has been open for Options.History, or until over is closed.
func (d *Dashboard) sample(over <-chan struct{}) {
	d.mu.Lock()
	number := uint64(0)
	if len(d.past) > 0 {
		number = d.past[len(d.past)-1].Number
	}
	d.mu.Unlock()
	s := newSampler(d, number)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-over:
			d.mu.Lock()
			d.sampling = false
			d.mu.Unlock()
			return
		case now := <-ticker.C:
			if d.idle(now) {
				return
			}
			d.publish(s.take(now))
		}
	}
}

// idle reports whether the sampler must end now.
func (d *Dashboard) idle(now time.Time) bool {
	watchers := d.hub.Stats().Subscribers
	d.mu.Lock()
	defer d.mu.Unlock()
	if watchers > 0 {
		d.lastSeen = now
	}
	if d.options.Always || now.Sub(d.lastSeen) <= d.options.History {
		return false
	}
	d.sampling = false
	return true
}

// publish stores a snapshot and sends it to the open pages.
func (d *Dashboard) publish(next *snapshot) {
	next.Sample.encode()
	d.mu.Lock()
	d.latest = next
	d.past = append(d.past, next.Sample)
	oldest := next.Sample.Time - d.options.History.Milliseconds()
	expired := 0
	for d.past[expired].Time < oldest {
		expired++
	}
	d.past = slices.Delete(d.past, 0, expired)
	d.mu.Unlock()
	data, err := json.Marshal(next)
	if err != nil {
		panic("dashboard: " + err.Error()) // can't happen: all its fields can be encoded
	}
	_, _ = d.hub.Publish(topic, sse.Event{Data: string(data)}) // the data has no line breaks and fits into maxEvent, so there is no error to report
}

// events sends the samples from now on, as server-sent events.
func (d *Dashboard) events(c *filo.Ctx) error {
	if c.Method() != "HEAD" {
		d.watched(c.ShuttingDown())
	}
	return d.hub.Serve(c, topic)
}

// pastDocument holds what a page shows when it is opened.
type pastDocument struct {
	About   about             `json:"about"`
	Samples []json.RawMessage `json:"samples"`
	Routes  []row             `json:"routes"`
	Classes []classRow        `json:"classes"`
}

// history answers with the earlier samples.
func (d *Dashboard) history(c *filo.Ctx) error {
	document := pastDocument{About: d.about(), Samples: []json.RawMessage{}, Routes: []row{}, Classes: []classRow{}}
	d.mu.Lock()
	oldest := time.Now().Add(-d.options.History).UnixMilli()
	for _, s := range d.past {
		if s.Time >= oldest {
			document.Samples = append(document.Samples, s.encoded)
		}
	}
	if d.latest != nil {
		document.Routes, document.Classes = d.latest.Routes, d.latest.Classes
	}
	d.mu.Unlock()
	b, err := json.Marshal(document)
	if err != nil {
		return err
	}
	return c.BytesNoCopy(200, "application/json", b)
}
