package http2

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The decoder decodes the blocks of github.com/http2jp/hpack-test-case, which many encoders have made. FILO_HPACK_CASES is the directory of
// a clone of that repository. Other tests compare the decoder with x/net's on random blocks.
func TestDecoderCases(t *testing.T) {
	dir := os.Getenv("FILO_HPACK_CASES")
	if dir == "" {
		t.Skip("FILO_HPACK_CASES isn't set")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "story_*.json"))
	if err != nil {
		t.Fatal(err)
	}
	encoders, blocks := map[string]bool{}, 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var story struct {
			Cases []struct {
				Wire            *string             `json:"wire"`
				Headers         []map[string]string `json:"headers"`
				HeaderTableSize *uint32             `json:"header_table_size"`
			} `json:"cases"`
		}
		if err := json.Unmarshal(text, &story); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		d := newDecoder()
		for i, c := range story.Cases {
			if c.Wire == nil {
				break // the file has no encoded blocks
			}
			if c.HeaderTableSize != nil {
				d.SetTableSize(*c.HeaderTableSize)
			}
			block, err := hex.DecodeString(*c.Wire)
			if err != nil {
				t.Fatalf("%s, block %d: %v", file, i, err)
			}
			var want strings.Builder
			for _, field := range c.Headers {
				for name, value := range field {
					fmt.Fprintf(&want, "%s: %s\n", name, value)
				}
			}
			var got collected
			if over, err := d.Decode(block, noLimit, &got); over || err != nil || got.list() != want.String() {
				t.Errorf("%s, block %d: %v, over: %t, got\n%swant\n%s", file, i, err, over, got.list(), want.String())
				break
			}
			encoders[filepath.Base(filepath.Dir(file))] = true
			blocks++
		}
	}
	if blocks < 1000 {
		t.Errorf("%d blocks in %s, expected thousands", blocks, dir)
	}
	t.Logf("%d blocks of %d encoders", blocks, len(encoders))
}
