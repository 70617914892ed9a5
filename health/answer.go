package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/inside"
)

// answerLive is the handler Health.Live.
func (h *Health) answerLive(c *filo.Ctx) error {
	h.note()
	if err := await(c, h.live, nil); err != nil {
		return err // the 503 of an overloaded server
	}
	return h.answer(c, judge(h.live), h.live)
}

// answerReady is the handler Health.Ready.
func (h *Health) answerReady(c *filo.Ctx) error {
	h.note()
	if v := h.told(); v != nil {
		return h.answer(c, v, h.checks)
	}
	// A check without a result counts as failed, which is right for a server that shuts down.
	if err := await(c, h.checks, c.ShuttingDown()); err != nil {
		return err
	}
	v := h.told() // the server's state may have changed during the wait
	if v == nil {
		v = judge(h.checks)
	}
	return h.answer(c, v, h.checks)
}

// verdict is the status of an answer, and its body in each format.
type verdict struct {
	status int
	text   string
	json   string
	line   []byte // the text as a body
	object []byte // the JSON as a body
}

var (
	passes       = newVerdict(200, "ok", "pass")
	degraded     = newVerdict(200, "ok, but degraded", "warn")
	fails        = newVerdict(503, "failed", "fail")
	notReady     = newVerdict(503, "not ready", "fail")
	shuttingDown = newVerdict(503, "shutting down", "fail")
)

func newVerdict(status int, text, json string) *verdict {
	return &verdict{status, text, json, []byte(text + "\n"), []byte(`{"status":"` + json + "\"}\n")}
}

// told returns the verdict if the server isn't ready regardless of the checks, nil if the checks decide.
func (h *Health) told() *verdict {
	switch {
	case h.ending.Load():
		return shuttingDown
	case !h.ready.Load():
		return notReady
	}
	return nil
}

// judge returns the verdict that follows from the last results of checks.
func judge(checks []*check) *verdict {
	v := passes
	for _, each := range checks {
		if each.state().err == nil {
			continue
		}
		if !each.options.Optional {
			return fails
		}
		v = degraded
	}
	return v
}

// await waits until each of the checks has a result that is still valid, or until the channel over is closed.
func await(c *filo.Ctx, checks []*check, over <-chan struct{}) error {
	var coming []<-chan struct{}
	for _, each := range checks {
		if !each.fresh() {
			coming = append(coming, each.refresh())
		}
	}
	if len(coming) == 0 {
		return nil
	}
	// An overloaded server has a reserve for probes that wait. If the reserve is full, this probe is refused, but the checks still run,
	// and a later probe finds their results.
	if err := inside.Offload(c); err != nil {
		return err
	}
	for _, each := range coming {
		select {
		case <-each:
		case <-over:
			return nil
		}
	}
	return nil
}

const (
	textPlain  = "text/plain"
	healthJSON = "application/health+json"
	plainJSON  = "application/json"
)

var (
	noStore         = filo.NewField("Cache-Control", "no-store")
	textContentType = filo.NewField("Content-Type", "text/plain; charset=utf-8")
	jsonContentType = filo.NewField("Content-Type", healthJSON)
	appContentType  = filo.NewField("Content-Type", plainJSON)
)

// answer sends the verdict, with the checks if the client asks for them.
func (h *Health) answer(c *filo.Ctx, v *verdict, checks []*check) error {
	verbose := false
	if len(c.Request.URI().RawQueryBytes()) > 0 && c.Request.Query().Has("verbose") {
		// The list is for people. It takes longer to make, and Details may take any time, so this handler leaves the loop first. If an
		// overloaded server has no place for that, it sends the short answer instead of a refusal, because the client may be an
		// orchestrator's probe.
		err := inside.Offload(c)
		if err != nil && !errors.Is(err, filo.ErrBusy) {
			return err
		}
		verbose = err == nil
	}
	response := &c.Response
	response.SetStatus(v.status)
	response.Header.SetField(&noStore)
	if v.status == 503 && h.retryAfter != nil {
		response.Header.SetField(h.retryAfter)
	}
	details := verbose && h.options.Details != nil && h.options.Details(c)
	contentType := &textContentType
	switch c.Negotiate(textPlain, healthJSON, plainJSON) {
	case healthJSON:
		contentType = &jsonContentType
	case plainJSON:
		contentType = &appContentType
	}
	response.Header.SetField(contentType)
	switch {
	case contentType == &textContentType && verbose:
		response.SetBodyString(report(v, checks, details))
	case contentType == &textContentType:
		response.SetBodyNoCopy(v.line)
	case verbose:
		body, err := json.Marshal(document(v, checks, details))
		if err != nil {
			return err
		}
		response.SetBodyNoCopy(append(body, '\n'))
	default:
		response.SetBodyNoCopy(v.object)
	}
	return nil
}

// report returns the checks line by line, such as "[-] cache failed (optional): connection refused", and the verdict.
func report(v *verdict, checks []*check, details bool) string {
	var b strings.Builder
	for _, each := range checks {
		last, mark, word := each.state(), "+", "ok"
		if last.err != nil {
			mark, word = "-", "failed"
		}
		fmt.Fprintf(&b, "[%s] %s %s", mark, each.name, word)
		if each.options.Optional {
			b.WriteString(" (optional)")
		}
		if last.err != nil && details {
			fmt.Fprintf(&b, ": %s", oneLine(last.err))
		}
		b.WriteByte('\n')
	}
	b.WriteString(v.text + "\n")
	return b.String()
}

// oneLine returns the text of an error without control characters: after a line break, the rest of the text could look like
// another check.
func oneLine(err error) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, err.Error())
}

// healthDocument is the object of draft-inadarei-api-health-check-06, with the members for which there is a value.
type healthDocument struct {
	Status string                     `json:"status"`
	Output string                     `json:"output,omitempty"`
	Checks map[string][]checkDocument `json:"checks,omitempty"`
}

type checkDocument struct {
	Status string `json:"status"`
	// Value is how long the check took.
	Value  float64 `json:"observedValue"`
	Unit   string  `json:"observedUnit"`
	Time   string  `json:"time,omitempty"`
	Output string  `json:"output,omitempty"`
}

func document(v *verdict, checks []*check, details bool) healthDocument {
	d := healthDocument{Status: v.json, Checks: make(map[string][]checkDocument, len(checks))}
	if v.status != 200 {
		d.Output = v.text
	}
	for _, each := range checks {
		last := each.state()
		one := checkDocument{Status: "pass", Value: float64(last.took.Microseconds()) / 1000, Unit: "ms"}
		if !last.date.IsZero() {
			one.Time = last.date.UTC().Format(time.RFC3339)
		}
		if last.err != nil {
			if one.Status = "fail"; each.options.Optional {
				one.Status = "warn"
			}
			if details {
				one.Output = last.err.Error()
			}
		}
		d.Checks[each.name] = []checkDocument{one}
	}
	return d
}
