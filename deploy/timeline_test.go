package deploy

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// scrape is a server's answer to a scrape: values by series, as in `filo_connections{state="idle"}`.
type scrape struct {
	at       time.Time
	values   map[string]float64
	counters map[string]bool // the series that are counters
}

var (
	exposedLine  = regexp.MustCompile(`(?m)^([a-z_0-9]+)(?:\{(.*)\})? (\S+)$`)
	exposedLabel = regexp.MustCompile(`[a-z_]+="(?:[^"\\]|\\.)*"`)
)

// parseScrape parses text in Prometheus's format, and keeps the metrics that the alerts mention.
func parseScrape(t *testing.T, text string, at time.Time) *scrape {
	t.Helper()
	s := &scrape{at, make(map[string]float64), make(map[string]bool)}
	named := alertedMetrics()
	for _, match := range exposedLine.FindAllStringSubmatch(text, -1) {
		name, labels := match[1], match[2]
		if !slices.Contains(named, name) {
			continue
		}
		value, err := strconv.ParseFloat(match[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		var known []string
		for _, label := range exposedLabel.FindAllString(labels, -1) {
			if !strings.HasSuffix(label, `=""`) { // Prometheus drops empty labels
				known = append(known, label)
			}
		}
		series := name + "{" + strings.Join(known, ",") + "}"
		s.values[series] = value
		s.counters[series] = strings.HasSuffix(name, "_total") || strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, "_count")
	}
	return s
}

// alertedMetrics returns the names of the metrics in the alerts.
var alertedMetrics = sync.OnceValue(func() (names []string) {
	text, err := os.ReadFile("prometheus/alerts.yml")
	if err != nil {
		panic(err)
	}
	names = regexp.MustCompile(`\b(?:filo|http|process|go)_[a-z0-9_]+`).FindAllString(string(text), -1)
	slices.Sort(names)
	return slices.Compact(names)
})

// alertedJob is the job to which the alerts in alerts.yml apply.
const alertedJob = "app"

// scrapeSeconds is the time between two scrapes in a timeline.
const scrapeSeconds = 15

// timeline has the series that Prometheus scrapes from servers of the job, with one value for each scrape.
type timeline struct {
	steps  int
	series map[string][]string // by the series' name with all labels
	absent bool                // there were steps in which the instance was no target
	last   map[string]float64  // the last values of counters
	times  map[float64]float64 // maps points in real time to points in the timeline
	start  time.Time           // the time of the first scrape
}

func newTimeline() *timeline {
	return &timeline{series: make(map[string][]string), last: make(map[string]float64), times: make(map[float64]float64)}
}

func labeled(series, instance string) string {
	name, labels, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
	if labels != "" {
		labels = "," + labels
	}
	return name + `{job="` + alertedJob + `",instance="` + instance + `"` + labels + "}"
}

// put adds a value to the timeline's current step.
func (l *timeline) put(series, value string) {
	values := l.series[series]
	for len(values) < l.steps {
		values = append(values, "_")
	}
	l.series[series] = append(values, value)
}

// scraped adds steps. In each step, a counter rises by the difference between its values in the two given scrapes. All other metrics have the values
// of the later scrape.
func (l *timeline) scraped(from, to *scrape, steps int) {
	if l.start.IsZero() {
		l.start = from.at
	}
	begun := float64(l.steps * scrapeSeconds)
	for range steps {
		for series, value := range to.values {
			name := labeled(series, "a")
			switch {
			case to.counters[series]:
				l.last[name] += value - from.values[series]
				value = l.last[name]
			case strings.HasPrefix(series, "filo_requests_running_oldest_seconds"):
				value += float64(l.steps*scrapeSeconds) - begun // the same request runs in all steps, so its age grows
			case strings.Contains(series, "_start_time_seconds") || strings.Contains(series, "_not_after_seconds"):
				value = l.point(value, to.at)
			}
			l.put(name, strconv.FormatFloat(value, 'f', -1, 64))
		}
		l.put(labeled("up", "a"), "1")
		l.next()
	}
}

// point converts a point in real time, in seconds since 1970, to the timeline, which begins in 1970 for promtool. A point is converted once, so it is
// the same in all steps.
func (l *timeline) point(seconds float64, now time.Time) float64 {
	at, known := l.times[seconds]
	if !known {
		at = float64(l.steps*scrapeSeconds) + seconds - float64(now.UnixMilli())/1000
		l.times[seconds] = at
	}
	return at
}

// next ends a step: series without a value in it have ended.
func (l *timeline) next() {
	l.steps++
	for series, values := range l.series {
		if len(values) < l.steps {
			mark := "_"
			if last := values[len(values)-1]; last != "_" && last != "stale" {
				mark = "stale"
			}
			l.series[series] = append(values, mark)
		}
	}
}

// failed adds steps in which the server can't be scraped.
func (l *timeline) failed(steps int) {
	for range steps {
		l.put(labeled("up", "a"), "0")
		l.next()
	}
}

// gone adds steps in which the server isn't a target.
func (l *timeline) gone(steps int) {
	l.absent = true
	for range steps {
		l.next()
	}
}

// restarted records that a new process has started, to which the next steps belong.
func (l *timeline) restarted() {
	clear(l.last)
	clear(l.times)
}

// other adds a second instance, which can be scraped in all steps.
func (l *timeline) other() {
	l.series[labeled("up", "b")] = slices.Repeat([]string{"1"}, l.steps)
}

// promtoolTest is a file for promtool test rules.
type promtoolTest struct {
	RuleFiles          []string       `json:"rule_files"`
	EvaluationInterval string         `json:"evaluation_interval"`
	Tests              []promtoolCase `json:"tests"`
}

type promtoolCase struct {
	Name        string              `json:"name"`
	Interval    string              `json:"interval"`
	InputSeries []promtoolSeries    `json:"input_series"`
	Expressions []promtoolCondition `json:"promql_expr_test"`
}

type promtoolSeries struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

type promtoolCondition struct {
	Expr     string           `json:"expr"`
	EvalTime string           `json:"eval_time"`
	Samples  []promtoolSample `json:"exp_samples"`
}

type promtoolSample struct {
	Labels string  `json:"labels"`
	Value  float64 `json:"value"`
}

// firing returns the condition that exactly these alerts of a job have fired in the given number of minutes before a step.
func firing(job string, minutes, step int, alerts ...string) promtoolCondition {
	samples := []promtoolSample{}
	for _, alert := range slices.Compact(slices.Sorted(slices.Values(alerts))) {
		samples = append(samples, promtoolSample{fmt.Sprintf("{alertname=%q}", alert), 1})
	}
	return promtoolCondition{
		Expr:     fmt.Sprintf(`group by (alertname) (max_over_time(ALERTS{alertstate="firing",job=%q}[%dm]))`, job, minutes),
		EvalTime: fmt.Sprintf("%ds", step*scrapeSeconds), Samples: samples,
	}
}

// judgement collects several situations for one run of promtool, which takes a third of the time. Each situation is a separate job, since an alert
// about a job doesn't depend on other jobs. The exception is the alert that there is no target to scrape, so timelines in which a target is gone have
// a separate run.
type judgement struct {
	promtoolCase
}

// add adds a timeline with the conditions on the alerts of its job.
func (j *judgement) add(l *timeline, job string, conditions ...promtoolCondition) {
	for _, series := range slices.Sorted(maps.Keys(l.series)) {
		j.InputSeries = append(j.InputSeries, promtoolSeries{strings.Replace(series, `job="`+alertedJob+`"`, fmt.Sprintf("job=%q", job), 1), strings.Join(l.series[series], " ")})
	}
	j.Expressions = append(j.Expressions, conditions...)
}

// check runs promtool with the rules of alerts.yml, which apply to one job. If all is set, check changes the rules so that they apply to every job.
func (j *judgement) check(t *testing.T, all bool) {
	t.Helper()
	rules := read(t, "prometheus/alerts.yml")
	if all {
		rules = bytes.ReplaceAll(rules, []byte(`job="`+alertedJob+`"`), []byte(`job!=""`))
	}
	j.Interval = fmt.Sprintf("%ds", scrapeSeconds)
	text, err := yaml.Marshal(promtoolTest{[]string{"alerts.yml"}, j.Interval, []promtoolCase{j.promtoolCase}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"alerts.yml": rules, "test.yml": text} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	promtool(t, dir, "test", "rules", "test.yml")
}
