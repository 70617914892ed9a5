package syntax

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// An excerpt is the text or its beginning. It is cut between characters, and isn't longer than the limit in a JSON log.
func FuzzExcerpt(f *testing.F) {
	for _, text := range []string{"", "short", strings.Repeat("a", 100), strings.Repeat("\xff", 100), strings.Repeat("é", 100), strings.Repeat("\x01", 40)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const limit = 60
		got := Excerpt(text, limit)
		if appended := string(AppendExcerpt([]byte("a"), text, limit)); appended != "a"+got {
			t.Errorf("%q: appended %q, and returned %q", text, appended, got)
		}
		if got == text {
			if len(text) > limit {
				t.Errorf("%d bytes are kept whole", len(text))
			}
			return
		}
		beginning := strings.TrimSuffix(got, cut)
		if len(text) <= limit/escapedSize || beginning == got || !strings.HasPrefix(text, beginning) {
			t.Errorf("%q became %q", text, got)
		}
		if utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("%q is cut within a character: %q", text, got)
		}
		var line bytes.Buffer
		encoder := json.NewEncoder(&line)
		encoder.SetEscapeHTML(false)
		encoder.Encode(beginning)
		if line.Len()-len("\"\"\n") > limit {
			t.Errorf("%q takes %d bytes", beginning, line.Len())
		}
	})
}
