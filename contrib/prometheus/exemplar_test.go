package prometheus

import (
	"encoding/hex"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/servertest"
)

const trace = "0af7651916cd43dd8448eb211c80319c"

func TestSampledTrace(t *testing.T) {
	for _, test := range []struct{ sentence, value, want string }{
		{"a recorded trace", "00-" + trace + "-b7ad6b7169203331-01", trace},
		{"other flags don't matter", "00-" + trace + "-b7ad6b7169203331-0b", trace},
		{"a trace that isn't recorded", "00-" + trace + "-b7ad6b7169203331-00", ""},
		{"a later version may have more", "cc-" + trace + "-b7ad6b7169203331-01-what", trace},
		{"a later version without a dash", "cc-" + trace + "-b7ad6b7169203331-01.what", ""},
		{"version 00 has nothing more", "00-" + trace + "-b7ad6b7169203331-01-what", ""},
		{"ff is no version", "ff-" + trace + "-b7ad6b7169203331-01", ""},
		{"all zero is no trace", "00-00000000000000000000000000000000-b7ad6b7169203331-01", ""},
		{"all zero is no parent", "00-" + trace + "-0000000000000000-01", ""},
		{"digits are in lower case", "00-" + strings.ToUpper(trace) + "-b7ad6b7169203331-01", ""},
		{"dashes are where they belong", "00-" + trace + "0b7ad6b7169203331-01", ""},
		{"nothing", "", ""},
		{"too short", "00-" + trace + "-b7ad6b7169203331-0", ""},
		{"a quote isn't a digit", `00-"` + trace[1:] + "-b7ad6b7169203331-01", ""},
	} {
		if got := sampledTrace([]byte(test.value)); string(got) != test.want {
			t.Errorf("%s: %q", test.sentence, got)
		}
	}
}

func FuzzSampledTrace(f *testing.F) {
	f.Add([]byte("00-" + trace + "-b7ad6b7169203331-01"))
	f.Add([]byte("cc-" + trace + "-b7ad6b7169203331-01-what"))
	f.Fuzz(func(t *testing.T, value []byte) {
		got := sampledTrace(value)
		if got == nil {
			return
		}
		if _, err := hex.DecodeString(string(got)); err != nil || len(got) != 32 || !strings.Contains(string(value), string(got)) {
			t.Errorf("%q in %q", got, value)
		}
	})
}

// exemplars returns the exemplars of the durations in a registry.
func exemplars(t *testing.T, registry *client.Registry) (found []*dto.Exemplar) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, bucket := range metric.GetHistogram().GetBucket() {
				if e := bucket.GetExemplar(); e != nil {
					found = append(found, e)
				}
			}
			found = append(found, metric.GetHistogram().GetExemplars()...)
		}
	}
	return found
}

func TestExemplars(t *testing.T) {
	text := func(labels client.Labels) func(*filo.Ctx) client.Labels {
		return func(*filo.Ctx) client.Labels { return labels }
	}
	field := "Traceparent: 00-" + trace + "-b7ad6b7169203331-01"
	for _, test := range []struct {
		sentence string
		options  Options
		field    string
		want     string // the value of the only label
		n        int
	}{
		{"clients have no say", Options{}, field, "", 0},
		{"the client's trace", Options{Exemplars: ClientTrace}, field, trace, 1},
		{"no trace, no exemplar", Options{Exemplars: ClientTrace}, "A: b", "", 0},
		{"a trace that isn't recorded", Options{Exemplars: ClientTrace}, strings.TrimSuffix(field, "1") + "0", "", 0},
		{"labels of one's own", Options{Exemplars: text(client.Labels{"trace_id": "x"})}, field, "x", 1},
		{"none of one's own", Options{Exemplars: text(nil)}, field, "", 0},
		{"labels that are too long are dropped", Options{Exemplars: text(client.Labels{"trace_id": strings.Repeat("x", 121)})}, field, "", 0},
		{"those that aren't are kept", Options{Exemplars: text(client.Labels{"trace_id": strings.Repeat("x", 120)})}, field, strings.Repeat("x", 120), 1},
		{"a name that isn't one", Options{Exemplars: text(client.Labels{"trace id": "x"})}, field, "", 0},
		{"a value that is empty", Options{Exemplars: text(client.Labels{"trace_id": ""})}, field, "", 0},
		{"a value that isn't UTF-8", Options{Exemplars: text(client.Labels{"trace_id": "\xff"})}, field, "", 0},
		{"native histograms have them as well", Options{NativeHistograms: true, Exemplars: ClientTrace}, field, trace, 2},
	} {
		registry := client.NewRegistry()
		test.options.Registerer = registry
		s := servertest.New(t, Middleware(test.options)(func(c *filo.Ctx) error { return c.NoContent() }))
		s.Do(t, "GET /", test.field)
		if err := s.Config.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := exemplars(t, registry)
		if len(got) != test.n {
			t.Errorf("%s: %d exemplars", test.sentence, len(got))
			continue
		}
		for _, e := range got {
			if len(e.GetLabel()) != 1 || e.GetLabel()[0].GetName() != "trace_id" || e.GetLabel()[0].GetValue() != test.want {
				t.Errorf("%s: %v", test.sentence, e)
			}
		}
	}
}

// Options.Exemplars is called at most once a second for each bucket, however many requests there are.
func TestExemplarsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		registry := client.NewRegistry()
		m := Middleware(Options{Registerer: registry, Buckets: []float64{1, 2}, Exemplars: func(*filo.Ctx) client.Labels {
			asked.Add(1)
			return client.Labels{"trace_id": "x"}
		}})
		s := servertest.New(t, m(func(c *filo.Ctx) error {
			if c.Path() == "/slow" {
				time.Sleep(1500 * time.Millisecond)
			}
			return c.NoContent()
		}))
		for _, step := range []struct {
			sentence, request string
			wait              time.Duration
			want              int32
		}{
			{"the first one", "GET /", 0, 1},
			{"right after it", "GET /", 0, 1},
			{"half a second later", "GET /", 500 * time.Millisecond, 1},
			{"another bucket", "GET /slow", 0, 2},
			{"the first one again, over a second later", "GET /", 0, 3},
		} {
			time.Sleep(step.wait)
			s.Do(t, step.request)
			synctest.Wait()
			if got := asked.Load(); got != step.want {
				t.Errorf("%s: asked %d times, want %d", step.sentence, got, step.want)
			}
		}
	})
}
