package overload

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/filohttp/filo"
	"github.com/filohttp/filo/internal/filotest"
	"github.com/filohttp/filo/servertest"
	"golang.org/x/net/http2"
)

// countedFrames returns the bytes that begin an HTTP/2 connection, and the frames that more adds.
func countedFrames(more func(*http2.Framer)) string {
	b := bytes.NewBufferString(http2.ClientPreface)
	framer := http2.NewFramer(b, nil)
	framer.WriteSettings()
	more(framer)
	return b.String()
}

// Each time-out is counted once, by its kind.
func TestTimeoutCounts(t *testing.T) {
	acknowledged := countedFrames(func(f *http2.Framer) { f.WriteSettingsAck() })
	for name, test := range map[string]struct {
		send string
		idle time.Duration // IdleTimeout
		ping time.Duration // PingInterval
		http bool          // the case uses HTTP/1.1, and also runs with the loop driver
		want filo.Timeouts
	}{
		"silent":            {"", 0, 0, true, filo.Timeouts{Silent: 1}},
		"part of a head":    {"GET / HT", 0, 0, true, filo.Timeouts{Head: 1}},
		"a second head":     {"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET", 0, 0, true, filo.Timeouts{Head: 1}},
		"idle":              {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 0, 0, true, filo.Timeouts{Idle: 1}},
		"no body":           {lifePost, 0, 0, true, filo.Timeouts{Body: 1}},
		"part of a body":    {strings.Replace(lifePost, "30000", "10", 1) + "x", 0, 0, true, filo.Timeouts{Body: 1}},
		"rest of a body":    {strings.Replace(lifePost, " / ", " /ignore ", 1), 0, 0, true, filo.Timeouts{Body: 1}},
		"answer not taken":  {"GET /large HTTP/1.1\r\nHost: a\r\n\r\n", 0, 0, true, filo.Timeouts{Write: 1}},
		"HTTP/2, unsettled": {countedFrames(func(*http2.Framer) {}), time.Hour, 0, false, filo.Timeouts{Settings: 1}},
		"HTTP/2, part":      {acknowledged + "\x00\x00", time.Hour, 0, false, filo.Timeouts{Head: 1}},
		"HTTP/2, idle":      {acknowledged, 0, 0, false, filo.Timeouts{Idle: 1}},
		"HTTP/2, vanished":  {acknowledged, time.Hour, time.Second, false, filo.Timeouts{Ping: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := lifeTimeouts()
				config.HTTP2.Unencrypted, config.HTTP2.PingInterval = true, test.ping
				if test.idle > 0 {
					config.IdleTimeout = test.idle
				}
				s := servertest.NewServer(t, config)
				c := s.Dial(t)
				go io.WriteString(c, test.send)
				time.Sleep(5 * time.Minute) // in the bubble
				synctest.Wait()
				if got := s.Config.Stats(); got.Timeouts != test.want || got.ConnsOpen != 0 {
					t.Errorf("%d connections, %+v; want %+v", got.ConnsOpen, got.Timeouts, test.want)
				}
			})
			if !test.http || test.want.Write > 0 { // skip write time-outs: the system's buffers may hold the whole answer
				return
			}
			// On a busy machine, the time-out for silence may expire before the server reads the request. Then the client tries again.
			s := filotest.Serve(t, &filo.Server{
				Handler: lifeTimed, ReadHeaderTimeout: 30 * time.Millisecond, IdleTimeout: 30 * time.Millisecond, ReadTimeout: 30 * time.Millisecond,
			})
			filotest.Await(t, "the time-out to be counted", func() bool {
				c := s.Dial(t)
				go io.WriteString(c, test.send)
				io.Copy(io.Discard, c)
				got := s.Stats().Timeouts
				return got.Silent >= test.want.Silent && got.Head >= test.want.Head && got.Idle >= test.want.Idle && got.Body >= test.want.Body
			})
		})
	}
}

// Stats reports the limits that are in force, and none before the server serves.
func TestStatsLimits(t *testing.T) {
	if got := (&filo.Server{Concurrency: 5}).Stats(); got.Limits != (filo.Limits{}) || got.Draining {
		t.Errorf("before it serves: %+v", got)
	}
	s := filotest.Serve(t, &filo.Server{Handler: lifeTimed, Queue: 7, MaxConns: 50, MaxConnsPerIP: 3, IdleTimeout: -1, MaxBodyBytes: -1, Leaders: 2, ReadTimeout: time.Minute})
	c := s.Dial(t)
	c.Get("/")
	c.Answer()
	want := filo.Limits{
		Driver: "loop", Leaders: 2, Concurrency: filo.DefaultConcurrency, Queue: 7, QueueTimeout: filo.DefaultQueueTimeout, MaxConns: 50, MaxConnsPerIP: 3,
		MaxConcurrentStreams: 128, MaxBufferedBodies: filo.DefaultMaxBufferedBodies,
		MaxBufferedAnswers: filo.DefaultMaxBufferedAnswers, ReadHeaderTimeout: filo.DefaultReadHeaderTimeout, ReadTimeout: time.Minute,
		WriteTimeout: filo.DefaultWriteTimeout, GracePeriod: filo.DefaultGracePeriod,
	}
	if filotest.Blocking() {
		want.Driver, want.Leaders = "blocking", 0
	}
	stats := s.Stats()
	if stats.Limits != want || stats.Draining || stats.KeepAlivesOff || !stats.DrainingSince.IsZero() {
		t.Errorf("%+v, want %+v", stats, want)
	}
	s.SetKeepAlivesEnabled(false)
	if stats := s.Stats(); !stats.KeepAlivesOff || stats.Draining {
		t.Errorf("without keep-alives: %+v", stats)
	}
	begun := time.Now()
	s.Close()
	if stats := s.Stats(); !stats.Draining || stats.DrainingSince.Before(begun) || stats.DrainingSince.After(time.Now()) || stats.Limits != want {
		t.Errorf("closed: %+v", stats)
	}
}
