package debug

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/filohttp/filo"
)

// maxLevelTime is the maximum time for which a temporary level may be set.
const maxLevelTime = 24 * time.Hour

// logLevel lets operators change the level of a program's log while it runs.
type logLevel struct {
	level *slog.LevelVar

	mu sync.Mutex
	// revert ends a level that was set for a limited time; nil if there is none. It is guarded by mu, as are the following fields.
	revert  *time.Timer
	changes int        // how many times a level was set
	before  slog.Level // the level to return to
	set     slog.Level // the level that was set for a limited time
	until   time.Time
}

// levelPage is the answer to GET, PUT and POST.
type levelPage struct {
	Level string `json:"level"`
	// Then is the level from the time Until on. Both are omitted if the level is permanent.
	Then  string `json:"then,omitempty"`
	Until string `json:"until,omitempty"`
}

func (l *logLevel) show(c *filo.Ctx) error {
	b, err := json.Marshal(l.page())
	if err != nil {
		return err
	}
	return c.BytesNoCopy(200, jsonType, append(b, '\n'))
}

func (l *logLevel) page() levelPage {
	l.mu.Lock()
	defer l.mu.Unlock()
	page := levelPage{Level: l.level.Level().String()}
	if l.revert != nil && l.level.Level() == l.set {
		page.Then, page.Until = l.before.String(), l.until.UTC().Format(time.RFC3339)
	}
	return page
}

// change sets the level in a form, for a limited time if the form says so.
func (l *logLevel) change(c *filo.Ctx) error {
	to, during, err := levelForm(c)
	if err != nil {
		return err
	}
	known := []any{"remote", c.RemoteAddr().String()}
	if during > 0 {
		known = append(known, "for", during.String())
	}
	logChange(c.Logger(), l.level.Level(), to, known, func() { l.apply(to, during, c.Server().Logger) })
	return l.show(c)
}

// logChange changes the level and logs the change. If the level rises, it logs first, otherwise it changes the level first, so
// that the lower of the two levels applies to the record.
func logChange(logger *slog.Logger, from, to slog.Level, known []any, change func()) {
	record := func() {
		logger.Warn("log level changed", append([]any{"from", from.String(), "to", to.String()}, known...)...)
	}
	if to > from {
		record()
		change()
	} else {
		change()
		record()
	}
}

// levelForm parses a form. The duration is 0 if the level is permanent.
func levelForm(c *filo.Ctx) (level slog.Level, during time.Duration, err error) {
	c.SetMaxBodyBytes(1 << 10)
	form, err := c.Request.Form()
	if err != nil {
		return 0, 0, err
	}
	for key := range form.All() {
		if name := string(key); name != "level" && name != "for" {
			return 0, 0, filo.Error(400, fmt.Sprintf("%q isn't known: send level, and for if the previous level is to return", name))
		}
	}
	if err := level.UnmarshalText(form.GetBytes("level")); err != nil {
		return 0, 0, filo.Error(400, fmt.Sprintf("level is %q: send a form with DEBUG, INFO, WARN or ERROR, or a level beside these such as WARN+2",
			form.Get("level")))
	}
	if !form.Has("for") {
		return level, 0, nil
	}
	during, err = time.ParseDuration(form.Get("for"))
	if err != nil || during <= 0 || during > maxLevelTime {
		return 0, 0, filo.Error(400, fmt.Sprintf("for is %q: it must be a duration such as 90s or 10m, and at most %v", form.Get("for"), maxLevelTime))
	}
	return level, during, nil
}

// apply sets the level, for a limited time if during isn't 0. The end of that time is logged by logger, or by the default logger if it is
// nil. If the current level was set for a limited time, too, the level before it is restored in the end.
func (l *logLevel) apply(to slog.Level, during time.Duration, logger *slog.Logger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes++
	before := l.level.Level()
	if l.revert != nil {
		l.revert.Stop()
		if l.revert = nil; before == l.set {
			before = l.before
		}
	}
	l.level.Set(to)
	if during == 0 {
		return
	}
	l.before, l.set, l.until = before, to, time.Now().Add(during)
	change := l.changes
	l.revert = time.AfterFunc(during, func() {
		if !l.lasts(change) {
			l.restore(change)
			return
		}
		if logger == nil {
			logger = slog.Default()
		}
		logChange(logger, to, before, []any{"after", during.String()}, func() { l.restore(change) })
	})
}

// lasts reports whether a change is still in effect: no later change was made, and the program hasn't set the level itself since.
func (l *logLevel) lasts(change int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changes == change && l.level.Level() == l.set
}

// restore ends a change. It does nothing if there was a later change, and doesn't change a level that the program has set itself.
func (l *logLevel) restore(change int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changes != change {
		return
	}
	if l.revert = nil; l.level.Level() == l.set {
		l.level.Set(l.before)
	}
}
