package debug_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/debug"
	"github.com/filohttp/filo/internal/mwtest"
	"github.com/filohttp/filo/servertest"
)

const form = "Content-Type: application/x-www-form-urlencoded"

func TestLogLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var level slog.LevelVar
		log := new(mwtest.Log)
		logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: &level}))
		s := servertest.NewServer(t, &filo.Server{
			Logger:  logger,
			Handler: debug.Handler(debug.Options{LogLevel: &level, Allow: func(*filo.Ctx) bool { return true }}),
		})
		start := time.Now()
		at := func(d time.Duration) string { return start.Add(d).UTC().Format(time.RFC3339) }
		for _, step := range []struct {
			after   time.Duration // when the request is sent, counted from the start
			request string
			form    string
			status  int
			want    string // a text in the answer
			level   slog.Level
		}{
			{0, "GET /loglevel", "", 200, `{"level":"INFO"}`, slog.LevelInfo},
			{0, "POST /loglevel", "level=debug", 200, `{"level":"DEBUG"}`, slog.LevelDebug},
			{0, "PUT /loglevel", "level=WARN%2B1", 200, `{"level":"WARN+1"}`, slog.LevelWarn + 1},
			{time.Hour, "GET /loglevel", "", 200, `{"level":"WARN+1"}`, slog.LevelWarn + 1},
			// Two temporary levels are set, the second while the first one applies: in the end the permanent level returns, not the first
			// temporary one.
			{time.Hour, "POST /loglevel", "level=debug&for=10m", 200,
				`{"level":"DEBUG","then":"WARN+1","until":"` + at(time.Hour+10*time.Minute) + `"}`, slog.LevelDebug},
			{time.Hour + 9*time.Minute, "POST /loglevel", "level=info&for=10m", 200,
				`{"level":"INFO","then":"WARN+1","until":"` + at(time.Hour+19*time.Minute) + `"}`, slog.LevelInfo},
			{time.Hour + 11*time.Minute, "GET /loglevel", "", 200, `"level":"INFO","then":"WARN+1"`, slog.LevelInfo},
			{time.Hour + 20*time.Minute, "GET /loglevel", "", 200, `{"level":"WARN+1"}`, slog.LevelWarn + 1},
			// A permanent level is set while a temporary one applies.
			{2 * time.Hour, "POST /loglevel", "level=debug&for=1h", 200, `"then":"WARN+1"`, slog.LevelDebug},
			{2 * time.Hour, "POST /loglevel", "level=info", 200, `{"level":"INFO"}`, slog.LevelInfo},
			{4 * time.Hour, "GET /loglevel", "", 200, `{"level":"INFO"}`, slog.LevelInfo},
			// A refused request changes nothing.
			{4 * time.Hour, "POST /loglevel", "level=loud", 400, `level is "loud"`, slog.LevelInfo},
			{4 * time.Hour, "POST /loglevel", "", 400, `level is ""`, slog.LevelInfo},
			{4 * time.Hour, "POST /loglevel", "level=debug&for=soon", 400, `for is "soon"`, slog.LevelInfo},
			{4 * time.Hour, "POST /loglevel", "level=debug&for=", 400, `for is ""`, slog.LevelInfo},
			{4 * time.Hour, "POST /loglevel", "level=debug&for=-1s", 400, "at most 24h", slog.LevelInfo},
			{4 * time.Hour, "POST /loglevel", "level=debug&for=25h", 400, "at most 24h", slog.LevelInfo},
			{4 * time.Hour, "POST /loglevel", "level=debug&duration=1m", 400, `"duration" isn't known`, slog.LevelInfo},
			{4 * time.Hour, "POST /loglevel", "level=" + strings.Repeat("x", 2000), 413, "", slog.LevelInfo},
			{4 * time.Hour, "DELETE /loglevel", "", 405, "", slog.LevelInfo},
		} {
			time.Sleep(time.Until(start.Add(step.after)))
			synctest.Wait()
			got := s.DoBody(t, step.request, step.form, form)
			if got.Status != step.status || !strings.Contains(got.Body, step.want) || level.Level() != step.level {
				t.Errorf("%s %q: %d %q, %v; want %d %q, %v", step.request, step.form, got.Status, got.Body, level.Level(), step.status, step.want, step.level)
			}
		}
		// A change by the program itself isn't reverted.
		s.DoBody(t, "POST /loglevel", "level=debug&for=1h", form)
		level.Set(slog.LevelError)
		if got := s.Do(t, "GET /loglevel"); got.Body != "{\"level\":\"ERROR\"}\n" {
			t.Errorf("after the program's own change: %s", got.Body)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if level.Level() != slog.LevelError {
			t.Errorf("the program's own change was undone: %v", level.Level())
		}
		logged := log.String()
		if n := strings.Count(logged, `level=WARN msg="log level changed"`); n != 8 || !strings.Contains(logged, "from=WARN+1 to=DEBUG remote=client.test") ||
			!strings.Contains(logged, " for=10m0s\n") ||
			!strings.Contains(logged, "from=INFO to=WARN+1 after=10m0s\n") {
			t.Errorf("%d changes are logged:\n%s", n, logged)
		}
	})
}

// The level is behind the guard, and pages of other sites can't change it. Without a level there is no page.
func TestLogLevelGuarded(t *testing.T) {
	var level slog.LevelVar
	s := servertest.New(t, debug.Handler(debug.Options{LogLevel: &level}))
	if got := s.DoBody(t, "POST http://localhost/loglevel", "level=debug", form); got.Status != 404 {
		t.Errorf("a stranger: %d", got.Status)
	}
	s = servertest.New(t, debug.Handler(debug.Options{LogLevel: &level, Allow: func(*filo.Ctx) bool { return true }}))
	for _, method := range []string{"POST", "PUT"} {
		if got := s.DoBody(t, method+" /loglevel", "level=debug", form, "Sec-Fetch-Site: cross-site"); got.Status != 403 {
			t.Errorf("a page of another site: %d", got.Status)
		}
	}
	if got := s.DoBody(t, "POST /loglevel", `{"level":"debug"}`, "Content-Type: application/json"); got.Status != 415 {
		t.Errorf("JSON: %d", got.Status)
	}
	if level.Level() != slog.LevelInfo {
		t.Errorf("the level is %v", level.Level())
	}
	if got := s.Do(t, "GET /"); !strings.Contains(got.Body, `href="loglevel"`) {
		t.Errorf("the page has no link: %s", got.Body)
	}
	if got := mounted(t, debug.Options{}).Do(t, "GET /debug/loglevel"); got.Status != 404 {
		t.Errorf("without a level: %d", got.Status)
	}
}
