package logtest

import (
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"
)

type object struct{}

func (object) Error() string                { return "the cause" }
func (object) MarshalJSON() ([]byte, error) { return []byte(`{"title":"none"}`), nil }

type named int

func (named) String() string { return "a name" }

// Compare reports the records that differ between the formats, and no others.
func TestCompare(t *testing.T) {
	for _, test := range []struct {
		value  any
		differ bool
	}{
		{"text \"quoted\"\r\n\xff<", false}, {12, false}, {-1.5, false}, {true, false}, {errors.New("why"), false}, {slog.LevelInfo, false},
		{netip.MustParseAddr("::1"), false}, {"", false}, {nil, true},
		{time.Second, true}, {object{}, true}, {named(1), true}, {[]string{"a b"}, true}, {struct{ A int }{1}, true},
	} {
		record := slog.NewRecord(time.Now(), slog.LevelInfo, "message", 0)
		record.Add("key", test.value)
		line, faults := Compare(record)
		if (len(faults) > 0) != test.differ {
			t.Errorf("%#v: %s differs in %q", test.value, line, faults)
		}
	}
}
