package debug

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"html/template"
	"math"
	"slices"
	"time"

	"github.com/filohttp/filo"
)

var (
	//go:embed requests.html
	requestsText     string
	requestsTemplate = template.Must(template.New("requests").Parse(requestsText))
)

// maxShown is the number of requests that are shown individually, the oldest ones.
const maxShown = 200

// runningPage is what serveRequests shows: the routes, the one with the oldest request first, and the oldest requests.
type runningPage struct {
	Time     time.Time        `json:"time"`
	Total    int              `json:"total"`
	Routes   []runningRoute   `json:"routes"`
	Requests []runningRequest `json:"requests"`
}

// runningRoute counts the running requests of a route, in one state.
type runningRoute struct {
	Route  string  `json:"route"`
	State  string  `json:"state"`
	Count  int     `json:"count"`
	Oldest seconds `json:"oldest_seconds"`
}

type runningRequest struct {
	Route  string  `json:"route"`
	State  string  `json:"state"`
	Client string  `json:"client"`
	Age    seconds `json:"age_seconds"`
}

// seconds is a duration, in JSON as a number of seconds.
type seconds time.Duration

// MarshalJSON implements json.Marshaler.
func (s seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(math.Round(time.Duration(s).Seconds()*1000) / 1000)
}

// String returns the duration, rounded to a useful precision.
func (s seconds) String() string {
	switch d := time.Duration(s); {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Millisecond).String()
	}
}

// newRunningPage describes requests, the oldest first.
func newRunningPage(running []filo.RunningRequest) runningPage {
	p := runningPage{Time: time.Now().UTC(), Total: len(running), Routes: []runningRoute{}, Requests: []runningRequest{}}
	for _, each := range running {
		route, state := each.Route, each.State.String()
		i := slices.IndexFunc(p.Routes, func(r runningRoute) bool { return r.Route == route && r.State == state })
		if i < 0 {
			i = len(p.Routes)
			p.Routes = append(p.Routes, runningRoute{Route: route, State: state, Oldest: seconds(each.Age)})
		}
		p.Routes[i].Count++
		if len(p.Requests) < maxShown {
			client := ""
			if each.Client.IsValid() {
				client = each.Client.String()
			}
			p.Requests = append(p.Requests, runningRequest{route, state, client, seconds(each.Age)})
		}
	}
	slices.SortStableFunc(p.Routes, func(a, b runningRoute) int { return cmp.Compare(b.Oldest, a.Oldest) })
	return p
}

// serveRequests answers with the requests that are being handled. Its own request is one of them, if it runs on that server.
func (h *handler) serveRequests(c *filo.Ctx) error {
	return answerPage(c, requestsTemplate, newRunningPage(cmp.Or(h.server, c.Server()).Running()))
}
