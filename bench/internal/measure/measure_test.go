package measure

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/filohttp/filo/bench/internal/row"
)

func record(peer string, value float64) Record {
	return Record{Cell: Cell{Kind: Peak, Row: "json", Peer: peer, Hash: "abc", Seconds: 1}, Figures: map[string]float64{CPU: value}}
}

// When the file is opened again, it contains the records that were added, and no incomplete last line. A record with another hash belongs to
// another cell.
func TestStore(t *testing.T) {
	name := filepath.Join(t.TempDir(), "folder", "results.jsonl")
	s, err := Open(name, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []float64{3, 1, 2} {
		if err := s.Add(record("filo", v)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, append(whole, `{"kind":"peak","ro`...), 0o644); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(name, false); err != nil {
		t.Fatal(err)
	}
	cell := record("filo", 0).Cell
	if err := s.Add(record("fasthttp", 5)); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if s, err = Open(name, false); err != nil {
		t.Fatal(err)
	}
	if got, ok := s.Spread(cell, CPU); !ok || got != (Spread{2, 1, 3}) || len(s.Records(cell)) != 3 {
		t.Errorf("read again: %+v, %t", got, ok)
	}
	if got, ok := s.Spread(record("fasthttp", 0).Cell, CPU); !ok || got.Median != 5 {
		t.Errorf("what was added behind a line that was cut off: %+v, %t", got, ok)
	}
	cell.Hash = "def"
	if _, ok := s.Spread(cell, CPU); ok {
		t.Error("another program has figures")
	}
	if _, ok := s.Spread(record("filo", 0).Cell, P99); ok {
		t.Error("there is a figure that wasn't added")
	}
	s.Close()
	if s, err = Open(name, true); err != nil || !s.Empty() {
		t.Errorf("fresh: %v", err)
	}
	s.Close()
}

func TestStoreRefuses(t *testing.T) {
	name := filepath.Join(t.TempDir(), "results.jsonl")
	if err := os.WriteFile(name, []byte("no JSON\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(name, false); err == nil {
		t.Error("a file that has no records is read")
	}
	after, err := os.ReadFile(name)
	if err != nil || string(after) != "no JSON\n" {
		t.Errorf("it is %q afterwards, %v", after, err)
	}
}

func TestParseStrace(t *testing.T) {
	const summary = `    calls syscall
--------- ----------------
     1200 read
      800 write
--------- ----------------
     2000 total
`
	if got, err := parseStrace(summary); err != nil || got != 2000 {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := parseStrace("strace: Could not attach"); err == nil {
		t.Errorf("no summary is read as %v", got)
	}
}

func TestMakeFiles(t *testing.T) {
	folder := t.TempDir()
	if err := MakeFiles(folder); err != nil {
		t.Fatal(err)
	}
	for name, size := range row.Files {
		if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Size() != int64(size) {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{7}, 7}, {[]float64{3, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := Median(c.values); got != c.want {
			t.Errorf("the median of %v is %v", c.values, got)
		}
	}
}

func TestMiddleMean(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{7}, 7}, {[]float64{3, 1}, 2}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 90, 2}, 3}, {[]float64{5, 1, 90, 2, 2}, 3},
		{[]float64{90, 80, 70, 1, 2, 3, 4, 5, 6, 7, -5, -6, -7}, 4},
	} {
		if got := MiddleMean(c.values); got != c.want {
			t.Errorf("that of %v is %v", c.values, got)
		}
	}
}
